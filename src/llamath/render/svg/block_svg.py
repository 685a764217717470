"""A decoder block as an SVG diagram: a box for each step with its weights and shape, the
residual stream on the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...analysis.graph.operations.operation import HIDDEN_STATES
from ...analysis.graph.step_table import format_shape, format_weights, list_letters
from ...analysis.graph.steps import Step
from ...analysis.graph.walkthrough import Walkthrough, WalkthroughStage
from ...model import FamilyModel
from ...utils.number_format import format_ranges, format_si, short_count
from ..table import wrap
from .block_layout import Edge, Layout, layout_block
from .svg_shapes import CHAR_WIDTH, circle, path, rect, svg_document, text, truncate_text

TOP, EDGE, ARM = 92, 28, 44
BOX, LABEL, BUS = 60, 20, 28
_PITCH = BOX + LABEL + BUS
FOLLOW, SMALL = 6, 11
_BEHIND = 4
"""The offset, in pixels, of the boxes behind an expert that stand for the other experts."""
GROUPS = 8
"""Limits: groups of heads, and heads per group."""
_COLORS = {
    "norm": "norm",
    "cache": "embedding",
    "add": "page",
    "input": "page",
    "choice": "router",
    "ids": "other",
}
Point = tuple[float, float]


class _BlockDiagram:
    """The positions of the steps of a block in the diagram."""

    def __init__(self, stage: WalkthroughStage) -> None:
        self.stage = stage
        self.steps = {x.name: x for x in stage.steps}
        self.plan: Layout = layout_block(stage.steps)
        longest = max(len(format_shape(x)) for x in stage.steps)
        self.lane = max(244, round(longest * SMALL * CHAR_WIDTH * 0.9) + 24)
        self.groups = [x for x in stage.steps if x.kind == "scores" and len(x.inputs) == 2]
        side = 232 if self.groups else 0
        labels = max(
            self.at(x.name)[0] + 8 + len(format_shape(x)) * SMALL * CHAR_WIDTH for x in stage.steps
        )
        self.width = max(
            680, round(EDGE + ARM + self.plan.width * self.lane + side + EDGE), round(labels) + 8
        )
        self.height = TOP + self.plan.height * _PITCH + 24
        self._buses: dict[tuple[int, str], int] = {}

    def at(self, name: str) -> Point:
        """Return the center of a step's box."""
        return self.across(self.plan.lanes[name]), TOP + self.plan.rows[name] * _PITCH + BOX / 2

    def across(self, lane: int) -> float:
        """Return the x coordinate of a lane, or of the residual edge."""
        return EDGE + 10 if lane < 0 else EDGE + ARM + (lane + 0.5) * self.lane

    def bus(self, gap: int, key: str) -> float:
        """Return the y coordinate of a horizontal line in the gap under a row; each key gets its
        own.
        """
        mine = self._buses.setdefault((gap, key), sum(1 for row, _ in self._buses if row == gap))
        return TOP + gap * _PITCH + BOX + LABEL + 5 + (mine * 5) % (BUS - 8)

    def foot(self, name: str) -> float:
        """Return the y coordinate at which edges leave a step."""
        return self.at(name)[1] + (14 if self.round(name) else BOX / 2)

    def head(self, name: str) -> float:
        """Return the y coordinate at which edges enter a step."""
        return self.at(name)[1] - (
            14 if self.round(name) else BOX / 2 + (2 * _BEHIND if "{e}" in name else 0)
        )

    def round(self, name: str) -> bool:
        """Return whether a step is drawn as a circle: sums and inputs."""
        return name not in self.steps or self.steps[name].kind == "add"


def block_svg(model: FamilyModel, walk: Walkthrough, layer: int | None = None) -> str:
    """Return the diagram of the requested layer, or of the most frequent kind of layer."""
    stage = next((x for x in walk.layers if layer is not None and x.layer == layer), None) or max(
        walk.layers, key=lambda x: x.times
    )
    p = _BlockDiagram(stage)
    which = f"layer {stage.layer}" + (
        f" (same as {format_ranges(stage.indices)})" if stage.times > 1 and stage.indices else ""
    )
    title = f"{model.name}: {which}"
    label = "; ".join(
        f"{x.name}: {x.description}, {format_shape(x)}, {_weights(x)}" for x in stage.steps
    )
    legend = _legend(p, walk, model)
    size = (p.width, p.height + 20 * len(legend))
    return svg_document(size, title, label, _shapes(p, walk, title, legend))


