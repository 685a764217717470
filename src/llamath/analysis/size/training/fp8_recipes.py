"""FP8 training: which products run in FP8, what they read and write to convert their operands, and
what they keep.

Under every recipe the linear layers inside the layers compute in FP8, forward and backward, except
routers; embedding, head, norms and attention stay in 16 bits (DeepSeek-V3, arXiv:2412.19437, §3.3;
NVIDIA Transformer Engine; torchao's float8 training as torchtitan uses it). Weights, gradients and
optimizer states keep their dtypes.
"""

from __future__ import annotations

from typing import NamedTuple

from ....utils.errors import ArgumentError, nearest, safe


class Fp8Recipe(NamedTuple):
    """What a recipe moves through memory for each element that it converts, and what it keeps
    until the backward pass, in bytes.
    """

    name: str
    title: str
    source: str
    input_forward: int  # moved in the forward pass, per element of a layer's input
    input_backward: int
    gradient: int  # moved in the backward pass, per element of the gradient of a layer's output
    weight: int  # moved per element of a weight
    once: bool  # weights are converted once in a step, otherwise for each microbatch and pass
    keeps_copy: bool  # the input is saved in FP8, otherwise in 16 bits
    weight_copies: int  # FP8 copies of each weight that stay during a step
    # elements with one scale; 0: one scale for a tensor or row, which is not counted
    scale_block: int = 0
    scale_bytes: int = 0
    gathers_fp8: bool = False  # ZeRO-3 gathers weights in FP8
    blackwell: bool = False  # needs the tensor cores of Blackwell


_TORCHAO = (
    "torchao, torchao/float8, and torchtitan, docs/float8.md: inputs are saved in 16 bits "
    "and converted again"
)
_TE = (
    "NVIDIA Transformer Engine, transformer_engine/pytorch/module/linear.py: inputs are saved "
    "as FP8, weights converted once a step"
)

RECIPES = {
    x.name: x
    for x in (
        # a scale from the data takes one more read: 2 + 2 + 1 bytes for an FP8 copy, as in
        # torchao's own roofline
        Fp8Recipe(
            "tensorwise",
            "FP8 with a scale per tensor",
            _TORCHAO,
            5,
            5,
            5,
            5,
            False,
            False,
            0,
            gathers_fp8=True,
        ),
        Fp8Recipe("rowwise", "FP8 with a scale per row", _TORCHAO, 5, 5, 10, 5, False, False, 0),
        # one kernel writes the copy and its transpose: 2 + 1 + 1 bytes, with one more read for a
        # scale from the same data
        Fp8Recipe("delayed", "FP8 with delayed scales", _TE, 4, 0, 4, 4, True, True, 2),
        Fp8Recipe("current", "FP8 with current scales", _TE, 6, 0, 6, 6, True, True, 2),
        Fp8Recipe(
            "blockwise",
            "FP8 with scales of 1×128 and 128×128 blocks",
            f"DeepSeek-V3, arXiv:2412.19437; {_TE}",
            4,
            0,
            4,
            4,
            True,
            True,
            2,
            128,
            4,
        ),
        Fp8Recipe(
            "mxfp8",
            "MXFP8",
            f"Rouhani et al. 2023, arXiv:2310.10537; {_TE}",
            4,
            0,
            4,
            4,
            True,
            True,
            2,
            32,
            1,
            blackwell=True,
        ),
    )
}


def find_recipe(name: str) -> Fp8Recipe | None:
    """Return the recipe of this name; None for no FP8."""
    if name in ("", "no"):
        return None
    if (recipe := RECIPES.get(name)) is None:
        near = nearest(name, RECIPES)
        raise ArgumentError(
            "fp8",
            f": unknown recipe {safe(repr(name), 40)}",
            hint=f"it is one of {', '.join(near or RECIPES)}",
        )
    return recipe


def runs_in_fp8(path: str) -> bool:
    """Return whether the product with the weight at this path inside a layer runs in FP8."""
    return ".router." not in f".{path}"
