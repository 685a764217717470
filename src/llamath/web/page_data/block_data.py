"""The block diagram's data: steps with symbolic shapes, their positions, and the edges between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.graph.descriptions import OVER_CACHED_KEYS
from ...analysis.graph.operations import HIDDEN_STATES, Operation, WeightUse
from ...analysis.graph.recorder import Graph, record
from ...analysis.graph.walkthrough import WalkthroughStage, reads_on, walkthrough
from ...core.blocks import MoE
from ...core.expr import Expr, Json, product
from ...model import Model
from ...render.svg.block_layout import Edge, Layout, layout_block
from ...render.svg.block_svg import step_color
from ...utils.errors import safe
from ...utils.number_format import format_ranges

_TOKENS, _BATCH = 3, 2
"""The tokens of the passes that are recorded; their expressions hold for any others."""
_BOX, _GAP, _STEP_HEIGHT, _RADIUS, _MARGIN = 58, 46, 94, 14, 16
"""Heights of a box, of the gap below it, and of a step in the narrow layout; the radius of a sum; the margin."""
_RAIL_GAP, _STUB = 11, 28
"""The distance between rails, and from a box's left edge to its outgoing line."""


class _BlockPositions:
    """Positions of the steps and inputs of one block, and the paths of its edges."""

    def __init__(self, steps: Sequence[Operation], plan: Layout) -> None:
        self.steps, self.plan = {x.name: x for x in steps}, plan
        self.order = [name for name in plan.rows if name not in self.steps] + list(self.steps)
        self.buses: dict[int, list[str]] = {}
        self.sides: dict[str, int] = {}

    def half_height(self, name: str) -> int:
        """Return half the height of a step; sums and inputs are circles."""
        return _RADIUS if name not in self.steps or self.steps[name].kind == "add" else _BOX // 2

    def half_height_with_stack(self, name: str) -> int:
        """Return half the height where edges enter; experts are drawn as a stack of boxes."""
        return self.half_height(name) + (8 if "{e}" in name else 0)

    def wide_layout(self) -> dict[str, Any]:
        """Return the wide layout, with lanes side by side."""
        heights = {name: self._row_center(row) for name, row in self.plan.rows.items()}
        height = _MARGIN + self.plan.height * (_BOX + _GAP) + 8
        return {"y": [heights[name] for name in self.order], "lines": [self._edge(x) for x in self.plan.edges], "height": height}

    def _row_center(self, row: int) -> int:
        return _MARGIN + row * (_BOX + _GAP) + _BOX // 2

    def _bus_height(self, row: int, key: str) -> int:
        """Return the height of a line that runs sideways in the gap below a row; each line gets its own."""
        used = self.buses.setdefault(row, [])
        if key not in used:
            used.append(key)
        return _MARGIN + row * (_BOX + _GAP) + _BOX + 25 + used.index(key) * 5 % (_GAP - 30)

    def _edge(self, x: Edge) -> dict[str, Any]:
        rows, lanes = self.plan.rows, self.plan.lanes
        (a, top), (b, end) = ((lanes[name], self._row_center(rows[name])) for name in (x.source, x.target))
        points, side = [[a, 0, top + self.half_height(x.source)]], 0
        if x.arm:
            bus, into = self._bus_height(rows[x.source], x.source), -self.half_height(x.target)
            points += [[a, 0, bus], [-1, 0, bus], [-1, 0, end], [b, into - 7, end]]
            return {"points": points, "tip": [b, into, end], "sideways": True}
        if x.lane != a:
            bus = self._bus_height(rows[x.source], x.source)
            points += [[a, 0, bus], [x.lane, 0, bus]]
        if x.lane != b:
            bus = self._bus_height(rows[x.target] - 1, f"{x.source} {x.target}")
            self.sides[x.target] = self.sides.get(x.target, 0) + 1
            side = (20 if x.lane > b else -20) * self.sides[x.target]
            points += [[x.lane, 0, bus], [b, side, bus]]
        head = end - self.half_height_with_stack(x.target)
        return {"points": [*points, [b, side, head - 6]], "tip": [b, side, head], "sideways": False}

    def narrow_layout(self) -> dict[str, Any]:
        """Return the narrow layout, one step below another."""
        rails = self._rails()
        left = 12 + _RAIL_GAP * (1 + max(rails.values(), default=-1))
        heights = {name: 12 + i * _STEP_HEIGHT + _BOX // 2 for i, name in enumerate(self.order)}
        lines = [x for name in self.steps for x in self._narrow_edges(name, heights, (left, rails))]
        return {"y": list(heights.values()), "lines": lines, "left": left, "height": 20 + _STEP_HEIGHT * len(self.order)}

    def _rails(self) -> dict[str, int]:
        """Assign a rail to each output that is read further down; outputs whose spans do not overlap share one."""
        at = {name: i for i, name in enumerate(self.order)}
        far = {y: at[x.name] for x in self.steps.values() for y in x.inputs if at[x.name] - at[y] > 1}
        found, ends = dict[str, int](), list[int]()
        for name in sorted(far, key=at.__getitem__):
            found[name] = next((i for i, end in enumerate(ends) if end < at[name]), len(ends))
            ends[found[name] : found[name] + 1] = [far[name]]
        return found

    def _narrow_edges(self, name: str, heights: dict[str, int], where: tuple[int, dict[str, int]]) -> Iterator[dict[str, Any]]:
        (left, rails), b = where, heights[name]
        start = left + _STUB
        for source in self.steps[name].inputs:
            a = heights[source]
            if b - a == _STEP_HEIGHT:
                head = b - self.half_height_with_stack(name)
                yield {"points": [[start, a + self.half_height(source)], [start, head - 6]], "tip": [start, head], "sideways": False}
                continue
            rail = left - 9 - _RAIL_GAP * rails[source]
            out, into = (start - _RADIUS if self.half_height(x) == _RADIUS else left for x in (source, name))
            points = [[out, a + 8], [rail, a + 8], [rail, b - 4], [into - 6, b - 4]]
            yield {"points": points, "tip": [into, b - 4], "sideways": True}


def build_block_diagrams(model: Model) -> dict[str, Any]:
    """Return the stages of the prefill, and of the decode pass if there is one; T is the number of tokens so far."""
    tree, tokens = model.tree, Expr.variable("T", _TOKENS)
    graphs = {"prompt": record(tree, batch=_BATCH, new_tokens=tokens, past_tokens=Expr.const(0))}
    if reads_on(tree):
        graphs["next"] = record(tree, batch=_BATCH, past_tokens=tokens - 1, decode=True)
    return {name: [_stage(x, graph) for x in walkthrough(graph).stages] for name, graph in graphs.items()}


def _stage(stage: WalkthroughStage, graph: Graph) -> dict[str, Any]:
    plan = layout_block(stage.steps)
    steps_by_name = {x.name: x for x in stage.steps}
    positions = _BlockPositions(stage.steps, plan)
    inputs = [name for name in plan.rows if name not in steps_by_name]
    return {
        "name": _title(stage),
        "layers": stage.name == "layers",
        "ranges": [list(x) for x in stage.indices],
        "times": str(stage.times),
        "parameters": str(stage.parameters),
        "lanes": plan.width,
        "inputs": [{"name": x, "says": "hidden states" if x == HIDDEN_STATES else "per-layer input"} | _lane(plan, x) for x in inputs],
        "stream": ["B", 1 if graph.decode else "T", _count(graph.tree.width)],
        "steps": [_step(x) | _lane(plan, x.name) | {"color": step_color(steps_by_name, x)} for x in stage.steps],
        "columns": positions.wide_layout(),
        "under": positions.narrow_layout(),
        "heads": list(_head_groups_and_experts(stage.steps)),
    }


def _title(stage: WalkthroughStage) -> str:
    """Return the label of a stage."""
    if stage.name != "layers":
        return stage.name
    place = f"layer {stage.layer}" if stage.times == 1 else f"layers {format_ranges(stage.indices)}" if stage.indices else "layers"
    mixers = {"state": "a state", "conv": "a convolution"}
    attention = next((x.description for x in stage.steps if x.kind == "softmax" and x.description != OVER_CACHED_KEYS), "")
    recurrence = [text for kind, text in mixers.items() if any(x.kind == kind for x in stage.steps)][:1]
    experts = ["experts"] if any(x.kind == "choice" for x in stage.steps) else []
    details = ", ".join(filter(None, [attention, *recurrence, *experts]))
    return f"{place}{f' (× {stage.times:,})' if stage.times > 1 else ''}{f': {details}' if details else ''}"


def _lane(plan: Layout, name: str) -> dict[str, Any]:
    return {"lane": plan.lanes[name]}


def _step(step: Operation) -> dict[str, Any]:
    return {
        "name": step.name,
        "kind": step.kind,
        "does": safe(step.description, 500),
        "takes": list(step.inputs),
        "shape": [d.to_expression_json() for d in step.shape],
        "uses": [_encode_weight(y) for y in step.weights],
        "parameters": str(step.parameters),
        "flops": step.flops.to_expression_json(),
        "each": [product((2, y.live, y.weight.size)).to_expression_json() for y in step.weights if y.weight.role == "matmul"],
        "keeps": step.cached.to_expression_json(),
    }


def _encode_weight(x: WeightUse) -> dict[str, Any]:
    return {
        "path": x.path,
        "dims": [d.symbol for d in x.weight.shape],
        "numbers": ["" if d.numbers == str(int(d)) else d.numbers for d in x.weight.shape],
        "shape": [str(int(d)) for d in x.weight.shape],
        "copies": str(int(x.copies)),
        "live": str(int(x.live)),
        "tied": x.weight.tied,
        "parameters": str(x.parameters),
    }


def _head_groups_and_experts(steps: Sequence[Operation]) -> Iterator[dict[str, Any]]:
    """Yield the head groups of each mixer, and the experts of each mixture."""
    nodes = {id(x.node): x.node for x in steps if x.node is not None}.values()
    cache = next((x for x in nodes if x.op in ("update_cache", "read_cache")), None)
    for x in nodes:
        if x.op == "attention" and cache is not None:
            if cache.attributes["name"] == "latents":
                few, note = "latent vector", "cached; each head unpacks its own keys and values"
            else:
                few, note = "key and value head", "of another layer" if cache.op == "read_cache" else "cached"
            yield _heads(("query head", x.shape[2]), (few, cache.shape[2]), note)
        elif x.op == "gated_delta_rule":
            key_heads = x.inputs[0].shape[2]
            yield _heads(("value head with a state", x.shape[2]), ("query and key head", key_heads), "not cached: the states are")
        elif x.op == "linear_attention":
            yield _heads(("query head with a state", x.shape[2]), ("key and value head", x.shape[2]), "not cached: the states are")
        elif x.op == "ssm_scan":
            yield _heads(("head with a state", x.shape[2]), ("group of b and c", x.inputs[1].shape[2]), "not cached: the states are")
        elif x.op == "dispatch":
            moe: MoE = x.attributes["moe"]
            groups = moe.expert_groups.groups if moe.expert_groups else 1
            n, k = _count(moe.experts.n), _count(moe.top_k)
            yield {"kind": "experts", "n": n, "k": k, "shared": moe.shared is not None, "groups": int(groups)}


def _heads(many: tuple[str, int], few: tuple[str, int], note: str) -> dict[str, Any]:
    return {"kind": "heads", "many": _plural(*many), "n": _count(many[1]), "few": _plural(*few), "k": _count(few[1]), "says": note}


def _plural(name: str, n: int) -> str:
    return name if n == 1 else re.sub("head|vector|group", r"\g<0>s", name, count=1)


def _count(n: int) -> Json:
    return Expr.const(n).to_expression_json()
