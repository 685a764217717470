"""The layout of the block diagram on the page: positions of steps and routes of edges, in a wide and a narrow form.

In the wide form, a point is (lane, offset from the lane's middle, y), since only the page knows the width of a lane; lane −1 is the
residual connection. In the narrow form, steps are stacked and edges run along rails; a point is (x, y).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.graph import Operation
from ...render.svg.block_layout import Edge, Layout

BOX, GAP, TALL, ROUND, TOP = 58, 46, 94, 14, 16
"""Heights of a box, of the gap below it, and of a step in the narrow layout; the radius of a sum; the margin."""
RAIL, STUB = 11, 28
"""The distance between rails, and from a box's left edge to its outgoing line."""


class Block:
    """The steps of one block by name, and its inputs from outside."""

    def __init__(self, steps: Sequence[Operation], plan: Layout) -> None:
        self.steps, self.plan = {x.name: x for x in steps}, plan
        self.order = [name for name in plan.rows if name not in self.steps] + list(self.steps)
        self.buses: dict[int, list[str]] = {}
        self.sides: dict[str, int] = {}

    def half(self, name: str) -> int:
        """Half the height; sums and inputs from outside are round."""
        return ROUND if name not in self.steps or self.steps[name].kind == "add" else BOX // 2

    def above(self, name: str) -> int:
        """Half the height where edges enter; experts are drawn as a stack of boxes."""
        return self.half(name) + (8 if "{e}" in name else 0)

    def columns(self) -> dict[str, Any]:
        """Return the wide layout, with lanes side by side."""
        heights = {name: self._y(row) for name, row in self.plan.rows.items()}
        height = TOP + self.plan.height * (BOX + GAP) + 8
        return {"y": [heights[name] for name in self.order], "lines": [self._edge(x) for x in self.plan.edges], "height": height}

    def _y(self, row: int) -> int:
        return TOP + row * (BOX + GAP) + BOX // 2

    def _bus(self, row: int, key: str) -> int:
        """Assign a height in the gap below a row to each line that crosses it."""
        used = self.buses.setdefault(row, [])
        if key not in used:
            used.append(key)
        return TOP + row * (BOX + GAP) + BOX + 25 + used.index(key) * 5 % (GAP - 30)

    def _edge(self, x: Edge) -> dict[str, Any]:
        rows, lanes = self.plan.rows, self.plan.lanes
        (a, top), (b, end) = ((lanes[name], self._y(rows[name])) for name in (x.source, x.target))
        points, side = [[a, 0, top + self.half(x.source)]], 0
        if x.arm:
            bus, into = self._bus(rows[x.source], x.source), -self.half(x.target)
            points += [[a, 0, bus], [-1, 0, bus], [-1, 0, end], [b, into - 7, end]]
            return {"points": points, "tip": [b, into, end], "sideways": True}
        if x.lane != a:
            bus = self._bus(rows[x.source], x.source)
            points += [[a, 0, bus], [x.lane, 0, bus]]
        if x.lane != b:
            bus = self._bus(rows[x.target] - 1, f"{x.source} {x.target}")
            self.sides[x.target] = self.sides.get(x.target, 0) + 1
            side = (20 if x.lane > b else -20) * self.sides[x.target]
            points += [[x.lane, 0, bus], [b, side, bus]]
        head = end - self.above(x.target)
        return {"points": [*points, [b, side, head - 6]], "tip": [b, side, head], "sideways": False}

    def under(self) -> dict[str, Any]:
        """Return the narrow layout, one step below another."""
        rails = self._rails()
        left = 12 + RAIL * (1 + max(rails.values(), default=-1))
        heights = {name: 12 + i * TALL + BOX // 2 for i, name in enumerate(self.order)}
        lines = [x for name in self.steps for x in self._ways(name, heights, (left, rails))]
        return {"y": list(heights.values()), "lines": lines, "left": left, "height": 20 + TALL * len(self.order)}

    def _rails(self) -> dict[str, int]:
        """Assign a rail to each output that is read further down; outputs whose spans do not overlap share one."""
        at = {name: i for i, name in enumerate(self.order)}
        far = {y: at[x.name] for x in self.steps.values() for y in x.inputs if at[x.name] - at[y] > 1}
        found, ends = dict[str, int](), list[int]()
        for name in sorted(far, key=at.__getitem__):
            found[name] = next((i for i, end in enumerate(ends) if end < at[name]), len(ends))
            ends[found[name] : found[name] + 1] = [far[name]]
        return found

    def _ways(self, name: str, heights: dict[str, int], where: tuple[int, dict[str, int]]) -> Iterator[dict[str, Any]]:
        (left, rails), b = where, heights[name]
        start = left + STUB
        for source in self.steps[name].inputs:
            a = heights[source]
            if b - a == TALL:
                head = b - self.above(name)
                yield {"points": [[start, a + self.half(source)], [start, head - 6]], "tip": [start, head], "sideways": False}
                continue
            rail = left - 9 - RAIL * rails[source]
            out, into = (start - ROUND if self.half(x) == ROUND else left for x in (source, name))
            points = [[out, a + 8], [rail, a + 8], [rail, b - 4], [into - 6, b - 4]]
            yield {"points": points, "tip": [into, b - 4], "sideways": True}
