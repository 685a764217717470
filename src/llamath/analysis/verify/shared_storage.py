"""Which tensors of a torch checkpoint share their storage: the same numbers under two names (a tied head), or views of one buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...checkpoint.formats.manifest import Tensor


class SharedStorage(NamedTuple):
    """Tensors of one storage, in file order; `same` if they are the same numbers, else they are views of its bytes."""

    names: tuple[str, ...]
    bytes: int  # from the first that one of them uses to the last
    same: bool


def find_shared_storage(tensors: Sequence[Tensor]) -> tuple[tuple[SharedStorage, ...], frozenset[int]]:
    """The storages with more than one tensor, and the places of the tensors whose numbers an earlier one has."""
    storages: dict[tuple[int, str], list[int]] = {}
    for i, x in enumerate(tensors):
        if x.storage:
            storages.setdefault((x.file, x.storage), []).append(i)
    found: list[SharedStorage] = []
    again: list[int] = []
    for places in storages.values():
        if len(places) > 1:
            ties = list(_again(tensors, places))
            first, last = min(tensors[i].start for i in places), max(tensors[i].end for i in places)
            found.append(SharedStorage(tuple(tensors[i].name for i in places), last - first, len(ties) == len(places) - 1))
            again += ties
    return tuple(found), frozenset(again)


def _again(tensors: Sequence[Tensor], places: Sequence[int]) -> Iterator[int]:
    """Those with as many elements of the same dtype in the same bytes as an earlier one: the same tensor, or it transposed or reshaped."""
    seen: set[tuple[int, int, str, int]] = set()
    for i in places:
        key = (tensors[i].start, tensors[i].end, tensors[i].dtype, tensors[i].elements)
        if key in seen:
            yield i
        seen.add(key)
