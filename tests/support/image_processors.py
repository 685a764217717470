"""The image processors of transformers without torchvision, which is not there, and sizes of images to try them with."""

from __future__ import annotations
import __future__

import ast
import itertools
import math
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

IMAGES = [
    (1, 1),
    (300, 300),
    (640, 480),
    (480, 640),
    (1024, 768),
    (1000, 333),
    (77, 1900),
    (4000, 3000),
    (379, 379),
    (448, 449),
    (896, 448),
    (2500, 200),
    (1300, 876),
]
"""Widths and heights."""
_METHODS = {
    *(
        "_plan_patches",
        "_is_extreme_aspect",
        "smart_resize",
        "_is_image_too_large",
        "_get_grid_layout",
        "_target_ratios",
    ),
    *("_build_overlapping_crops", "_image_batch_to_patches_and_grids"),
}
"""Methods that are tested as functions."""


def functions_of(path: str) -> dict[str, Any]:
    """Return the functions and some methods of a module of `transformers.models`."""
    import numpy
    import torch
    import transformers

    tree = ast.parse((Path(transformers.__file__).parent / "models" / path).read_text())
    methods = [
        y
        for x in tree.body
        if isinstance(x, ast.ClassDef)
        for y in x.body
        if isinstance(y, ast.FunctionDef) and y.name in _METHODS
    ]
    tree.body = [x for x in tree.body if isinstance(x, ast.FunctionDef)] + methods
    known = {
        "np": numpy,
        "torch": torch,
        "F": torch.nn.functional,
        "lru_cache": lru_cache,
        "math": math,
        "itertools": itertools,
    }
    found: dict[str, Any] = known
    exec(compile(tree, path, "exec", flags=__future__.annotations.compiler_flag), found)
    return found


def squares_of_molmo2(width: int, height: int, size: int, patch: int, most: int) -> tuple[Any, Any]:
    """Return the numbers of rows and columns of squares, and the patches of each square, of an image in Molmo 2's processor."""
    import torch

    functions = functions_of("molmo2/image_processing_molmo2.py")
    functions["resize_and_normalize_image"] = lambda _, images, size, *__, **___: torch.zeros(
        len(images), 3, *size
    )
    names = ("resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
    processor = SimpleNamespace(
        _build_overlapping_crops=partial(functions["_build_overlapping_crops"], None)
    )
    grid, _, squares = functions["_image_batch_to_patches_and_grids"](
        processor,
        torch.zeros(1, 3, height, width),
        max_crops=most,
        overlap_margins=[4, 4],
        crop_size=size,
        image_patch_size=patch,
        image_pooling_w=2,
        image_pooling_h=2,
        **dict.fromkeys(names),
    )
    return grid[0], squares[0]
