"""Tensor names folded over the numbers in them, as `model.layers.{0..31}.self_attn.q_proj.weight`,
and unfolded again.

A number is a whole part of a name between dots. In a pattern, `{0..2,5}` stands for 0, 1, 2 and 5,
`{0..30..2}` for every second number, and `{{` and `}}` for a brace in the name. Folding is
lossless: the patterns unfold to the given names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import product, repeat
from math import prod
from operator import attrgetter
from typing import NamedTuple

MAX_DIGITS, MAX_NUMBERS, MAX_NAME_PARTS = 9, 8, 64
"""Longer numbers and those with a leading zero are not folded; at most 8 numbers of a name are,
in names of at most 64 parts."""

CHUNK = 4096
"""The number of names that are processed at once."""

_NO_DIGITS = str.maketrans("", "", "0123456789")
_LETTERS, _GAPS = bytes(set(range(128)) - set(b".0123456789")), bytes.maketrans(b".", b" ")
_TOKEN = r"(\{\{|\}\}|\{[0-9.,]+\})"

Rows = list[tuple[int, ...]]
Box = tuple[tuple[int, ...], ...]
"""The values of each number in a pattern; the pattern stands for their product."""


class _FoldedNames(NamedTuple):
    """A pattern and the number of names that it stands for."""

    pattern: str
    copies: int


class NameGroup(NamedTuple):
    """A pattern in parts, for names that also agree in other columns; `first` is the index of
    the first name.
    """

    parts: tuple[str, ...]
    copies: int
    first: int

    @property
    def pattern(self) -> str:
        """The pattern as one name."""
        return ".".join(self.parts)


def fold_names(names: Iterable[str]) -> list[_FoldedNames]:
    """Return the patterns of these names, in order of first appearance."""
    return [_FoldedNames(x.pattern, x.copies) for x in fold_groups(list(names))]


def unfold_pattern(pattern: str) -> Iterator[str]:
    """Return every name that a pattern stands for."""
    return map("".join, product(*(_token_values(x) for x in re.split(_TOKEN, pattern))))


def fold_groups(
    names: Sequence[str], *columns: Sequence[Hashable], distinct: int | None = None
) -> list[NameGroup]:
    """Return the patterns of names that agree in the other columns, in order of first appearance.

    `distinct` is the number of distinct names, if it is known.
    """
    indices_by_words: defaultdict[str, list[int]] = defaultdict(list)
    for at in range(0, len(names), CHUNK):
        for i, word in enumerate(_without_digits(names[at : at + CHUNK]), at):
            indices_by_words[word].append(i)
    once = (len(set(names)) if distinct is None else distinct) == len(names)
    groups: list[NameGroup] = []
    for word, group in indices_by_words.items():
        for indices in _split_by_columns(group, columns):
            if len(indices) > 1 and word.count(".") < MAX_NAME_PARTS:
                groups += _fold_alike(word.split("."), names, indices, once)
            else:
                groups += [
                    NameGroup(tuple(map(_escaped, names[i].split(".", MAX_NAME_PARTS))), 1, i)
                    for i in indices
                ]
    return sorted(groups, key=attrgetter("first"))


def _split_by_columns(
    indices: list[int], columns: Sequence[Sequence[Hashable]]
) -> Iterable[list[int]]:
    """Return these indices, split by the columns' values there."""
    if len(indices) == 1 or all(_all_equal(list(map(x.__getitem__, indices))) for x in columns):
        return [indices]
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for i in indices:
        groups.setdefault(tuple(x[i] for x in columns), []).append(i)
    return groups.values()


def _all_equal(values: list[Hashable]) -> bool:
    return values.count(values[0]) == len(values)


def _without_digits(names: Sequence[str]) -> list[str]:
    """Return the names without their digits, all at once if no name contains the separator."""
    text = "\n".join(names)
    if names and text.count("\n") == len(names) - 1:
        return (
            text.encode("utf-8", "surrogatepass")
            .translate(None, b"0123456789")
            .decode("utf-8", "surrogatepass")
            .split("\n")
        )
    return [x.translate(_NO_DIGITS) for x in names]


def _is_number(part: str) -> bool:
    return (
        part.isascii()
        and part.isdigit()
        and len(part) <= MAX_DIGITS
        and (part == "0" or part[0] != "0")
    )


