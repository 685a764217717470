"""`find_renaming`: why expected tensors are missing: a prefix, a renamed module, or matrices that
are fused or split in the file.

Candidates have equal shapes in each layer; names only choose between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ....checkpoint.naming.meta_names import META
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list

Shape = tuple[int, ...]
_Indices = tuple[str, ...]
_MAX_ALIKE = 64
"""The most kinds of tensors with the same shapes that are compared with each other."""
_MAX_PREFIX = 200
"""The longest prefix that is looked for."""
_ROLES = {
    **dict.fromkeys(("q", "query", "wq"), "q"),
    **dict.fromkeys(("k", "key", "wk"), "k"),
    **dict.fromkeys(("v", "value", "wv"), "v"),
    **dict.fromkeys(("o", "out", "output", "dense", "wo"), "o"),
    **dict.fromkeys(("gate", "w1"), "gate"),
    **dict.fromkeys(("up", "fc1", "w3"), "up"),
    **dict.fromkeys(("down", "fc2", "w2"), "down"),
}
"""Word of a module's name → role of its matrix."""
_FUSED = ("q", "k", "v"), ("gate", "up"), ("k", "v")
"""Matrices that models fuse into one."""
_META_WORDS = frozenset(
    word
    for name in (*META.inside.values(), *META.outside.values())
    for word in name.split(".")
    if word not in ("norm", "output")
)


class Renaming(NamedTuple):
    """Causes in words, and the expected names that they explain."""

    causes: tuple[str, ...]
    explained: frozenset[str]


class _Kind(NamedTuple):
    """The tensors whose names differ in numbers alone: name with `#`, and shape by numbers."""

    words: tuple[str, ...]
    shapes: dict[_Indices, Shape]

    @property
    def name(self) -> str:
        """The name of the module, or of a tensor that is no weight or bias of one."""
        return self.words[-2] if self.words[-1] in ("weight", "bias") else self.words[-1]

    @property
    def place(self) -> tuple[tuple[str, ...], str]:
        """The module around it, and the last part of its name."""
        end = 2 if self.words[-1] in ("weight", "bias") else 1
        return self.words[:-end], self.words[-1] if end == 2 else ""

    @property
    def role(self) -> str:
        """The role of the matrix, by the name of its module."""
        name = self.name.lower()
        for end in ("_proj", "_projection", "_linear"):
            name = name.removesuffix(end)
        for start in ("attn_", "ffn_", "c_"):
            name = name.removeprefix(start)
        return _ROLES.get(name, name)


def find_renaming(missing: Mapping[str, Shape], others: Mapping[str, Shape]) -> Renaming | None:
    """Return why expected tensors are missing, given with the tensors that are there instead; None
    if no cause is found.
    """
    if not missing or not others:
        return None
    if found := _prefix(missing, others):
        return found
    absent, present = _kinds(missing), _kinds(others)
    renamed = list(_renamed(absent, present))
    for x, y in renamed:
        absent.remove(x)
        present.remove(y)
    causes = list(_names_of(renamed))
    explained = [x for x, _ in renamed]
    for whole, parts in _joined(present, absent):
        explained += parts
        causes.append(f"{_list(parts)} are fused in {safe(whole.name, 60)}")
    for whole, parts in _joined(absent, present):
        explained.append(whole)
        causes.append(f"{safe(whole.name, 60)} is stored in parts: {_list(parts)}")
    if not causes:
        return None
    return Renaming(tuple(causes), frozenset(n for x in explained for n in _full_names(x)))


def _prefix(missing: Mapping[str, Shape], others: Mapping[str, Shape]) -> Renaming | None:
    """Return the prefix that at least half of the names have, or lack, in the file."""
    for added, (short, long) in enumerate(((others, missing), (missing, others))):
        for name in sorted(short, key=len, reverse=True)[:2]:
            end = f".{name}"
            start = next((x[: 1 - len(end)] for x in long if x.endswith(end)), "")
            if not 0 < len(start) <= _MAX_PREFIX:
                continue
            fit = [x for x in short if long.get(start + x) == short[x]]
            if 2 * len(fit) < len(missing):
                continue
            verb, with_or_without = ("begins", "without") if added else ("lacks", "with")
            what = "with" if added else "the beginning"
            text = (
                f"every name {verb} {what} `{safe(start, 60)}`: {with_or_without} it, "
                f"{len(fit):,} of {format_count(len(missing), 'missing tensor')} fit"
            )
            explained = fit if added else [start + x for x in fit]
            return Renaming((text,), frozenset(explained))
    return None


