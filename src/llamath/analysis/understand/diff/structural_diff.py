"""Structural differences of two models: the kind that a differing weight belongs to, and the
name of the difference.
"""

from __future__ import annotations

from collections.abc import Iterable

from .weight_terms import WeightTerm

HEAD_CHANGES = ("head tied to the embedding", "head no longer tied")

_NAMES = {
    "attention": "different attention",
    "mlp": "different FFN",
    "norms": "norms",
    "biases": "biases",
    "kinds": "different mix of layers",
}
_LATENT, _STATE = "attn.k_up.weight", ("attn.a_log", "attn.conv.weight")
_SINGLE_FEATURES = {
    "attn.gate": "a gate in attention",
    "attn.sinks": "attention sinks",
    "mlp.gate": "a gate in the FFN",
}
"""The name of a difference whose paths all begin with the key."""


def structural_kind(path: str, group: str, role: str, *terms: list[WeightTerm]) -> str:
    """Return the kind of difference of a weight that a change of sizes does not explain."""
    if group == "norm":
        return "norms"
    if role == "bias" and path.endswith(".bias"):
        return "biases"
    if group in ("attention", "mixer"):
        return "attention"
    if ".shared" in path and all(_has_experts(x) for x in terms):
        return "shared"
    if group in ("mlp", "experts", "router"):
        return "mlp"
    return "positions" if path.startswith("positions.") else group or path


def structural_cause(kind: str, a: list[WeightTerm], b: list[WeightTerm], paths: set[str]) -> str:
    """Return the name of a difference, from a to b."""
    if kind == "head":
        return _head_cause(a, b)
    if kind in ("positions", "shared"):
        what = "learned positions" if kind == "positions" else "shared experts"
        return _presence(what, _has(a, paths), _has(b, paths))
    if name := next(
        (
            words
            for start, words in _SINGLE_FEATURES.items()
            if all(f".{start}" in x for x in paths)
        ),
        "",
    ):
        return _presence(name, _has(a, paths), _has(b, paths))
    if kind == "mlp" and _has_experts(a) != _has_experts(b):
        return "experts instead of an FFN" if _has_experts(b) else "an FFN instead of experts"
    if kind == "mlp" and _has_dense_mlp(a) != _has_dense_mlp(b):
        return "dense layers" if _has_dense_mlp(b) else "no dense layers"
    if kind == "attention" and (ours := _mixer_names(a)) != (theirs := _mixer_names(b)):
        return f"{theirs} instead of {ours}"
    if kind in ("norms", "biases"):
        return _presence(
            _norm_name(paths) if kind == "norms" else kind, _has(a, paths), _has(b, paths)
        )
    return _NAMES.get(kind, f"different {kind}")


def _presence(what: str, ours: bool, theirs: bool) -> str:
    if ours == theirs:
        return f"different {what.removeprefix('a ')}"
    return what if theirs else f"no {what.removeprefix('a ')}"


def _has(terms: Iterable[WeightTerm], paths: set[str]) -> bool:
    return any(x.path in paths for x in terms)


def _norm_name(paths: set[str]) -> str:
    """Return the name of differing norms."""
    if all(x.endswith(".bias") for x in paths):
        return "norm biases"
    return (
        "QK norms"
        if all(x.rpartition(".")[0].endswith(("q_norm", "k_norm")) for x in paths)
        else "additional norms"
    )


def _has_experts(terms: Iterable[WeightTerm]) -> bool:
    return any(x.group == "experts" for x in terms)


def _has_dense_mlp(terms: Iterable[WeightTerm]) -> bool:
    return any(x.path.endswith("mlp.up.weight") for x in terms)


def _head_cause(a: list[WeightTerm], b: list[WeightTerm]) -> str:
    """Return the name of a difference of the heads."""
    ours, theirs = (next((x for x in side if x.path == "head.weight"), None) for side in (a, b))
    if theirs is None:
        return "no head"
    if theirs.tied:
        return HEAD_CHANGES[0]
    return "a head" if ours is None else HEAD_CHANGES[1] if ours.tied else "different head"


def _mixer_names(terms: list[WeightTerm]) -> str:
    """Return the name of the layers that mix positions."""
    paths = {x.path for x in terms}
    words = ["state-space layers"] if any(x.endswith(_STATE) for x in paths) else []
    if any(x.endswith(_LATENT) for x in paths):
        words.append("latent attention")
    elif any(x.endswith("attn.q.weight") for x in paths):
        words.append("attention" if not words else "softmax attention")
    return " and ".join(words) or "no attention"
