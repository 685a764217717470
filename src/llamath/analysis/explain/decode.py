"""`decode`: explain a number, or a rounded number such as "405B", by the models of the catalog."""

from __future__ import annotations

from collections.abc import Iterable

from ...catalog import Preset, presets
from ...core.units import parse_quantity
from ...loading import Source, load
from ...model import Model
from . import MAX_LISTED, BaseModel, Explanation, RoundedNumber, explain_name, explain_number


def decode(text: str, like: Source | None = None, everything: bool = False) -> Explanation:
    """Explain a count by one model or by the whole catalog; `everything` also lists much less likely explanations."""
    asked = parse_quantity(text)
    unit = 1 if asked.exact else 10 ** max(len(str(asked.value)) - asked.digits, 0)
    name = RoundedNumber(text.strip(), asked.value, asked.value - unit // 2, asked.value + unit)
    catalog = sorted(presets(), key=lambda x: -len(x.ids) - len(x.aliases))
    most = 0 if everything else MAX_LISTED
    bases = (
        [_base(load(like)).replace(named=True)]
        if like is not None
        else merge_equal_bases(x for x in catalog if name.low < 4 * x.parameters)
    )
    if not asked.exact:
        return explain_name(name, bases, len(catalog), most=most)
    return explain_number(asked.value, bases, len(catalog), known_vocab_sizes(catalog), most=most)


def merge_equal_bases(found: Iterable[Preset]) -> list[BaseModel]:
    """Return the presets as bases, most widely known first; presets of the same shape share one base."""
    made: dict[tuple[object, ...], BaseModel] = {}
    for preset in found:
        base = _base(load(preset.config), preset.name)
        key = (base.shape_key, base.vocabulary, base.tied)
        made[key] = made[key].replace(aliases=(*made[key].aliases, base.name)) if key in made else base
    return list(made.values())


def known_vocab_sizes(catalog: list[Preset]) -> dict[int, str]:
    """Return the catalog's vocabulary sizes, each with the most widely known model that has it."""
    found: dict[int, str] = {}
    for preset in catalog:
        rows = preset.config.get("vocab_size")
        if isinstance(rows, int):
            found.setdefault(rows, preset.name)
    return found


def _base(model: Model, name: str = "") -> BaseModel:
    return BaseModel(name=name or model.name, tree=model.tree, scheme=model.family.hf)
