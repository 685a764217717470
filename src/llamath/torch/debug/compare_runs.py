"""Comparison of two models on the same tokens, module by module: where they first differ, and
possible causes.

One cause is checked on the weights: rows of q and k that were permuted for the rotary embedding
once too often or not at all. Row i of a head forms a pair with row i + h/2 (Hugging Face) or with
its neighbor (Meta, and llama.cpp's `llama`), so converters permute rows once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log

import torch
import torch.nn.functional as F
from torch import Tensor

from ...analysis.check.verify.divergence import Divergence, divergence_statistics
from ...analysis.check.verify.logits_agreement import (
    FirstDifference,
    LogitsComparison,
    tree_differences,
)
from ...checkpoint.naming.scheme import half_split_order, interleaved_order
from ...checkpoint.naming.stored_layouts import reorder_rows
from ...core.blocks import Attention
from ...core.tree import walk
from ...utils.errors import Argument
from ..memory_budget import dtype_name
from .activations import Activations

_SAME_ROWS_TOLERANCE = 0.2
"""Rows that differ by less than this fraction of the largest value are the same, apart from
rounding and quantization."""
MIN_LOSS_GAP, MAX_LOSS_FRACTION = 0.5, 0.8
"""A model whose loss is higher by this many nats per token is the faulty one, if the other's is
below this fraction of guessing."""


def compare_activations(
    a: Activations, b: Activations, ids: Sequence[int], text: str, tolerance: float
) -> LogitsComparison:
    """Compare two models' activations; `text` is the text of the tokens, or empty for token ids."""
    width = min(a.logits.shape[-1], b.logits.shape[-1])
    ours, theirs = a.logits[:, :width].double(), b.logits[:, :width].double()
    difference = (ours - theirs).abs()
    divergence = F.kl_div(
        theirs.log_softmax(-1), ours.log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)
    losses = (_loss(ours, ids), _loss(theirs, ids)) if text else None
    result = LogitsComparison(
        a=a.side,
        b=b.side,
        tokens=tuple(ids),
        text=text,
        dtype=dtype_name(next(iter(a.outputs.values())).dtype),
        tolerance=tolerance,
        largest_logit=float(ours.abs().max()),
        max_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        kl_mean=max(0.0, float(divergence.mean())),
        kl_max=max(0.0, float(divergence.max())),
        same_top1=int((ours.argmax(-1) == theirs.argmax(-1)).sum()),
        losses=losses,
        layers=tuple(_layers(a, b)),
        first=_first(a, b, tolerance),
        divergence=measure_divergence(a.logits[:, :width], b.logits[:, :width], ids)
        if len(ids) > 1
        else None,
    )
    if result.same:
        return result
    result = result.replace(facts=tree_differences(a.tree, b.tree))
    return result.replace(hints=tuple(_hints(result, a, b)))


_ROWS_AT_ONCE = 64


def measure_divergence(a: Tensor, b: Tensor, ids: Sequence[int]) -> Divergence:
    """Measure how far the next-token probabilities of two models are apart, at each token that
    another one follows.
    """
    columns: list[list[float]] = [[], [], [], [], []]
    same_top = 0
    targets = torch.tensor(list(ids[1:]), device=a.device)[:, None]
    for at in range(0, len(targets), _ROWS_AT_ONCE):
        following = targets[at : at + _ROWS_AT_ONCE]
        rows = slice(at, at + len(following))
        x, y = a[rows].double().log_softmax(-1), b[rows].double().log_softmax(-1)
        same_top += int((x.argmax(-1) == y.argmax(-1)).sum())
        divergence = F.kl_div(y, x, log_target=True, reduction="none").sum(-1)
        of_a, of_b = (p.gather(1, following)[:, 0] for p in (x, y))
        for column, found in zip(
            columns, (divergence, of_a.exp(), of_b.exp(), -of_a, -of_b), strict=True
        ):
            column += found.tolist()
    kld, p_a, p_b, nll_a, nll_b = columns
    return divergence_statistics(kld, p_a, p_b, nll_a, nll_b, same_top)


def _loss(logits: Tensor, ids: Sequence[int]) -> float:
    """Mean cross-entropy of the next tokens, in nats."""
    return float(F.cross_entropy(logits[:-1], torch.tensor(list(ids[1:])))) if len(ids) > 1 else 0.0


def _gap(x: Tensor, y: Tensor) -> float:
    """Largest difference, relative to the largest value of x."""
    x, y = x.float(), y.float()
    largest = float(x.abs().max()) if x.numel() else 0.0
    difference = float((x - y).abs().masked_fill(x == y, 0).max()) if x.numel() else 0.0
    return difference / largest if largest else float(difference > 0)


def _layers(a: Activations, b: Activations) -> Iterator[float]:
    """Differences of the hidden state after each layer that both models have."""
    for i in range(min(len(a.tree.layers), len(b.tree.layers))):
        x, y = a.outputs.get(f"layers.{i}"), b.outputs.get(f"layers.{i}")
        if x is not None and y is not None and x.shape == y.shape:
            yield _gap(x, y)


