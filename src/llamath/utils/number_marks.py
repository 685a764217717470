"""Marks in place of numbers that follow from dimensions, so that the same texts can be written for
other dimensions.

Inside `marked()`, an `Expr` with letters is written as a mark, which f-strings, joins and escapes
carry along. A mark holds a random key until `Marks.encode` writes it, so that no text from a file
is taken for one.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

DELIMITER = "\x7f"
"""Encloses the place of a mark in an encoded text; `safe` lets no other one through."""
_START, _END = "\ue000", "\ue001"


class Repeated(list[Any]):
    """A list that is written as its items with how often each is repeated."""

    def __init__(self, runs: Sequence[tuple[Any, int]]) -> None:
        super().__init__(item for item, n in runs for _ in range(int(n)))
        self.runs = runs


class Quotient(float):
    """The quotient of two numbers, which follows them."""

    inputs: tuple[int, int]

    def __new__(cls, n: int, by: int) -> Quotient:
        self = float.__new__(cls, int(n) / int(by))
        self.inputs = (n, by)
        return self


class FactorUnlessOne:
    """A number in an expression, which is left out where it is 1."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FactorUnlessOne) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)


class Either:
    """One of two expressions: the first where two numbers are equal, as they are at first."""

    def __init__(self, a: int, b: int, same: Any, other: Any) -> None:
        self.numbers, self.same, self.other = (a, b), same, other


def either(number: int, of_one: Any, of_zero: Any) -> Any:
    """Return one of two expressions, by a number that is 1 or 0."""
    now, other = (of_one, of_zero) if number else (of_zero, of_one)
    return Either(number, int(number), now, other) if _has_letters(number) else now


class Arranged(list[Any]):
    """A list with an item for each of a number of layers: those of the first ones, some that are
    repeated in turn, and those of the last ones; equal neighbors as `[item, times]`, if asked for.
    """

    def __init__(
        self,
        own: Sequence[Any],
        parts: tuple[list[Any], list[Any], list[Any]],
        number: int,
        in_runs: bool = False,
    ) -> None:
        super().__init__(own)
        self.parts, self.number, self.in_runs = parts, number, in_runs


class Ranges(tuple[tuple[int, int, int], ...]):
    """Numbers of layers, as (first, last, step): `members` has a 1 for each of the first, the
    repeated and the last layers that is one of them, and a 0 for others, as in `000|1|`.
    """

    members: str
    number: int

    def __new__(cls, own: tuple[tuple[int, int, int], ...], members: str, number: int) -> Ranges:
        self = super().__new__(cls, own)
        self.members, self.number = members, number
        return self


