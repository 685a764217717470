"""`Series`: the published models whose habits a design follows, found by the name of a series, a
family or a single model.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from math import log

from ....catalog import Preset, presets, read_preset, slugs
from ....core.tree import fold
from ....families.registry import FAMILIES
from ....loading import load_family
from ....model import FamilyModel
from ....utils.errors import LlamathError, UnknownModel, nearest, safe
from ....utils.record_type import Record


class Member(Record):
    """A published model with its size and dimensions."""

    slug: str
    model: FamilyModel

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
    """Models that share their habits; `template` provides the config keys that are not
    dimensions.
    """

    name: str
    members: tuple[Member, ...]
    template: FamilyModel
    # the series has no published model: `members` are other models with the same matrices
    borrowed: bool = False

    @property
    def sparse(self) -> bool:
        """Return whether the models have experts."""
        return "experts" in self.template.count.groups


def find_series(
    name: str, target: int, sparse: bool = False, exclude: frozenset[str] = frozenset()
) -> Series:
    """Find a series by name; with `sparse`, only its MoE models, if there are any."""
    matches = _presets(name, exclude)
    if matches is None:
        model = load_family(name).text
        return Series(name=model.name, members=(Member(slug="", model=model),), template=model)
    if not matches:
        raise LlamathError(f"no published model of {safe(name)} is left to learn habits from")
    members = [_member(x) for x in matches]
    members = [x for x in members if ("experts" in x.model.count.groups) == sparse] or members
    template = min(members, key=lambda x: abs(log(x.total / target))).model
    if published := [x for x, preset in ((x, read_preset(x.slug)) for x in members) if preset.ids]:
        return Series(name=name, members=_distinct(published), template=template)
    similar = _distinct(_similar_models(template, exclude))
    return Series(
        name=name, members=similar or tuple(members), template=template, borrowed=bool(similar)
    )


def _presets(name: str, exclude: frozenset[str]) -> list[Preset] | None:
    """Return the presets whose names begin with a name, or of a family, all of one model type;
    None if there are none.
    """
    if os.path.lexists(name) or "/" in name or name.endswith(".json") or name == "-":
        return None
    slug = name.lower().replace("_", "-").replace(" ", "-")
    known_slugs = slugs()
    prefixed = [
        x for x in known_slugs if x == slug or (x.startswith(slug) and x[len(slug)] in "-.")
    ]
    matches = [read_preset(x) for x in prefixed] or [
        x for x in presets() if _model_type_of(x) == name
    ]
    if not matches:
        _check_known(name)
        return None
    remaining = [x for x in matches if x.slug not in exclude]
    types = Counter(_model_type_of(x) for x in remaining)
    own = next((_model_type_of(x) for x in remaining if x.slug == slug), "")
    model_type = name if name in types else own or next(iter(types.most_common(1)), ("", 0))[0]
    siblings = {model_type, f"{model_type}_moe"}
    return [x for x in remaining if _model_type_of(x) in siblings]


def _check_known(name: str) -> None:
    """Raise an error that suggests series and families as well as presets."""
    try:
        load_family(name)
    except UnknownModel as error:
        near = nearest(
            name, {*FAMILIES.import_all(), *(x.rpartition("-")[0] for x in slugs()), *slugs()}
        )
        hint = f"did you mean {', '.join(near)}?" if near else error.hint
        raise UnknownModel(f"unknown series, family or model {safe(name)!r}", hint=hint) from None


def _model_type_of(preset: Preset) -> str:
    text = preset.config.get("text_config")
    return str((text if isinstance(text, dict) else preset.config).get("model_type", ""))


def _member(preset: Preset) -> Member:
    return Member(slug=preset.slug, model=load_family(preset.slug).text)


def _distinct(members: Iterable[Member]) -> tuple[Member, ...]:
    """Keep one member for each set of dimensions, ordered by size; the vocabulary size does not
    count.
    """
    by_dims: dict[tuple[int, ...], Member] = {}
    for x in members:
        letters = x.letters
        by_dims.setdefault(
            tuple(letters.get(k, 0) for k in ("L", "d", "H", "K", "h", "F", "Fe", "E")), x
        )
    return tuple(sorted(by_dims.values(), key=lambda x: x.total))


def _similar_models(template: FamilyModel, exclude: frozenset[str]) -> Iterator[Member]:
    """Yield the published models whose matrices have the same shapes in letters."""
    matrices = _matrices(template)
    member = Member(slug="", model=template)
    multi_head = member.kv_heads == member.letters["H"]
    for preset in presets():
        if (
            preset.ids
            and preset.slug not in exclude
            and not any(isinstance(x, dict) for x in preset.config.values())
        ):
            candidate = _member(preset)
            if (
                _matrices(candidate.model) == matrices
                and (candidate.kv_heads == candidate.letters["H"]) == multi_head
            ):
                yield candidate


def _matrices(model: FamilyModel) -> frozenset[tuple[str, str]]:
    pairs = (
        (x.pattern, "×".join(n.symbol for n in x.weight.shape))
        for x in fold(model.tree)
        if x.weight.role in ("matmul", "lookup")
    )
    return frozenset(pairs)
