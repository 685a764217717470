"""Causes in words: what changed, from which number to which, and in which weights."""

from __future__ import annotations

from collections.abc import Callable

from ...analysis.diff.causes import Cause, CausePart
from ...core.number_format import format_signed

NAMES = {"embedding": "embedding", "mlp": "MLP", "norm": "norms"}


def cause_label(cause: Cause) -> str:
    """A cause with its two numbers."""
    return cause.cause if cause.a is None or cause.b is None else f"{cause.cause} {cause.a:,} → {cause.b:,}"


def cause_weights(cause: Cause, write: Callable[[int], str] = format_signed) -> str:
    """The weights in which a cause is felt, with what each takes of it."""
    parts = cause.parts
    layers = {x.layers for x in parts}
    many = f" of {parts[0].layers} layers" if len(layers) == 1 and parts[0].layers else ""
    if len(parts) == 1:
        return f"{short_path(parts[0].path)}{many}"
    if len(parts) <= 4 and len({x.delta for x in parts}) == 1:
        names = [short_path(x.path) for x in parts]
        return f"{', '.join(names[:-1])} and {names[-1]}{many}, {write(parts[0].delta)} each"
    said = [(short_path(x.path), x.delta) for x in parts] if len(parts) <= 3 else _groups(parts)
    if len(said) == 1:
        return f"{said[0][0]}{many}"
    return ", ".join(f"{name} {write(n)}" for name, n in said) + (f",{many}" if many else "")


def short_path(path: str) -> str:
    """A path without what goes without saying."""
    return path.removeprefix("layers.{l}.").replace("mlp.experts.{e}.", "experts.").removesuffix(".weight")


def _groups(parts: tuple[CausePart, ...]) -> list[tuple[str, int]]:
    made: dict[str, int] = {}
    for x in parts:
        name = NAMES.get(x.group, x.group)
        made[name] = made.get(name, 0) + x.delta
    return list(made.items())
