"""Where a config's section on quantization disagrees with the packings in the headers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...checkpoint.quantization.recipes import read_recipe
from ...utils.errors import UnknownQuantization, safe

_KINDS_BY_METHOD = {
    "fp8": ("fp8",),
    "fbgemm_fp8": ("fp8",),
    "awq": ("awq",),
    "gptq": ("gptq", "awq"),
    "auto-round": ("gptq", "awq", "nvfp4", "mxfp4", "fp8", "compressed-int"),
    "bitsandbytes": ("bnb-",),
    "mxfp4": ("mxfp4",),
    "modelopt": ("fp8", "nvfp4", "mxfp4", "int8", "int4-awq"),
    "compressed-tensors": (
        "compressed-int",
        "fp8",
        "int8",
        "nvfp4",
        "mxfp4",
        "sparse-24",
        "marlin-24",
    ),
    "bitnet": ("bitnet",),
    "eetq": ("eetq",),
    "hqq": ("hqq",),
    "torchao": ("torchao",),
    "quark": ("quark-int4", "fp8", "int8", "mxfp4", "mxfp6", "nvfp4"),
    "mlx": ("mlx",),
}
"""Method of a recipe → the beginnings of the packings that its tensors are recognized as; others
are not recognized from headers."""


def recipe_disagreements(
    section: Mapping[str, Any] | None, kinds: Collection[str], is_mlx: bool = False
) -> Iterator[str]:
    """Yield how a config's section on quantization disagrees with the packings in the headers;
    what `ls` can tell without a family.
    """
    kinds = sorted({x for x in kinds if x not in ("ggml", "fp8-cache")})
    found = ", ".join(kinds)
    if section is None:
        if kinds:
            yield (
                f"the headers have quantized weights ({found}), and the config declares no "
                "quantization"
            )
        return
    try:
        recipe = read_recipe(section, is_mlx=is_mlx)
    except UnknownQuantization as error:
        yield f"the recipe of the config is not understood: {error}"
        return
    expected = _KINDS_BY_METHOD.get(recipe.method)
    if expected is None:
        return
    if not kinds:
        yield (
            f"the config declares {recipe.method} ({safe(recipe.name, 60)}), and the headers "
            "have no quantized weights of its kind"
        )
    elif others := [x for x in kinds if not x.startswith(expected)]:
        yield (
            f"the config declares {recipe.method} ({safe(recipe.name, 60)}), and the headers "
            f"have weights of {', '.join(others)}"
        )
