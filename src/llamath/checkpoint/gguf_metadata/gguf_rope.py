"""Rotary position embeddings in GGUF: the base and some scalings as metadata, the factors of others
as small tensors.

The scaling of Llama 3.1 is stored as one divisor for each frequency (`rope_freqs.weight`). Reading
fits the parameters of the scaling to them: wavelength / divisor is linear between the two ends of
the ramp, so two divisors on the ramp determine its position.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isclose, pi
from typing import Any

from ...core.positions import (
    LinearRope,
    Llama3Rope,
    LongRope,
    ProportionalRope,
    Rope,
    YarnRope,
    longrope_angle_factor,
)
from .gguf_facts import GGUFFacts, Keys
from .gguf_header import GGUFHeader
from .gguf_keys import KEY_MAPPINGS, ROPE_SCALING, rotary_dim

ROPE_FREQS = "rope_freqs.weight"
ROTARY_TENSORS = (ROPE_FREQS, "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors of rotary factors, which are no weights."""
_UNKNOWN_FACTORS = (
    "holds rotary factors that could not be read or are of an unknown kind: no scaling is assumed"
)
_TOLERANCE = 1e-4
"""Relative tolerance for factors in single precision."""


def rotary_factors(rope: Rope | None) -> dict[str, Sequence[float]]:
    """Return the small tensors that store a scaling, by name."""
    if isinstance(rope, Llama3Rope):
        return {ROPE_FREQS: rope.divisors()}
    if isinstance(rope, LongRope):
        return dict(zip(ROTARY_TENSORS[1:], (rope.long_factor, rope.short_factor), strict=True))
    if isinstance(rope, ProportionalRope):
        kept, others = rope.dim // 2, (rope.head_dim - rope.dim) // 2
        return {ROPE_FREQS: [1.0] * kept + [1e30] * others}
    return {}


def rope_theta(h: GGUFHeader) -> float:
    """Return the rotary base."""
    return float(KEY_MAPPINGS["rope_theta"].read_from(h))


def read_rope_scaling(h: GGUFHeader) -> dict[str, Any] | None:
    """Return the `rope_scaling` of a header; None if positions are not scaled."""
    kind, factor = (
        h.string("rope.scaling.type"),
        h.real("rope.scaling.factor") or h.real("rope.scale_linear"),
    )
    if h.has_tensor("rope_factors_long.weight", ".rope_factors_long.weight"):
        return _read_longrope(h)
    if h.has_tensor(ROPE_FREQS, f".{ROPE_FREQS}"):
        return _read_llama3(h)
    if kind in ("", "linear"):
        return {"rope_type": "linear", "factor": factor} if factor and factor != 1.0 else None
    if kind == "yarn" and factor:
        stated = {x.config: value for x in ROPE_SCALING if (value := x.read_from(h)) is not None}
        return {"rope_type": "yarn"} | stated | {"factor": factor}
    if kind != "none":
        h.notes.append(f"unknown rope.scaling.type {kind[:40]!r}: no scaling is assumed")
    return None


def read_rope_parameters(h: GGUFHeader) -> dict[str, Any]:
    """Return base and scaling in one object, for families whose default is a scaling of their
    own.
    """
    return {"rope_type": "default"} | (read_rope_scaling(h) or {}) | {"rope_theta": rope_theta(h)}


def read_proportional(h: GGUFHeader) -> dict[str, Any]:
    """Return the `rope_parameters` of Gemma 4's full-attention layers: the divisors of
    dimensions that do not rotate are huge.
    """
    factors, size = h.tensor_values(ROPE_FREQS), h.uniform_integer("attention.key_length")
    parameters = {
        "rope_type": "proportional",
        "rope_theta": rope_theta(h),
        "partial_rotary_factor": 0.25,
    }
    if factors and size:
        return parameters | {"partial_rotary_factor": 2 * factors.count(1.0) / size}
    h.notes.append(
        f"not read: the rotary share of a head in full-attention layers ({ROPE_FREQS}); using 0.25"
    )
    return parameters


