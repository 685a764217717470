"""The page's data for one or two models: exact integers as text, each with its derivation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from ...analysis.diff.causes import CAUSE_TITLES
from ...analysis.diff.model_diff import diff
from ...checkpoint.naming.scheme import Scheme, UnnamedWeight
from ...core.errors import safe
from ...core.expr import Dim, product, total
from ...core.number_format import format_percent, format_ranges, short_count
from ...core.parameter_count import Section, WeightRow
from ...core.tree import Folded, fold, fold_field
from ...model import Model
from .block_data import passes
from .checkpoint_data import verdicts
from .clipboard_texts import diff_texts, model_texts
from .design_data_page import design
from .difference_data import difference
from .family_sliders import source
from .file_format_data import files
from .forms import written
from .page_settings import page_settings
from .size_forms import cards, kept_as, sizes
from .speed_forms import ROOF, gpus
from .treemap_data import areas
from .ui_strings import UI_STRINGS

GIVEN, FAMILYS = "as its configuration says", "as the family has it where its configuration does not say"
MOST = 20_000
"""Longer formulas are truncated."""


def build_page_data(models: Sequence[Model]) -> dict[str, Any]:
    """Return all data of the page."""
    found, devices = [_model(x) for x in models], gpus()
    return {
        "models": found,
        "cards": cards(),
        "gpus": devices,
        "settings": page_settings(found, devices),
        "roof": ROOF,
        "difference": _difference(*models) if len(models) == 2 else None,
        "files": files(),
        "words": UI_STRINGS,
    }


def _difference(a: Model, b: Model) -> dict[str, Any]:
    found = diff(a, b)
    return difference(found) | {"copy": diff_texts(found)}


def _model(model: Model) -> dict[str, Any]:
    found = model.count
    kept = kept_as(model)
    return {
        "name": safe(model.name),
        "family": model.family.name,
        "source": safe(model.source),
        "notes": [safe(x, 500) for x in model.notes],
        "checkpoint": verdicts(model),
        "everyday": short_count(found.parameters.total),
        "counts": list(_counts(model)),
        "letters": list(_letters(model)),
        "groups": [{"name": name, "parameters": str(n)} for name, n in found.groups.items()],
        "sections": [_section(model, x) for x in found.sections],
        **areas(model, kept),
        "passes": passes(model),
        "design": design(model),
        "copy": model_texts(model),
        "sizes": sizes(model, kept),
    }


def _letters(model: Model) -> Iterator[dict[str, Any]]:
    """Return the dimensions, each with its origin: a config key, a dependency, or a family default."""
    values = model.count.formula.letters
    for letter, value in values.items():
        key, form = model.config.key_by_symbol.get(letter, ""), source(values, letter)
        given = key in model.config.data
        lines = [key] if given else [FAMILYS] if form is None else [written(form), written(form, values)]
        says = {"says": CAUSE_TITLES.get(letter, ""), "key": safe(key), "from": GIVEN if given else ""}
        yield {"letter": letter, "value": str(value), "of": [letter, *map(safe, lines), f"{value:,}"]} | says


def _counts(model: Model) -> Iterator[dict[str, str]]:
    p, formula, groups = model.parameters, model.count.formula, model.count.groups
    yield _count("total", p.total, "every weight, a tied matrix once", formula.symbols, formula.numbers)
    folded = fold(model.tree)
    if p.active != p.total:
        live = total(product((x.active, x.weight.parameters)) for x in folded)
        yield _count("active", p.active, "what one token passes through", live.symbol, live.numbers)
    if p.tied_counted_twice != p.total:
        twice = p.tied_counted_twice - p.total
        yield _count("tied counted twice", p.tied_counted_twice, "as a list of tensors has it", "total + tied", f"{p.total} + {twice}")
    for name, n, less in (
        ("without embeddings", p.without_embeddings, ("embedding",)),
        ("without head", p.without_head, ("head",)),
        ("layers and norms", p.blocks, ("embedding", "head")),
    ):
        yield _count(name, n, "", " − ".join(("total", *less)), " − ".join(str(x) for x in (p.total, *(groups[y] for y in less))))
    if p.per_layer is not None:
        layer = next(x for x in model.count.sections if x.name == "layers")
        yield _count("one layer", p.per_layer, "", layer.formula.symbol, layer.formula.numbers)
    if p.buffers:
        kept = _all(x for x in folded if x.weight.buffer)
        yield _count("buffers", p.buffers, "of the total; the reference implementation leaves them out", kept.symbol, kept.numbers)
    for name, n in p.extras.items():
        extra = _all(fold_field(model.tree, name))
        yield _count(f"besides: {name}", n, "comes with the model, not in the total", extra.symbol, extra.numbers)


def _all(leaves: Iterable[Folded]) -> Dim:
    return total(product((x.copies, x.weight.parameters)) for x in leaves)


def _count(name: str, n: int, says: str, symbols: str, numbers: str) -> dict[str, str]:
    return {
        "name": name,
        "value": str(n),
        "everyday": short_count(n),
        "says": says,
        "symbols": safe(symbols, MOST),
        "numbers": safe(numbers, MOST),
    }


def _section(model: Model, section: Section) -> dict[str, Any]:
    layers, times = bool(section.indices) or section.name == "layers", Dim.const(section.times)
    where = f"layers {format_ranges(section.indices)}" if section.indices else section.name
    whole = section.each * int(section.times)
    return {
        "where": where,
        "layers": layers,
        "times": str(int(times)),
        "letter": times.symbol,
        "each": str(section.each),
        "symbols": section.formula.symbol,
        "numbers": section.formula.numbers,
        "of": _of_section(section, times, whole),
        "total": str(whole),
        "share": _share(whole, model),
        "rows": [_row(model, section, x, layers) for x in section.rows],
    }


def _of_section(section: Section, times: Dim, whole: int) -> list[list[str]]:
    """Return size, copies and total as formulas."""
    symbols, numbers = (section.formula.symbol, section.formula.numbers) if int(section.each) else ("nothing of its own", "0")
    letter = times.symbol if times.atoms else "layers of this kind"
    many = f"{int(times):,}"
    alone = ["from the builder", many] if int(times) == 1 else [letter, many]
    total = [symbols, numbers] if int(times) == 1 else [f"{letter}·({symbols})", f"{many}·({numbers})"]
    return [[symbols, numbers, f"{int(section.each):,}"], alone, [*total, f"{whole:,}"]]


def _row(model: Model, section: Section, row: WeightRow, layers: bool) -> dict[str, Any]:
    path = f"layers.{{l}}.{row.pattern}" if layers else row.pattern
    whole = row.parameters * int(section.times)
    return {
        "path": path,
        "names": {name: _name(model.family.schemes.get(name), path) for name in ("hf", "meta", "gguf")},
        "group": row.group or "other",
        "dims": [x.symbol for x in row.weight.shape],
        "numbers": ["" if x.numbers == str(int(x)) else x.numbers for x in row.weight.shape],
        "shape": [str(int(x)) for x in row.weight.shape],
        "each": str(int(row.weight.size)),
        "copies": str(int(row.copies)),
        "times": str(int(section.times)),
        "tied": row.weight.tied,
        "total": str(whole),
        "share": "tied" if row.weight.tied else _share(whole, model),
    }


def _share(n: int, model: Model) -> str:
    share = Fraction(n, model.parameters.total or 1)
    return "<0.01%" if 0 < share < Fraction(1, 20_000) else format_percent(share)


def _name(scheme: Scheme | None, path: str) -> str:
    try:
        return scheme.stored_name(path) if scheme else ""
    except UnnamedWeight:
        return ""
