"""The list of presets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...catalog import Preset, normalize_name, presets
from ...core.number_format import short_count
from ...core.tree import Block
from ...loading import load
from ..table import align, bold

HEADER = ("preset", "total", "active", "L", "width", "H/K", "vocab", "context")
"""L layers, H heads, K key/value heads, as in every formula here."""


def models_json(words: tuple[str, ...]) -> dict[str, Any]:
    """What `llamath models --json` prints."""
    return {"models": list(_facts(words))}


def models_text(words: tuple[str, ...]) -> str:
    """One line a preset."""
    found = list(_facts(words))
    rows = [_row(x) for x in found]
    lines = align([HEADER, *rows], right=range(1, 8), gap=1)
    if not found:
        return "no preset has all these words"
    return "\n".join([bold(lines[0]), *lines[1:], f"{len(found)} preset{'s' if len(found) > 1 else ''}"])


def _row(x: dict[str, Any]) -> tuple[str, ...]:
    active = short_count(x["active"]) if x["active"] != x["total"] else ""
    heads = "/".join(str(x[y]) for y in ("heads", "kv_heads") if x[y] is not None)
    sizes = (f"{x['layers']}", f"{x['width']:,}", heads, f"{x['vocabulary']:,}", _number(x["context"]))
    return (x["preset"], short_count(x["total"]), active, *sizes)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _facts(words: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    return (_fact(preset) for preset in presets() if all(_has(preset, word.lower()) for word in words))


def _has(preset: Preset, word: str) -> bool:
    """Whether a word is in a preset's names; a number must begin there, so that `3` is not found in 13B."""
    names = " ".join((preset.slug, preset.name, preset.config["model_type"], *preset.ids, *preset.aliases)).lower()
    if word[:1].isdigit():
        return any(x.startswith(word) for x in names.replace("/", " ").replace("-", " ").replace("_", " ").split())
    return normalize_name(word) in normalize_name(names)


def _fact(preset: Preset) -> dict[str, Any]:
    model = load(preset.slug)
    tree = model.tree
    attention = next((x for layer, _ in tree.layers.distinct() for x in _mixers(layer) if hasattr(x, "heads")), None)
    return {
        "preset": preset.slug,
        "name": preset.name,
        "family": model.family.name,
        "ids": list(preset.ids),
        "total": model.parameters.total,
        "active": model.parameters.active,
        "layers": int(tree.layers.n),
        "width": int(tree.width),
        "heads": _int(getattr(attention, "heads", None)),
        "kv_heads": _int(getattr(attention, "kv_heads", None)),
        "vocabulary": int(tree.vocab),
        "context": _int(tree.context),
        "source": preset.source,
    }


def _mixers(layer: Block) -> Iterator[Block]:
    return (child for _, child in layer.children if isinstance(child, Block) and child.group == "attention")


def _int(value: int | None) -> int | None:
    return None if value is None else int(value)
