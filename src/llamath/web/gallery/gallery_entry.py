"""`gallery_entry`: what the gallery shows of one model: its facts, its picture in bars, and the
shapes of its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...analysis.understand.diff.kinship import ancestor
from ...analysis.understand.diff.traits import model_traits, notable_traits
from ...analysis.understand.fact_sheet import FactSheet, fact_sheet
from ...analysis.understand.model_bars import COMPONENTS, Bar, model_bars
from ...analysis.understand.model_origin import license_name
from ...catalog import Preset
from ...model import FamilyModel
from ...utils.errors import LlamathError, safe
from ..page_data.facts_data import format_name, short_title

_STACKING = ("experts", "router", "ffn", "attn", "norm", "vision", "embed", "head")
"""The parts of a bar from its foot upwards."""
_MAX_EXACT = 2**53
"""Larger integers are sent as text, as JSON numbers of browsers are not exact beyond."""


def catalog_entry(preset: Preset) -> dict[str, Any]:
    """Return what the catalog alone knows of a preset; the rest follows from its model."""
    return {
        "id": preset.slug,
        "name": preset.name,
        "organization": preset.organization,
        "released": preset.released,
        "license": license_name(preset.license),
        "ids": list(preset.ids),
        "total": preset.parameters,
    }


def picture_entry(model: FamilyModel, model_id: str) -> dict[str, Any]:
    """Return the picture of a model, which takes a fraction of the time of its facts."""
    return {"id": model_id, "picture": _picture(model)}


def gallery_entry(model: FamilyModel, model_id: str) -> dict[str, Any]:
    """Return the entry of a model."""
    entry = picture_entry(model, model_id) | {
        "name": safe(model.name),
        "family": model.family.name,
        "total": _number(model.parameters.total),
        "active": _number(model.parameters.active),
        "shapes": list(_shapes(model)),
        "has": sorted(set(notable_traits(model_traits(model).structure))),
    }
    try:
        return entry | _facts(fact_sheet(model))
    except LlamathError as error:  # of a model that is counted, but has no decoder
        return entry | {"description": safe(str(error), 300)}


def kinship_entry(slug: str) -> dict[str, Any]:
    """Return the earlier preset that a preset differs from by the fewest changes."""
    found = ancestor(slug)
    if found is None:
        return {"id": slug, "kin": None}
    changes = [[x.kind, safe(x.text, 120)] for x in found.changes]
    return {"id": slug, "kin": {"of": found.preset, "name": found.name, "changes": changes}}


def _facts(facts: FactSheet) -> dict[str, Any]:
    mixers = sorted(facts.mixers, key=lambda x: -x.layers)
    attention = next((x for x in mixers if x.is_attention), None)
    experts = next((x for x in facts.ffns if x.experts is not None), None)
    dense = next((x for x in facts.ffns if x.experts is None), None)
    windows = [x.window for x in mixers if x.window is not None]
    found = {
        "description": facts.description,
        "kinds": list(facts.kinds),
        "embeddingless": facts.without_embeddings,
        "layers": facts.layers,
        "pattern": "; ".join(facts.patterns),
        "width": facts.width,
        "heads": attention and attention.heads,
        "kv_heads": attention and attention.kv_heads,
        "head_dim": attention and attention.head_dim,
        "attention": facts.attention,
        "window": windows[0] if windows else None,
        "positions": facts.positions,
        "ffn": dense and dense.width,
        "activation": facts.ffns[0].kind if facts.ffns else None,
        "experts": experts and experts.experts,
        "active_experts": experts and experts.active_experts,
        "shared_experts": experts and experts.shared_experts,
        "expert_width": experts and experts.width,
        "context": facts.context,
        "vocabulary": facts.vocabulary,
        "kv": facts.kv_per_token,
        "kv_full": facts.kv_full_context,
        "flops": facts.flops_first_token,
        "flops_full": facts.flops_full_context,
    }
    sizes = {x.dtype: x for x in facts.weights}
    four_bits = next((sizes[x] for x in ("q4_k_m", "awq") if x in sizes), None)
    released = next((x for x in facts.weights if x.released), None)
    found |= {
        "bf16": sizes["bf16"].bytes if "bf16" in sizes else None,
        "fp8": sizes["fp8"].bytes if "fp8" in sizes else None,
    }
    found |= {
        "four_bits": four_bits and four_bits.bytes,
        "released_dtype": released and format_name(released.dtype),
    }
    runs = next((x.gpu for x in facts.runs_on if x.gpu is not None), None)
    found["runs_on"] = (
        f"{runs.count} × {short_title(runs.device.title)}"
        if runs is not None and facts.runs_on[0].gpu is runs
        else None
    )
    origin = {
        "organization": facts.organization,
        "released": facts.released,
        "license": license_name(facts.license),
    }
    return {key: _number(value) for key, value in found.items()} | (
        origin if facts.released or facts.license else {}
    )


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return int(value) if abs(value) < _MAX_EXACT else str(int(value))


def _picture(model: FamilyModel) -> dict[str, Any]:
    """Return bars to scale: towers, embedding, the layers in order as runs of one kind, norm and
    head; parts as [colour, all, active].
    """
    bars = model_bars(model)
    return {
        "before": [_stacked(x) for x in bars.before],
        "kinds": [_stacked(x) for x in bars.kinds],
        "runs": [list(x) for x in bars.runs],
        "after": [_stacked(x) for x in bars.after],
    }


def _stacked(bar: Bar) -> list[list[Any]]:
    """Return the parts of a bar from its foot."""
    return [
        [x.component, _number(x.parameters), _number(x.active)]
        for x in sorted(bar, key=lambda x: _STACKING.index(x.component))
    ]


def _shapes(model: FamilyModel) -> Iterator[list[Any]]:
    """Yield the weights: path, shape, copies, colour; a weight that has the same path in several
    kinds of layers is listed for each.
    """
    for section in model.count.sections:
        for row in section.rows:
            path = f"layers.{row.pattern}" if section.name == "layers" else row.pattern
            copies = _number(int(section.times) * int(row.copies))
            yield [
                path,
                [_number(int(x)) for x in row.weight.shape],
                copies,
                COMPONENTS[row.group],
            ]
