"""Why two models differ in size: causes whose parts sum exactly to the difference of the totals, by the method of `METHOD`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...core.parameter_count import Section
from ...core.record_type import Record
from ..count.tree_terms import WeightTerm, unique_letters, weight_terms
from .structural_diff import structural_cause, structural_kind

METHOD = (
    "the smaller model becomes the larger one a cause at a time: first the sizes that both have (vocabulary, layers, width, heads, "
    "KV heads, size of a head, MLP, experts), then what is built otherwise; each is weighed with those before it done (of the experts' "
    "width and number, what falls goes first). From the larger to the smaller it is the same way back, every sign turned."
)
"""How a difference is shared out."""

ORDER = ("V", "C", "L", "kinds", "d", "H", "K", "h", "F", "Fs", "Fe", "E", "S")
"""Letters in the order in which they change, L being the layers; others follow by name."""

CAUSE_TITLES = {
    "V": "vocabulary", "C": "positions", "L": "layers", "kinds": "mix of layers", "d": "width", "H": "heads", "Hh": "heads and their size",
    "K": "KV heads", "h": "size of a head", "F": "MLP width", "Fs": "width of shared experts", "Fe": "width of experts", "E": "experts",
    "S": "shared experts", "attention": "kind of attention", "mlp": "kind of MLP", "shared": "kind of shared experts",
    "positions": "learned positions", "head": "head", "norms": "norms", "biases": "biases",
}  # fmt: skip
"""Kinds of causes by name, whatever their direction."""

EVERYWHERE = frozenset(("V", "d", "H", "h"))
"""Letters that mean the same in any weight; another changes only in weights that both models have."""

WORDS = {
    "V": ("vocabulary", "vocabulary"),
    "C": ("more positions", "fewer positions"),
    "L": ("more layers", "fewer layers"),
    "kinds": ("another mix of layers", "another mix of layers"),
    "d": ("larger width", "smaller width"),
    "H": ("more heads", "fewer heads"),
    "Hh": ("more, smaller heads", "fewer, larger heads"),
    "K": ("more KV heads", "fewer KV heads"),
    "h": ("larger heads", "smaller heads"),
    "F": ("wider MLP", "narrower MLP"),
    "Fe": ("wider experts", "narrower experts"),
    "Fs": ("wider shared expert", "narrower shared expert"),
    "E": ("more experts", "fewer experts"),
    "S": ("more shared experts", "fewer shared experts"),
}
"""What the growth of a letter is called, and what its fall."""


class CausePart(Record):
    """What a cause does to one weight, in all its layers together."""

    path: str
    group: str
    delta: int
    layers: int | None = None  # how many it stands in


class Cause(Record):
    """One cause, from `a` to `b` where it is a number that changed; parts sum to `delta`."""

    kind: str  # a letter, or what is built otherwise
    cause: str
    a: int | None = None
    b: int | None = None
    parts: tuple[CausePart, ...]

    @property
    def delta(self) -> int:
        """What it adds to the total."""
        return sum(x.delta for x in self.parts)


class CountedModel(Record):
    """One of two models: what it was counted as, its layers, and which configuration key each letter came from."""

    sections: tuple[Section, ...]
    layers: int
    keys: Mapping[str, str]


def explain_difference(a: CountedModel, b: CountedModel) -> tuple[Cause, ...]:
    """Every cause that changes some weight, in the order of the way from a to b."""
    ours, theirs = weight_terms(a.sections), weight_terms(b.sections)
    if _rank(ours) <= _rank(theirs):
        return tuple(_worded(x, a, b, (ours, theirs)) for x in _Way(ours, theirs, (a.layers, b.layers)).causes())
    back = list(_Way(theirs, ours, (b.layers, a.layers)).causes())
    return tuple(_worded(_turned(x), a, b, (ours, theirs)) for x in reversed(back))


def _rank(found: list[WeightTerm]) -> tuple[object, ...]:
    """An order of models by size; of two of one size by what is in them, so that it matters not which came first."""
    parts = sorted((x.path, x.form, x.parameters, x.layers or 0, sorted(x.letters.items())) for x in found)
    return sum(x.parameters for x in found), parts


def _turned(cause: Cause) -> Cause:
    parts = tuple(x.replace(delta=-x.delta) for x in cause.parts)
    return cause.replace(a=cause.b, b=cause.a, parts=parts)


def _worded(cause: Cause, a: CountedModel, b: CountedModel, both: tuple[list[WeightTerm], list[WeightTerm]]) -> Cause:
    if cause.a is None or cause.b is None:
        return cause.replace(cause=structural_cause(cause.kind, *both, {x.path for x in cause.parts}))
    if cause.kind in WORDS:
        return cause.replace(cause=WORDS[cause.kind][cause.a > cause.b])
    key = b.keys.get(cause.kind) or a.keys.get(cause.kind) or cause.kind
    return cause.replace(cause=f"{'larger' if cause.b > cause.a else 'smaller'} {key}")


class _Way:
    """The way from one model to another, a step at a time."""

    def __init__(self, start: list[WeightTerm], end: list[WeightTerm], layers: tuple[int, int]) -> None:
        self.start, self.end, self.layers = start, end, layers
        self.there: dict[str, list[WeightTerm]] = {}
        for x in end:
            self.there.setdefault(x.path, []).append(x)
        self.here: dict[str, int] = {}
        for x in start:
            self.here[x.path] = self.here.get(x.path, 0) + 1
        self.may = [self._movable(x) for x in start]
        self.values: list[dict[str, int]] = [{} for _ in start]
        self.times = [x.layers for x in start]

    def causes(self) -> Iterator[Cause]:
        """The steps that change anything."""
        before, after = unique_letters(self.start), unique_letters(self.end)
        for kind, letters in _steps(before, after):
            if kind in ("L", "kinds"):
                times = [self._deeper(t) if kind == "L" else self._mixed(x, t) for x, t in zip(self.start, self.times, strict=True)]
                made, self.times = self._step(self.values, times), times
                a, b = self.layers if kind == "L" else (None, None)
            else:
                new = {x: after[x] for x in letters}
                moved = [old | {x: n for x, n in new.items() if x in may} for old, may in zip(self.values, self.may, strict=True)]
                made, self.values = self._step(moved, self.times), moved
                a, b = before[letters[0]], after[letters[0]]
            if made:
                yield Cause(kind=kind, cause=kind, a=a, b=b, parts=made)
        yield from self._otherwise()

    def _step(self, moved: list[dict[str, int]], times: list[int | None]) -> tuple[CausePart, ...]:
        states = zip(self.start, self.values, self.times, moved, times, strict=True)
        deltas = ((x, x.at(new, n) - x.at(old, t), n) for x, old, t, new, n in states)
        return _summed(CausePart(path=x.path, group=x.group, delta=delta, layers=n) for x, delta, n in deltas)

    def _movable(self, term: WeightTerm) -> frozenset[str]:
        found = self.there.get(term.path)
        return EVERYWHERE if found is None else frozenset(letter for x in found for letter in x.letters)

    def _deeper(self, times: int | None) -> int | None:
        """The layers of a kind if it keeps its share of them."""
        a, b = self.layers
        return times if times is None else (2 * times * b + a) // (2 * a)

    def _mixed(self, term: WeightTerm, times: int | None) -> int | None:
        """The layers that the same weight has at the end."""
        found = self.there.get(term.path, ())
        same = [x for x in found if x.form == term.form] or (found if self.here[term.path] == 1 else ())
        return same[0].layers if len(same) == 1 and None not in (times, same[0].layers) else times

    def _otherwise(self) -> Iterator[Cause]:
        """What is left: weights of one of them alone, or of another form."""
        left = [
            CausePart(path=x.path, group=x.group, delta=-x.at(v, n), layers=n)
            for x, v, n in zip(self.start, self.values, self.times, strict=True)
        ]
        left += [CausePart(path=x.path, group=x.group, delta=x.parameters, layers=x.layers) for x in self.end]
        roles = {x.path: x.role for x in (*self.start, *self.end)}
        kinds: dict[str, list[CausePart]] = {}
        for part in _summed(left):
            kinds.setdefault(structural_kind(part.path, part.group, roles[part.path], self.start, self.end), []).append(part)
        for kind in sorted(kinds, key=_place):
            yield Cause(kind=kind, cause=kind, parts=tuple(kinds[kind]))


def _place(kind: str) -> tuple[int, str]:
    order = ("attention", "mlp", "shared", "positions", "head", "norms", "biases")
    return order.index(kind) if kind in order else len(order), kind


def _summed(parts: Iterable[CausePart]) -> tuple[CausePart, ...]:
    """Parts of one path together, those of nothing left out."""
    made: dict[str, CausePart] = {}
    for x in parts:
        made[x.path] = x.replace(delta=x.delta + made[x.path].delta) if x.path in made else x
    return tuple(x for x in made.values() if x.delta)


def _steps(a: Mapping[str, int], b: Mapping[str, int]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Which letters change, and which of them together: KV heads with the heads where each has its own, sizes that undo each other."""
    changed = {x for x in a.keys() & b.keys() if a[x] != b[x]}
    heads = ["H"] if "H" in changed else []
    if heads and all("K" in x and x["K"] == x["H"] for x in (a, b)):
        heads.append("K")
    swapped = bool(heads) and "h" in changed and a["H"] * a["h"] == b["H"] * b["h"]
    heads += ["h"] if swapped else []
    order = [*ORDER, *sorted(changed - set(ORDER))]
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
