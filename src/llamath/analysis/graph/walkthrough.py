"""`walkthrough`: a forward pass from token ids to probabilities, step by step, with layers that are alike told once.

Its steps use every weight of the tree once and come to the FLOPs of `forward_flops`, both to the last unit. No torch: shapes are letters
with their numbers, and `run.trace` holds them against tensors.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...core.blocks import Decoder, Embedding, Layer, ProjectedEmbedding
from ...core.errors import LlamathError
from ...core.expr import Dim
from ...core.forward_pass import AttentionWindow, ForwardPass
from ...core.parameter_count import layer_ranges
from ...core.record_type import Record
from ...core.tree import Block, fold_blocks
from . import GraphBuilder, Operation
from .layer_steps import layer_steps as layer_steps

HIDDEN_STATES = "x"
"""What each part reads: the stream that the part before gave."""


class WalkthroughStage(Record):
    """Steps that go together: what comes before the layers, one kind of layer, what comes after."""

    name: str  # embedding, layers or head
    times: int = 1
    indices: tuple[tuple[int, int, int], ...] = ()  # (first, last, step) of the layers of this kind
    layer: int | None = None  # the one that is told
    steps: tuple[Operation, ...]

    @property
    def parameters(self) -> int:
        """Of one of them."""
        return sum(x.parameters for x in self.steps)

    @property
    def flops(self) -> int:
        """Of one of them."""
        return sum(int(x.flops) for x in self.steps)

    @property
    def cached(self) -> int:
        """How many numbers one of them remembers."""
        return sum(int(x.cached) for x in self.steps)


class Walkthrough(Record):
    """A pass from end to end."""

    at: ForwardPass
    batch: int
    stages: tuple[WalkthroughStage, ...]

    @property
    def parameters(self) -> int:
        """Of the model."""
        return sum(x.parameters * x.times for x in self.stages)

    @property
    def flops(self) -> int:
        """Of the pass."""
        return sum(x.flops * x.times for x in self.stages)

    @property
    def cached(self) -> int:
        """How many numbers are remembered once it is over."""
        return sum(x.cached * x.times for x in self.stages)

    @property
    def layers(self) -> tuple[WalkthroughStage, ...]:
        """The kinds of layers."""
        return tuple(x for x in self.stages if x.name == "layers")


def prompt_pass(tokens: int) -> ForwardPass:
    """A prompt read at once; a single token is compared with itself as one that follows would be."""
    return ForwardPass.prefill(tokens, absorbed=tokens == 1)


def following(tokens: int) -> ForwardPass:
    """The one token after a prompt of so many."""
    return ForwardPass.decode(tokens + 1, absorbed=True)


def reads_on(tree: Decoder) -> bool:
    """Whether there is a pass after the prompt: not where queries look ahead."""
    return all(getattr(x.block, "window", AttentionWindow()).causal for x in fold_blocks(tree))


def walkthrough(tree: Decoder, at: ForwardPass, batch: int = 1, layer: int | None = None) -> Walkthrough:
    """Lay the steps of a pass; `layer` is the one to tell for its kind, else the first of each."""
    n = int(tree.layers.n)
    if layer is not None and not 0 <= layer < n:
        raise LlamathError(f"there is no layer {layer}: the model has {n:,}", hint=f"0 to {n - 1}" if n else "")
    stages = (_before(tree, at, batch), *_kinds(tree, at, batch, layer), _after(tree, at, batch))
    return Walkthrough(at=at, batch=batch, stages=stages)


def block_steps(block: Layer, width: int, at: ForwardPass, batch: int = 1) -> tuple[Operation, ...]:
    """The steps of one layer."""
    trail = GraphBuilder(block, at, batch, width)
    layer_steps(trail, block, HIDDEN_STATES)
    return trail.finish()


def _kinds(tree: Decoder, at: ForwardPass, batch: int, told: int | None) -> Iterator[WalkthroughStage]:
    """The layers, those whose steps are alike together."""
    made: dict[tuple[object, ...], tuple[tuple[Operation, ...], set[int], int]] = {}
    for block, n in tree.layers.distinct():
        assert isinstance(block, Layer)
        steps = block_steps(block, tree.width, at, batch)
        first, ids, times = made.get(key := tuple(x.key for x in steps), (steps, set(), 0))
        made[key] = (first, ids | {id(block)}, times + int(n))
    for steps, ids, times in made.values():
        indices = layer_ranges(tree.layers, ids)
        own = told if told is not None and id(tree.layers[told]) in ids else indices[0][0] if indices else 0
        yield WalkthroughStage(name="layers", times=times, indices=indices, layer=own, steps=steps)


def _part(tree: Decoder, *names: str) -> Decoder:
    """The decoder without all but these fields."""
    rest = [name for name, _ in tree.children if name not in names]
    return tree.replace(**{name: Empty() if name in ("embed", "layers") else None for name in rest})


class Empty(Block):
    """Nothing, where something is due."""


def _before(tree: Decoder, at: ForwardPass, batch: int) -> WalkthroughStage:
    t = GraphBuilder(_part(tree, "embed", "positions", "embed_norm", "per_layer"), at, batch, tree.width)
    ids = t.add_step("ids", "ids", (t.B, t.T), (), description="numbers of tokens, 0 to V − 1", hook_point=">embed")
    x = _embedded(t, tree.embed, ids)
    if tree.positions is not None:
        does, shape = "a learned row for each position", (t.T, t.d)
        place = t.add_step("positions", "lookup", shape, (), description=does, weights=("positions",), hook_point="positions>")
        x = t.add_residual("place", x, place, "the position's row added", ">embed_norm" if tree.embed_norm else ">layers.0")
    if tree.per_layer is not None:
        _told(t, tree, (ids, x))
    t.norm("embed_norm", tree.embed_norm, x)
    return WalkthroughStage(name="embedding", steps=t.finish())


def _embedded(t: GraphBuilder, block: Embedding, ids: str) -> str:
    scale = "" if block.scale == 1.0 else f", × {block.scale:g}"
    narrow = isinstance(block, ProjectedEmbedding)
    shape = (t.B, t.T, block.weight.shape[-1])
    x = t.add_step(
        "embed",
        "lookup",
        shape,
        (ids,),
        description=f"the row of each token{scale}",
        weights=("embed.weight",),
        hook_point=">embed.projection" if narrow else "embed>",
    )
    return t.linear("embed.projection", block.projection, x) if isinstance(block, ProjectedEmbedding) else x


def _told(t: GraphBuilder, tree: Decoder, made: tuple[str, str]) -> None:
    """What each layer is told of each token besides."""
    told = tree.per_layer
    assert told is not None and told.norm.weight is not None
    wide, p = told.projection.weight.shape[0], told.norm.weight.size
    path, L = "per_layer", Dim("L", int(wide) // int(p))
    x = t.linear(f"{path}.projection", told.projection, made[1])
    x = t.norm(f"{path}.norm", told.norm, x, (t.B, t.T, L, p))
    does = "a narrow row for each token and layer"
    y = t.add_step(
        f"{path}.embed", "lookup", (t.B, t.T, wide), (made[0],), description=does, weights=(f"{path}.embed",), hook_point=f"{path}.embed>"
    )
    t.add_step("told", "add", (t.B, t.T, L, p), (x, y), description="what each layer is told besides", hook_point=f"{path}>")


def _after(tree: Decoder, at: ForwardPass, batch: int) -> WalkthroughStage:
    t = GraphBuilder(_part(tree, "norm", "head"), at, batch, tree.width)
    x = t.norm("norm", tree.norm, HIDDEN_STATES)
    if tree.head is not None:
        tied = " (the embedding's own matrix)" if tree.head.weight.tied else ""
        x = t.linear("head", tree.head, x, description=f"a score for each token of the vocabulary{tied}")
        more = ([f"· {tree.logit_scale:g}"] if tree.logit_scale != 1.0 else []) + ([f"capped at {tree.softcap:g}"] if tree.softcap else [])
        does = ", ".join([*more, "softmax: shares that sum to 1"])
        t.add_step(
            "probabilities", "probabilities", (t.B, t.T, tree.head.weight.shape[0]), (x,), description=does, hook_point="probabilities"
        )
    return WalkthroughStage(name="head", steps=t.finish())
