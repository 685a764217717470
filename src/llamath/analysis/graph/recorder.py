"""`record`: the graph of one forward pass, with symbolic shapes, recorded from the `forward` of the
blocks. No torch is needed.

Batch size B, new tokens T and earlier tokens P are variables of the shapes. Layers that are
identical are recorded once, as a `Region`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isqrt
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from ...core.attention_facts import AttentionWindow
from ...core.blocks import Decoder
from ...core.expr import Expr, minimum, product
from ...core.machine import Machine
from ...core.tree import LETTERS, Block, Split, Stack, Weight
from ...utils.record_type import Record
from .node import FLOAT32, INT64, Node, UsedWeight
from .operations import expert_operations, shape_operations
from .operations.operation import Operation
from .operations.operation_list import OPERATIONS
from .recorder_methods import as_exprs, make_method

_WIDTHS = {"float32": FLOAT32, "int64": INT64}
"""Bytes of an element that has this dtype whatever the dtype of the model."""

if TYPE_CHECKING:
    _Machine = Machine[Node]
else:
    _Machine = object


class Region:
    """Operations that run one after the other: all those outside the layers, or those of one
    kind of layer, repeated `times` times.
    """

    def __init__(self, path: str, block: Block, times: Expr) -> None:
        self.path = path
        self.block = block
        self.times = times
        self.nodes: list[Node] = []
        self.input: Node | None = None
        self.output: Node | None = None
        # (argument of a block, index of the last node before the block returned)
        self.call_ends: list[tuple[Node, int]] = []


class Graph(Record):
    """One forward pass: the region outside the layers comes first, then one for each kind of
    layer.
    """

    tree: Decoder
    decode: bool
    activation_bytes: int
    batch: Expr
    new_tokens: Expr
    past_tokens: Expr
    regions: tuple[Region, ...]
    encoder_length: Expr = Expr.const(0)  # tokens of the encoder, of a model that has one

    @property
    def layers(self) -> tuple[Region, ...]:
        """The kinds of layers."""
        return self.regions[1:]

    def nodes(self) -> Iterator[tuple[Region, Node]]:
        """Yield every node with its region."""
        return ((region, node) for region in self.regions for node in region.nodes)


class _Bound:
    """A block at its place: weights and blocks inside it are bound to theirs, all other fields are
    the block's.

    What has been bound is kept, for the next graph of the same model.
    """

    def __init__(
        self,
        block: Block,
        path: str,
        groups: tuple[str, str] = ("", ""),
        splits: Mapping[str, Split | None] | None = None,
        numbered: bool = False,
    ) -> None:
        self.block = block
        self.path = path
        # whether the paths of blocks in stacks have their numbers, not a letter
        self.numbered = numbered
        # the group declared by the field of a parent, and the group of the parent
        self._override, inherited = groups
        self._inherited = block.group or inherited
        self._splits = splits  # of its weights, where the parent block declares them

    @property
    def group(self) -> str:
        """The group under which its operations are counted."""
        return self._override or self._inherited

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.block, name)
        path = f"{self.path}.{name}" if self.path else name
        own = self.block.groups.get(name, "")
        groups = (self._override or own, self._inherited)
        if isinstance(value, Weight):
            split = (
                self.block.split(name, value) if self._splits is None else self._splits.get(name)
            )
            group = "norm" if (own or self.block.group) == "norm" else groups[0] or groups[1]
            value = UsedWeight(path=path, weight=value, group=group, split=split)
        elif isinstance(value, Block):
            splits = (
                {x: self.block.split(name, w) for x, w in value.children if isinstance(w, Weight)}
                if name in self.block.cuts
                else None
            )
            value = _Bound(value, path, groups, splits, self.numbered)
        elif isinstance(value, Stack):
            value = _BoundStack(value, path, groups, self.numbered)
        self.__dict__[name] = value
        return value

    def __call__(self, recorder: GraphRecorder, *inputs: Node) -> Any:
        return recorder.call(self, inputs)


class _BoundStack:
    """A stack at its place."""

    def __init__(
        self, stack: Stack, path: str, groups: tuple[str, str], numbered: bool = False
    ) -> None:
        self.stack = stack
        self.path = path
        self._numbered = numbered
        self._groups = groups
        self._bound: dict[int, _Bound] = {}

    def __iter__(self) -> Iterator[_Bound]:
        if self._numbered:
            return (
                _Bound(x, f"{self.path}.{i}", self._groups, numbered=True)
                for i, x in enumerate(self.stack)
            )
        letter = LETTERS[LETTERS[0] in self.path]
        return (self.bind(x, letter) for x in self.stack)

    def bind(self, block: Block, letter: str) -> _Bound:
        """Bind a block of the stack, with a letter for its number."""
        return self._bound.setdefault(
            id(block), _Bound(block, f"{self.path}.{letter}", self._groups, numbered=self._numbered)
        )


class GraphRecorder(_Machine):
    """The `Machine` that records. Every operation appends a node to the current region.

    Its methods are made from the rows of the operations, with the arguments of the protocol's: type
    checkers take it for abstract.
    """

    def __init__(
        self,
        batch: Expr,
        new_tokens: Expr,
        past_tokens: Expr,
        *,
        decode: bool,
        last_only: bool = False,
        dropout: bool = False,
        activation_bytes: int = 2,
        encoder: tuple[Expr, bool] | None = None,
    ) -> None:
        self.batch = batch
        self.new_tokens = new_tokens
        self.past_tokens = past_tokens
        self.decode = decode
        self.last_only = last_only
        self.with_dropout = dropout
        self.activation_bytes = activation_bytes
        length, encoded = encoder or (past_tokens + new_tokens if decode else new_tokens, decode)
        # tokens of the encoder, and whether an earlier pass has read them
        self.encoder_length, self.encoded = length, encoded
        self.patch_grid = (1, 1)  # rows and columns of the patches of an image
        self.regions: list[Region] = []
        self._region: Region
        self._path = ""
        self._group = ""
        self._without_gradient = False

    @property
    def absorbs(self) -> bool:
        return self.decode

    def call(self, block: _Bound, inputs: tuple[Node, ...]) -> Any:
        """Run the forward of a block at its place."""
        before = self._path, self._group, self._without_gradient
        self._path, self._group, self._without_gradient = (
            block.path,
            block.group,
            before[2] or block.block.without_gradient,
        )
        result = type(block.block).forward(cast(Any, block), self, *inputs)
        self._path, self._group, self._without_gradient = before
        self._region.call_ends += [(x.storage, len(self._region.nodes) - 1) for x in inputs]
        return result

    def run(self, tree: Decoder) -> None:
        """Record the whole model."""
        self.record_block(tree, ((self.batch, self.new_tokens), INT64))

    def record_block(self, block: Block, *inputs: tuple[Iterable[int], int]) -> Any:
        """Record a block by itself, for inputs of these shapes and element widths; return its
        result.
        """
        region = Region("", block, Expr.const(1))
        self._open(region)
        nodes = [
            self.add_node(
                shape_operations.ids if width == INT64 else shape_operations.hidden_states,
                (),
                shape,
                width=width,
            )
            for shape, width in inputs
        ]
        root = vars(block).setdefault("_bound", _Bound(block, ""))
        region.input, region.output = next(iter(nodes), None), root(self, *nodes)
        return region.output

    def _open(self, region: Region) -> None:
        self.regions.append(region)
        self._region = region

    def add_node(
        self,
        op: Operation,
        inputs: tuple[Node, ...],
        shape: Iterable[int],
        *,
        width: int = 0,
        weights: Iterable[UsedWeight | None] = (),
        **attributes: Any,
    ) -> Node:
        """Append a node; without `width`, its elements have the dtype of the operation."""
        used = tuple([x for x in weights if x is not None])
        return self.append(op, inputs, as_exprs(shape), used, attributes, width)

    def append(
        self,
        op: Operation,
        inputs: tuple[Node, ...],
        shape: tuple[Expr, ...],
        weights: tuple[UsedWeight, ...],
        attributes: Mapping[str, Any],
        width: int = 0,
    ) -> Node:
        """Append a node to the current region."""
        if not width:
            same = inputs and not op.dtype
            width = inputs[0].width if same else _WIDTHS.get(op.dtype, self.activation_bytes)
        node = Node(op, self._path, self._group, inputs, shape, width, weights, attributes)
        node.without_gradient = self._without_gradient
        self._region.nodes.append(node)
        return node

    def visible_keys(self, window: AttentionWindow) -> Expr:
        """The number of keys that the attention of this pass computes with."""
        reach = window.max_lookback
        if reach is None:
            return self.past_tokens + self.new_tokens
        if self.decode:
            return minimum(self.past_tokens + 1, reach)
        return minimum(self.past_tokens, reach - 1) + self.new_tokens

    # Operations that run blocks; all others are made from their rows

    def norm_heads(self, norm: Any, x: Node) -> Node:
        if isinstance(norm, _BoundStack):
            norm = norm.bind(norm.stack[0], LETTERS[1])
        result: Node = norm(self, x)
        return result

    def experts(self, moe: Any, experts: Any, x: Node, chosen: Node, weights: Node) -> Node:
        expert = experts.bind(experts.stack[0], LETTERS[1])
        rows = self.add_node(
            expert_operations.dispatch,
            (x, chosen),
            (product(chosen.shape), x.shape[-1]),
            moe=moe.block,
        )
        y: Node = expert(self, rows)
        shape = (*x.shape[:-1], y.shape[-1])
        return self.add_node(expert_operations.combine, (y, chosen, weights), shape, moe=moe.block)

    def layer_outputs(self, layers: Any, x: Node, numbers: Sequence[int]) -> Node:
        y = self.layers(layers, x)
        return self.add_node(
            shape_operations.layer_outputs, (y,), (*y.shape[:-1], len(numbers) * y.shape[-1])
        )

    def layers(self, layers: Any, x: Node, *extra: Node) -> Node:
        outer = self._region
        for block, times in layers.stack.distinct():
            self._open(Region(layers.path, block, Expr.const(times)))
            region = self._region
            region.input = self.add_node(shape_operations.hidden_states, (), x.shape)
            inputs = [self.layer_input(y) for y in extra]
            region.output = layers.bind(block, LETTERS[0])(self, region.input, *inputs)
        self._region = outer
        return self.add_node(shape_operations.layers, (x,), x.shape)

    def layer_input(self, x: Node, layer: int | None = None) -> Node:
        """Return a layer's slice of a further input `(B, T, L, p)`, or all of an input `(B, T,
        d)`, the embeddings.
        """
        if len(x.shape) < 4:
            return self.add_node(shape_operations.embeddings, (x,), x.shape)
        return self.add_node(
            shape_operations.select_layer, (x,), (*x.shape[:2], x.shape[3]), index=layer
        )


def _made_when_called(row: Operation, method: FunctionType) -> Callable[..., Node]:
    """Return the method of an operation, which a model may never need, until it is made."""

    def first(*given: Any, **named: Any) -> Node:
        made = make_method(row, method)
        setattr(GraphRecorder, method.__name__, made)
        return made(*given, **named)

    return first


for _name, _method in vars(Machine).items():
    if isinstance(_method, FunctionType) and _name[0] != "_" and not hasattr(GraphRecorder, _name):
        _row = OPERATIONS[_name]
        setattr(GraphRecorder, _name, _row.record or _made_when_called(_row, _method))


def record(
    tree: Decoder,
    *,
    batch: int = 1,
    new_tokens: int = 1,
    past_tokens: int = 0,
    decode: bool = False,
    last_only: bool = False,
    dropout: bool = False,
    activation_bytes: int = 2,
    encoder: tuple[Expr, bool] | None = None,
) -> Graph:
    """Record a pass over `new_tokens` tokens after `past_tokens` others; with `decode` it is one
    token, with absorbed latent attention.

    The numbers are the values of the variables B, T and P, which `Expr.at` replaces: one graph
    describes every pass of its kind. An Expr takes the place of the variable. The `encoder` of a
    model that has one reads a number of tokens, or has read them in an earlier pass; without it, it
    reads as many as the decoder, and has read them before it decodes.
    """
    recorder = GraphRecorder(  # type: ignore[abstract]
        _variable("B", batch),
        Expr.const(1) if decode else _variable("T", new_tokens),
        _variable("P", past_tokens),
        decode=decode,
        last_only=last_only,
        dropout=dropout,
        activation_bytes=activation_bytes,
        encoder=encoder,
    )
    recorder.run(tree)
    return Graph(
        tree=tree,
        decode=decode,
        activation_bytes=activation_bytes,
        batch=recorder.batch,
        new_tokens=recorder.new_tokens,
        past_tokens=recorder.past_tokens,
        encoder_length=recorder.encoder_length,
        regions=tuple(recorder.regions),
    )


def record_prefill(
    tree: Decoder, *, batch: int = 1, tokens: int = 1, past_tokens: int = 0
) -> Graph:
    """Record the pass over a prompt, with the logits of its last token; an encoder reads it, and
    the decoder begins with one token.
    """
    from ...core.extensions.encoder_decoder import EncoderDecoder

    if not isinstance(tree, EncoderDecoder):
        return record(tree, batch=batch, new_tokens=tokens, past_tokens=past_tokens, last_only=True)
    read = _variable("T", tokens)
    return record(
        tree,
        batch=batch,
        new_tokens=Expr.const(1),
        past_tokens=Expr.const(0),
        encoder=(read, False),
    )


def record_part(
    part: Block,
    shape: tuple[Expr, ...],
    activation_bytes: int = 2,
    grid: tuple[int, int] | None = None,
    others: Iterable[tuple[Expr, ...]] = (),
) -> tuple[Graph, Node]:
    """Record a tower with its projector for inputs of this shape; return the graph and its result.
    An image is a `grid` of patches.

    Any other block can be recorded as well; `others` are the shapes of its further inputs.
    """
    none = Expr.const(0)
    recorder = GraphRecorder(  # type: ignore[abstract]
        shape[0], shape[1], none, decode=False, activation_bytes=activation_bytes
    )
    recorder.patch_grid = grid or (isqrt(int(shape[1])),) * 2
    output: Node = recorder.record_block(part, *((x, activation_bytes) for x in (shape, *others)))
    facts: dict[str, Any] = {
        "tree": part,
        "batch": shape[0],
        "new_tokens": shape[1],
        "past_tokens": none,
    }
    return Graph(
        decode=False, activation_bytes=activation_bytes, regions=tuple(recorder.regions), **facts
    ), output


def _variable(symbol: str, value: int) -> Expr:
    return value if isinstance(value, Expr) else Expr.variable(symbol, value)
