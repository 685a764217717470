"""The layout of a block diagram: rows by dependency depth, lanes for parallel branches, and routed edges.

A step stands under what it reads; a step that reads several stands in the leftmost lane that is free down to it, and the others come in
from theirs. What is added to the stream keeps to the left, as the residual arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...analysis.graph import Operation
from ...core.record_type import Record


class Edge(NamedTuple):
    """From one step to another, down a lane; `arm` for what goes round by the left."""

    source: str
    target: str
    lane: int
    arm: bool = False


class Layout(Record):
    """Rows and lanes of steps, and the edges."""

    rows: dict[str, int]
    lanes: dict[str, int]
    edges: tuple[Edge, ...]

    @property
    def height(self) -> int:
        """The number of rows."""
        return 1 + max(self.rows.values())

    @property
    def width(self) -> int:
        """The number of lanes."""
        return 1 + max(*self.lanes.values(), *(x.lane for x in self.edges))


def layout(steps: Sequence[Operation]) -> Layout:
    """Place the steps of a block; what it reads from outside stands above them."""
    names = {x.name for x in steps}
    rows = dict.fromkeys((name for x in steps for name in x.inputs if name not in names), 0)
    for x in steps:
        rows[x.name] = 1 + max((rows[name] for name in x.inputs), default=-1)
    lanes: dict[str, int] = {}
    taken: set[tuple[int, int]] = set()
    edges: list[Edge] = []
    for name, row in rows.items():
        if row == 0:
            lanes[name] = _free(taken, range(1))
            taken.add((lanes[name], 0))
    for x in sorted((x for x in steps if rows[x.name]), key=lambda x: rows[x.name]):
        edges += _placed(x, rows, lanes, taken)
    return Layout(rows=rows, lanes=lanes, edges=tuple(edges))


def _placed(x: Operation, rows: dict[str, int], lanes: dict[str, int], taken: set[tuple[int, int]]) -> Iterator[Edge]:
    """Find the lane of a step, and the ways to it."""
    row, arms = rows[x.name], x.inputs[:1] if x.kind == "add" and len(x.inputs) > 1 else ()
    inputs = sorted((name for name in x.inputs if name not in arms), key=lambda name: (lanes[name], -rows[name]))
    yield from (Edge(name, x.name, -1, True) for name in arms)
    straight = next((name for name in inputs if _open(taken, lanes[name], range(rows[name] + 1, row + 1))), None)
    above = straight or max(inputs, key=lambda name: rows[name])
    span = range(rows[above] + 1, row + 1)
    lanes[x.name] = lanes[above] if straight else _free(taken, span)
    taken.update((lanes[x.name], i) for i in span)
    yield Edge(above, x.name, lanes[x.name])
    for name in inputs:
        if name != above:
            between = range(rows[name] + 1, row)
            lane = lanes[name] if _open(taken, lanes[name], between) else _free(taken, between)
            taken.update((lane, i) for i in between)
            yield Edge(name, x.name, lane)


def _open(taken: set[tuple[int, int]], lane: int, rows: Iterable[int]) -> bool:
    return not any((lane, i) in taken for i in rows)


def _free(taken: set[tuple[int, int]], rows: range) -> int:
    lane = 0
    while not _open(taken, lane, rows):
        lane += 1
    return lane
