"""The layout of a block diagram: rows by dependency depth, lanes for parallel branches, and routed
edges.

A step is below its inputs; a step with several inputs is in the leftmost lane that is free down to
it, and the others come in from theirs. What is added to the stream keeps to the left, as the
residual arm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...analysis.graph.steps import Step
from ...utils.record_type import Record


class Edge(NamedTuple):
    """An edge from one step to another, down a lane; `arm` marks the residual edge, which is
    routed on the left.
    """

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
        return 1 + max(self.rows.values(), default=0)

    @property
    def width(self) -> int:
        """The number of lanes."""
        return 1 + max((*self.lanes.values(), *(x.lane for x in self.edges)), default=0)


def layout_block(steps: Sequence[Step]) -> Layout:
    """Place the steps of a block in rows and lanes; its inputs are above them."""
    names = {x.name for x in steps}
    rows = dict.fromkeys((name for x in steps for name in x.inputs if name not in names), 0)
    for x in steps:
        rows[x.name] = 1 + max((rows[name] for name in x.inputs), default=-1)
    lanes: dict[str, int] = {}
    taken: set[tuple[int, int]] = set()
    edges: list[Edge] = []
    for name, row in rows.items():
        if row == 0:
            lanes[name] = _first_free_lane(taken, range(1))
            taken.add((lanes[name], 0))
    for x in sorted((x for x in steps if rows[x.name]), key=lambda x: rows[x.name]):
        edges += _place(x, rows, lanes, taken)
    return Layout(rows=rows, lanes=lanes, edges=tuple(edges))


def _place(
    x: Step, rows: dict[str, int], lanes: dict[str, int], taken: set[tuple[int, int]]
) -> Iterator[Edge]:
    """Choose the lane of a step, and yield the edges to it."""
    row, arms = rows[x.name], x.inputs[:1] if x.kind == "add" and len(x.inputs) > 1 else ()
    inputs = sorted(
        (name for name in x.inputs if name not in arms), key=lambda name: (lanes[name], -rows[name])
    )
    yield from (Edge(name, x.name, -1, True) for name in arms)
    straight = next(
        (name for name in inputs if _is_free(taken, lanes[name], range(rows[name] + 1, row + 1))),
        None,
    )
    above = straight or max(inputs, key=lambda name: rows[name])
    span = range(rows[above] + 1, row + 1)
    lanes[x.name] = lanes[above] if straight else _first_free_lane(taken, span)
    taken.update((lanes[x.name], i) for i in span)
    yield Edge(above, x.name, lanes[x.name])
    for name in inputs:
        if name != above:
            between = range(rows[name] + 1, row)
            lane = (
                lanes[name]
                if _is_free(taken, lanes[name], between)
                else _first_free_lane(taken, between)
            )
            taken.update((lane, i) for i in between)
            yield Edge(name, x.name, lane)


def _is_free(taken: set[tuple[int, int]], lane: int, rows: Iterable[int]) -> bool:
    return not any((lane, i) in taken for i in rows)


def _first_free_lane(taken: set[tuple[int, int]], rows: range) -> int:
    lane = 0
    while not _is_free(taken, lane, rows):
        lane += 1
    return lane