def rope_scaling_keys(f: GGUFFacts) -> Keys:
    """Return the scaling of positions that metadata express; those of Llama 3.1 and LongRoPE are
    tensors.
    """
    rope = f.rope
    if isinstance(rope, LongRope):
        factor, default = rope.attention_factor, rope.default_angle_factor
        return {
            "rope.scaling.original_context_length": rope.original_context,
            "rope.scaling.attn_factor": default if factor is None else factor,
        }
    if not isinstance(rope, LinearRope | YarnRope):
        return {}
    if isinstance(rope, YarnRope) and rope.attention_factor is not None:
        f.notes.append(
            f"llama.cpp multiplies attention_factor ({rope.attention_factor:g}) by 1 "
            "+ 0.1·ln(factor)"
        )
    fields = {key: field for field, key in rope.positive.items()}
    return {"rope.scaling.type": rope.scaling.lower()} | {
        x.gguf[0]: getattr(rope, fields[x.config]) for x in ROPE_SCALING if x.config in fields
    }


def fit_llama3(divisors: Sequence[float], theta: float, dim: int) -> Llama3Rope | None:
    """Return the Llama 3.1 scaling with these frequency divisors; its low_freq_factor is 1, as
    in every published model.
    """
    if not divisors or dim // 2 != len(divisors) or theta <= 0 or not 1 < max(divisors) < inf:
        return None
    factor, wavelengths = max(divisors), [2 * pi * theta ** (2 * i / dim) for i in range(dim // 2)]
    # ramp: where a frequency is on the ramp, 0 at its long end and 1 at its short end: a /
    # wavelength - b
    ramp = [
        (w, (1 / x - 1 / factor) / (1 - 1 / factor))
        for x, w in zip(divisors, wavelengths, strict=True)
        if 1 < x < factor * (1 - _TOLERANCE)
    ]
    guesses = [(4.0, 8192), *((4.0, round((3 * s + 1) * w)) for w, s in ramp[:1])]
    if len(ramp) > 1:
        (x, s), (y, t) = ramp[0], ramp[-1]
        a = (s - t) / (1 / x - 1 / y)
        if (b := a / x - s) > 0 and (high := float(f"{1 + 1 / b:.4g}")) > 1:
            guesses.append((high, round(a / b)))
    for high, original in guesses:
        rope = Llama3Rope(
            theta=theta,
            dim=dim,
            factor=factor,
            low_freq_factor=1.0,
            high_freq_factor=high,
            original_context=original,
        )
        if all(
            isclose(x, y, rel_tol=_TOLERANCE)
            for x, y in zip(divisors, rope.divisors(), strict=True)
        ):
            return rope
    return None


def _read_llama3(h: GGUFHeader) -> dict[str, Any] | None:
    rope = fit_llama3(h.tensor_values(ROPE_FREQS) or [], rope_theta(h), rotary_dim(h) or 0)
    if rope is None:
        h.notes.append(f"{ROPE_FREQS} {_UNKNOWN_FACTORS}")
        return None
    return {
        "rope_type": "llama3",
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_context,
    }


def _read_longrope(h: GGUFHeader) -> dict[str, Any] | None:
    """Return Phi-3's scaling: its two lists of factors, and the attention factor if it differs
    from the one that the lengths give.
    """
    short, long = (
        h.tensor_values("rope_factors_short.weight"),
        h.tensor_values("rope_factors_long.weight"),
    )
    original, context = (
        h.uniform_integer("rope.scaling.original_context_length"),
        h.uniform_integer("context_length"),
    )
    if not short or not long or not original or not context:
        h.notes.append(f"rope_factors_long.weight {_UNKNOWN_FACTORS}")
        return None
    scaling: dict[str, Any] = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    scaling["original_max_position_embeddings"] = original
    stated, default = (
        h.real("rope.scaling.attn_factor"),
        longrope_angle_factor(context / original, max(original, 2)),
    )
    return scaling | (
        {}
        if stated is None or isclose(stated, default, rel_tol=_TOLERANCE)
        else {"attention_factor": stated}
    )
