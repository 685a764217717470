"""What several families read from a config in the same way: rotary embeddings and which layers have a window."""

from __future__ import annotations

from ..blocks import DynamicRope, LinearRope, Llama3Rope, LongRope, Rope, YarnRope
from ..config import Config


def rope(c: Config, dim: int, theta: float = 10000.0, keys: str = "rope_theta", interleaved: bool = False) -> Rope:
    """The rotary embedding: `rope_theta` and `rope_scaling`, or both inside `rope_parameters` (transformers 5)."""
    s = c.sub("rope_parameters" if "rope_parameters" in c else "rope_scaling")
    base = {"theta": s.get("rope_theta", c.get(keys, theta)), "dim": dim, "interleaved": interleaved}
    kind = s.get("rope_type|type", "default")
    if kind in ("default", "mrope"):
        s.ignore("mrope_section", "mrope_interleaved", "factor")
        return Rope(**base)
    original = s.get("original_max_position_embeddings", c.get("original_max_position_embeddings", c.get("max_position_embeddings", 2048)))
    if kind == "longrope" or kind == "su":
        return _long(c, s, base, original)
    factor = float(s["factor"])
    if kind == "linear":
        return LinearRope(**base, factor=factor)
    if kind == "dynamic":
        return DynamicRope(**base, factor=factor, original=original)
    if kind == "llama3":
        return Llama3Rope(**base, factor=factor, low=s.get("low_freq_factor", 1.0), high=s.get("high_freq_factor", 4.0), original=original)
    if kind == "yarn":
        return _yarn(s, base, factor, original)
    raise s.error("rope_type", f"names the unknown scaling {kind!r}", "known: default, linear, dynamic, yarn, llama3, longrope")


def _yarn(s: Config, base: dict[str, object], factor: float, original: int) -> YarnRope:
    return YarnRope(
        **base,  # type: ignore[arg-type]
        factor=factor,
        original=original,
        beta_fast=s.get("beta_fast", 32.0),
        beta_slow=s.get("beta_slow", 1.0),
        mscale=s.get("mscale", None),
        mscale_all_dim=s.get("mscale_all_dim", None),
        attention_factor=s.get("attention_factor", None),
        truncate=s.get("truncate", True),
    )


def _long(c: Config, s: Config, base: dict[str, object], original: int) -> LongRope:
    return LongRope(
        **base,  # type: ignore[arg-type]
        short=tuple(s["short_factor"]),
        long=tuple(s["long_factor"]),
        original=original,
        context=c.get("max_position_embeddings", original),
        factor=s.get("factor", None),
        attention_factor=s.get("attention_factor", None),
    )
