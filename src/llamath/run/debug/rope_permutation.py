"""Rows of q and k in another order: whether one of two models was written with too few or too many turns of its rotary pairs.

A head's row i turns with row i + h/2 where rows are in halves (Hugging Face), with its neighbour where they are in pairs (Meta, and
llama.cpp's `llama`). Whoever converts reorders the rows of q and k once; files are found where it was not done, or done twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log

from torch import Tensor

from ...analysis.verify.logits_agreement import LogitsComparison
from ...checkpoint.naming.scheme import half_split_order, interleaved_order
from ...core.blocks import Attention
from ..weights.stored_layouts import reorder_rows
from .activations import Activations

SAME_ROWS_TOLERANCE = 0.2
"""Rows that are apart by less than this share of the largest number are the same rows, rounding and quantisation apart."""
MIN_LOSS_GAP, MAX_LOSS_FRACTION = 0.5, 0.8
"""A model that needs so many nats a token more for a text has something wrong, if the other needs less than this share of guessing's."""


def permutation_hint(a: Activations, b: Activations, found: LogitsComparison) -> Iterator[str]:
    """A hint, if q or k of one model are the other's with their rows in another order."""
    ways = {path: way for path in a.rows if (way := _direction(a, b, path))}
    for way in dict.fromkeys(ways.values()):
        mine = [path for path, x in ways.items() if x == way]
        what = " and ".join(x for x in "qk" if any(path.endswith(f".{x}.weight") for path in mine))
        n = len({path.split(".")[1] for path in mine})
        verb = "are" if " and " in what else "is"
        ours, theirs = _describe_permutation(a, -way), _describe_permutation(b, way)
        blame = f"B's {'look' if verb == 'are' else 'looks'} {theirs}, or A's {ours}"
        if worse := _worse(found, log(a.logits.shape[-1])):
            blame = f"{worse}'s {'look' if verb == 'are' else 'looks'} {theirs if worse == 'B' else ours}"
        yield f"{what} of {n} {'layer' if n == 1 else 'layers'} {verb} the same once the rows of each head are reordered: {blame}"


def _worse(found: LogitsComparison, guessing: float) -> str:
    """Which of the two does not know the text that the other knows."""
    if found.losses is None or min(found.losses) > MAX_LOSS_FRACTION * guessing or abs(found.losses[0] - found.losses[1]) < MIN_LOSS_GAP:
        return ""
    return "B" if found.losses[1] > found.losses[0] else "A"


def _direction(a: Activations, b: Activations, path: str) -> int:
    """1: B's rows are A's taken from pairs to halves; -1: from halves to pairs; 0: neither, or no difference."""
    x, y = a.rows[path], b.rows.get(path)
    block = a.tree.layers[int(path.split(".")[1])].attn  # type: ignore[attr-defined]
    if y is None or x.shape != y.shape or not isinstance(block, Attention) or block.rope is None or block.rope.dim != block.head_dim:
        return 0
    size = int(block.head_dim)
    if size % 2 or _near(x, y):
        return 0
    return 1 if _near(x, reorder_rows(y, interleaved_order(size))) else -1 if _near(x, reorder_rows(y, half_split_order(size))) else 0


def _near(x: Tensor, y: Tensor) -> bool:
    return float((x - y).abs().max()) <= SAME_ROWS_TOLERANCE * float(x.abs().max())


def _describe_permutation(side: Activations, way: int) -> str:
    """What it means that a model's rows are the right ones taken to halves (1) or to pairs (-1) once too often."""
    turned = "rotary" in side.scheme.layout_of("layers.{l}.attn.q.weight")
    return "unpermuted" if (way > 0) == turned else "permuted twice"
