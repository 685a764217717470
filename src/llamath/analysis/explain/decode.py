"""`decode`: a number, or a name of few digits, and the models that may stand behind it → what `explain` makes of it."""

from __future__ import annotations

from collections.abc import Iterable

from ...catalog import Preset, presets
from ...core.units import parse_quantity
from ...loading import Source, load
from ...model import Model
from . import SHOWN, Base, Explanation, Name, explain, explain_name


def decode(text: str, like: Source | None = None, everything: bool = False) -> Explanation:
    """Explain a count, out of one model or of the whole catalogue; with `everything` also by far less simple ways than the best."""
    asked = parse_quantity(text)
    unit = 1 if asked.exact else 10 ** max(len(str(asked.value)) - asked.digits, 0)
    name = Name(text.strip(), asked.value, asked.value - unit // 2, asked.value + unit)
    catalogue = sorted(presets(), key=lambda x: -len(x.ids) - len(x.aliases))
    most = 0 if everything else SHOWN
    bases = [_base(load(like)).replace(like=True)] if like is not None else merged(x for x in catalogue if name.low < 4 * x.parameters)
    if not asked.exact:
        return explain_name(name, bases, len(catalogue), most=most)
    return explain(asked.value, bases, len(catalogue), vocabularies(catalogue), most=most)


def merged(found: Iterable[Preset]) -> list[Base]:
    """Presets as bases, those first that go by most names; those of one shape are one."""
    made: dict[tuple[object, ...], Base] = {}
    for preset in found:
        base = _base(load(preset.config), preset.name)
        key = (base.skeleton, base.vocabulary, base.tied)
        made[key] = made[key].replace(also=(*made[key].also, base.name)) if key in made else base
    return list(made.values())


def vocabularies(catalogue: list[Preset]) -> dict[int, str]:
    """Sizes of vocabularies, each with the model that most know it from."""
    found: dict[int, str] = {}
    for preset in catalogue:
        rows = preset.config.get("vocab_size")
        if isinstance(rows, int):
            found.setdefault(rows, preset.name)
    return found


def _base(model: Model, name: str = "") -> Base:
    return Base(name=name or model.name, tree=model.tree, scheme=model.family.hf)