class Marks:
    """The marks that were made: each has a way to write numbers, their forms, and the text for
    the numbers as they are.
    """

    def __init__(self) -> None:
        # without digits, which a formula would group
        self._prefix = f"{_START}{_in_letters(int(os.urandom(8).hex(), 16))}:"
        self._pattern = re.compile(f"{self._prefix}([a-z]+){_END}")
        self._places: dict[tuple[Any, ...], int] = {}
        self._made: list[tuple[str, tuple[Any, ...], str]] = []
        self._forms = _Forms()
        self._known: dict[tuple[Any, ...], tuple[tuple[Any, ...], str]] = {}
        self._texts: dict[tuple[int, str], tuple[Any, str]] = {}

    def text_of(self, x: object, name: str, write: Callable[[], str]) -> str:
        """Return what is written for something under a name, which is kept."""
        key = (id(x), name)
        known = self._texts.get(key)
        if known is None:  # with the object, so that no other one has its id
            known = self._texts[key] = x, write()
        return known[1]

    def add(self, own: str, kind: str, inputs: tuple[Any, ...]) -> str:
        """Return the mark of a text."""
        key = (kind, own, *map(id, inputs))
        known = self._known.get(key)
        if known is None:  # with the inputs, so that no others have their ids
            text = self._added(own, kind, tuple(map(self._input, inputs)))
            known = self._known[key] = inputs, text
        return known[1]

    def _input(self, x: Any) -> int | str:
        """Return a text, or the place of a number's form."""
        if isinstance(x, str):
            return x
        return self._forms.place(x.to_form() if hasattr(x, "to_form") else int(x))

    def _added(self, own: str, kind: str, inputs: tuple[int | str, ...]) -> str:
        place = self._places.setdefault((kind, *inputs), len(self._made))
        if place == len(self._made):
            self._made.append((kind, inputs, own))
        return f"{self._prefix}{_in_letters(place)}{_END}"

    def own(self, text: str) -> str:
        """Return a text with the numbers as they are."""
        while _START in text and text != (
            text := self._pattern.sub(lambda x: self._made[_place(x[1])][2], text)
        ):
            pass
        return text

    def grouped(self, text: str) -> str:
        """Return a text whose numbers have commas."""

        def group(found: re.Match[str]) -> str:
            kind, forms, own = self._made[_place(found[1])]
            if kind == "factor" and own:
                return self._added(f"{int(own[:-1]):,}·", "factor,", forms)
            return self._added(f"{int(own):,}", ",", forms) if kind == "d" else found[0]

        return self._pattern.sub(group, text)

    def own_data(self, x: Any) -> Any:
        """Return data with the numbers as they are."""
        return self._mapped(
            x,
            self.own,
            lambda n, kind, *_: (
                float(n)
                if isinstance(n, float)
                else None
                if kind == "unless 1" and n == 1
                else int(n)
            ),
            lambda runs: [y for y, n in runs for _ in range(n)],
            lambda either: either.same,
            list,
            lambda ranges: [list(x) for x in ranges],
        )

    def encode(self, x: Any) -> dict[str, Any]:
        r"""Return data for JSON: each mark is its place between two delimiters, alone in a text
        for a number; `{"\x7f": [[item, times], …]}` is a list with repeated items,
        `{"\x7f~": …}` one of `Arranged` layers, and `{"\x7f-": …}` their `Ranges`.

        `marks` are (kind, form or text, …), a form being its place in `forms` of expressions, in
        which a name is a letter and `["@", place]` another form; `own` are the letters with their
        values.
        """
        data: dict[str, Any] = self._mapped(
            x,
            lambda text: self._encoded(text.replace(DELIMITER, "\\x7f")),
            lambda n, kind, *inputs: self._encoded(self.add(str(n), kind, inputs)),
            lambda runs: {DELIMITER: [[y, n] for y, n in runs]},
            self._encoded_either,
            self._encoded_arranged,
            lambda x: {DELIMITER + "-": [x.members, self._encoded(self.add("", "#", (x.number,)))]},
        )
        used = [x for _, made, _ in self._made for x in made if isinstance(x, int)]
        values = self._forms.letters(used)
        forms = _SharedForms(self._forms, values)
        marks = [
            [kind, *(self._encoded(x) if isinstance(x, str) else forms.add(x) for x in made)]
            for kind, made, _ in self._made
        ]
        return data | {
            "marks": marks,
            "forms": forms.to_json(),
            "own": {letter: str(n) for letter, n in values.items()},
        }

    def _encoded_either(self, x: Either) -> dict[str, Any]:
        choice = self._encoded(self.add("", "=", (*x.numbers, "1", "")))
        return {DELIMITER + "=": [choice, x.same, x.other]}

    def _encoded_arranged(self, x: Arranged) -> dict[str, Any]:
        number = self._encoded(self.add("", "#", (x.number,)))
        return {DELIMITER + "~": [*x.parts, number, int(x.in_runs)]}

    def _encoded(self, text: str) -> str:
        if _START not in text:
            return text
        return self._pattern.sub(lambda x: f"{DELIMITER}{_place(x[1])}{DELIMITER}", text)

    def _mapped(
        self,
        x: Any,
        of_text: Callable[[str], Any],
        of_number: Callable[..., Any],
        of_runs: Callable[[Sequence[tuple[Any, Any]]], Any],
        of_either: Callable[[Either], Any],
        of_arranged: Callable[[Arranged], Any],
        of_ranges: Callable[[Ranges], Any],
    ) -> Any:
        def visit(y: Any) -> Any:
            kind = type(y)
            if kind is str:
                return of_text(y)
            if kind is int or kind is float or kind is bool or y is None:
                return y
            if kind is dict:
                return {self.own(key): visit(value) for key, value in y.items()}
            if isinstance(y, str):
                return of_text(y)
            if isinstance(y, Repeated):
                return of_runs([(visit(item), visit(n)) for item, n in y.runs])
            if isinstance(y, Arranged):
                return of_arranged(y)
            if isinstance(y, Ranges):
                return of_ranges(y)
            if isinstance(y, Mapping):
                return {self.own(key): visit(value) for key, value in y.items()}
            if isinstance(y, list | tuple):
                items = [visit(item) for item in y]
                kept = [item for item in items if item is not None or None in y]
                alone = len(kept) == 2 < len(items) and kept[0] == "*"
                return kept[1] if alone else kept
            if isinstance(y, FactorUnlessOne):
                return of_number(y.number, "unless 1", y.number)
            if isinstance(y, Either):
                return of_either(Either(*y.numbers, visit(y.same), visit(y.other)))
            if isinstance(y, int) and not isinstance(y, bool):
                return of_number(y, "#", y) if _has_letters(y) else int(y)
            if isinstance(y, Quotient):
                follows = any(map(_has_letters, y.inputs))
                return of_number(y, "/", *y.inputs) if follows else float(y)
            return y

        return visit(x)


_ACTIVE: ContextVar[Marks | None] = ContextVar("_ACTIVE", default=None)


def active_marks() -> Marks | None:
    """Return the marks that numbers are written as, if they are."""
    return _ACTIVE.get()


def is_marking() -> bool:
    """Whether numbers are written as marks."""
    return _ACTIVE.get() is not None


@contextmanager
def marked() -> Iterator[Marks]:
    """Write numbers that follow from dimensions as marks.

    The collector of reference cycles pauses: marks keep what they were made of, and it would look
    through all of that again and again.
    """
    marks, pauses = Marks(), gc.isenabled()
    token = _ACTIVE.set(marks)
    gc.disable()
    try:
        yield marks
    finally:
        _ACTIVE.reset(token)
        if pauses:
            gc.enable()