def _first(a: Activations, b: Activations, tolerance: float) -> FirstDifference | None:
    """Return the first module, in order of execution, whose output differs; or its parent, where
    the input already differs.
    """
    for path, x in a.outputs.items():
        y = b.outputs.get(path)
        if y is None or x.shape != y.shape:
            continue
        names = path.split(".")
        layer = int(names[1]) if names[0] == "layers" else None
        if path in a.inputs and (difference := _gap(a.inputs[path], b.inputs[path])) > tolerance:
            return FirstDifference(module=".".join(names[:-1]), difference=difference, layer=layer)
        if (difference := _gap(x, y)) > tolerance:
            stored = (_stored(a, f"{path}.weight"), _stored(b, f"{path}.weight"))
            return FirstDifference(module=path, difference=difference, layer=layer, stored=stored)
    return None


def _stored(side: Activations, path: str) -> str:
    """Return the name of the stored tensor with this weight; empty if there is none."""
    leaf = next((x for x in walk(side.tree) if x.path == path), None)
    path = leaf.tied_path or path if leaf else path
    leaf = next((x for x in walk(side.tree) if x.path == path), None)
    return side.scheme.name_of(leaf) if leaf else ""


def _hints(result: LogitsComparison, a: Activations, b: Activations) -> Iterator[str]:
    """Yield possible causes."""
    permutations = list(permutation_hint(a, b, result))
    yield from permutations
    if result.facts:
        yield "the configs differ, as listed above"
    first = result.first
    if (
        first is None
        or permutations
        or any(x.path.startswith(_pattern(first.module)) for x in result.facts)
    ):
        return
    if a.side.dtype != b.side.dtype:
        yield (
            f"A is {a.side.dtype} and B {b.side.dtype}: rounding causes small differences "
            "everywhere; allow for them with "
            f"{Argument('tolerance')}"
        )
    elif all(first.stored):
        same = first.stored[0] == first.stored[1]
        names = first.stored[0] if same else f"{first.stored[0]} in A, {first.stored[1]} in B"
        yield f"the input of {first.module} is the same, so its weight differs: {names}"
    elif 10 * _largest_inner_gap(a, b, first.module) < first.difference:
        yield f"the submodules of {first.module} agree, but its output differs"


def _largest_inner_gap(a: Activations, b: Activations, module: str) -> float:
    """Largest difference in the outputs of a module's submodules, without those that follow a
    computation outside a module.
    """
    inside = [
        x for x in a.outputs if x.startswith(f"{module}.") and x in b.outputs and x not in a.inputs
    ]
    return max((_gap(a.outputs[x], b.outputs[x]) for x in inside), default=0.0)


def _pattern(path: str) -> str:
    """A module's path without layer numbers, as in a TreeDifference."""
    return ".".join(x for x in path.split(".") if not x.isdigit())


def permutation_hint(a: Activations, b: Activations, result: LogitsComparison) -> Iterator[str]:
    """Yield a hint if q or k of one model equals the other's with permuted rows."""
    directions = {path: direction for path in a.qk_columns if (direction := _direction(a, b, path))}
    for direction in dict.fromkeys(directions.values()):
        paths = [path for path, x in directions.items() if x == direction]
        what = " and ".join(x for x in "qk" if any(path.endswith(f".{x}.weight") for path in paths))
        n = len({path.split(".")[1] for path in paths})
        plural = " and " in what
        look = "look" if plural else "looks"
        fault_of_a, fault_of_b = (
            _describe_permutation(a, -direction),
            _describe_permutation(b, direction),
        )
        blame = f"B's {look} {fault_of_b}, or A's {fault_of_a}"
        if worse := _worse(result, log(a.logits.shape[-1])):
            blame = f"{worse}'s {look} {fault_of_b if worse == 'B' else fault_of_a}"
        layers = f"{n} {'layer' if n == 1 else 'layers'}"
        yield (
            f"{what} of {layers} {'are' if plural else 'is'} the same once the rows of each "
            f"head are permuted: {blame}"
        )


def _worse(result: LogitsComparison, guessing: float) -> str:
    """Return the model with the much higher loss on the text, if the other one predicts it."""
    if (
        result.losses is None
        or min(result.losses) > MAX_LOSS_FRACTION * guessing
        or abs(result.losses[0] - result.losses[1]) < MIN_LOSS_GAP
    ):
        return ""
    return "B" if result.losses[1] > result.losses[0] else "A"


def _direction(a: Activations, b: Activations, path: str) -> int:
    """Return 1 if B's rows are A's permuted from pairs to halves, −1 for halves to pairs, 0 for
    neither or no difference.
    """
    x, y = a.qk_columns[path], b.qk_columns.get(path)
    block = a.tree.layers[int(path.split(".")[1])].attn  # type: ignore[attr-defined]
    if (
        y is None
        or x.shape != y.shape
        or not isinstance(block, Attention)
        or block.rope is None
        or block.rope.dim != block.head_dim
    ):
        return 0
    size = int(block.head_dim)
    if size % 2 or _same_rows(x, y):
        return 0
    return (
        1
        if _same_rows(x, reorder_rows(y, interleaved_order(size)))
        else -1
        if _same_rows(x, reorder_rows(y, half_split_order(size)))
        else 0
    )


def _same_rows(x: Tensor, y: Tensor) -> bool:
    return float((x - y).abs().max()) <= _SAME_ROWS_TOLERANCE * float(x.abs().max())


def _describe_permutation(side: Activations, direction: int) -> str:
    """Describe a model whose rows are the correct ones permuted once too often, to halves (1) or
    to pairs (−1).
    """
    is_permuted = "rotary" in side.scheme.layout_of("layers.{l}.attn.q.weight")
    return "unpermuted" if (direction > 0) == is_permuted else "permuted twice"
