"""Two models side by side: what each makes of the same tokens, module by module, and where they part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ...analysis.verify.logits_agreement import FirstDifference, LogitsComparison, tree_differences
from ...core.tree import fill_pattern, walk
from ..memory_budget import dtype_name
from .activations import Activations
from .rope_permutation import permutation_hint


def compare_activations(a: Activations, b: Activations, ids: Sequence[int], text: str, tolerance: float) -> LogitsComparison:
    """What came out; `text` is what the tokens stand for."""
    width = min(a.logits.shape[-1], b.logits.shape[-1])
    ours, theirs = a.logits[:, :width].double(), b.logits[:, :width].double()
    apart = (ours - theirs).abs()
    divergence = F.kl_div(theirs.log_softmax(-1), ours.log_softmax(-1), log_target=True, reduction="none").sum(-1)
    losses = (_loss(ours, ids), _loss(theirs, ids)) if text else None
    found = LogitsComparison(
        a=a.side,
        b=b.side,
        tokens=tuple(ids),
        text=text,
        dtype=dtype_name(next(iter(a.outputs.values())).dtype),
        tolerance=tolerance,
        largest_logit=float(ours.abs().max()),
        max_difference=float(apart.max()),
        mean_difference=float(apart.mean()),
        kl_mean=max(0.0, float(divergence.mean())),
        kl_max=max(0.0, float(divergence.max())),
        same_top1=int((ours.argmax(-1) == theirs.argmax(-1)).sum()),
        losses=losses,
        layers=tuple(_layers(a, b)),
        first=_first(a, b, tolerance),
    )
    if found.same:
        return found
    other = tree_differences(a.tree, b.tree)
    return found.replace(facts=other, hints=tuple(_hints(found.replace(facts=other), a, b)))


def _loss(logits: Tensor, ids: Sequence[int]) -> float:
    """Nats that each next token of the text takes, on average."""
    return float(F.cross_entropy(logits[:-1], torch.tensor(list(ids[1:])))) if len(ids) > 1 else 0.0


def _gap(x: Tensor, y: Tensor) -> float:
    """The largest difference, as a share of the largest number."""
    x, y = x.float(), y.float()
    most = float(x.abs().max()) if x.numel() else 0.0
    apart = float((x - y).abs().masked_fill(x == y, 0).max()) if x.numel() else 0.0
    return apart / most if most else float(apart > 0)


def _layers(a: Activations, b: Activations) -> Iterator[float]:
    """The difference of the stream after each layer, where both have it."""
    for i in range(min(len(a.tree.layers), len(b.tree.layers))):
        x, y = a.outputs.get(f"layers.{i}"), b.outputs.get(f"layers.{i}")
        if x is not None and y is not None and x.shape == y.shape:
            yield _gap(x, y)


def _first(a: Activations, b: Activations, tolerance: float) -> FirstDifference | None:
    """The first module, in the order in which they speak, that says something else; or the one in which others meet."""
    for path, x in a.outputs.items():
        y = b.outputs.get(path)
        if y is None or x.shape != y.shape:
            continue
        words = path.split(".")
        layer = int(words[1]) if words[0] == "layers" else None
        if path in a.inputs and (met := _gap(a.inputs[path], b.inputs[path])) > tolerance:
            return FirstDifference(module=".".join(words[:-1]), difference=met, layer=layer)
        if (difference := _gap(x, y)) > tolerance:
            stored = (_stored(a, f"{path}.weight"), _stored(b, f"{path}.weight"))
            return FirstDifference(module=path, difference=difference, layer=layer, stored=stored)
    return None


def _stored(side: Activations, path: str) -> str:
    """What a file calls the tensor with this weight; empty where there is none."""
    leaf = next((x for x in walk(side.tree) if x.path == path), None)
    path = leaf.weight.tied or path if leaf else path
    leaf = next((x for x in walk(side.tree) if x.path == path), None)
    return fill_pattern(side.scheme.stored_name(leaf.pattern), leaf.indices) if leaf else ""


def _hints(found: LogitsComparison, a: Activations, b: Activations) -> Iterator[str]:
    """What could be the cause."""
    order = list(permutation_hint(a, b, found))
    yield from order
    if found.facts:
        yield "the two are configured otherwise, by what is listed above"
    first = found.first
    if first is None or order or any(x.path.startswith(_pattern(first.module)) for x in found.facts):
        return
    if a.side.dtype != b.side.dtype:
        yield f"A is {a.side.dtype} and B {b.side.dtype}: rounded numbers are a little apart everywhere; --tolerance allows for it"
    elif all(first.stored):
        same = first.stored[0] == first.stored[1]
        names = first.stored[0] if same else f"{first.stored[0]} in A, {first.stored[1]} in B"
        yield f"what {first.module} reads is the same, so its weight is not: {names}"
    elif 10 * _parts(a, b, first.module) < first.difference:
        yield f"the parts of {first.module} say the same, and together they do not"


def _parts(a: Activations, b: Activations, module: str) -> float:
    """By how much the parts of a module are apart, those that speak before they meet."""
    inside = [x for x in a.outputs if x.startswith(f"{module}.") and x in b.outputs and x not in a.inputs]
    return max((_gap(a.outputs[x], b.outputs[x]) for x in inside), default=0.0)


def _pattern(path: str) -> str:
    """A module's path as facts have it, without numbers."""
    return ".".join(x for x in path.split(".") if not x.isdigit())
