"""The steps of the embedding, of each kind of layer and of the head, with symbolic shapes, and
the heads and experts that are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.graph.operations.attention_operations import (
    OVER_CACHED_KEYS,
    attention,
    read_cache,
    update_cache,
)
from ...analysis.graph.operations.expert_operations import dispatch
from ...analysis.graph.operations.recurrent_operations import (
    gated_delta_rule,
    linear_attention,
    ssm_scan,
)
from ...analysis.graph.operations.tower_operations import encoder_attention
from ...analysis.graph.recorder import Graph, record
from ...analysis.graph.steps import Step, WeightUse
from ...analysis.graph.walkthrough import WalkthroughStage, reads_on, walkthrough
from ...core.blocks import MoE
from ...core.expr import Expr, Json, product
from ...model import FamilyModel
from ...render.svg.block_svg import step_color
from ...utils.errors import safe
from ...utils.number_format import format_ranges
from ...utils.number_marks import text_if_equal

_TOKENS, _BATCH = 3, 2
"""The tokens of the passes that are recorded; their expressions hold for any others."""


def build_block_diagrams(model: FamilyModel) -> dict[str, Any]:
    """Return the stages of the prefill, and of the decode pass if there is one; T is the number
    of tokens so far.
    """
    tree, tokens = model.tree, Expr.variable("T", _TOKENS)
    graphs = {"prompt": record(tree, batch=_BATCH, new_tokens=tokens, past_tokens=Expr.const(0))}
    if reads_on(tree):
        graphs["next"] = record(tree, batch=_BATCH, past_tokens=tokens - 1, decode=True)
    return {
        name: [_stage(x, graph) for x in walkthrough(graph).stages]
        for name, graph in graphs.items()
    }


def _stage(stage: WalkthroughStage, graph: Graph) -> dict[str, Any]:
    stream = (
        Expr.variable("B", _BATCH),
        Expr.const(1) if graph.decode else Expr.variable("T", _TOKENS),
        Expr.const(graph.tree.width),
    )
    return encode_stage(stage, stream)


def encode_stage(stage: WalkthroughStage, stream: Sequence[Expr]) -> dict[str, Any]:
    """Return a stage with its steps; `stream` is the shape of its residual stream."""
    steps_by_name = {x.name: x for x in stage.steps}
    return {
        "name": _title(stage),
        "layers": stage.name == "layers",
        "ranges": stage.indices,
        "times": str(stage.times),
        "parameters": str(stage.parameters),
        "stream": [x.to_expression_json() for x in stream],
        "steps": [_step(x) | {"color": step_color(steps_by_name, x)} for x in stage.steps],
        "heads": list(_head_groups_and_experts(stage.steps)),
    }


def _title(stage: WalkthroughStage) -> str:
    """Return the label of a stage."""
    if stage.name != "layers":
        return stage.name
    place = (
        f"layer {stage.layer}"
        if stage.times == 1
        else (f"layers {format_ranges(stage.indices)}")
        if stage.indices
        else "layers"
    )
    mixers = {"state": "a state", "conv": "a convolution"}
    attention = next(
        (
            x.description
            for x in stage.steps
            if x.kind == "softmax" and x.description != OVER_CACHED_KEYS
        ),
        "",
    )
    recurrence = [
        text for kind, text in mixers.items() if any(x.kind == kind for x in stage.steps)
    ][:1]
    experts = ["experts"] if any(x.kind == "choice" for x in stage.steps) else []
    details = ", ".join(filter(None, [attention, *recurrence, *experts]))
    times = f" (× {stage.times:,})" if stage.times > 1 else ""
    return f"{place}{times}{f': {details}' if details else ''}"


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "kind": step.kind,
        "does": safe(step.description, 500),
        "takes": list(step.inputs),
        "shape": [d.to_expression_json() for d in step.shape],
        "uses": [_encode_weight(y) for y in step.weights],
        "parameters": str(step.parameters),
        "flops": step.flops.to_expression_json(),
        "each": [
            product((2, y.live, y.weight.size)).to_expression_json()
            for y in step.weights
            if y.weight.role == "matmul"
        ],
        "keeps": step.cached.to_expression_json(),
    }


def _encode_weight(x: WeightUse) -> dict[str, Any]:
    return {
        "path": x.path,
        "dims": [d.symbol for d in x.weight.shape],
        "numbers": list(map(written_numbers, x.weight.shape)),
        "shape": [str(d) for d in x.weight.shape],
        "copies": str(x.copies),
        "live": str(x.live),
        "tied": x.weight.tied,
        "parameters": str(x.parameters),
        "lookup": x.weight.role == "lookup",
    }


def written_numbers(dimension: Expr) -> str:
    """Return a dimension in numbers; empty for a single one."""
    numbers = dimension.numbers
    return "" if numbers == str(dimension) else numbers


def _head_groups_and_experts(steps: Sequence[Step]) -> Iterator[dict[str, Any]]:
    """Yield the head groups of each mixer, and the experts of each mixture."""
    nodes = {id(x.node): x.node for x in steps if x.node is not None}.values()
    cache = next((x for x in nodes if x.op in (update_cache, read_cache)), None)
    for x in nodes:
        if x.op is encoder_attention:
            yield _heads(
                ("query head", x.shape[2]),
                ("key and value head", x.inputs[1].shape[2]),
                "not cached: every image is read once",
            )
        elif x.op is attention and cache is not None:
            if cache.attributes["name"] == "latents":
                few, note = "latent vector", "cached; each head unpacks its own keys and values"
            else:
                few, note = (
                    "key and value head",
                    "of another layer" if cache.op is read_cache else "cached",
                )
            yield _heads(("query head", x.shape[2]), (few, cache.shape[2]), note)
        elif x.op is gated_delta_rule:
            key_heads = x.inputs[0].shape[2]
            yield _heads(
                ("value head with a state", x.shape[2]),
                ("query and key head", key_heads),
                "not cached: the states are",
            )
        elif x.op is linear_attention:
            yield _heads(
                ("query head with a state", x.shape[2]),
                ("key and value head", x.shape[2]),
                "not cached: the states are",
            )
        elif x.op is ssm_scan:
            yield _heads(
                ("head with a state", x.shape[2]),
                ("group of b and c", x.inputs[1].shape[2]),
                "not cached: the states are",
            )
        elif x.op is dispatch:
            moe: MoE = x.attributes["moe"]
            groups = moe.expert_groups.groups if moe.expert_groups else 1
            n, k = _count(moe.experts.n), _count(moe.top_k)
            yield {
                "kind": "experts",
                "n": n,
                "k": k,
                "shared": moe.shared is not None,
                "groups": int(groups),
            }


def _heads(many: tuple[str, int], few: tuple[str, int], note: str) -> dict[str, Any]:
    return {
        "kind": "heads",
        "many": _plural(*many),
        "n": _count(many[1]),
        "few": _plural(*few),
        "k": _count(few[1]),
        "says": note,
    }


def _plural(name: str, n: int) -> str:
    return text_if_equal(n, 1, name, re.sub("head|vector|group", r"\g<0>s", name, count=1))


def _count(n: int) -> Json:
    return Expr.const(n).to_expression_json()
