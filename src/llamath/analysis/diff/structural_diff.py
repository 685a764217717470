"""What two models build otherwise, beside their sizes: which kind a differing weight is of, and what the difference is called."""

from __future__ import annotations

from collections.abc import Iterable

from ..count.tree_terms import WeightTerm

NAMES = {
    "attention": "attention built otherwise",
    "mlp": "MLP built otherwise",
    "norms": "norms",
    "biases": "biases",
    "kinds": "another mix of layers",
}
LATENT, STATE = "attn.k_up.weight", ("attn.a_log", "attn.conv.weight")
FEW = {
    "attn.gate": "a gate in attention",
    "attn.sinks": "attention sinks",
    "mlp.gate": "a gate in the MLP",
}
"""The beginning of the only paths that differ → what that is called."""


def structural_kind(path: str, group: str, role: str, *both: list[WeightTerm]) -> str:
    """The kind of difference that a weight belongs to when another size does not explain it."""
    if group == "norm":
        return "norms"
    if role == "bias" and path.endswith(".bias"):
        return "biases"
    if group in ("attention", "mixer"):
        return "attention"
    if ".shared" in path and all(_experts(x) for x in both):
        return "shared"
    if group in ("mlp", "experts", "router"):
        return "mlp"
    return "positions" if path.startswith("positions.") else group or path


def structural_cause(kind: str, a: list[WeightTerm], b: list[WeightTerm], paths: set[str]) -> str:
    """What the difference is called, read from a to b."""
    if kind == "head":
        return _head(a, b)
    if kind in ("positions", "shared"):
        what = "learned positions" if kind == "positions" else "shared experts"
        return _either(what, _has(a, paths), _has(b, paths))
    if few := next((words for start, words in FEW.items() if all(f".{start}" in x for x in paths)), ""):
        return _either(few, _has(a, paths), _has(b, paths))
    if kind == "mlp" and _experts(a) != _experts(b):
        return "experts in place of the MLP" if _experts(b) else "an MLP in place of experts"
    if kind == "mlp" and _dense(a) != _dense(b):
        return "layers without experts" if _dense(b) else "no layers without experts"
    if kind == "attention" and (ours := _mixers(a)) != (theirs := _mixers(b)):
        return f"{theirs} in place of {ours}"
    if kind in ("norms", "biases"):
        return _either(_of_norms(paths) if kind == "norms" else kind, _has(a, paths), _has(b, paths))
    return NAMES.get(kind, f"{kind} built otherwise")


def _either(what: str, ours: bool, theirs: bool) -> str:
    if ours == theirs:
        return f"other {what.removeprefix('a ')}"
    return what if theirs else f"no {what.removeprefix('a ')}"


def _has(found: Iterable[WeightTerm], paths: set[str]) -> bool:
    return any(x.path in paths for x in found)


def _of_norms(paths: set[str]) -> str:
    """Which norms: those of queries and keys, biases alone, or any."""
    if all(x.endswith(".bias") for x in paths):
        return "biases of the norms"
    return "norms of q and k" if all(x.split(".")[-2] in ("q_norm", "k_norm") for x in paths) else "further norms"


def _experts(found: Iterable[WeightTerm]) -> bool:
    return any(x.group == "experts" for x in found)


def _dense(found: Iterable[WeightTerm]) -> bool:
    return any(x.path.endswith("mlp.up.weight") for x in found)


def _head(a: list[WeightTerm], b: list[WeightTerm]) -> str:
    """A head of its own, a tied one, or none."""
    ours, theirs = (next((x for x in side if x.path == "head.weight"), None) for side in (a, b))
    if theirs is None:
        return "no head"
    if theirs.tied:
        return "head tied to the embedding"
    return "a head" if ours is None else "head no longer tied" if ours.tied else "head built otherwise"


def _mixers(found: list[WeightTerm]) -> str:
    """What mixes positions, in words."""
    paths = {x.path for x in found}
    words = ["state mixers"] if any(x.endswith(STATE) for x in paths) else []
    if any(x.endswith(LATENT) for x in paths):
        words.append("latent attention")
    elif any(x.endswith("attn.q.weight") for x in paths):
        words.append("attention" if not words else "softmax attention")
    return " and ".join(words) or "nothing"
