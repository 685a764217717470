"""`walkthrough`: a forward pass from token ids to probabilities, step by step, with identical
layers shown once.

Its steps are those of the recorded graph: they use every weight of the tree once and sum to the
FLOPs of `forward_flops`. No torch is needed: shapes are symbolic with their values, and
`llamath.torch` compares them with actual tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import ClassVar, Protocol, TypeVar

from ...core.blocks import Decoder
from ...core.expr import Expr, product
from ...core.extensions.encoder_decoder import ENCODER, EncoderDecoder
from ...core.parameter_count import layer_ranges
from ...core.tree import Stack, Weight, fold
from ...utils.errors import LlamathError
from ...utils.number_format import format_ranges, short_count
from ...utils.record_type import Record
from .node import Node
from .operations import shape_operations
from .operations.attention_operations import attention
from .operations.operation import Operation
from .operations.projection_operations import linear
from .operations.recurrent_operations import causal_conv
from .operations.tower_operations import encoder_tokens
from .recorder import Graph, Region, record, record_prefill
from .steps import Step, list_steps


class _HasOperation(Protocol):
    """A node, or an operation that was executed."""

    @property
    def op(self) -> Operation: ...


T = TypeVar("T", bound=_HasOperation)
MISTAKEN_PRODUCT = 32 * 766 * 2048 * 4096
"""The mistaken product."""


class AttentionWiring(Record):
    """The heads of a model's first attention layer, and its output projection."""

    heads: Expr
    joined: Expr  # elements of all heads for one token
    matrix: Weight
    width: Expr
    context: int | None
    # learned position embeddings, the only weight that depends on the context length
    learned: Weight | None
    states: bool  # whether recurrent states mix tokens, too

    @property
    def mistaken_size(self) -> Expr | None:
        """Heads × width × context × width: the size if all positions of full-width heads entered
        one dense layer at once.
        """
        return (
            None
            if self.context is None
            else product((self.heads, self.width, Expr("context", self.context), self.width))
        )

    @property
    def remark(self) -> str:
        """How the heads enter the output projection, and where tokens are mixed."""
        letters, numbers = (
            ", ".join(d.symbol for d in self.matrix.shape),
            ", ".join(map(str, self.matrix.shape)),
        )
        first = (
            "the output projection is applied token by token: the heads are concatenated to "
            f"{self.joined.symbol} ="
            f" {int(self.joined):,} elements, and attn.o is [{letters}] = [{numbers}], "
            f"{int(self.matrix.size):,} parameters for any"
            " sequence length."
        )
        wrong = self.mistaken_size
        second = (
            " A dense layer over all positions at once, heads × width × context × width, would "
            f"have {wrong.numbers} ="
            f" {short_count(int(wrong))} (a well-known mistake: 32·766·2048·4096 = "
            f"{MISTAKEN_PRODUCT:,})."
            # the model of the published example
            if wrong is not None and (int(self.heads), int(self.width)) == (32, 4096)
            else ""
        )
        rest = (
            "No weight depends on the context length"
            if self.learned is None
            else ("Only the position embedding depends on the context")
        )
        where = "attention scores, which have no weights"
        if self.states:
            where += (
                ", and in convolutions and recurrent states, whose weights do not depend on "
                "the length"
            )
        return f"{first}{second} {rest}; tokens are mixed in {where}."


def attention_wiring(tree: Decoder) -> AttentionWiring | None:
    """Return the wiring of the first attention layer; None without attention, or if no single
    matrix joins its heads.
    """
    nodes = [x for _, x in record(tree).nodes()]
    found = next((x for x in nodes if x.op is attention), None)
    if found is None:
        return None
    output = next((x for x in nodes if x.op is linear and x.path == f"{found.path}.o"), None)
    if output is None:  # the heads are projected in groups
        return None
    return AttentionWiring(
        heads=found.shape[2],
        joined=product(found.shape[2:]),
        matrix=output.weights[0].weight,
        width=Expr.const(tree.width),
        context=tree.context
        if tree.positions is None
        else int(tree.positions.weight.shape[0]) - tree.positions.offset,
        states=any(x.op is causal_conv for x in nodes),
        learned=None if tree.positions is None else tree.positions.weight,
    )


