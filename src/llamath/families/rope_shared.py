"""Readers of rotary embeddings, which most families share: a table of the kinds that configurations
name, with what each reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.config import Config
from ..core.expr import Expr
from ..core.positions import (
    ROTARY_KEYS,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    Rope,
    YarnRope,
)
from ..utils.errors import ImpossibleModel, safe
from ..utils.named_tuple import NamedTuple


class _Settings(NamedTuple):
    """Where the fields of a rotary embedding are read from."""

    config: Config
    rope: Config  # the object that describes it
    dim: int  # the channels that rotate, as other keys have it
    original_context: int  # positions in training before scaling


_Read = Callable[[_Settings, str], Any]
"""A reader of a field, given its config key."""


def _factor(s: _Settings, key: str) -> float:
    return s.rope.get(key, 1.0) if key in s.rope else s.rope[key]


def _or_default(default: Any) -> _Read:
    return lambda s, key: s.rope.get(key, default)


def _zero_is_default(default: float) -> _Read:
    """Read a number whose default transformers takes in place of 0, too."""
    return lambda s, key: s.rope.get(key, default) or default


def _optional(s: _Settings, key: str) -> float | None:
    return s.rope.number(key)


def _numbers(s: _Settings, key: str) -> tuple[float, ...]:
    return s.rope.numbers(key)


def _original_context(s: _Settings, _: str) -> int:
    return s.original_context


def _context(s: _Settings, key: str) -> int:
    return s.config.get(key, s.original_context)


def _mscales(s: _Settings, _: str) -> tuple[float, float] | None:
    x = s.rope
    return (x["short_mscale"], x["long_mscale"]) if "short_mscale" in x else None


def _rotating_share(s: _Settings, _: str) -> int:
    return 2 * int(s.rope.get("partial_rotary_factor", 1.0) * s.dim // 2)


def _all_channels(s: _Settings, _: str) -> int:
    return s.dim


_LINEAR: dict[str, _Read] = {"factor": _factor}
_DYNAMIC = _LINEAR | {"original_context": _original_context}
_LONG: dict[str, _Read] = {
    "short_factor": _numbers,
    "long_factor": _numbers,
    "original_context": _original_context,
    "context": _context,
    "factor": _optional,
    "attention_factor": _optional,
    "mscales": _mscales,
}

ROPE_TYPES: Mapping[str, tuple[type[Rope], Mapping[str, _Read]]] = {
    "default": (Rope, {}),
    "linear": (LinearRope, _LINEAR),
    "dynamic": (DynamicRope, _DYNAMIC),
    "yarn": (
        YarnRope,
        _DYNAMIC
        | {
            "beta_fast": _zero_is_default(32.0),
            "beta_slow": _zero_is_default(1.0),
            "mscale": _optional,
            "mscale_all_dim": _optional,
            "attention_factor": _optional,
            "truncate": _or_default(True),
        },
    ),
    "llama3": (
        Llama3Rope,
        _LINEAR
        | {
            "low_freq_factor": _or_default(1.0),
            "high_freq_factor": _or_default(4.0),
            "original_context": _original_context,
        },
    ),
    "longrope": (LongRope, _LONG),
    "proportional": (
        ProportionalRope,
        {"dim": _rotating_share, "head_dim": _all_channels, "factor": _or_default(1.0)},
    ),
}
"""`rope_type` → the rotary embedding, and how each of its fields is read."""
_OTHER_NAMES = {"mrope": "default", "su": "longrope", "deepseek_yarn": "yarn"}
"""Names of the same kinds: positions of images, which a text has one of, LongRoPE's first name, and
DeepSeek's YaRN, which differs by the keys that are present."""


def read_rope(
    c: Config, dim: int, theta: float = 10000.0, keys: str = "rope_theta", interleaved: bool = False
) -> Rope:
    """Read the rotary embedding: `rope_theta` and `rope_scaling`, or both inside
    `rope_parameters` (transformers 5).
    """
    return rope_from(c, c.rope(), theta=c.get(keys, theta), dim=dim, interleaved=interleaved)


def rope_from(c: Config, s: Config, *, theta: float, dim: int, interleaved: bool = False) -> Rope:
    """Read the rotary embedding that one object describes; `theta` and `dim` are the defaults."""
    theta = s.get("rope_theta", theta)
    if not theta > 0:
        raise s.error("rope_theta", f"should be positive, not {theta!r}")
    name = s.rope_type()
    if (kind := _OTHER_NAMES.get(name, name)) not in ROPE_TYPES:
        raise s.error(
            "rope_type",
            f"has the unknown type {safe(repr(name), 60)}",
            f"known: {', '.join(ROPE_TYPES)}",
        )
    rope, fields = ROPE_TYPES[kind]
    original = 0
    if rope is Rope:
        s.ignore("mrope_section", "mrope_interleaved", "factor")
    elif rope is not ProportionalRope:
        original = s.get(
            "original_max_position_embeddings",
            c.get("original_max_position_embeddings", c.get("max_position_embeddings", 2048)),
        )
    settings = _Settings(c, s, dim, original)
    values = {x: read(settings, rope.positive.get(x, x)) for x, read in fields.items()}
    return rope(**{"theta": theta, "dim": dim, "interleaved": interleaved} | values)


def rope_of_type(
    c: Config, kind: str, h: int, theta: float = 10000.0, partial: float = 1.0
) -> Rope:
    """Read the rotary embedding of one type of layer, from an object for each in
    `rope_parameters`; theta and partial are the defaults.
    """
    ropes = c.sub("rope_parameters")
    if ropes.data and kind not in ropes:
        raise ropes.error(kind, "is missing", "each type of layer has its own rotary embedding")
    settings = ropes.sub(kind)
    return rope_from(
        c,
        settings,
        theta=theta,
        dim=Expr.const(h).scaled(settings.get("partial_rotary_factor", partial)),
    )


def rope_by_type(c: Config, defaults: Mapping[str, Mapping[str, Any]], kind: str, h: int) -> Rope:
    """Read the rotary embedding of one type of layer, from `rope_parameters` or else from the
    family's `defaults` in the same form.
    """
    ropes = c.sub("rope_parameters")
    if ropes.data and kind not in ropes:
        raise ropes.error(kind, "is missing", "each type of layer has its own rotary embedding")
    return rope_from(c, ropes.sub(kind) if ropes.data else Config(defaults[kind]), theta=1e4, dim=h)


def even_dim(dim: int) -> int:
    """Return the number of channels that rotate; it is refused if it is odd, for a class that
    does not round it up.
    """
    if dim % 2:
        raise ImpossibleModel(
            f"{dim} channels of each head rotate, expected an even number", hint=ROTARY_KEYS
        )
    return dim


def rotary_dim(c: Config, h: int, default: float = 1.0, keys: str = "partial_rotary_factor") -> int:
    """Read the number of channels of a head that rotate; an odd one is rounded up, as most
    classes do.
    """
    share = c.rope().get("partial_rotary_factor", c.get(keys, default))
    return Expr.const(h).scaled(share)
