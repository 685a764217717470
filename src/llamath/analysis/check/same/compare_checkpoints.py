"""`compare_checkpoints`: compare two checkpoints weight by weight, in chunks, by canonical path."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import NamedTuple

from ....checkpoint.canonical_reader import CanonicalWeight
from ....checkpoint.tensor_reader import CHUNK_BYTES, MergedTensor
from ....utils.errors import Call, LlamathError, safe
from ....utils.number_format import format_count, format_list
from .adapted_side import open_side
from .chunk_comparison import CompareGroups, Tally, compare_chunks
from .compared_side import ComparedSide
from .difference_causes import CauseFinder
from .same_report import SameReport, WeightDifference

Progress = Callable[[int, int], None]
"""Called with the number of bytes compared so far and in all."""
_MAX_WORKERS = 4


class _Pair(NamedTuple):
    """A weight of both checkpoints."""

    path: str
    a: CanonicalWeight
    b: CanonicalWeight


def compare_checkpoints(
    a: str,
    b: str,
    base: str | None = None,
    progress: Progress = lambda _done, _all: None,
    compare_groups: CompareGroups | None = None,
) -> SameReport:
    """Compare the checkpoints at two paths; `base` is the base model of an adapter among them."""
    with open_side(a, base) as ours, open_side(b, base) as theirs:
        return _compare(ours, theirs, progress, compare_groups)


def _compare(
    a: ComparedSide, b: ComparedSide, progress: Progress, compare_groups: CompareGroups | None
) -> SameReport:
    mtp = [path for path in a.mtp_weights if path in b.mtp_weights]
    paths = list(dict.fromkeys((*a.weights, *b.weights, *mtp)))
    found = [(path, a.find(path), b.find(path)) for path in paths]
    pairs = [_Pair(path, x, y) for path, x, y in found if x is not None and y is not None]
    if not pairs:
        raise LlamathError(
            f"{safe(a.checkpoint.path)} and {safe(b.checkpoint.path)} have no weight in common",
            hint=f"{Call('diff', a.checkpoint.path, b.checkpoint.path)} compares their shapes",
        )
    compared = [x for x in pairs if x.a.shape == x.b.shape or _common_rows(x)]
    tallies = _compare_all(a, b, compared, progress, compare_groups)
    differences, identical = [], 0
    for pair in pairs:
        tally = tallies.get(pair.path)
        if tally is not None and pair.a.shape == pair.b.shape and not tally.differing:
            identical += 1
        else:
            differences.append(_difference(pair, tally))
    finder = CauseFinder(a, b)
    differences = [
        finder.explain(x, tallies.get(x.path)) if x.verdict == "different" else x
        for x in differences
    ]
    others, notes = _compare_others(a, b, mtp)
    if moved := [x for x in differences if x.verdict == "rounding" and x.beyond]:
        notes.insert(0, _moved_note(moved))
    return SameReport(
        a=a.facts,
        b=b.facts,
        compared=len(pairs) + others.compared,
        identical=identical + others.compared - len(others.differences),
        differences=(*differences, *others.differences),
        only_in_a=tuple(path for path, _, y in found if y is None),
        only_in_b=tuple(path for path, x, _ in found if x is None),
        others_compared=others.compared,
        others_only_in_a=others.only_in_a,
        others_only_in_b=others.only_in_b,
        causes=finder.causes(differences),
        notes=(*notes, *finder.notes),
    )


def _common_rows(pair: _Pair) -> int:
    """Return the rows to compare of two weights that differ in their number of rows; 0 if they
    cannot be compared.
    """
    return (
        min(pair.a.rows, pair.b.rows)
        if len(pair.a.shape) == 2 and pair.a.shape[1:] == pair.b.shape[1:]
        else 0
    )


def _compare_all(
    a: ComparedSide,
    b: ComparedSide,
    pairs: list[_Pair],
    progress: Progress,
    compare_groups: CompareGroups | None,
) -> dict[str, Tally]:
    """Compare the weights in chunks, several at a time; results are added in order."""
    total, done = sum(a.bytes_of(x.a) + b.bytes_of(x.b) for x in pairs), 0
    tallies: dict[str, Tally] = {}
    workers = min(_MAX_WORKERS, os.cpu_count() or 1)
    pending: deque[tuple[_Pair, int, Future[Tally]]] = deque()

    def finish() -> None:
        nonlocal done
        pair, size, future = pending.popleft()
        tallies[pair.path].add(future.result())
        done += size
        progress(done, total)

    with ThreadPoolExecutor(workers) as pool:
        try:
            for pair in pairs:
                tallies[pair.path] = Tally()
                size = (a.bytes_of(pair.a) + b.bytes_of(pair.b)) / max(1, pair.a.rows)
                for first, last in _spans(pair):
                    while len(pending) > 2 * workers:
                        finish()
                    future = pool.submit(_compare_chunk, a, b, pair, first, last, compare_groups)
                    pending.append((pair, round(size * (last - first)), future))
            while pending:
                finish()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    progress(total, total)
    return tallies


def _spans(pair: _Pair) -> Iterator[tuple[int, int]]:
    rows = min(pair.a.rows, pair.b.rows)
    yield from ((first, min(last, rows)) for first, last in pair.a.spans() if first < rows)


def _compare_chunk(
    a: ComparedSide,
    b: ComparedSide,
    pair: _Pair,
    first: int,
    last: int,
    compare_groups: CompareGroups | None,
) -> Tally:
    tally = Tally()
    compare_chunks(
        a.read(pair.a, first, last),
        b.read(pair.b, first, last),
        first,
        pair.a.width,
        tally,
        compare_groups,
    )
    return tally


def _difference(pair: _Pair, tally: Tally | None) -> WeightDifference:
    a, b = pair.a, pair.b
    different = WeightDifference(
        path=pair.path,
        verdict="different",
        stored_a=a.stored,
        stored_b=b.stored,
        dtype_a=a.dtype,
        dtype_b=b.dtype,
        shape_a=a.shape,
        shape_b=b.shape,
    )
    if tally is None:
        return different
    return different.replace(
        verdict="rounding" if a.shape == b.shape and tally.is_within else "different",
        elements=tally.values,
        differing=tally.differing,
        beyond=tally.beyond,
        max_difference=tally.max_difference,
        relative_error=tally.relative_error,
        cosine=tally.cosine,
        share_of_bound=tally.largest_share,
        first=None if tally.first is None else _index(tally.first, a.shape),
        rows=len(tally.rows),
    )


def _index(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of a position in the flat array of a weight."""
    index: list[int] = []
    for size in reversed(shape):
        position, i = divmod(position, size)
        index.insert(0, i)
    return tuple(index)


