"""`place_steps`: the stop of the tour at which each step of a recorded pass is explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....core.blocks import (
    MLP,
    AttentionBase,
    Decoder,
    MoE,
    Norm,
    PerLayerInput,
    PostNormLayer,
)
from ....core.extensions.encoder_decoder import ENCODER
from ....core.latent_attention import LatentAttention
from ....core.mixers import RecurrentMixer
from ....core.tree import LETTERS, Block, fold_blocks
from ...graph.steps import Step, WeightUse
from ...graph.walkthrough import Walkthrough, WalkthroughStage

OTHER = "more"
"""The stop of steps that no other stop explains."""


class Placed(NamedTuple):
    """A step at its stop."""

    stop: str
    stage: WalkthroughStage
    step: Step


def place_steps(walk: Walkthrough) -> Iterator[Placed]:
    """Yield every step of a pass with its stop."""
    for stage in walk.stages:
        owners, layer = _owners(walk.graph.tree, stage)
        last = next((x.name for x in reversed(stage.steps) if adds_to_stream(x)), "")
        for step in stage.steps:
            if stage.name.startswith(ENCODER):
                stop = "encoder"
            elif stage.name == "embedding":
                stop = _before_layers(step)
            elif stage.name == "head":
                stop = "next_token" if step.kind == "probabilities" else "logits"
            elif step.name == last:
                stop = "next_layer"
            else:
                stop = _in_layer(step, owners, layer)
                if stop == "state" and not any(x.kind == "state" for x in stage.steps):
                    stop = "conv"
            yield Placed(stop, stage, step)


def place_weight(placed: Placed, use: WeightUse) -> str:
    """Return the stop that adds a weight to the count."""
    if placed.stage.name != "layers":
        return placed.stop
    if placed.step.kind == "linear" and use.path.endswith(".bias"):
        return "biases"
    return "sinks" if placed.step.kind == "softmax" else placed.stop


def _owners(tree: Decoder, stage: WalkthroughStage) -> tuple[Mapping[str, Block], Block | None]:
    """Return the blocks of the layer that a stage shows by their paths, and the layer."""
    if stage.name != "layers" or stage.layer is None:
        return {}, None
    layer = tree.layers[stage.layer]
    return {x.pattern: x.block for x in fold_blocks(layer, 1)}, layer


def adds_to_stream(step: Step) -> bool:
    """Whether a step adds the result of a branch to the stream."""
    return step.kind == "add" and "." not in step.name


def _before_layers(step: Step) -> str:
    path, op = "", ""
    if step.node is not None:
        path, op = step.node.path, step.node.op.name
    if step.kind == "ids":
        return "token"
    if path.startswith("per_layer"):
        return "per_layer"
    if path.startswith("positions") or op == "add_sinusoids" or "position" in step.name:
        return "positions"
    return "embedding"


def _in_layer(step: Step, owners: Mapping[str, Block], layer: Block | None) -> str:
    if adds_to_stream(step):
        return "attention_out" if _has_attention(owners) else "mixer_out"
    path = "" if step.node is None else step.node.path
    inside = path.partition(f".{LETTERS[0]}.")[2]
    names = inside.split(".")
    chain = [
        (x, owners[x]) for x in (".".join(names[: i + 1]) for i in range(len(names))) if x in owners
    ]
    for name, block in reversed(chain):
        rest = inside.removeprefix(name).removeprefix(".")
        if isinstance(block, PerLayerInput):
            return "per_layer"
        if isinstance(block, RecurrentMixer):
            return _in_mixer(step, rest)
        if isinstance(block, AttentionBase):
            is_indexer = any(x.endswith("indexer") for x in names)
            return "indexer" if is_indexer else _in_attention(step, rest, block)
        if isinstance(block, MoE):
            return _in_experts(step, rest, block)
        if isinstance(block, MLP) and not any(isinstance(x, MoE) for _, x in chain):
            return _in_mlp(step, rest)
    if chain and isinstance(chain[-1][1], Norm):
        is_after = names[-1].endswith("_out_norm") or isinstance(layer, PostNormLayer)
        return "post_norm" if is_after else "norm"
    return OTHER


def _has_attention(owners: Mapping[str, Block]) -> bool:
    return any(isinstance(x, AttentionBase) for x in owners.values())


def _in_attention(step: Step, field: str, block: AttentionBase) -> str:
    by_kind = {
        "rope": "rope",
        "cache": "cache",
        "scores": "scores",
        "softmax": "softmax",
        "mix": "mix",
    }
    if step.kind in by_kind:
        return by_kind[step.kind]
    if step.name.endswith(".concat"):
        return "mix"
    leaf = field.partition(".")[0]
    if isinstance(block, LatentAttention):
        if leaf.endswith("_down") or (step.kind == "norm" and leaf in ("q_norm", "kv_norm")):
            return "compress"
        if leaf in ("q", "q_up", "k_up", "v_up"):
            return "expand"
    elif leaf in ("q_norm", "k_norm", "v_norm"):
        return "qk_norm"
    elif leaf in ("q", "k", "v"):
        return "qkv"
    if leaf == "o":
        return "attention_out"
    if leaf in ("gate", "output_norm") or step.name.endswith((".gate_act", ".product")):
        return "attention_gate"
    if step.node is not None and step.node.op.name == "scale_by_position":
        return "scores"
    return OTHER


def _in_mixer(step: Step, field: str) -> str:
    leaf = field.partition(".")[0]
    if step.kind == "conv" or step.name.endswith(".conv_act"):
        return "conv"
    if leaf in ("out", "o", "z", "gate", "norm") or step.name.endswith(
        (".concat", ".product", ".z_act", ".gate_act")
    ):
        return "mixer_out"
    return "mixer_in" if step.kind == "linear" else "state"


def _in_experts(step: Step, field: str, moe: MoE) -> str:
    leaf = field.partition(".")[0]
    if leaf == "router" or step.kind == "choice":
        return "router"
    if leaf in ("experts", "latent_down", "latent_up", "latent_norm"):
        return "experts"
    if step.name.endswith((".dispatch", ".combine")):
        return "experts"
    return "shared" if moe.shared is not None else "experts"


def _in_mlp(step: Step, field: str) -> str:
    leaf = field.partition(".")[0]
    return "down" if leaf == "down" else OTHER if step.kind == "norm" else "gate_up"