def _number_columns(words: list[str], names: list[str]) -> dict[int, list[str]]:
    """Return the parts of the names at each position that may be a number, or where any name has
    a digit.
    """
    text, width = ".".join(names), len(words)
    # no part is empty: where there are no more runs of digits, they are all the numbers
    if text.isascii() and ".." not in f".{text}.":
        positions = [i for i, word in enumerate(words) if not word]
        runs = text.encode().translate(_GAPS, _LETTERS).decode().split()
        if len(runs) == len(positions) * len(names):
            return {i: runs[j :: len(positions)] for j, i in enumerate(positions)}
    flat = (
        text.encode().translate(None, _LETTERS).decode().split(".")
        if text.isascii()
        else text.split(".")
    )
    columns = {i: flat[i::width] for i in range(width)}
    mixed = [i for i, column in columns.items() if words[i] and column.count("") < len(column)]
    parts = text.split(".") if mixed else []
    return {
        i: parts[i::width] if i in mixed else column
        for i, column in columns.items()
        if not words[i] or i in mixed
    }


def _fold_alike(
    words: list[str], names: Sequence[str], indices: list[int], once: bool
) -> Iterator[NameGroup]:
    """Yield the patterns of names with the same words and number of parts; those that differ in
    a word with digits are separated.
    """
    columns: dict[int, list[str]] = {}
    for at in range(0, len(indices), CHUNK):
        chunk = _number_columns(words, [names[i] for i in indices[at : at + CHUNK]])
        for i in chunk.keys() | columns.keys():
            columns.setdefault(i, [words[i]] * at).extend(
                chunk.get(i) or [words[i]] * min(CHUNK, len(indices) - at)
            )
    varying = [i for i, column in columns.items() if column.count(column[0]) < len(column)]
    numbers = [i for i in varying if not words[i] and all(map(_is_number, set(columns[i])))][
        :MAX_NUMBERS
    ]
    others = [i for i in varying if i not in numbers]
    members_by_key: dict[tuple[str, ...], list[int]] = {}
    for i, key in enumerate(zip(*(columns[i] for i in others), strict=True)):
        members_by_key.setdefault(key, []).append(i)
    for members in members_by_key.values() if others else [range(len(indices))]:
        parts = [columns[i][members[0]] if i in columns else word for i, word in enumerate(words)]
        values = (
            [[columns[x][i] for i in members] for x in numbers]
            if others
            else [columns[x] for x in numbers]
        )
        yield from _fold_numbers(
            parts, numbers, values, [indices[i] for i in members] if others else indices, once
        )


def _fold_numbers(
    parts: list[str], numbers: list[int], columns: list[list[str]], indices: list[int], once: bool
) -> Iterator[NameGroup]:
    """Yield the patterns of names that differ only in these numbers; a name that is given twice
    is in two patterns.
    """
    values = tuple(tuple(sorted(map(int, set(column)))) for column in columns)
    if once and prod(map(len, values)) == len(indices):
        yield _group(parts, numbers, values, indices[0])
        return
    levels: list[dict[tuple[int, ...], int]] = []
    seen: dict[tuple[int, ...], int] = {}
    for place, row in zip(
        indices,
        zip(*(map(int, x) for x in columns), strict=True) if columns else repeat(()),
        strict=False,
    ):
        seen[row] = level = seen.get(row, -1) + 1
        if level == len(levels):
            levels.append({})
        levels[level][row] = place
    for known in levels:
        for box in _as_products(list(known)):
            yield _group(parts, numbers, box, min(known[x] for x in product(*box)))


def _group(parts: Sequence[str], numbers: list[int], box: Box, first: int) -> NameGroup:
    written = list(map(_escaped, parts))
    for i, values in zip(numbers, box, strict=True):
        written[i] = _number_set(values)
    return NameGroup(tuple(written), prod(map(len, box)), first)


def _as_products(rows: Rows) -> list[Box]:
    """Return distinct rows as products: first numbers with the same remainders are joined."""
    if not rows or not rows[0]:
        return [()] if rows else []
    tails: dict[int, Rows] = {}
    for row in rows:
        tails.setdefault(row[0], []).append(row[1:])
    same: dict[tuple[Box, ...], list[int]] = {}
    for first, rest in tails.items():
        same.setdefault(tuple(_as_products(sorted(rest))), []).append(first)
    return [(tuple(sorted(firsts)), *box) for boxes, firsts in same.items() for box in boxes]


def _number_set(values: Sequence[int]) -> str:
    """Return ascending numbers as `7` or `{0..2,5}`; runs of three or more with a step other
    than 1 as `{0..30..2}`.
    """
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


def _token_values(token: str) -> list[str]:
    """Return the texts that a token of a pattern stands for."""
    if token in ("{{", "}}"):
        return [token[0]]
    if not token.startswith("{"):
        return [token]
    values: list[str] = []
    for run in token[1:-1].split(","):
        first, last, step = (
            (*map(int, run.split("..")), 1)[:3] if ".." in run else (int(run), int(run), 1)
        )
        values += map(str, range(first, last + 1, step))
    return values
