"""Rotary positions as a GGUF has them: the base and some scalings in metadata, the factors of others in small tensors of their own.

Llama 3.1's scaling is stored as one factor for each frequency, and is found again from them: a frequency's wavelength over its factor
is a line between the two ends of the ramp, so two factors on the ramp say where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, log, pi, sqrt
from typing import Any

from .gguf_header import Header
from .gguf_heads import rotary_dim

NOT_MADE_OUT = "holds rotary factors that could not be read or are of no kind known here: none are assumed"
ENOUGH = 1e-4
"""Factors in single precision agree to this share of themselves."""


def rope_theta(h: Header) -> float:
    """The rotary base; llama.cpp's own where the header is silent."""
    return h.real("rope.freq_base") or 10000.0


def rope_scaling(h: Header) -> dict[str, Any] | None:
    """The scaling of positions, if there is one."""
    kind, factor = h.text("rope.scaling.type"), h.real("rope.scaling.factor") or h.real("rope.scale_linear")
    if h.has("rope_factors_long.weight", ".rope_factors_long.weight"):
        return _long(h)
    if h.has("rope_freqs.weight", ".rope_freqs.weight"):
        return _llama3(h)
    if kind in ("", "linear"):
        return {"rope_type": "linear", "factor": factor} if factor and factor != 1.0 else None
    if kind == "yarn" and factor:
        said = {
            "original_max_position_embeddings": h.number("rope.scaling.original_context_length"),
            "beta_fast": h.real("rope.scaling.yarn_beta_fast"),
            "beta_slow": h.real("rope.scaling.yarn_beta_slow"),
            "attention_factor": h.real("rope.scaling.yarn_attn_factor"),
        }
        return {"rope_type": "yarn", "factor": factor} | {key: value for key, value in said.items() if value is not None}
    if kind != "none":
        h.notes.append(f"rope.scaling.type {kind[:40]!r} is not known here: no scaling is assumed")
    return None


def rope_parameters(h: Header) -> dict[str, Any]:
    """Base and scaling in one object, for families that take silence for a scaling of their own."""
    return {"rope_type": "default"} | (rope_scaling(h) or {}) | {"rope_theta": rope_theta(h)}


def proportional(h: Header) -> dict[str, Any]:
    """Gemma 4's layers without a window: a share of the angles spread over the whole head; the factors of the others are immense."""
    factors, size = h.floats("rope_freqs.weight"), h.number("attention.key_length")
    found = {"rope_type": "proportional", "rope_theta": rope_theta(h), "partial_rotary_factor": 0.25}
    if factors and size:
        return found | {"partial_rotary_factor": 2 * factors.count(1.0) / size}
    h.notes.append("not read: how much of a head rotates in the layers without a window (rope_freqs.weight); a quarter is taken")
    return found


def _long(h: Header) -> dict[str, Any] | None:
    """Phi-3's two lists, and a factor of attention where it is not what the lengths give."""
    short, long = h.floats("rope_factors_short.weight"), h.floats("rope_factors_long.weight")
    original, context = h.number("rope.scaling.original_context_length"), h.number("context_length")
    if not short or not long or not original or not context:
        h.notes.append(f"rope_factors_long.weight {NOT_MADE_OUT}")
        return None
    found: dict[str, Any] = {"rope_type": "longrope", "short_factor": short, "long_factor": long}
    found["original_max_position_embeddings"] = original
    said, usual = h.real("rope.scaling.attn_factor"), sqrt(1 + log(max(context / original, 1.0)) / log(max(original, 2)))
    return found | ({} if said is None or isclose(said, usual, rel_tol=ENOUGH) else {"attention_factor": said})


def _llama3(h: Header) -> dict[str, Any] | None:
    """Factor, ends of the ramp and original context that give these factors: with the long end at 1, as published."""
    factors, dim, theta = h.floats("rope_freqs.weight") or [], rotary_dim(h), rope_theta(h)
    if (
        dim
        and dim // 2 == len(factors)
        and theta > 0
        and (found := _ramp(factors, [2 * pi * theta ** (2 * i / dim) for i in range(dim // 2)]))
    ):
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return {"rope_type": "llama3"} | dict(zip(keys, found, strict=True))
    h.notes.append(f"rope_freqs.weight {NOT_MADE_OUT}")
    return None


def _ramp(factors: Sequence[float], waves: Sequence[float]) -> tuple[float, float, float, int] | None:
    """The scaling whose factors these are; None if there is none. s is where a frequency stands on the ramp: a / wave − b."""
    factor = max(factors)
    on = [(w, (1 / f - 1 / factor) / (1 - 1 / factor)) for f, w in zip(factors, waves, strict=True) if 1 < f < factor * (1 - ENOUGH)]
    guesses = [(4.0, 8192), *((4.0, round((3 * s + 1) * wave)) for wave, s in on[:1])]
    if len(on) > 1:
        (x, s), (y, t) = on[0], on[-1]
        a = (s - t) / (1 / x - 1 / y)
        if (b := a / x - s) > 0:
            guesses.append((float(f"{1 + 1 / b:.4g}"), round(a / b)))
    for high, original in guesses:
        if factor > 1 and all(isclose(f, _factor(w, factor, high, original), rel_tol=ENOUGH) for f, w in zip(factors, waves, strict=True)):
            return factor, 1.0, high, original
    return None


def _factor(wave: float, factor: float, high: float, original: int) -> float:
    """By what Llama 3.1 divides a frequency of this wavelength."""
    if wave < original / high:
        return 1.0
    if wave > original:
        return factor
    s = (original / wave - 1) / (high - 1)
    return 1 / ((1 - s) / factor + s)
