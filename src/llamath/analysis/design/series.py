"""`Series`: the published models whose habits a design follows, found by the name of a series, a family or a single model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from math import log

from ...catalog import Preset, presets, read_preset, slugs
from ...core.errors import LlamathError, UnknownModel, nearest, safe
from ...core.record_type import Record
from ...core.tree import fold
from ...families.registry import MODEL_TYPES
from ...loading import load
from ...model import Model


class Member(Record):
    """A published model with its size and dimensions."""

    slug: str
    model: Model

    @property
    def letters(self) -> dict[str, int]:
        """The dimensions by letter."""
        return dict(self.model.count.formula.letters)

    @property
    def head_dim(self) -> int:
        """The head size; for latent attention, that of the values."""
        v = self.letters
        return v.get("h") or v.get("v") or v["d"] // v["H"]

    @property
    def kv_heads(self) -> int:
        """The number of KV heads; the number of heads if the config has no other."""
        return self.letters.get("K", self.letters["H"])

    @property
    def total(self) -> int:
        """The parameters."""
        return self.model.parameters.total


class Series(Record):
    """Models that share their habits; `template` provides the config keys that are not dimensions."""

    name: str
    members: tuple[Member, ...]
    template: Model
    borrowed: bool = False  # the series has no published model; these have the same matrices

    @property
    def sparse(self) -> bool:
        """Whether the models have experts."""
        return "experts" in self.template.count.groups


def find_series(name: str, target: int, sparse: bool = False, without: frozenset[str] = frozenset()) -> Series:
    """Find a series by name; with `sparse`, only its MoE models, if there are any."""
    found = _presets(name, without)
    if found is None:
        one = load(name)
        return Series(name=one.name, members=(Member(slug="", model=one),), template=one)
    if not found:
        raise LlamathError(f"no published model of {safe(name)} is left to learn habits from")
    members = [_member(x) for x in found]
    members = [x for x in members if ("experts" in x.model.count.groups) == sparse] or members
    template = min(members, key=lambda x: abs(log(x.total / target))).model
    if published := [x for x, preset in ((x, read_preset(x.slug)) for x in members) if preset.ids]:
        return Series(name=name, members=_distinct(published), template=template)
    kin = _distinct(_similar_models(template, without))
    return Series(name=name, members=kin or tuple(members), template=template, borrowed=bool(kin))


def _presets(name: str, without: frozenset[str]) -> list[Preset] | None:
    """Return the presets of a series, all of one model type; None if the name stands for a single model."""
    if os.path.lexists(name) or "/" in name or name.endswith(".json") or name == "-":
        return None
    wanted = name.lower().replace("_", "-").replace(" ", "-")
    known = slugs()
    if wanted in known and wanted not in MODEL_TYPES:
        return [read_preset(wanted)]
    begins = [x for x in known if x == wanted or (x.startswith(wanted) and x[len(wanted)] in "-.")]
    found = [read_preset(x) for x in begins] or [x for x in presets() if _type(x) == name]
    if not found:
        _refuse_unless_known(name)
        return None
    kept = [x for x in found if x.slug not in without]
    types = Counter(_type(x) for x in kept)
    kind = name if name in types else next(iter(types.most_common(1)), ("", 0))[0]
    siblings = {kind, f"{kind}_moe"}
    return [x for x in kept if _type(x) in siblings]


def _refuse_unless_known(name: str) -> None:
    """Raise an error that suggests series and families as well as presets."""
    try:
        load(name)
    except UnknownModel as error:
        near = nearest(name, {*MODEL_TYPES, *(x.rpartition("-")[0] for x in slugs()), *slugs()})
        hint = f"did you mean {', '.join(near)}?" if near else error.hint
        raise UnknownModel(f"unknown series, family or model {safe(name)!r}", hint=hint) from None


def _type(preset: Preset) -> str:
    text = preset.config.get("text_config")
    return str((text if isinstance(text, dict) else preset.config).get("model_type", ""))


def _member(preset: Preset) -> Member:
    return Member(slug=preset.slug, model=load(preset.slug))


def _distinct(members: Iterable[Member]) -> tuple[Member, ...]:
    """Keep one member for each set of dimensions, ordered by size; the vocabulary size does not count."""
    made: dict[tuple[int, ...], Member] = {}
    for x in members:
        letters = x.letters
        made.setdefault(tuple(letters.get(k, 0) for k in ("L", "d", "H", "K", "h", "F", "Fe", "E")), x)
    return tuple(sorted(made.values(), key=lambda x: x.total))


def _similar_models(template: Model, without: frozenset[str]) -> Iterator[Member]:
    """Yield the published models whose matrices have the same shapes in letters."""
    mine = _matrices(template)
    many = Member(slug="", model=template)
    every = many.kv_heads == many.letters["H"]
    for preset in presets():
        if preset.ids and preset.slug not in without and not any(isinstance(x, dict) for x in preset.config.values()):
            one = _member(preset)
            if _matrices(one.model) == mine and (one.kv_heads == one.letters["H"]) == every:
                yield one


def _matrices(model: Model) -> frozenset[tuple[str, str]]:
    found = ((x.pattern, "×".join(n.symbol for n in x.weight.shape)) for x in fold(model.tree) if x.weight.role in ("matmul", "lookup"))
    return frozenset(found)
