"""`walkthrough`: a forward pass from token ids to probabilities, step by step, with identical layers shown once.

Its steps use every weight of the tree once and sum to the FLOPs of `forward_flops`. No torch is needed: shapes are symbolic with their
values, and `llamath.run` compares them with actual tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ...core.blocks import Attention, Decoder, Embedding, LatentAttention, Layer, ProjectedEmbedding
from ...core.errors import LlamathError
from ...core.expr import Expr, product
from ...core.forward_pass import AttentionWindow, ForwardPass
from ...core.mixers import RecurrentMixer
from ...core.number_format import format_ranges, short_count
from ...core.parameter_count import layer_ranges
from ...core.record_type import Record
from ...core.tree import Block, Weight, fold_blocks
from .graph_builder import GraphBuilder, Operation
from .layer_steps import layer_steps as layer_steps

MISTAKEN_PRODUCT = 32 * 766 * 2048 * 4096
"""The mistaken product."""


class AttentionWiring(Record):
    """The heads of a model's first attention layer, and its output projection."""

    heads: Expr
    joined: Expr  # elements of all heads for one token
    matrix: Weight
    width: Expr
    context: int | None
    learned: Weight | None  # learned position embeddings, the only weight that depends on the context length
    states: bool  # whether recurrent states mix tokens, too

    @property
    def mistaken_size(self) -> Expr | None:
        """Heads × width × context × width: the size if all positions of full-width heads entered one dense layer at once."""
        return None if self.context is None else product((self.heads, self.width, Expr("context", self.context), self.width))

    @property
    def remark(self) -> str:
        """How the heads enter the output projection, and where tokens are mixed."""
        letters, numbers = ", ".join(d.symbol for d in self.matrix.shape), ", ".join(map(str, self.matrix.shape))
        first = (
            f"the output projection is applied token by token: the heads are concatenated to {self.joined.symbol} ="
            f" {int(self.joined):,} elements, and attn.o is [{letters}] = [{numbers}], {int(self.matrix.size):,} parameters for any"
            " sequence length."
        )
        wrong = self.mistaken_size
        second = (
            f" A dense layer over all positions at once, heads × width × context × width, would have {wrong.numbers} ="
            f" {short_count(int(wrong))} (a well-known mistake: 32·766·2048·4096 = {MISTAKEN_PRODUCT:,})."
            if wrong is not None and (int(self.heads), int(self.width)) == (32, 4096)  # the model of the published example
            else ""
        )
        rest = "No weight depends on the context length" if self.learned is None else "Only the position embedding depends on the context"
        where = "attention scores, which have no weights"
        if self.states:
            where += ", and in convolutions and recurrent states, whose weights do not depend on the length"
        return f"{first}{second} {rest}; tokens are mixed in {where}."


def attention_wiring(tree: Decoder) -> AttentionWiring | None:
    """Return the wiring of the first attention layer; None for a model without attention."""
    found = next((x.block for x in fold_blocks(tree) if isinstance(x.block, (Attention, LatentAttention))), None)
    if found is None:
        return None
    size = found.head_dim if isinstance(found, Attention) else found.v_dim
    heads = Expr.const(found.heads)
    return AttentionWiring(
        heads=heads,
        joined=heads * size,
        matrix=found.o.weight,
        width=Expr.const(tree.width),
        context=tree.context if tree.positions is None else int(tree.positions.weight.shape[0]) - tree.positions.offset,
        states=any(isinstance(x.block, RecurrentMixer) for x in fold_blocks(tree)),
        learned=None if tree.positions is None else tree.positions.weight,
    )


HIDDEN_STATES = "x"
"""The input of each part: the output of the previous part."""


