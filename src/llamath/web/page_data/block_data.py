"""The block diagram's data: steps with symbolic shapes, their positions, and the edges between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...analysis.graph import Operation, UsedWeight
from ...analysis.graph.attention_steps import OVER_CACHED_KEYS
from ...analysis.graph.walkthrough import HIDDEN_STATES, WalkthroughStage, reads_on, walkthrough
from ...analysis.inference.cache_bytes import cache_spec
from ...core.blocks import Attention, Decoder, LatentAttention, MoE
from ...core.errors import safe
from ...core.expr import Dim, product
from ...core.forward_pass import AttentionBase, ForwardPass
from ...core.mixers import GatedDeltaNet, Mamba2
from ...core.number_format import format_ranges
from ...core.tree import Block, fold_blocks
from ...model import Model
from ...render.svg.block_layout import Layout, layout
from ...render.svg.block_svg import step_color
from .block_positions import Block as Places
from .forms import Form, number
from .pass_forms import BATCH, NEXT, PROMPT, kept, known


def passes(model: Model) -> dict[str, Any]:
    """Return the stages of the prefill, and of the decode pass if there is one."""
    return {name: _walked(model.tree, at) for name, at in (("prompt", PROMPT), ("next", NEXT)) if name == "prompt" or reads_on(model.tree)}


def _walked(tree: Decoder, at: ForwardPass) -> list[dict[str, Any]]:
    stages = walkthrough(tree, at, BATCH).stages
    return [_stage(x, tree.layers[x.layer] if x.layer is not None else None, at, tree.width) for x in stages]


def _stage(stage: WalkthroughStage, block: Block | None, at: ForwardPass, width: int) -> dict[str, Any]:
    plan = layout(stage.steps)
    mixers = {} if block is None else {x.pattern: x.block for x in fold_blocks(block)}
    named = {x.name: x for x in stage.steps}
    places = Places(stage.steps, plan)
    outside = [name for name in plan.rows if name not in named]
    return {
        "name": _title(stage),
        "layers": stage.name == "layers",
        "times": str(stage.times),
        "parameters": str(stage.parameters),
        "lanes": plan.width,
        "inputs": [{"name": x, "says": "the stream" if x == HIDDEN_STATES else "per-layer input"} | _place(plan, x) for x in outside],
        "stream": ["B", "T" if at.tokens > 1 else "1", number(Dim.const(width))],
        "steps": [_step(x, mixers, at) | _place(plan, x.name) | {"color": step_color(named, x)} for x in stage.steps],
        "columns": places.columns(),
        "under": places.under(),
        "heads": [] if block is None else list(_shared(block)),
    }


def _title(stage: WalkthroughStage) -> str:
    """Return the label of a stage."""
    if stage.name != "layers":
        return stage.name
    which = f"layer {stage.layer}" if stage.times == 1 else f"layers {format_ranges(stage.indices)}" if stage.indices else "layers"
    mixers = {"state": "a state", "conv": "a convolution"}
    sight = next((x.description for x in stage.steps if x.kind == "softmax" and x.description != OVER_CACHED_KEYS), "")
    kinds = [text for kind, text in mixers.items() if any(x.kind == kind for x in stage.steps)][:1]
    experts = ["experts"] if any(x.kind == "choice" for x in stage.steps) else []
    details = ", ".join(filter(None, [sight, *kinds, *experts]))
    return f"{which}{f' (× {stage.times:,})' if stage.times > 1 else ''}{f': {details}' if details else ''}"


def _place(plan: Layout, name: str) -> dict[str, Any]:
    return {"lane": plan.lanes[name]}


def _step(x: Operation, mixers: Mapping[str, Block], at: ForwardPass) -> dict[str, Any]:
    mixer = _mixer(x.name, mixers)
    letters = known(mixer.window if isinstance(mixer, AttentionBase) else None, at)
    return {
        "name": x.name,
        "kind": x.kind,
        "does": safe(x.description, 500),
        "takes": list(x.inputs),
        "shape": [number(d, letters) for d in x.shape],
        "uses": [_used(y) for y in x.weights],
        "parameters": str(x.parameters),
        "flops": number(x.flops, letters),
        "each": [number(product((2, y.live, y.weight.size))) for y in x.weights if y.weight.role == "matmul"],
        "keeps": kept(x.cached, None if mixer is None else cache_spec(mixer), at) if x.kind == "cache" else number(x.cached, letters),
    }


def _mixer(name: str, found: Mapping[str, Block]) -> Block | None:
    """Return the mixer that a step belongs to."""
    meeting = (path for path, x in found.items() if isinstance(x, AttentionBase) or cache_spec(x) is not None)
    inside = [path for path in meeting if name.startswith(f"{path}.")]
    return found[max(inside, key=len)] if inside else None


def _used(x: UsedWeight) -> dict[str, Any]:
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


def _shared(block: Block) -> Iterator[dict[str, Any]]:
    """Return how heads are grouped, and the experts."""
    for x in fold_blocks(block):
        y = x.block
        if isinstance(y, Attention):
            own = "of another layer" if y.k is None else "cached"
            yield _heads(("query head", y.heads), ("key and value head", y.kv_heads), own)
        elif isinstance(y, LatentAttention):
            yield _heads(("query head", y.heads), ("latent vector", Dim.const(1)), "cached; each head unpacks its own keys and values")
        elif isinstance(y, GatedDeltaNet):
            yield _heads(("value head with a state", y.value_heads), ("query and key head", y.key_heads), "not cached: the states are")
        elif isinstance(y, Mamba2):
            yield _heads(("head with a state", y.heads), ("group of b and c", y.state_groups), "not cached: the states are")
        elif isinstance(y, MoE):
            groups = y.expert_groups.groups if y.expert_groups else 1
            yield {"kind": "experts", "n": _count(y.experts.n), "k": _count(y.top_k), "shared": y.shared is not None, "groups": int(groups)}


def _heads(many: tuple[str, int], few: tuple[str, int], says: str) -> dict[str, Any]:
    return {"kind": "heads", "many": _plural(*many), "n": _count(many[1]), "few": _plural(*few), "k": _count(few[1]), "says": says}


def _plural(name: str, n: int) -> str:
    return name if n == 1 else re.sub("head|vector|group", r"\g<0>s", name, count=1)


def _count(n: int) -> Form:
    return number(Dim.const(n))
