"""The causes of the difference in size of two models; their parts sum exactly to the difference
of the totals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar

from ....config_keys.dimension_words import LETTER_WORDS, dimension_words
from ....core.parameter_count import Section
from ....utils.number_format import format_count, format_signed
from ....utils.record_type import Record
from .structural_diff import structural_cause, structural_kind
from .weight_terms import WeightTerm, unique_letters, weight_terms

METHOD = (
    "each cause is measured with the earlier ones applied, from the smaller model to the larger: "
    "vocabulary, layers, hidden size, heads, KV heads, head dim, FFN, experts (first their width "
    "or number, whichever decreases), then structure. The other way round, the signs change."
)
"""How the difference is divided among the causes."""

LETTER_ORDER = ("V", "C", "L", "kinds", "d", "H", "K", "h", "F", "Fs", "Fe", "E", "S")
"""The order in which letters change, L being the layers; others follow by name."""

_TITLES = {
    "kinds": "mix of layers",
    "Hh": "heads and head dim",
    "attention": "type of attention",
    "mlp": "type of FFN",
    "shared": "type of shared experts",
    "positions": "learned positions",
    "head": "head",
    "norms": "norms",
    "biases": "biases",
}
CAUSE_TITLES = {
    x: _TITLES.get(x) or LETTER_WORDS[x]
    for x in (
        *("V", "C", "L", "kinds", "d", "H", "Hh", "K", "h", "F", "Fs", "Fe", "E", "S"),
        *("attention", "mlp", "shared", "positions", "head", "norms", "biases"),
    )
}
"""The names of kinds of causes, whatever their direction."""

_GLOBAL_LETTERS = frozenset(("V", "d", "H", "h"))
"""Letters that mean the same in every weight; others change only in weights that both models
have."""

LETTER_CHANGES = {
    "V": ("vocabulary", "vocabulary"),
    "C": ("more positions", "fewer positions"),
    "L": ("more layers", "fewer layers"),
    "kinds": ("different mix of layers", "different mix of layers"),
    "d": ("larger hidden size", "smaller hidden size"),
    "H": ("more heads", "fewer heads"),
    "Hh": ("more, smaller heads", "fewer, larger heads"),
    "K": ("more KV heads", "fewer KV heads"),
    "h": ("larger heads", "smaller heads"),
    "F": ("wider FFN", "narrower FFN"),
    "Fe": ("wider experts", "narrower experts"),
    "Fs": ("wider shared expert", "narrower shared expert"),
    "E": ("more experts", "fewer experts"),
    "S": ("more shared experts", "fewer shared experts"),
}
"""Words for the increase and the decrease of a dimension."""


_GROUP_NAMES = {"embedding": "embedding", "mlp": "FFN", "norm": "norms"}


class CausePart(Record):
    """The effect of a cause on one weight, in all its layers together."""

    path: str
    group: str
    delta: int
    layers: int | None = None  # the number of layers that have the weight

    json_fields: ClassVar[tuple[str, ...]] = ("path", "layers", "delta")


class Cause(Record):
    """One cause, from `a` to `b` if it is a number that changed; the parts sum to `delta`."""

    kind: str  # a letter, or a kind of structure
    cause: str
    a: int | None = None
    b: int | None = None
    parts: tuple[CausePart, ...]

    json_fields: ClassVar[tuple[str, ...]] = ("cause", "delta", "where", "kind", "a", "b", "parts")

    @property
    def delta(self) -> int:
        """The parameters that the cause adds to the total."""
        return sum(x.delta for x in self.parts)

    @property
    def label(self) -> str:
        """The cause with its two numbers."""
        return (
            self.cause
            if self.a is None or self.b is None
            else (f"{self.cause} {self.a:,} → {self.b:,}")
        )

    @property
    def where(self) -> str:
        """The changed weights, with the parameters that each gains."""
        return self.describe_weights(format_signed)

    def describe_weights(self, write: Callable[[int], str]) -> str:
        """Return the changed weights as text, with numbers formatted by `write`."""
        parts = self.parts
        layers = (
            f" of {format_count(parts[0].layers, 'layer')}"
            if len({x.layers for x in parts}) == 1 and parts[0].layers
            else ""
        )
        if len(parts) == 1:
            return f"{short_path(parts[0].path)}{layers}"
        if len(parts) <= 4 and len({x.delta for x in parts}) == 1:
            names = [short_path(x.path) for x in parts]
            return f"{', '.join(names[:-1])} and {names[-1]}{layers}, {write(parts[0].delta)} each"
        sums = (
            [(short_path(x.path), x.delta) for x in parts]
            if len(parts) <= 3
            else _sum_by_group(parts)
        )
        if len(sums) == 1:
            return f"{sums[0][0]}{layers}"
        return ", ".join(f"{name} {write(n)}" for name, n in sums) + (
            f",{layers}" if layers else ""
        )


def short_path(path: str) -> str:
    """Return the path of a weight without the parts that most paths share."""
    return (
        path.removeprefix("layers.{l}.")
        .replace("mlp.experts.{e}.", "experts.")
        .removesuffix(".weight")
    )


def _sum_by_group(parts: tuple[CausePart, ...]) -> list[tuple[str, int]]:
    sums: dict[str, int] = {}
    for x in parts:
        name = _GROUP_NAMES.get(x.group, x.group)
        sums[name] = sums.get(name, 0) + x.delta
    return list(sums.items())


class CountedModel(Record):
    """One of two models: its folded table, its number of layers, and the config key of each
    letter.
    """

    sections: tuple[Section, ...]
    layers: int
    keys: Mapping[str, str]


def explain_difference(a: CountedModel, b: CountedModel) -> tuple[Cause, ...]:
    """Return every cause that changes some weight, in order, from a to b."""
    ours, theirs = weight_terms(a.sections), weight_terms(b.sections)
    if _sort_key(ours) <= _sort_key(theirs):
        return tuple(
            _with_name(x, a, b, (ours, theirs))
            for x in _Transformation(ours, theirs, (a.layers, b.layers)).causes()
        )
    reversed_causes = list(_Transformation(theirs, ours, (b.layers, a.layers)).causes())
    return tuple(_with_name(_reversed(x), a, b, (ours, theirs)) for x in reversed(reversed_causes))


def _sort_key(terms: list[WeightTerm]) -> tuple[object, ...]:
    """Return a sort key of models: by size, then by content, so that the order of the arguments
    does not matter.
    """
    parts = sorted(
        (x.path, x.form, x.parameters, x.layers or 0, sorted(x.letters.items())) for x in terms
    )
    return sum(x.parameters for x in terms), parts


def _reversed(cause: Cause) -> Cause:
    parts = tuple(x.replace(delta=-x.delta) for x in cause.parts)
    return cause.replace(a=cause.b, b=cause.a, parts=parts)


def _with_name(
    cause: Cause, a: CountedModel, b: CountedModel, terms: tuple[list[WeightTerm], list[WeightTerm]]
) -> Cause:
    if cause.a is None or cause.b is None:
        return cause.replace(
            cause=structural_cause(cause.kind, *terms, {x.path for x in cause.parts})
        )
    if cause.kind in LETTER_CHANGES:
        return cause.replace(cause=LETTER_CHANGES[cause.kind][cause.a > cause.b])
    key = b.keys.get(cause.kind) or a.keys.get(cause.kind) or cause.kind
    name = dimension_words(cause.kind, key) or key
    return cause.replace(cause=f"{'larger' if cause.b > cause.a else 'smaller'} {name}")


class _Transformation:
    """The transformation of one model into another, one step at a time."""

    def __init__(
        self, start: list[WeightTerm], end: list[WeightTerm], layers: tuple[int, int]
    ) -> None:
        self.start, self.end, self.total_layers = start, end, layers
        self.end_by_path: dict[str, list[WeightTerm]] = {}
        for x in end:
            self.end_by_path.setdefault(x.path, []).append(x)
        self.start_count: dict[str, int] = {}
        for x in start:
            self.start_count[x.path] = self.start_count.get(x.path, 0) + 1
        self.changeable = [self._changeable_letters(x) for x in start]
        self.values: list[dict[str, int]] = [{} for _ in start]
        self.layer_counts = [x.layers for x in start]

    def causes(self) -> Iterator[Cause]:
        """Yield the steps that change any weight."""
        before, after = unique_letters(self.start), unique_letters(self.end)
        for kind, letters in _steps(before, after):
            if kind in ("L", "kinds"):
                times = [
                    self._scaled_layers(t) if kind == "L" else self._final_layers(x, t)
                    for x, t in zip(self.start, self.layer_counts, strict=True)
                ]
                parts, self.layer_counts = self._step(self.values, times), times
                a, b = self.total_layers if kind == "L" else (None, None)
            else:
                new = {x: after[x] for x in letters}
                new_values = [
                    values | {x: n for x, n in new.items() if x in changeable}
                    for values, changeable in zip(self.values, self.changeable, strict=True)
                ]
                parts, self.values = self._step(new_values, self.layer_counts), new_values
                a, b = before[letters[0]], after[letters[0]]
            if parts:
                yield Cause(kind=kind, cause=kind, a=a, b=b, parts=parts)
        yield from self._structural()

    def _step(
        self, new_values: list[dict[str, int]], times: list[int | None]
    ) -> tuple[CausePart, ...]:
        states = zip(self.start, self.values, self.layer_counts, new_values, times, strict=True)
        deltas = ((x, x.at(new, n) - x.at(old, t), n) for x, old, t, new, n in states)
        return _sum_by_path(
            CausePart(path=x.path, group=x.group, delta=delta, layers=n) for x, delta, n in deltas
        )

    def _changeable_letters(self, term: WeightTerm) -> frozenset[str]:
        matches = self.end_by_path.get(term.path)
        return (
            _GLOBAL_LETTERS
            if matches is None
            else frozenset(letter for x in matches for letter in x.letters)
        )

    def _scaled_layers(self, times: int | None) -> int | None:
        """Return the number of layers of one kind if its share of all layers stays the same."""
        a, b = self.total_layers
        return times if times is None else (2 * times * b + a) // (2 * a)

    def _final_layers(self, term: WeightTerm, times: int | None) -> int | None:
        """Return the number of layers that have the same weight in the end."""
        matches = self.end_by_path.get(term.path, ())
        same = [x for x in matches if x.form == term.form] or (
            matches if self.start_count[term.path] == 1 else ()
        )
        return same[0].layers if len(same) == 1 and None not in (times, same[0].layers) else times

    def _structural(self) -> Iterator[Cause]:
        """Yield the structural causes: weights that only one model has, or that have another
        form.
        """
        remaining = [
            CausePart(path=x.path, group=x.group, delta=-x.at(v, n), layers=n)
            for x, v, n in zip(self.start, self.values, self.layer_counts, strict=True)
        ]
        remaining += [
            CausePart(path=x.path, group=x.group, delta=x.parameters, layers=x.layers)
            for x in self.end
        ]
        roles = {x.path: x.role for x in (*self.start, *self.end)}
        kinds: dict[str, list[CausePart]] = {}
        for part in _sum_by_path(remaining):
            kinds.setdefault(
                structural_kind(part.path, part.group, roles[part.path], self.start, self.end), []
            ).append(part)
        for kind in sorted(kinds, key=_structure_order):
            yield Cause(kind=kind, cause=kind, parts=tuple(kinds[kind]))


def _structure_order(kind: str) -> tuple[int, str]:
    order = ("attention", "mlp", "shared", "positions", "head", "norms", "biases")
    return order.index(kind) if kind in order else len(order), kind


def _sum_by_path(parts: Iterable[CausePart]) -> tuple[CausePart, ...]:
    """Return the parts summed by path, without those that are zero."""
    sums: dict[str, CausePart] = {}
    for x in parts:
        sums[x.path] = x.replace(delta=x.delta + sums[x.path].delta) if x.path in sums else x
    return tuple(x for x in sums.values() if x.delta)


def _steps(a: Mapping[str, int], b: Mapping[str, int]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the letters that change, in order, with those that change together: heads and KV
    heads without GQA, heads and their size.
    """
    changed = {x for x in a.keys() & b.keys() if a[x] != b[x]}
    heads = ["H"] if "H" in changed else []
    if heads and all("K" in x and x["K"] == x["H"] for x in (a, b)):
        heads.append("K")
    swapped = bool(heads) and "h" in changed and a["H"] * a["h"] == b["H"] * b["h"]
    heads += ["h"] if swapped else []
    order = [*LETTER_ORDER, *sorted(changed - set(LETTER_ORDER))]
    if {"Fe", "E"} <= changed and a["Fe"] < b["Fe"] and a["E"] > b["E"]:
        order.remove("Fe")
        order.insert(order.index("E") + 1, "Fe")
    for letter in order:
        if letter in ("L", "kinds"):
            yield letter, ()
        elif letter == "H" and heads:
            yield "Hh" if swapped else "H", tuple(heads)
        elif letter in changed and letter not in heads:
            yield letter, (letter,)
