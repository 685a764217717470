"""The closed form of a model's family: what its builder makes of a traced configuration, the
conditions under which it makes the same of other numbers, and what an absent key means.

A number that loses its trace on the way, as where layers are listed one by one, is found by a few
other loads for each key, which must count what the forms say; otherwise the key is fixed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ...config_keys.key_meanings import describe_key
from ...core.blocks import Decoder
from ...core.expr import Alias, Expr
from ...core.parameter_count import sections_of
from ...families.model_class import apply_class
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError
from ...utils.record_type import Record
from .arranged_layers import LAYER_LIST_KEYS, LAYERS, LayerRule, find_layer_rule
from .cache_form import (
    CacheForm,
    SizingForm,
    cache_of,
    find_cache,
    layers_by_length,
    sizing_of,
)
from .conditions import Condition, conditions_of, holds_always
from .count_forms import CountForms, count_exactly, count_forms
from .traced_config import DimRead, TracedConfig
from .traced_numbers import Guard, Trace

TIED = "tie_word_embeddings"
_MAX_CONFIG_CHARS = 60_000
"""Longer configs get no forms."""
MAX_DIM = 2**32 - 1
_MAX_ROUNDS = 24
_NUM_LOADS = 4
"""The number of other values that are loaded for each key."""
_TRIED = (*range(9), *(2**i + x for i in range(4, 32) for x in (-1, 0, 1)))

Keys = Mapping[str, Any]
Values = Mapping[str, int]


class FamilyForm(Record):
    """The counts of a family as expressions, and where they hold."""

    given: Keys  # the configuration as it was given, without lists of layers
    data: Keys  # that it was traced with
    is_tied: bool | None  # whether head and embedding are; None where that changes no weight
    tied_by_default: bool | None  # without that key; None where the library refuses that
    reads: tuple[DimRead, ...]  # of the free keys
    fixed: tuple[str, ...]  # keys of dimensions that the forms do not have
    derived: Mapping[str, Expr]  # keys of the configuration that others decide
    by_tying: Mapping[bool | None, CountForms]
    conditions: tuple[Condition, ...]
    absent: Mapping[str, Expr]  # key → what its absence means
    optional: tuple[str, ...]  # other keys whose values are those that they have where absent
    deciding: tuple[str, ...]  # and those that cannot be absent
    cache: CacheForm | None  # None: the forward pass is not known, or not all numbers are in it
    sizing: SizingForm | None


class TracedModel(Record):
    """The forms, decisions and reads of a builder on a traced configuration."""

    forms: CountForms
    guards: tuple[Guard, ...]
    reads: Mapping[str, DimRead]
    tree: Decoder

    def key_of(self, letter: str) -> str:
        """Return the key of a letter; empty if there is none."""
        return next((x.key for x in self.reads.values() if x.letter == letter), "")


def trace_model(
    model: FamilyModel,
    data: Keys,
    fixed: Collection[str] = (),
    tied: bool | None = None,
    rule: LayerRule | None = None,
) -> TracedModel:
    """Build the tree of a configuration whose numbers are traced, but those of the fixed keys; with
    a rule, its layers follow their number by it.
    """
    trace = Trace()
    config = TracedConfig(data if tied is None else {**data, TIED: tied}, trace, fixed)
    tree: Decoder = model.family(config)
    if not model.wrapper:
        tree = apply_class(model.family, tree, config)[1]
    if rule is not None:
        trace.is_recording = False  # the builder has decided
        tree = rule.arranged(tree, trace.variable(LAYERS, int(tree.layers.n)))
    forms = count_forms(tree, sections_of(tree))
    trace.is_recording = False
    guards = tuple(trace.guards.values())
    return TracedModel(forms=forms, guards=guards, reads=dict(config.reads), tree=tree)


def derived_dimensions(model: FamilyModel) -> dict[str, Expr]:
    """Return how letters of a model follow from others, by letter."""
    found: dict[str, Expr] = {}
    try:
        left = [trace_model(model, model.config.data).forms.total]
    except LlamathError:
        return {}
    while left:
        for monomial in left.pop().terms:
            for atom in monomial:
                if isinstance(atom, Alias) and atom.symbol not in found:
                    found[atom.symbol] = atom.definition
                    left.append(atom.definition)
    return found


def find_form(model: FamilyModel, is_sized: bool = False) -> FamilyForm | None:
    """Return the form of a model's family, `is_sized` with what it needs on a GPU; None where it
    has none.
    """
    data = {key: value for key, value in model.config.data.items() if key not in LAYER_LIST_KEYS}
    for config in (data, dict(model.config.data)):
        text = json.dumps(config)
        if len(text) <= _MAX_CONFIG_CHARS:
            form = _find_form(text, tuple(count_exactly(model.tree)), is_sized)
            if form is not None:
                return form
    return None


@lru_cache(maxsize=64)
def _find_form(text: str, expected: tuple[int, int], is_sized: bool) -> FamilyForm | None:
    data = json.loads(text)
    model = _try_load(data)
    if model is None or count_exactly(model.tree) != expected:
        return None
    return _Search(data, model, expected, is_sized).find()


class _Search:
    """The search for the forms of one configuration."""

    def __init__(
        self, data: dict[str, Any], model: FamilyModel, counted: tuple[int, int], is_sized: bool
    ) -> None:
        self.model, self.counted, self.is_sized = model, counted, is_sized
        self.original = data
        self.data = self._with_all_keys(data)
        self.fixed: set[str] = set()
        self.derived: set[str] = set()
        # where the builder loses the number of layers, how it arranges them
        self.rule: LayerRule | None = None
        self._loaded: dict[tuple[tuple[str, int], ...], FamilyModel | None] = {}

    def _with_all_keys(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration with the values of absent dimensions, where these may be
        given.
        """
        reads = trace_model(self.model, data).reads.values()
        absent = {x.key: x.value for x in reads if data.get(x.key) is None and x.value > 0}
        if self._counts_the_same(data | absent):
            return data | absent
        for key, value in absent.items():
            if self._counts_the_same(data | {key: value}):
                data = data | {key: value}
        return data

    def _counts_the_same(self, data: Keys) -> bool:
        model = _try_load(data)
        return model is not None and count_exactly(model.tree) == self.counted

    def find(self) -> FamilyForm | None:
        """Return the forms, with as many free keys as they can have; None if there are none."""
        for _ in range(_MAX_ROUNDS):
            try:
                traced = self._trace(self.data)
            except LlamathError:
                return None
            free = self._free(traced)
            if not free:
                return None
            keys = {x.letter: x.key for x in free.values()}
            conditions = list(self._conditions(traced, free, keys))
            if self._derive_or_fix(conditions, free):
                continue
            if (wrong := self._wrong_key(traced, free, conditions)) is not None:
                is_depth = wrong == traced.key_of(LAYERS)
                if is_depth and self.rule is None:
                    self.rule = find_layer_rule(self.model)
                    if self.rule is not None:
                        continue
                elif is_depth:
                    self.rule = None
                self.fixed.add(wrong)
                continue
            return self._form(traced, free, conditions)
        return None

    def _trace(self, data: Keys, tied: bool | None = None) -> TracedModel:
        return trace_model(self.model, data, self.fixed, tied, self.rule)

    def _free(self, traced: TracedModel) -> dict[str, DimRead]:
        """The free keys by letter."""
        return {
            x.letter: x
            for x in traced.reads.values()
            if x.key not in self.fixed
            and type(self.data.get(x.key)) is int
            and 0 < x.value <= MAX_DIM
        }

    def _conditions(
        self, traced: TracedModel, free: Mapping[str, DimRead], keys: Mapping[str, str]
    ) -> Iterator[Condition]:
        """Yield the conditions that the decisions of the builder make."""
        base = {x: read.value for x, read in free.items()}
        refusing: list[Guard] = []
        found: list[tuple[Guard, bool]] = []
        for guard in (x for x in traced.guards if not _always_holds(x, free)):
            kinds = set[str]()
            for values in _flips(guard, base, free):
                if not all(x.holds(**values) for x in refusing):
                    kinds.add("implied")
                elif self._load_at(values, free) is None:
                    kinds.add("refused")
                elif self._builds_the_same(values, free, traced):
                    kinds.add("same")
                    break
                else:
                    kinds.add("differs")
                    break
                if len(kinds) > 1:
                    break
            if "differs" in kinds:
                found.append((guard, True))
            elif "refused" in kinds and "same" not in kinds:
                found.append((guard, False))
                refusing.append(guard)
            elif not kinds and not holds_always(guard):
                found.append((guard, True))
        ends = 0 if self.rule is None else len(self.rule.first + self.rule.last)
        if ends > 1:
            yield Condition(
                left=Expr.const(ends),
                right=Expr.variable(LAYERS, base[LAYERS]),
                text=f"{keys[LAYERS]} should be at least {ends}",
                bounds_forms=True,
            )
        seen = set[str]()
        for guard, bounds in found:
            own = list(conditions_of(guard, keys, bounds))
            yield from (x for x in own if x.text not in seen)
            seen |= {x.text for x in own}

    def _builds_the_same(
        self, values: Values, free: Mapping[str, DimRead], traced: TracedModel
    ) -> bool:
        try:
            other = self._trace(self._data_at(values, free))
        except LlamathError:
            return False
        return other.forms.structure == traced.forms.structure

    def _data_at(self, values: Values, free: Mapping[str, DimRead]) -> dict[str, Any]:
        return {**self.data, **{free[x].key: n for x, n in values.items()}}

    def _load_at(self, values: Values, free: Mapping[str, DimRead]) -> FamilyModel | None:
        """Return the model with these numbers, which later rounds ask for again."""
        data = self._data_at(values, free)
        changes = tuple((key, n) for key, n in data.items() if n != self.data[key])
        if changes not in self._loaded:
            self._loaded[changes] = _try_load(data)
        return self._loaded[changes]

    def _derive_or_fix(self, conditions: list[Condition], free: Mapping[str, DimRead]) -> bool:
        """Make a key that has to equal what others decide a derived one, and one that has to equal
        a number a fixed one; return whether there was any.
        """
        pairs = {
            (str(x.left.to_expression_json()), str(x.right.to_expression_json()))
            for x in conditions
        }
        for x in conditions:
            sides = (str(x.left.to_expression_json()), str(x.right.to_expression_json()))
            if sides[::-1] not in pairs:
                continue
            letters = x.left.variables | x.right.variables
            for letter in letters:
                read = free[letter]
                if read.default is None or not read.default.variables:
                    continue
                data = {key: y for key, y in self.data.items() if key != read.key}
                if self._counts_the_same(data):
                    self.data = data
                    self._loaded.clear()
                    self.derived.add(read.key)
                    return True
            if len(letters) == 1:
                self.fixed.add(free[next(iter(letters))].key)
                return True
        return False

    def _wrong_key(
        self, traced: TracedModel, free: Mapping[str, DimRead], conditions: list[Condition]
    ) -> str | None:
        """Return a key along which the forms and the library disagree; None if there is none."""
        base = {x: read.value for x, read in free.items()}
        for letter, read in free.items():
            if not self._agrees(letter, base, free, traced.forms, conditions):
                return read.key
        return None

    def _agrees(
        self,
        letter: str,
        base: Values,
        free: Mapping[str, DimRead],
        forms: CountForms,
        conditions: list[Condition],
    ) -> bool:
        agreeing = 0
        for values in _other_values(letter, base, free):
            if any(x.is_violated(values) for x in conditions):
                continue
            if (model := self._load_at(values, free)) is not None:
                if count_exactly(model.tree) != forms.count(values):
                    return False
                if (agreeing := agreeing + 1) == _NUM_LOADS:
                    return True
        return agreeing > 0

    def _sizes(
        self, traced: TracedModel, free: Mapping[str, DimRead], conditions: list[Condition]
    ) -> tuple[CacheForm | None, SizingForm | None]:
        """Return the forms of the cache and of what else is on a GPU, where they hold for other
        values of each key; where layers are listed one by one, their number is found anew.
        """
        found = self._sizes_with(traced, free, conditions, ())
        if found[0] is None and (L := free.get("L")) is not None:
            layers = layers_by_length(_try_load, self.data, L.key, L.value, "L")
            if layers:
                found = self._sizes_with(traced, free, conditions, layers)
        return found

    def _sizes_with(
        self,
        traced: TracedModel,
        free: Mapping[str, DimRead],
        conditions: list[Condition],
        layers: Sequence[Expr],
    ) -> tuple[CacheForm | None, SizingForm | None]:
        base = {x: read.value for x, read in free.items()}

        def trace(data: Keys) -> Expr | None:
            try:
                return cache_of(self._trace(data).tree, layers)
            except LlamathError:
                return None

        known = {*self.data, *self.model.config.keys_read} - {x.key for x in free.values()}
        deciding = sorted(x for x in known if decides_cache(x, self.model.family.name))
        cache = find_cache(trace, _try_load, self.data, deciding, base)
        sizing = sizing_of(traced.tree, free) if self.is_sized else None
        for letter in free if cache is not None else ():
            agreeing = 0
            for values in _other_values(letter, base, free):
                if any(x.is_violated(values) for x in conditions):
                    continue
                if (model := self._load_at(values, free)) is None:
                    continue
                if cache is None or not cache.is_agreed(model.tree, values, self.data):
                    return None, None
                if sizing is not None and not agreeing:
                    asked = model, values, traced.forms.total, cache, self.data
                    kinds = (sizing, sizing.whole())
                    sizing = next((x for x in kinds if x.is_agreed(*asked)), None)
                if (agreeing := agreeing + 1) == _NUM_LOADS:
                    break
        return cache, sizing

    def _form(
        self, traced: TracedModel, free: Mapping[str, DimRead], conditions: list[Condition]
    ) -> FamilyForm | None:
        by_tying: dict[bool | None, CountForms] = {}
        for tied in (False, True):
            try:
                by_tying[tied] = self._trace(self.data, tied).forms
            except LlamathError:
                continue
        base = {x: read.value for x, read in free.items()}
        if len({x.structure for x in by_tying.values()}) < 2:
            by_tying = {None: traced.forms}
        cache, sizing = self._sizes(traced, free, conditions)
        is_tied: bool | None = None
        if None not in by_tying:
            is_tied = by_tying[True].total.evaluate(**base) == self.counted[0]
        optional, deciding = self._others(traced)
        return FamilyForm(
            given=self.original,
            data=self.data,
            is_tied=is_tied,
            tied_by_default=None if None in by_tying else self._tied_by_default(by_tying, base),
            reads=tuple(free.values()),
            fixed=tuple(x.key for x in traced.reads.values() if x.letter not in free),
            derived={
                key: default
                for key in sorted(self.derived)
                if (default := traced.reads[key].default) is not None
            },
            by_tying=by_tying,
            conditions=tuple(conditions),
            absent=self._absent(base, free, traced.forms),
            optional=optional,
            deciding=deciding,
            cache=cache,
            sizing=sizing,
        )

    def _tied_by_default(
        self, by_tying: Mapping[bool | None, CountForms], base: Values
    ) -> bool | None:
        model = _try_load({key: x for key, x in self.data.items() if key != TIED})
        if model is None:
            return None
        counted = count_exactly(model.tree)
        return next((x for x, forms in by_tying.items() if forms.count(base) == counted), None)

    def _others(self, traced: TracedModel) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the given keys without all of which the library counts the same, and those that
        decide what the absence of others means.
        """
        rest, optional = dict(self.original), list[str]()
        others = [
            key
            for key in self.original
            if key not in traced.reads and key not in ("model_type", TIED)
        ]
        others.sort(key=lambda key: has_no_effect(key, self.model.family.name))
        for key in others:
            shorter = {x: value for x, value in rest.items() if x != key}
            if self._counts_the_same(shorter):
                rest = shorter
                optional.append(key)
        return tuple(optional), tuple(x for x in others if x not in optional)

    def _absent(
        self, base: Values, free: Mapping[str, DimRead], forms: CountForms
    ) -> dict[str, Expr]:
        """Return what the absence of keys means, where the library agrees."""
        found = {}
        for letter, read in free.items():
            if read.default is None:
                continue
            values = dict(base)
            values[letter] = read.default.evaluate(**base)
            data = {key: x for key, x in self.data.items() if key != read.key}
            model = _try_load(data)
            if model is not None and count_exactly(model.tree) == forms.count(values):
                found[read.key] = read.default
        return found


def has_no_effect(key: str, family: str) -> bool:
    """Whether a key is known not to affect any weight."""
    entry = describe_key(key, family)
    return entry is not None and entry[1].partition(":")[0].split(";")[0] in (
        "cache",
        "compute",
        "nothing",
    )


_OF_A_FULL_CONTEXT = "cache: of a full context"


def decides_cache(key: str, family: str) -> bool:
    """Whether a key affects no weight, but what is cached of a token."""
    entry = describe_key(key, family)
    return entry is not None and entry[1] != _OF_A_FULL_CONTEXT and entry[1].startswith("cache")


def _always_holds(guard: Guard, free: Mapping[str, DimRead]) -> bool:
    """Whether a decision cannot change, since numbers are positive."""
    if any(free[x].least < 1 for x in guard.variables & free.keys()):
        return False
    left, right = guard.left, guard.right
    if guard.operation == "==" and not guard.held and int(right) == 0 and not right.terms:
        return _is_positive(left)
    if guard.operation == "<" and guard.held and not left.terms:
        return _is_positive(right)
    if guard.operation == "<" and not guard.held and not right.variables and int(right) <= 1:
        return _is_positive(left)
    return False


def _is_positive(x: Expr) -> bool:
    return bool(x.terms) and all(
        k > 0 and all(atom.symbol in x.variables for atom in monomial)
        for monomial, k in x.terms.items()
    )


def _other_values(
    letter: str, base: Values, free: Mapping[str, DimRead]
) -> Iterator[dict[str, int]]:
    """Yield other numbers, first those that differ in one letter alone."""
    n = base[letter]
    options = [x for x in (2 * n, n + 1, n + 2, n // 2, 1, 3 * n, n - 1, 4 * n) if x != n]
    options = [x for x in options if max(free[letter].least, 1) <= x <= MAX_DIM]
    for x in options:
        yield {**base, letter: x}
    for other, m in base.items():
        if other == letter:
            continue
        for x in options:
            for y in (2 * m, m // 2, x):
                if y >= max(free[other].least, 1):
                    yield {**base, letter: x, other: y}


def _flips(guard: Guard, base: Values, free: Mapping[str, DimRead]) -> Iterator[dict[str, int]]:
    """Yield numbers at which a decision is the other one, of which one differs from the base."""
    sides = [side.evaluate(**base) for side in (guard.left, guard.right)]
    for letter in sorted(guard.variables):
        n, least = base[letter], free[letter].least
        near = [y + z for y in (n, *sides) for z in (1, -1, 0, 2)]
        scaled = [n * a // b for a, b in (sides, sides[::-1]) if b > 0]
        steps = [n + z * base[x] for x in sorted(guard.variables - {letter}) for z in (1, -1)]
        for x in dict.fromkeys(
            (*near, *steps, 2 * n, 2 * n + 1, n // 2, *scaled, 2 * max(sides), *_TRIED)
        ):
            values = {**base, letter: x}
            if least <= x <= MAX_DIM and not guard.holds(**values):
                yield values


def _try_load(data: Keys) -> FamilyModel | None:
    """Return the model of a config; None if the library rejects it."""
    try:
        return load_family(data)
    except LlamathError:
        return None
