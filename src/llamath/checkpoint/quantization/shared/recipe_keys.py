"""The keys of quantization configs, read with their types checked, and the errors about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....utils.errors import Argument, Call, Name, UnknownQuantization, safe
from ..registry import METHODS

Keys = Mapping[str, Any]


def unknown(what: str, where: str = "quantization_config") -> UnknownQuantization:
    """Return the error about a recipe that is not known."""
    return UnknownQuantization(
        f"unknown quantization {safe(what, 80)} in {where}: expected one of {', '.join(METHODS)}",
        hint=f"{Argument('dtype')} sets the format of the weights: {Argument('dtype', 'fp8')}",
    )


def counted_or_given() -> str:
    """Return how to size weights whose quantization is not understood."""
    counted = f"{Call('ls', Name('path'))} counts the bytes of a checkpoint"
    return f"{counted}; {Argument('dtype')} sets the format of the weights"


def refuse(problem: str) -> UnknownQuantization:
    """Return the error about a config that contradicts itself or its quantizer."""
    return UnknownQuantization(
        f"quantization_config: {problem}",
        hint=f"{Argument('dtype')} sets the format of the weights",
    )


def wrong(key: str, expected: str, found: object) -> UnknownQuantization:
    """Return the error about the value of a key."""
    return UnknownQuantization(
        f"quantization_config: {key} should be {expected}, found {safe(repr(found), 60)}"
    )


def mapping(value: object) -> Keys:
    """Return an object of a config; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def strings(config: Keys, *keys: str) -> tuple[str, ...] | None:
    """Return the first list of names under one of these keys; None if there is none."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, str):
            return (value,)
        if value is None:
            continue
        if not isinstance(value, Sequence) or not all(isinstance(x, str) for x in value):
            raise wrong(key, "a list of names", value)
        return tuple(value)
    return None


def integer(config: Keys, key: str, default: int | None = None) -> int:
    """Return an integer of a config."""
    value = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int:
        raise wrong(key, "an integer", value)
    return value


def bits_of(
    config: Keys, allowed: Sequence[int], key: str = "bits", default: int | None = None
) -> int:
    """Return the number of bits, which is one of those allowed."""
    bits = integer(config, key, default)
    if bits not in allowed:
        raise wrong(key, f"one of {', '.join(map(str, allowed))}", bits)
    return bits


def group_of(config: Keys, default: int | None = None, key: str = "group_size") -> int:
    """Return the size of groups; -1 is one group for each row."""
    group = integer(config, key, default)
    if group == 0 or group < -1 or group > 1 << 20:
        raise wrong(key, "-1 or positive", group)
    return group
