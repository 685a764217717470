"""Names folded over the numbers in them: `model.layers.{0..31}.self_attn.q_proj.weight` × 32, and back again.

A number is a whole part of a name between dots. In a pattern, `{0..2,5}` stands for 0, 1, 2 and 5, `{0..30..2}` for every second one, and
`{{` and `}}` for a brace that the name itself has. Folding loses nothing: the patterns unfold to the names that were given.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import product, repeat
from math import prod
from operator import attrgetter
from typing import NamedTuple

DIGITS, COLUMNS = 9, 8
"""A longer number is a word, and so is one that begins with a needless 0; only so many numbers in a name are folded."""

_NO_DIGITS = str.maketrans("", "", "0123456789")
_NUMBER = re.compile(rf"0|[1-9][0-9]{{0,{DIGITS - 1}}}")
_TOKEN = re.compile(r"(\{\{|\}\}|\{[0-9.,]+\})")

Rows = list[tuple[int, ...]]
Box = tuple[tuple[int, ...], ...]
"""For each number in a pattern, the values that it takes: the pattern stands for their product."""


class Folded(NamedTuple):
    """A pattern and how many names it stands for."""

    pattern: str
    copies: int


class Group(NamedTuple):
    """The same in parts, for names that also agree in a key; `first` is the place of the earliest of them."""

    parts: tuple[str, ...]
    copies: int
    first: int

    @property
    def pattern(self) -> str:
        """The parts as one name."""
        return ".".join(self.parts)


def folded(names: Iterable[str]) -> list[Folded]:
    """The patterns that these names make, in order of first appearance."""
    return [Folded(x.pattern, x.copies) for x in groups(list(names))]


def unfolded(pattern: str) -> Iterator[str]:
    """Every name that a pattern stands for."""
    return map("".join, product(*(_choices(x) for x in _TOKEN.split(pattern))))


def groups(names: Sequence[str], keys: Iterable[Hashable] | None = None) -> list[Group]:
    """The patterns of the names that agree in their keys, in order of first appearance."""
    found: dict[tuple[str, Hashable], list[int]] = {}
    for i, key in enumerate(zip(_words(names), repeat(None) if keys is None else keys, strict=keys is not None)):
        if key in found:
            found[key].append(i)
        else:
            found[key] = [i]
    once = len(set(names)) == len(names)
    made: list[Group] = []
    for (words, _), places in found.items():
        made += _folded(words.split("."), names, places, once) if len(places) > 1 else [_alone(names, places[0])]
    return sorted(made, key=attrgetter("first"))


def _words(names: Sequence[str]) -> list[str]:
    """The names without their digits; all at once, if no name has the mark that stands between them."""
    text = "\n".join(names)
    if text.count("\n") == len(names) - 1:
        return text.translate(_NO_DIGITS).split("\n")
    return [x.translate(_NO_DIGITS) for x in names]


def _alone(names: Sequence[str], place: int) -> Group:
    return Group(tuple(map(_escaped, names[place].split("."))), 1, place)


def _folded(words: list[str], names: Sequence[str], places: list[int], once: bool) -> Iterator[Group]:
    """Names with the same words and as many parts: those that differ in a word after all are told apart, the others folded."""
    flat, width = ".".join([names[i] for i in places]).split("."), len(words)
    columns = [flat[i::width] for i in range(width)]
    varying = [i for i, column in enumerate(columns) if column.count(column[0]) < len(column)]
    numbers = [i for i in varying if not words[i] and all(map(_NUMBER.fullmatch, set(columns[i])))][:COLUMNS]
    others = [i for i in varying if i not in numbers]
    if not others:
        yield from _numbered([x[0] for x in columns], numbers, [columns[i] for i in numbers], places, once)
        return
    apart: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(zip(*(columns[i] for i in others), strict=True)):
        apart.setdefault(key, []).append(i)
    for members in apart.values():
        values = [[columns[x][i] for i in members] for x in numbers]
        yield from _numbered([x[members[0]] for x in columns], numbers, values, [places[i] for i in members], once)


def _numbered(parts: list[str], numbers: list[int], columns: list[list[str]], places: list[int], once: bool) -> Iterator[Group]:
    """Names that differ in these numbers alone; one that is given twice is in two patterns."""
    whole = tuple(tuple(sorted(map(int, set(column)))) for column in columns)
    if once and prod(map(len, whole)) == len(places):
        yield _group(parts, numbers, whole, places[0])
        return
    levels: list[dict[tuple[int, ...], int]] = []
    seen: dict[tuple[int, ...], int] = {}
    for place, row in zip(places, zip(*(map(int, x) for x in columns), strict=True) if columns else repeat(()), strict=False):
        seen[row] = level = seen.get(row, -1) + 1
        if level == len(levels):
            levels.append({})
        levels[level][row] = place
    for known in levels:
        for box in _boxes(list(known)):
            yield _group(parts, numbers, box, min(known[x] for x in product(*box)))


def _group(parts: Sequence[str], numbers: list[int], box: Box, first: int) -> Group:
    written = list(map(_escaped, parts))
    for i, values in zip(numbers, box, strict=True):
        written[i] = _set(values)
    return Group(tuple(written), prod(map(len, box)), first)


def _boxes(rows: Rows) -> list[Box]:
    """Distinct rows as products: what goes with each first number is found, and the numbers with which the same goes are joined."""
    if not rows or not rows[0]:
        return [()] if rows else []
    tails: dict[int, Rows] = {}
    for row in rows:
        tails.setdefault(row[0], []).append(row[1:])
    same: dict[tuple[Box, ...], list[int]] = {}
    for first, rest in tails.items():
        same.setdefault(tuple(_boxes(sorted(rest))), []).append(first)
    return [(tuple(sorted(firsts)), *box) for boxes, firsts in same.items() for box in boxes]


def _set(values: Sequence[int]) -> str:
    """Ascending numbers as `7`, or `{0..2,5}`: runs of three or more with one step, `{0..30..2}` where it is not 1."""
    if len(values) == 1:
        return str(values[0])
    runs: list[str] = []
    i = 0
    while i < len(values):
        j, step = i + 1, values[i + 1] - values[i] if i + 1 < len(values) else 0
        while j + 1 < len(values) and values[j + 1] - values[j] == step:
            j += 1
        if j - i < 2 or j >= len(values):
            runs.append(str(values[i]))
            i += 1
            continue
        runs.append(f"{values[i]}..{values[j]}" + (f"..{step}" if step > 1 else ""))
        i = j + 1
    return f"{{{','.join(runs)}}}"


def _escaped(part: str) -> str:
    return part.replace("{", "{{").replace("}", "}}") if "{" in part or "}" in part else part


def _choices(token: str) -> list[str]:
    """What a piece of a pattern stands for."""
    if token in ("{{", "}}"):
        return [token[0]]
    if not token.startswith("{"):
        return [token]
    found: list[str] = []
    for run in token[1:-1].split(","):
        first, last, step = (*map(int, run.split("..")), 1)[:3] if ".." in run else (int(run), int(run), 1)
        found += map(str, range(first, last + 1, step))
    return found
