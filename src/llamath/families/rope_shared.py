"""Readers of rotary embeddings, which most families share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.config import Config
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


def read_rope(
    c: Config, dim: int, theta: float = 10000.0, keys: str = "rope_theta", interleaved: bool = False
) -> Rope:
    """Read the rotary embedding: `rope_theta` and `rope_scaling`, or both inside
    `rope_parameters` (transformers 5).
    """
    s = c.sub("rope_parameters" if "rope_parameters" in c else "rope_scaling")
    return rope_from(c, s, theta=c.get(keys, theta), dim=dim, interleaved=interleaved)


def rope_from(c: Config, s: Config, *, theta: float, dim: int, interleaved: bool = False) -> Rope:
    """Read the rotary embedding that one object describes; `theta` and `dim` are the defaults."""
    theta = s.get("rope_theta", theta)
    if not theta > 0:
        raise s.error("rope_theta", f"should be positive, not {theta!r}")
    kind = s.get("rope_type|type", "default")
    if kind in ("default", "mrope"):
        s.ignore("mrope_section", "mrope_interleaved", "factor")
        return Rope(theta=theta, dim=dim, interleaved=interleaved)
    if kind == "proportional":
        rotary = 2 * int(s.get("partial_rotary_factor", 1.0) * dim // 2)
        return ProportionalRope(
            theta=theta,
            dim=rotary,
            interleaved=interleaved,
            head_dim=dim,
            factor=s.get("factor", 1.0),
        )
    original = s.get(
        "original_max_position_embeddings",
        c.get("original_max_position_embeddings", c.get("max_position_embeddings", 2048)),
    )
    if kind in ("longrope", "su"):
        return LongRope(
            theta=theta,
            dim=dim,
            interleaved=interleaved,
            short_factor=s.numbers("short_factor"),
            long_factor=s.numbers("long_factor"),
            original_context=original,
            context=c.get("max_position_embeddings", original),
            factor=s.number("factor"),
            attention_factor=s.number("attention_factor"),
            mscales=(s["short_mscale"], s["long_mscale"]) if "short_mscale" in s else None,
        )
    if kind not in ("linear", "dynamic", "llama3", "yarn"):
        known = "default, linear, dynamic, yarn, llama3, longrope, proportional"
        raise s.error(
            "rope_type", f"has the unknown type {safe(repr(kind), 60)}", f"known: {known}"
        )
    factor = s.get("factor", 1.0) if "factor" in s else s["factor"]
    if kind == "linear":
        return LinearRope(theta=theta, dim=dim, interleaved=interleaved, factor=factor)
    if kind == "dynamic":
        return DynamicRope(
            theta=theta, dim=dim, interleaved=interleaved, factor=factor, original_context=original
        )
    if kind == "llama3":
        return Llama3Rope(
            theta=theta,
            dim=dim,
            interleaved=interleaved,
            factor=factor,
            low_freq_factor=s.get("low_freq_factor", 1.0),
            high_freq_factor=s.get("high_freq_factor", 4.0),
            original_context=original,
        )
    return YarnRope(
        theta=theta,
        dim=dim,
        interleaved=interleaved,
        factor=factor,
        original_context=original,
        beta_fast=s.get("beta_fast", 32.0) or 32.0,  # transformers takes 0 for the default
        beta_slow=s.get("beta_slow", 1.0) or 1.0,
        mscale=s.number("mscale"),
        mscale_all_dim=s.number("mscale_all_dim"),
        attention_factor=s.number("attention_factor"),
        truncate=s.get("truncate", True),
    )


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
        c, settings, theta=theta, dim=int(h * settings.get("partial_rotary_factor", partial))
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
    s = c.sub("rope_parameters" if "rope_parameters" in c else "rope_scaling")
    return int(h * s.get("partial_rotary_factor", c.get(keys, default)))
