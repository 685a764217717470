"""The list of presets on a terminal."""

from __future__ import annotations

from ...analysis.preset_list import PresetList, PresetSummary
from ...core.number_format import format_count, short_count
from ..table import bold, fit_table

_HEADER = ("preset", "total", "active", "L", "width", "H/K", "vocab", "context")
"""L layers, H heads, K key/value heads, as in all formulas."""


def models_text(presets: PresetList) -> str:
    """Return one line for each preset."""
    if not presets.models:
        return "no preset has all these words"
    lines = fit_table([_HEADER, *map(_row, presets)], right=range(1, 8), drop=(6, 5, 4, 7))
    return "\n".join([bold(lines[0]), *lines[1:], format_count(len(presets), "preset")])


def _row(x: PresetSummary) -> tuple[str, ...]:
    active = short_count(x.active) if x.active != x.total else ""
    heads = "/".join(str(n) for n in (x.heads, x.kv_heads) if n is not None)
    context = "" if x.context is None else f"{x.context:,}"
    return x.preset, short_count(x.total), active, f"{x.layers}", f"{x.width:,}", heads, f"{x.vocabulary:,}", context