def _kinds(shapes: Mapping[str, Shape]) -> list[_Kind]:
    kinds: dict[tuple[str, ...], dict[_Indices, Shape]] = {}
    for name, shape in shapes.items():
        words = name.split(".")
        pattern = tuple("#" if x.isdecimal() else x for x in words)
        kinds.setdefault(pattern, {})[tuple(x for x in words if x.isdecimal())] = shape
    return [_Kind(words, by_number) for words, by_number in kinds.items()]


def _full_names(kind: _Kind) -> Iterator[str]:
    for numbers in kind.shapes:
        left = iter(numbers)
        yield ".".join(next(left) if x == "#" else x for x in kind.words)


def _renamed(absent: Sequence[_Kind], present: Sequence[_Kind]) -> Iterator[tuple[_Kind, _Kind]]:
    """Yield the kinds with the same shapes in the same layers whose names differ in one word."""
    alike: dict[tuple[frozenset[tuple[_Indices, Shape]], int], tuple[list[_Kind], list[_Kind]]] = {}
    for side, kinds in enumerate((absent, present)):
        for x in kinds:
            key = frozenset(x.shapes.items()), len(x.words)
            alike.setdefault(key, ([], []))[side].append(x)
    for ours, theirs in alike.values():
        if max(len(ours), len(theirs)) > _MAX_ALIKE:
            continue
        for x in ours:
            near_ones = [y for y in theirs if _distance(x, y) == 1]
            same_role = [y for y in near_ones if y.role == x.role]
            rivals = [z for z in ours if any(_distance(z, y) == 1 for y in near_ones)]
            if len(same_role) == 1:
                yield x, same_role[0]
            elif len(near_ones) == len(rivals) == 1:
                yield x, near_ones[0]


def _distance(a: _Kind, b: _Kind) -> int:
    return sum(x != y for x, y in zip(a.words, b.words, strict=True))


def _names_of(renamed: Sequence[tuple[_Kind, _Kind]]) -> Iterator[str]:
    """Yield the renamed words, all in one sentence."""
    words: dict[str, str] = {}
    for x, y in renamed:
        a, b = next((a, b) for a, b in zip(x.words, y.words, strict=True) if a != b)
        words.setdefault(a, b)
    if words:
        pairs = format_list((f"{safe(b, 60)} is {a}" for a, b in words.items()), 6)
        whose = (
            ", as in Meta's files, whose q and k have rows in another order"
            if _META_WORDS.issuperset(words.values())
            else ""
        )
        yield f"modules have other names{whose}: {pairs}"


def _joined(wholes: Sequence[_Kind], parts: Sequence[_Kind]) -> Iterator[tuple[_Kind, list[_Kind]]]:
    """Yield each kind whose rows are those of several others of the same module."""
    by_place: dict[tuple[tuple[str, ...], str], list[_Kind]] = {}
    for x in parts:
        by_place.setdefault(x.place, []).append(x)
    for whole in wholes:
        inside = by_place.get(whole.place, [])
        for roles in _FUSED:
            found = [x for role in roles for x in inside if x.role == role]
            if len(found) == len(roles) and _is_sum(whole, found):
                yield whole, found
                break


def _is_sum(whole: _Kind, parts: Sequence[_Kind]) -> bool:
    """Whether a tensor has the rows of these, in each layer."""
    if any(x.shapes.keys() != whole.shapes.keys() for x in parts):
        return False
    return all(
        all(shape and x.shapes[i][1:] == shape[1:] for x in parts)
        and sum(x.shapes[i][0] for x in parts) == shape[0]
        for i, shape in whole.shapes.items()
    )


def _list(kinds: Iterable[_Kind]) -> str:
    *first, last = (safe(x.name, 60) for x in kinds)
    return f"{', '.join(first)} and {last}"