def _moved_note(moved: list[WeightDifference]) -> str:
    """Say that weights are equal by their relative errors, not by a bound for each value."""
    kinds = format_list(
        sorted({y for x in moved for y in (x.dtype_a, x.dtype_b) if y in ("awq", "gptq")})
    )
    share = max(x.beyond / x.elements for x in moved)
    return (
        f"{format_count(len(moved), 'weight')} of {kinds}: up to {share:.1%} of the values are "
        "further than half a step apart, because "
        "these quantizers move values to reduce the error of a layer. The relative errors of "
        "whole matrices are those of rounding; they "
        "would hide a slight fine-tuning"
    )


class _Others(NamedTuple):
    """The stored tensors outside of the model's tree."""

    compared: int
    differences: tuple[WeightDifference, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]


def _compare_others(a: ComparedSide, b: ComparedSide, mtp: list[str]) -> tuple[_Others, list[str]]:
    """Compare tensors that are no weights of the tree and not at the paths in `mtp`, as those of
    a vision tower, by name and bytes.
    """
    x, y = a.others(mtp), b.others(mtp)
    common = [name for name in x if name in y]
    differences = [d for name in common if (d := _compare_stored(a, b, name, x[name], y[name]))]
    only_a, only_b = tuple(sorted(x.keys() - y.keys())), tuple(sorted(y.keys() - x.keys()))
    notes = [
        f"{format_count(len(names), 'tensor')} only in {side} "
        f"({safe(names[0])}{', …' if len(names) > 1 else ''}) "
        f"{'is' if len(names) == 1 else 'are'} no weights of the language model: not compared"
        for side, names in (("A", only_a), ("B", only_b))
        if names
    ]
    return _Others(len(common), tuple(differences), only_a, only_b), notes


def _compare_stored(
    a: ComparedSide, b: ComparedSide, name: str, x: MergedTensor, y: MergedTensor
) -> WeightDifference | None:
    """Compare the bytes of two stored tensors of one name."""
    equal = x.shape == y.shape and x.dtype == y.dtype
    if equal:
        rows = prod(x.shape) // x.width if prod(x.shape) else 0
        step = max(1, CHUNK_BYTES // max(1, x.width * 4))
        equal = all(
            a.read_stored(x, i, min(rows, i + step)) == b.read_stored(y, i, min(rows, i + step))
            for i in range(0, rows, step)
        )
    if equal:
        return None
    return WeightDifference(
        path=name,
        verdict="different",
        stored_a=name,
        stored_b=name,
        dtype_a=x.dtype,
        dtype_b=y.dtype,
        shape_a=x.shape,
        shape_b=y.shape,
        elements=prod(x.shape),
        cause="not a weight of the language model; compared by its bytes",
    )