@contextmanager
def unmarked() -> Iterator[None]:
    """Write numbers as they are, as where the length of a text decides."""
    token = _ACTIVE.set(None)
    try:
        yield
    finally:
        _ACTIVE.reset(token)


def mark(own: str, kind: str, *inputs: int | str) -> str:
    """Return the mark of a text that is written from numbers, or the text itself."""
    marks = _ACTIVE.get()
    if marks is None or not any(map(_has_letters, inputs)):
        return own
    return marks.add(own, kind, inputs)


def text_if_equal(a: int, b: int, same: str, other: str) -> str:
    """Return one of two texts: the choice follows the numbers."""
    return mark(same if a == b else other, "=", a, b, same, other)


def grouped_marks(text: str) -> str:
    """Return a text whose marks are those of numbers with commas."""
    marks = _ACTIVE.get()
    return text if marks is None else marks.grouped(text)


def own_data(x: Any) -> Any:
    """Return data with the numbers as they are."""
    marks = _ACTIVE.get()
    return x if marks is None else marks.own_data(x)


def own_text(text: str) -> str:
    """Return a text with the numbers as they are."""
    marks = _ACTIVE.get()
    return text if marks is None else marks.own(text)


def _has_letters(x: object) -> bool:
    return bool(getattr(x, "symbols", None))


def _in_letters(n: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(n))


def _place(letters: str) -> int:
    return int("".join(str(ord(x) - ord("a")) for x in letters))


class _Forms:
    """Forms, each kept once, after those that it consists of."""

    def __init__(self) -> None:
        self.contents: list[tuple[Any, ...]] = []
        """A number, a letter with its value as `("let", letter, value)`, or an operation with the
        places of its arguments.
        """
        self._place_of: dict[tuple[Any, ...], int] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # by list, which it keeps

    def place(self, form: Any) -> int:
        """Return the place of a form."""
        if type(form) is not list:
            return self._added((form,))
        known = self._known.get(id(form))
        if known is None:
            rest = form[1:] if form[0] == "let" else map(self.place, form[1:])
            known = self._known[id(form)] = form, self._added((form[0], *rest))
        return known[1]

    def _added(self, content: tuple[Any, ...]) -> int:
        place = self._place_of.setdefault(content, len(self.contents))
        if place == len(self.contents):
            self.contents.append(content)
        return place

    def letters(self, places: Iterable[int]) -> dict[str, int]:
        """Return the letters of these forms that stand for one value each."""
        found: dict[str, set[int]] = {}
        left, seen = list(places), set[int]()
        left.reverse()
        while left:
            x = left.pop()
            if x in seen:
                continue
            seen.add(x)
            name, *rest = self.contents[x]
            if name == "let":
                found.setdefault(rest[0], set()).add(rest[1])
            else:
                left += reversed(rest)
        return {letter: next(iter(each)) for letter, each in found.items() if len(each) == 1}


class _SharedForms:
    """Forms in which what is in several of them, or twice in one, is a form of its own."""

    def __init__(self, forms: _Forms, letters: Mapping[str, int]) -> None:
        self._contents, self._letters = forms.contents, letters
        self._node_of: dict[tuple[Any, ...], int] = {}
        self._nodes: list[tuple[Any, ...]] = []
        self._uses: list[int] = []
        self._roots: dict[int, int] = {}
        self._known: dict[int, int] = {}

    def add(self, place: int) -> int:
        """Return the place of a form among those that are written."""
        return self._roots.setdefault(self._node(place), len(self._roots))

    def _node(self, place: int) -> int:
        known = self._known.get(place)
        if known is None:
            known = self._known[place] = self._find_node(self._contents[place])
        return known

    def _find_node(self, form: tuple[Any, ...]) -> int:
        if len(form) == 1:
            content = form
        elif form[0] == "let":
            content = (form[1] if form[1] in self._letters else form[2],)
        elif form[0] in ("+", "*") and len(form) == 2:
            return self._node(form[1])
        else:
            content = (form[0], *map(self._node, form[1:]))
        if content not in self._node_of:
            self._node_of[content] = len(self._nodes)
            self._nodes.append(content)
            self._uses.append(0)
            for x in content[1:]:
                self._uses[x] += 1
        return self._node_of[content]

    def to_json(self) -> list[Any]:
        """Return all forms; `["@", place]` is another one."""
        places = dict(self._roots)
        found: list[Any] = []
        left = list(places)
        for node in left:

            def written(x: int, inside: bool = True) -> Any:
                name, *parts = self._nodes[x]
                if not parts:
                    return name
                is_long = len(parts) > 2 or any(len(self._nodes[y]) > 1 for y in parts)
                if inside and (x in places or (self._uses[x] > 1 and is_long)):
                    if x not in places:
                        places[x] = len(places)
                        left.append(x)
                    return ["@", places[x]]
                return [name, *map(written, parts)]

            found.append(written(node, inside=False))
        return found