class WalkthroughStage(Record):
    """A group of steps: the embedding, one kind of layer, or the head."""

    json_fields: ClassVar[tuple[str, ...]] = ("name", "times", "layers", "layer", "parameters", "flops", "kept=cached", "steps")

    name: str  # embedding, layers or head
    times: int = 1
    indices: tuple[tuple[int, int, int], ...] = ()  # (first, last, step) of the layers of this kind
    layer: int | None = None  # the layer shown
    steps: tuple[Operation, ...]

    @property
    def layers(self) -> str:
        """The layers as ranges, `0–31`."""
        return format_ranges(self.indices)

    @property
    def parameters(self) -> int:
        """The parameters of one layer."""
        return sum(x.parameters for x in self.steps)

    @property
    def flops(self) -> int:
        """The FLOPs of one layer."""
        return sum(int(x.flops) for x in self.steps)

    @property
    def cached(self) -> int:
        """The elements that one layer writes to the cache."""
        return sum(int(x.cached) for x in self.steps)


class Walkthrough(Record):
    """A pass through the whole model."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "new=at.tokens",
        "context=at.context",
        "batch",
        "parameters",
        "flops",
        "kept=cached",
        "stages",
    )

    at: ForwardPass
    batch: int
    stages: tuple[WalkthroughStage, ...]

    @property
    def parameters(self) -> int:
        """The parameters of the model."""
        return sum(x.parameters * x.times for x in self.stages)

    @property
    def flops(self) -> int:
        """The FLOPs of the pass."""
        return sum(x.flops * x.times for x in self.stages)

    @property
    def cached(self) -> int:
        """The elements in the cache after the pass."""
        return sum(x.cached * x.times for x in self.stages)

    @property
    def layers(self) -> tuple[WalkthroughStage, ...]:
        """The kinds of layers."""
        return tuple(x for x in self.stages if x.name == "layers")


def prompt_pass(tokens: int) -> ForwardPass:
    """Return the prefill of a prompt; a single token uses absorbed latent attention, as in decode."""
    return ForwardPass.prefill(tokens, absorbed=tokens == 1)


def following(tokens: int) -> ForwardPass:
    """Return the decode pass after a prompt of `tokens` tokens."""
    return ForwardPass.decode(tokens + 1, absorbed=True)


def reads_on(tree: Decoder) -> bool:
    """Whether the model decodes token by token: not with bidirectional attention."""
    return all(getattr(x.block, "window", AttentionWindow()).causal for x in fold_blocks(tree))


def walkthrough(tree: Decoder, at: ForwardPass, batch: int = 1, layer: int | None = None) -> Walkthrough:
    """Build the steps of a pass; `layer` selects the layer to show for its kind, by default the first."""
    n = int(tree.layers.n)
    if layer is not None and not 0 <= layer < n:
        raise LlamathError(f"layer {layer} does not exist: the model has {n:,} layers", hint=f"0 to {n - 1}" if n else "")
    stages = (_embedding_stage(tree, at, batch), *_layer_stages(tree, at, batch, layer), _head_stage(tree, at, batch))
    return Walkthrough(at=at, batch=batch, stages=stages)


def _block_steps(block: Layer, width: int, at: ForwardPass, batch: int = 1) -> tuple[Operation, ...]:
    """Return the steps of one layer."""
    trail = GraphBuilder(block, at, batch, width)
    layer_steps(trail, block, HIDDEN_STATES)
    return trail.finish()


def _layer_stages(tree: Decoder, at: ForwardPass, batch: int, shown: int | None) -> Iterator[WalkthroughStage]:
    """Yield one stage for each kind of layer."""
    made: dict[tuple[object, ...], tuple[tuple[Operation, ...], set[int], int]] = {}
    for block, n in tree.layers.distinct():
        assert isinstance(block, Layer)
        steps = _block_steps(block, tree.width, at, batch)
        first, ids, times = made.get(key := tuple(x.key for x in steps), (steps, set(), 0))
        made[key] = (first, ids | {id(block)}, times + int(n))
    for steps, ids, times in made.values():
        indices = layer_ranges(tree.layers, ids)
        own = shown if shown is not None and id(tree.layers[shown]) in ids else indices[0][0] if indices else 0
        yield WalkthroughStage(name="layers", times=times, indices=indices, layer=own, steps=steps)


def _part(tree: Decoder, *names: str) -> Decoder:
    """Return the decoder with only these fields."""
    rest = [name for name, _ in tree.children if name not in names]
    return tree.replace(**{name: Empty() if name in ("embed", "layers") else None for name in rest})


class Empty(Block):
    """A placeholder for a removed block."""


def _embedding_stage(tree: Decoder, at: ForwardPass, batch: int) -> WalkthroughStage:
    t = GraphBuilder(_part(tree, "embed", "positions", "embed_norm", "per_layer"), at, batch, tree.width)
    ids = t.add_step("ids", "ids", (t.B, t.T), (), description="token ids, 0 to V − 1", hook_point=">embed")
    x = _embedding_step(t, tree.embed, ids)
    if tree.positions is not None:
        does, shape = "learned position embedding", (t.T, t.d)
        place = t.add_step("positions", "lookup", shape, (), description=does, weights=("positions",), hook_point="positions>")
        x = t.add_residual("place", x, place, "position embedding added", ">embed_norm" if tree.embed_norm else ">layers.0")
    if tree.per_layer is not None:
        _per_layer_inputs(t, tree, (ids, x))
    t.norm("embed_norm", tree.embed_norm, x)
    return WalkthroughStage(name="embedding", steps=t.finish())


def _embedding_step(t: GraphBuilder, block: Embedding, ids: str) -> str:
    scale = "" if block.scale == 1.0 else f", × {block.scale:g}"
    narrow = isinstance(block, ProjectedEmbedding)
    shape = (t.B, t.T, block.weight.shape[-1])
    x = t.add_step(
        "embed",
        "lookup",
        shape,
        (ids,),
        description=f"token embedding{scale}",
        weights=("embed.weight",),
        hook_point=">embed.projection" if narrow else "embed>",
    )
    return t.linear("embed.projection", block.projection, x) if isinstance(block, ProjectedEmbedding) else x


def _per_layer_inputs(t: GraphBuilder, tree: Decoder, made: tuple[str, str]) -> None:
    """Add the steps of the per-layer embeddings (PLE)."""
    per_layer = tree.per_layer
    assert per_layer is not None and per_layer.norm.weight is not None
    wide, p = per_layer.projection.weight.shape[0], per_layer.norm.weight.size
    path, L = "per_layer", Expr("L", int(wide) // int(p))
    x = t.linear(f"{path}.projection", per_layer.projection, made[1])
    x = t.norm(f"{path}.norm", per_layer.norm, x, (t.B, t.T, L, p))
    does = "one small embedding per token and layer"
    y = t.add_step(
        f"{path}.embed", "lookup", (t.B, t.T, wide), (made[0],), description=does, weights=(f"{path}.embed",), hook_point=f"{path}.embed>"
    )
    t.add_step("per_layer_inputs", "add", (t.B, t.T, L, p), (x, y), description="per-layer embeddings of all layers", hook_point=f"{path}>")


def _head_stage(tree: Decoder, at: ForwardPass, batch: int) -> WalkthroughStage:
    t = GraphBuilder(_part(tree, "norm", "head"), at, batch, tree.width)
    x = t.norm("norm", tree.norm, HIDDEN_STATES)
    if tree.head is not None:
        tied = " (tied to the embedding)" if tree.head.weight.tied else ""
        x = t.linear("head", tree.head, x, description=f"logits over the vocabulary{tied}")
        more = ([f"· {tree.logit_scale:g}"] if tree.logit_scale != 1.0 else []) + ([f"capped at {tree.softcap:g}"] if tree.softcap else [])
        does = ", ".join([*more, "softmax"])
        t.add_step(
            "probabilities", "probabilities", (t.B, t.T, tree.head.weight.shape[0]), (x,), description=does, hook_point="probabilities"
        )
    return WalkthroughStage(name="head", steps=t.finish())