class WalkthroughStage(Record):
    """A group of steps: the embedding, one kind of layer, or the head."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "name",
        "times",
        "layers",
        "layer",
        "parameters",
        "flops",
        "kept=cached",
        "steps",
    )

    name: str  # embedding, layers or head; encoder and encoder layers, which come first
    times: int = 1
    indices: tuple[tuple[int, int, int], ...] = ()  # (first, last, step) of the layers of this kind
    layer: int | None = None  # the layer shown
    steps: tuple[Step, ...]
    nodes: tuple[Node, ...]  # the operations of the graph

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
        "new=graph.new_tokens",
        "context",
        "batch=graph.batch",
        "parameters",
        "flops",
        "kept=cached",
        "stages",
    )

    graph: Graph
    stages: tuple[WalkthroughStage, ...]

    @property
    def context(self) -> int:
        """The number of tokens so far."""
        return self.graph.past_tokens + self.graph.new_tokens

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


def prompt_graph(tree: Decoder, tokens: int, batch: int = 1) -> Graph:
    """Record the prefill of a prompt; a single token uses absorbed latent attention, as in
    decode.
    """
    if isinstance(tree, EncoderDecoder):
        return record_prefill(tree, batch=batch, tokens=tokens)
    return record(tree, batch=batch, new_tokens=tokens, decode=tokens == 1)


def decode_graph(tree: Decoder, past_tokens: int, batch: int = 1) -> Graph:
    """Record the decode pass after a prompt; an encoder has read it while the decoder read one
    token.
    """
    if isinstance(tree, EncoderDecoder):
        return record(
            tree,
            batch=batch,
            past_tokens=1,
            decode=True,
            encoder=(Expr.variable("T", past_tokens), True),
        )
    return record(tree, batch=batch, past_tokens=past_tokens, decode=True)


def reads_on(tree: Decoder) -> bool:
    """Whether the model decodes token by token: not with bidirectional attention."""
    return all(x.attributes["window"].causal for _, x in record(tree).nodes() if x.op is attention)


def walkthrough(graph: Graph, layer: int | None = None) -> Walkthrough:
    """Return the steps of a pass; `layer` selects the layer to show for its kind, by default the
    first.
    """
    tree, n = graph.tree, int(graph.tree.layers.n)
    if layer is not None and not 0 <= layer < n:
        raise LlamathError(
            f"layer {layer} does not exist: the model has {n:,} layers",
            hint=f"0 to {n - 1}" if n else "",
        )
    leaves = fold(tree)
    encoder, nodes = split_encoder(graph.regions[0].nodes)
    middle = next(i for i, x in enumerate(nodes) if x.op is shape_operations.layers)
    head = list_steps(graph, nodes[middle:], leaves)
    if tree.head is not None:
        logits = graph.regions[0].output
        words, shape = "softmax", head[-1].shape if logits is None else logits.shape
        head += (
            Step(
                name="probabilities",
                kind="probabilities",
                description=words,
                inputs=(head[-1].name,),
                shape=shape,
            ),
        )
    layers = list(_layer_stages(graph, layer))
    stages = (
        *(
            [
                WalkthroughStage(
                    name=ENCODER,
                    steps=list_steps(graph, encoder, leaves),
                    nodes=tuple(encoder),
                )
            ]
            if encoder
            else []
        ),
        *[x for x in layers if x.name != "layers"],
        WalkthroughStage(
            name="embedding",
            steps=list_steps(graph, nodes[:middle], leaves),
            nodes=tuple(nodes[:middle]),
        ),
        *[x for x in layers if x.name == "layers"],
        WalkthroughStage(name="head", steps=head, nodes=tuple(nodes[middle:])),
    )
    return Walkthrough(graph=graph, stages=stages)


def split_encoder(operations: Sequence[T]) -> tuple[list[T], list[T]]:
    """Divide the operations outside the layers into those of the encoder up to its layers, and
    all others.
    """
    first = next((i for i, x in enumerate(operations) if x.op is encoder_tokens), None)
    if first is None:
        return [], list(operations)
    last = next(i for i, x in enumerate(operations) if x.op is shape_operations.layers)
    return list(operations[first:last]), [*operations[:first], *operations[last + 1 :]]


def tower_stages(graph: Graph) -> tuple[WalkthroughStage, ...]:
    """Return the steps of images in a tower and its projector: before its layers, one kind of
    layer after the other, and after them.
    """
    nodes, leaves = graph.regions[0].nodes, fold(graph.tree)
    last = max(
        (i + 1 for i, x in enumerate(nodes) if x.op is shape_operations.layers), default=len(nodes)
    )
    before, after = nodes[:last], nodes[last:]
    stages = [
        WalkthroughStage(
            name="vision", steps=list_steps(graph, before, leaves, ""), nodes=tuple(before)
        ),
        *_layer_stages(graph, None),
    ]
    if after:
        stages.append(
            WalkthroughStage(
                name="projector",
                steps=list_steps(graph, after, leaves, ""),
                nodes=tuple(after),
            )
        )
    return tuple(stages)


def _layer_stages(graph: Graph, shown: int | None) -> Iterator[WalkthroughStage]:
    """Yield one stage for each kind of layer."""
    made: dict[tuple[object, ...], tuple[Region, tuple[Step, ...], set[int], int]] = {}
    for region in graph.layers:
        steps = list_steps(graph, region.nodes, fold(region.block, 1), region.path)
        first = made.get(key := (region.path, *(x.key for x in steps)), (region, steps, set(), 0))
        made[key] = (*first[:2], first[2] | {id(region.block)}, first[3] + region.times)
    for region, steps, ids, times in made.values():
        stack: Stack = reduce(getattr, region.path.split("."), graph.tree)  # type: ignore[assignment]
        indices = layer_ranges(stack, ids)
        of_encoder = region.path.startswith(f"{ENCODER}.")
        asked = None if of_encoder else shown
        own = (
            asked
            if asked is not None and id(stack[asked]) in ids
            else indices[0][0]
            if indices
            else 0
        )
        name = f"{ENCODER} layers" if of_encoder else "layers"
        yield WalkthroughStage(
            name=name,
            times=times,
            indices=indices,
            layer=own,
            steps=steps,
            nodes=tuple(region.nodes),
        )