def _shapes(p: _BlockDiagram, walk: Walkthrough, title: str, legend: list[str]) -> Iterator[str]:
    stage, n = p.stage, walk.graph.new_tokens
    yield text((EDGE, 38), truncate_text(title, p.width - 2 * EDGE, 20), size=20, bold=True)
    many = f" × {stage.times:,} layers" if stage.times > 1 else ""
    flops = f"{format_si(stage.flops)} FLOPs for {n:,} token{'s' * (n != 1)}"
    line = f"{stage.parameters:,} parameters ({short_count(stage.parameters)}){many}; {flops}"
    yield text((EDGE, 60), truncate_text(line, p.width - 2 * EDGE), "faint")
    for edge in p.plan.edges:
        yield from _edge(p, edge)
    last = stage.steps[-1].name
    x, y = p.at(last)
    yield _line([(x, p.foot(last)), (x, y + BOX / 2 + LABEL + 14)])
    yield _arrow((x, y + BOX / 2 + LABEL + 20))
    for name in p.plan.rows:
        yield from _step(p, name)
    for scores in p.groups:
        yield from _heads(p, scores)
    for i, label in enumerate(legend):
        yield text((EDGE, p.height + 4 + 20 * i), label, "faint", size=12)


def _edge(p: _BlockDiagram, edge: Edge) -> Iterator[str]:
    (a, _), (b, y) = p.at(edge.source), p.at(edge.target)
    rows, down, top = p.plan.rows, p.foot(edge.source), p.head(edge.target)
    if edge.arm:
        bus, arm = p.bus(rows[edge.source], f">{edge.source}"), p.across(-1)
        yield _line([(a, down), (a, bus), (arm, bus), (arm, y), (b - 20, y)])
        yield _arrow((b - 14, y), sideways=True)
        return
    lane, points, entry = p.across(edge.lane), [(a, down)], b
    if lane != a:
        bus = p.bus(rows[edge.source], f">{edge.source}")
        points += [(a, bus), (lane, bus)]
    if lane != b:
        bus = p.bus(rows[edge.target] - 1, f"<{edge.target}{edge.source}")
        entry = b + (22 if lane > b else -22) * (1 + _num_side_inputs_before(p, edge))
        points += [(lane, bus), (entry, bus)]
    yield _line([*points, (entry, top - FOLLOW)])
    yield _arrow((entry, top))


def _num_side_inputs_before(p: _BlockDiagram, edge: Edge) -> int:
    """Return the number of side inputs before this one."""
    side = [
        x
        for x in p.plan.edges
        if x.target == edge.target and not x.arm and p.across(x.lane) != p.at(x.target)[0]
    ]
    return side.index(edge)


def _step(p: _BlockDiagram, name: str) -> Iterator[str]:
    (x, y), step = p.at(name), p.steps.get(name)
    if step is None:
        yield _circle((x, y), "from the previous layer" if name == HIDDEN_STATES else name)
        yield text(
            (x, y + 5), "x" if name == HIDDEN_STATES else "e", "ink", "middle", 14, bold=True
        )
        yield text(
            (x + 22, y + 4),
            "residual stream" if name == HIDDEN_STATES else "per-layer input",
            "faint",
            size=12,
        )
        shown = format_shape(p.stage.steps[-1]) if name == HIDDEN_STATES else ""
        yield text((x + 8, y + BOX / 2 + 12), shown, "faint", size=SMALL)
        return
    if step.kind == "add":
        yield _circle((x, y), f"{name}: {step.description}")
        yield text((x, y + 6), "+", "ink", "middle", 18, bold=True)
        yield text(
            (x + 22, y + 4), truncate_text(step.description, p.lane - 40, 12), "faint", size=12
        )
    else:
        yield from _box(p, step, (x, y))
    yield text((x + 8, y + BOX / 2 + 14), format_shape(step), "faint", size=SMALL)


def _box(p: _BlockDiagram, step: Step, at: Point) -> Iterator[str]:
    wide = p.lane - 26
    left, top = at[0] - wide / 2, at[1] - BOX / 2
    note = f"{step.name}: {step.description}; {_weights(step)}" + (
        f"; {int(step.flops):,} FLOPs" if int(step.flops) else ""
    )
    style = step_color(p.steps, step)
    if "{e}" in step.name:
        yield from (
            _outlined_rect((left + _BEHIND * i, top - _BEHIND * i, wide, BOX), style)
            for i in (2, 1)
        )
    yield _outlined_rect((left, top, wide, BOX), style, note)
    mark = " ↻" if step.kind == "rope" else ""
    yield text(
        (left + 10, top + 19),
        truncate_text(step.name.replace(".{e}", "") + mark, wide - 16),
        bold=True,
    )
    if step.kind in ("scores", "softmax", "mix") and not step.weights:
        yield text((left + wide - 10, top + 19), "no weights", "ink", "end", SMALL)
    for i, label in enumerate(_box_lines(step, wide - 16)):
        yield text((left + 10, top + 36 + 16 * i), label, size=12)


def _box_lines(step: Step, room: float) -> list[str]:
    """Return the lines of a box below its name: its weights and its description, which gets two
    lines without weights.
    """
    head = (
        [f"{format_weights(step.weights)}: {short_count(step.parameters)}"] if step.weights else []
    )
    most = int(room / (12 * 0.54))
    lines = wrap(step.description, indent="", width=most)
    rest = 2 - len(head)
    shown = (
        lines[:rest]
        if len(lines) <= rest
        else [*lines[: rest - 1], truncate_text(" ".join(lines[rest - 1 :]), room, 11)]
    )
    return [*head, *shown]


def _weights(step: Step) -> str:
    return (
        f"weights {format_weights(step.weights)}, {step.parameters:,} parameters"
        if step.weights
        else "no weights"
    )


def step_color(steps: Mapping[str, Step], step: Step) -> str:
    """Return the color class of a step: by kind, else by the group of its weights, else that of
    its inputs.
    """
    if step.kind in _COLORS:
        return _COLORS[step.kind]
    if "{e}" in step.name:
        return "experts"
    if step.weights:
        return step.weights[0].group or "other"
    colors = [
        step_color(steps, y) for name in step.inputs if (y := _source(steps, name)) is not None
    ]
    return next((x for x in colors if x not in ("page", "embedding")), "other")


def _source(steps: Mapping[str, Step], name: str) -> Step | None:
    """Return the step of this name, or the input of a norm."""
    step = steps.get(name)
    return _source(steps, step.inputs[0]) if step is not None and step.kind == "norm" else step


def _heads(p: _BlockDiagram, scores: Step) -> Iterator[str]:
    """Draw the groups of query heads that share a key and value head."""
    assert scores.node is not None
    query, keys, _ = (x.shape for x in scores.node.inputs)
    H, K = int(query[2]), int(keys[2])
    x, y = p.width - EDGE - 216, p.at(scores.name)[1] - 6 - 10 * min(K, GROUPS)
    each, shown = H // K, min(K, GROUPS)
    yield text((x, y - 26), f"{H:,} query head{'s' * (H != 1)} ({query[2].symbol})", size=12)
    yield text((x, y - 10), f"{K:,} key and value head{'s' * (K != 1)} ({keys[2].symbol})", size=12)
    for i in range(shown):
        top = y + 22 * i
        yield _outlined_rect(
            (x, top, 30 + 16 * min(each, GROUPS), 18),
            "page",
            f"{each} query heads share a key and a value head",
        )
        yield circle((x + 12, top + 9), 6, "embedding", "key and value head")
        yield from (
            circle((x + 34 + 16 * j, top + 9), 5, "attention", "query head")
            for j in range(min(each, GROUPS))
        )
        if each > GROUPS:
            yield text((x + 36 + 16 * GROUPS, top + 13), "…", "faint")
    label = f"{each} queries to a key" + (f", {K:,} times" if K > 1 else "")
    yield text((x, y + 22 * shown + 12), ("… " if shown < K else "") + label, "faint", size=12)


def _legend(p: _BlockDiagram, walk: Walkthrough, model: FamilyModel) -> list[str]:
    """Return the legend of the letters, broken into lines."""
    entries = list_letters(model, walk.replace(stages=(p.stage,)))
    lines, line = [], ""
    for part in entries:
        if len(line) + len(part) > (p.width - 2 * EDGE) / (12 * CHAR_WIDTH) - 2:
            lines.append(line)
            line = ""
        line = f"{line}, {part}" if line else part
    return [*lines, line]


def _line(points: list[Point]) -> str:
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{where}" class="stroke" style="fill: none; stroke-width: 1.5"/>'


def _arrow(tip: Point, sideways: bool = False) -> str:
    x, y = tip
    return path(
        [tip, (x - 7, y - 4), (x - 7, y + 4)]
        if sideways
        else [tip, (x - 4, y - 7), (x + 4, y - 7)],
        "line",
    )


def _circle(at: Point, note: str) -> str:
    return circle(at, 14, "page stroke", note)


def _outlined_rect(box: tuple[float, float, float, float], style: str, note: str = "") -> str:
    return rect(box, f"{style} stroke", note)
