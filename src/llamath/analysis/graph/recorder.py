"""`record`: the graph of one forward pass, with symbolic shapes, recorded from the `forward` of the
blocks. No torch is needed.

Batch size B, new tokens T and earlier tokens P are variables of the shapes. Layers that are
identical are recorded once, as a `Region`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isqrt
from typing import Any, cast

from ...core.attention_facts import AttentionWindow, ScoreTransform
from ...core.blocks import Decoder
from ...core.expr import Expr, ceil_div, floor_div, minimum, product, total
from ...core.extensions.encoder_decoder import EncoderDecoder
from ...core.positions import LogNScaling, Rope, TemperatureTuning
from ...core.tree import LETTERS, Block, Split, Stack, Weight
from ...utils.record_type import Record
from .node import FLOAT32, INT64, Node, UsedWeight


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


class GraphRecorder:
    """The `Machine` that records. Every operation appends a node to the current region."""

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
            self.add_node("ids" if width == INT64 else "hidden_states", (), shape, width=width)
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
        op: str,
        inputs: tuple[Node, ...],
        shape: Iterable[int],
        *,
        width: int = 0,
        weights: Iterable[UsedWeight | None] = (),
        view: bool = False,
        **attributes: Any,
    ) -> Node:
        """Append a node; without `width`, its elements are as wide as those of its first input."""
        width = width or (inputs[0].width if inputs else self.activation_bytes)
        used = tuple([x for x in weights if x is not None])
        sizes = tuple([x if isinstance(x, Expr) else Expr.const(x) for x in shape])
        node = Node(op, self._path, self._group, inputs, sizes, width, used, view, attributes)
        node.without_gradient = self._without_gradient
        self._region.nodes.append(node)
        return node

    # Each token alone

    def token_positions(self) -> Node:
        return self.add_node("positions", (), (self.new_tokens,), width=INT64)

    def lookup(self, ids: Node, weight: UsedWeight, offset: int = 0) -> Node:
        shape = (*ids.shape, weight.shape[1])
        return self.add_node(
            "lookup", (ids,), shape, width=self.activation_bytes, weights=(weight,), offset=offset
        )

    def lookup_in_parts(self, ids: Node, tables: _BoundStack) -> Node:
        weight = tables.bind(tables.stack[0], LETTERS[1]).weight
        shape = (*ids.shape, weight.shape[1])
        return self.add_node(
            "lookup_in_parts", (ids,), shape, width=self.activation_bytes, weights=(weight,)
        )

    def add_sinusoids(self, x: Node, offset: int, steps: int) -> Node:
        return self.add_node("add_sinusoids", (x,), x.shape, offset=offset, steps=steps)

    def linear(self, x: Node, weight: UsedWeight, bias: UsedWeight | None = None) -> Node:
        return self.add_node(
            "linear", (x,), (*x.shape[:-1], weight.shape[0]), weights=(weight, bias)
        )

    def per_head_linear(
        self, x: Node, weight: UsedWeight, size: int, transposed: bool = False
    ) -> Node:
        shape = (*x.shape[:-1], weight.shape[1] if transposed else size)
        return self.add_node(
            "per_head_linear", (x,), shape, weights=(weight,), size=size, transposed=transposed
        )

    def rms_norm(
        self,
        x: Node,
        weight: UsedWeight | None,
        eps: float,
        offset: float = 0.0,
        grouped: bool = False,
    ) -> Node:
        return self.add_node(
            "rms_norm", (x,), x.shape, weights=(weight,), eps=eps, offset=offset, grouped=grouped
        )

    def layer_norm(
        self,
        x: Node,
        weight: UsedWeight | None,
        bias: UsedWeight | None,
        eps: float,
        offset: float = 0.0,
    ) -> Node:
        return self.add_node(
            "layer_norm", (x,), x.shape, weights=(weight, bias), eps=eps, offset=offset
        )

    def norm_heads(self, norm: _Bound | _BoundStack, x: Node) -> Node:
        if isinstance(norm, _BoundStack):
            norm = norm.bind(norm.stack[0], LETTERS[1])
        result: Node = norm(self, x)
        return result

    def l2_norm(self, x: Node, eps: float) -> Node:
        return self.add_node("l2_norm", (x,), x.shape, eps=eps)

    def act(self, x: Node, name: str) -> Node:
        return self.add_node("act", (x,), x.shape, name=name)

    def gated(self, gate: Node, up: Node, activation: str) -> Node:
        return self.add_node("gated", (gate, up), up.shape, name=activation)

    def clamped_gated(self, gate: Node, up: Node, limit: float, alpha: float) -> Node:
        return self.add_node("clamped_gated", (gate, up), up.shape, limit=limit, alpha=alpha)

    def add(self, x: Node, y: Node) -> Node:
        return self.add_node("add", (x, y), x.shape)

    def multiply(self, x: Node, y: Node) -> Node:
        return self.add_node("multiply", (x, y), x.shape)

    def dot(self, x: Node, y: Node) -> Node:
        return self.add_node("dot", (x, y), (*x.shape[:-1], 1))

    def signed_root(self, x: Node, least: float) -> Node:
        return self.add_node("signed_root", (x,), x.shape, least=least)

    def scale(self, x: Node, factor: float) -> Node:
        return x if factor == 1.0 else self.add_node("scale", (x,), x.shape, factor=float(factor))

    def scale_by_weight(self, x: Node, weight: UsedWeight) -> Node:
        return self.add_node("scale_by_weight", (x,), x.shape, weights=(weight,))

    def scale_by_position(
        self, x: Node, temperature: TemperatureTuning | LogNScaling | None
    ) -> Node:
        return (
            x
            if temperature is None
            else self.add_node("scale_by_position", (x,), x.shape, temperature=temperature)
        )

    def softcap(self, x: Node, cap: float | None) -> Node:
        return x if cap is None else self.add_node("softcap", (x,), x.shape, cap=cap)

    def mix_streams(self, x: Node, weights: Node) -> Node:
        return self.add_node("mix_streams", (x, weights), (*weights.shape[:-1], x.shape[-1]))

    def sinkhorn(self, x: Node, iterations: int, eps: float) -> Node:
        return self.add_node("sinkhorn", (x,), x.shape, iterations=iterations, eps=eps)

    def offset(self, x: Node, amount: float) -> Node:
        return self.add_node("offset", (x,), x.shape, amount=float(amount))

    def softmax(self, x: Node) -> Node:
        return self.add_node("softmax", (x,), x.shape)

    def normalize_sum(self, x: Node) -> Node:
        return self.add_node("normalize_sum", (x,), x.shape)

    def clamp(self, x: Node, limit: float) -> Node:
        return self.add_node("clamp", (x,), x.shape, limit=limit)

    def softplus(
        self, x: Node, bias: UsedWeight, minimum: float = 0.0, maximum: float = inf
    ) -> Node:
        clamped = minimum > 0 or maximum < inf
        return self.add_node(
            "softplus",
            (x,),
            x.shape,
            width=FLOAT32,
            weights=(bias,),
            clamped=clamped,
            limits=(minimum, maximum),
        )

    def decay(self, dt: Node, a_log: UsedWeight) -> Node:
        return self.add_node("decay", (dt,), dt.shape, width=FLOAT32, weights=(a_log,))

    def bounded_decay(
        self, x: Node, bias: UsedWeight, a_log: UsedWeight, head_dim: int, bound: float
    ) -> Node:
        shape = (*x.shape[:-1], x.shape[-1].exact_div(head_dim), head_dim)
        return self.add_node(
            "bounded_decay", (x,), shape, width=FLOAT32, weights=(a_log, bias), bound=bound
        )

    def to_float32(self, x: Node) -> Node:
        return x if x.width == FLOAT32 else self.add_node("cast", (x,), x.shape, width=FLOAT32)

    def to_model_dtype(self, x: Node) -> Node:
        return (
            x
            if x.width == self.activation_bytes
            else self.add_node("cast", (x,), x.shape, width=self.activation_bytes)
        )

    def dropout(self, x: Node) -> Node:
        return self.add_node("dropout", (x,), x.shape) if self.with_dropout else x

    # Shapes

    def split_heads(self, x: Node, head_dim: int) -> Node:
        heads = x.shape[-1].exact_div(head_dim)
        return self.add_node("split_heads", (x,), (*x.shape[:-1], heads, head_dim), view=True)

    def merge_heads(self, x: Node) -> Node:
        return self.add_node(
            "merge_heads", (x,), (*x.shape[:-2], x.shape[-2] * x.shape[-1]), view=True
        )

    def split(self, x: Node, *sizes: int) -> list[Node]:
        starts = [sum(map(int, sizes[:i])) for i in range(len(sizes))]
        return [
            self.add_node("slice", (x,), (*x.shape[:-1], size), view=True, start=start)
            for start, size in zip(starts, sizes, strict=True)
        ]

    def concat(self, *parts: Node) -> Node:
        return self.add_node(
            "concat", parts, (*parts[0].shape[:-1], total(x.shape[-1] for x in parts))
        )

    def last_token(self, x: Node) -> Node:
        return (
            self.add_node("last_token", (x,), (x.shape[0], 1, x.shape[2]), view=True)
            if self.last_only
            else x
        )

    # Images and sound

    def prepend(self, x: Node, *rows: UsedWeight) -> Node:
        return self.add_node(
            "prepend", (x,), (x.shape[0], x.shape[1] + _num_rows(rows), x.shape[2]), weights=rows
        )

    def drop_tokens(self, x: Node, n: int) -> Node:
        return self.add_node(
            "drop_tokens", (x,), (x.shape[0], x.shape[1] - n, x.shape[2]), view=True
        )

    def add_positions(self, x: Node, table: UsedWeight, method: str = "") -> Node:  # noqa: ARG002
        return self.add_node("add_positions", (x,), x.shape, weights=(table,))

    def merge_patches(
        self, x: Node, side: int, by_channel: bool = False, padded: bool = False
    ) -> Node:
        squares = floor_div(x.shape[1], side * side)
        if padded:
            rows, columns = self.patch_grid
            squares = Expr.const(-(-rows // side) * -(-columns // side))
        shape = (x.shape[0], squares, side * side * x.shape[2])
        return self.add_node("merge_patches", (x,), shape, side=side, by_channel=by_channel)

    def pool_patches(self, x: Node, side: int) -> Node:
        return self.add_node(
            "pool_patches",
            (x,),
            (x.shape[0], floor_div(x.shape[1], side * side), x.shape[2]),
            side=side,
        )

    def standardize(self, x: Node, bias: UsedWeight, scale: UsedWeight) -> Node:
        return self.add_node("standardize", (x,), x.shape, weights=(bias, scale))

    def clip(self, x: Node, low: UsedWeight, high: UsedWeight) -> Node:
        return self.add_node("clip", (x,), x.shape, weights=(low, high))

    def encoder_attention(
        self, q: Node, k: Node, v: Node, scale: float | None = None, window: int | None = None
    ) -> Node:
        shape: tuple[Expr, ...] = (*q.shape[:-1], v.shape[-1])
        facts: dict[str, Any] = {"gathers": False, "transform": ScoreTransform(scale=scale)}
        if window is not None:
            facts["pairs"] = _pairs_in_windows(*self.patch_grid, window)
        return self.add_node("encoder_attention", (q, k, v), shape, **facts)

    def encoder_tokens(self) -> tuple[Node, Node] | None:
        if self.encoded:
            return None
        ids = self.add_node("encoder_ids", (), (self.batch, self.encoder_length), width=INT64)
        return ids, self.add_node("positions", (), (self.encoder_length,), width=INT64)

    def keep_encoded(self, mixer: _Bound, *rows: Node) -> list[Node]:  # noqa: ARG002
        return [
            self.add_node("keep_encoded", (x,), x.shape, view=True, name=name)
            for x, name in zip(rows, ENCODED_ROWS, strict=True)
        ]

    def read_encoded(self, mixer: _Bound) -> list[Node]:
        shape = (self.batch, self.encoder_length, mixer.kv_heads, mixer.head_dim)
        return [self.add_node("read_encoded", (), shape, name=name) for name in ENCODED_ROWS]

    def layer_outputs(self, layers: _BoundStack, x: Node, numbers: Sequence[int]) -> Node:
        y = self.layers(layers, x)
        return self.add_node("layer_outputs", (y,), (*y.shape[:-1], len(numbers) * y.shape[-1]))

    # Tokens meet

    def rope(self, x: Node, rope: Rope | None) -> Node:
        return x if rope is None else self.add_node("rope", (x,), x.shape, rope=rope)

    def update_cache(self, mixer: _Bound, *rows: Node) -> list[Node]:
        window: AttentionWindow = mixer.window
        keys = self.visible_keys(window)
        shapes = [(x.shape[0], keys, *x.shape[2:]) for x in rows]
        return [
            self.add_node("update_cache", (x,), shape, window=window, name=name)
            for x, shape, name in zip(rows, shapes, mixer.cached_rows[: len(rows)], strict=True)
        ]

    def read_cache(self, mixer: _Bound) -> list[Node]:
        shape = (self.batch, self.visible_keys(mixer.window))
        rows = zip(mixer.shared_rows, mixer.cached_rows, strict=True)
        return [
            self.add_node("read_cache", (), (*shape, *row), layer=mixer.kv_layer, name=name)
            for row, name in rows
        ]

    def visible_keys(self, window: AttentionWindow) -> Expr:
        """The number of keys that the attention of this pass computes with."""
        reach = window.max_lookback
        if reach is None:
            return self.past_tokens + self.new_tokens
        if self.decode:
            return minimum(self.past_tokens + 1, reach)
        return minimum(self.past_tokens, reach - 1) + self.new_tokens

    def select_keys(self, indexer: _Bound, q: Node, k: Node, weights: Node | None) -> Node:
        shape = (*q.shape[:2], minimum(k.shape[1], indexer.top_k))
        facts = {
            "past_tokens": self.past_tokens,
            "window": indexer.window,
            "top_k": indexer.top_k,
            "ratio": indexer.ratio,
        }
        return self.add_node(
            "select_keys",
            (q, k) if weights is None else (q, k, weights),
            shape,
            width=INT64,
            **facts,
        )

    def add_open_window(self, indexer: _Bound, selected: Node) -> Node:
        shape = (*selected.shape[:2], 1, selected.shape[2] + 1)
        return self.add_node(
            "add_open_window", (selected,), shape, windows=(indexer.ratio, indexer.top_k)
        )

    def compress(
        self, compressor: _Bound, kv: Node, gate: Node | None, bias: UsedWeight | None
    ) -> Node:
        ratio, facts = compressor.ratio, {"ratio": compressor.ratio, "overlap": compressor.overlap}
        windows = floor_div(self.past_tokens + self.new_tokens, ratio) - floor_div(
            self.past_tokens, ratio
        )
        inputs = (kv,) if gate is None else (kv, gate)
        return self.add_node(
            "compress",
            inputs,
            (self.batch, windows, 1, compressor.head_dim),
            weights=(bias,),
            **facts,
        )

    def rope_windows(self, compressor: _Bound, x: Node, rope: Rope | None) -> Node:  # noqa: ARG002
        return x if rope is None else self.add_node("rope_windows", (x,), x.shape, rope=rope)

    def update_windows(self, compressor: _Bound, x: Node) -> Node:
        windows = floor_div(self.past_tokens + self.new_tokens, compressor.ratio)
        return self.add_node(
            "update_windows", (x,), (x.shape[0], windows, *x.shape[2:]), ratio=compressor.ratio
        )

    def compressed_attention(
        self,
        mixer: _Bound,
        q: Node,
        k: Node,
        windows: Node,
        head_dim: int,
        sinks: UsedWeight | None = None,
        selected: Node | None = None,
    ) -> Node:
        facts = {
            "top_k": None if selected is None else mixer.top_k,
            "ratio": mixer.ratio,
            "window": mixer.window,
            "past_tokens": self.past_tokens,
            "head_dim": head_dim,
        }
        inputs = (q, k, windows) if selected is None else (q, k, windows, selected)
        return self.add_node("compressed_attention", inputs, q.shape, weights=(sinks,), **facts)

    def select_blocks(self, indexer: _Bound, q: Node, k: Node) -> Node:
        shape = (
            *q.shape[:3],
            minimum(ceil_div(k.shape[1], indexer.block_size), indexer.top_blocks),
        )
        facts = {
            "past_tokens": self.past_tokens,
            "window": indexer.window,
            "blocks": (indexer.block_size, indexer.top_blocks),
        }
        return self.add_node("select_blocks", (q, k), shape, width=INT64, **facts)

    def reuse_selection(self, mixer: _Bound) -> Node:
        keys = self.visible_keys(mixer.window)
        if mixer.block_size == 1:
            return self.add_node(
                "reuse_selection",
                (),
                (self.batch, self.new_tokens, minimum(keys, mixer.top_k)),
                width=INT64,
            )
        shape = (
            self.batch,
            self.new_tokens,
            1,
            minimum(floor_div(keys, mixer.block_size), mixer.top_k) + 1,
        )
        return self.add_node(
            "reuse_selection", (), shape, width=INT64, windows=(mixer.block_size, mixer.top_k)
        )

    def attention(
        self,
        mixer: _Bound,
        q: Node,
        k: Node,
        v: Node,
        head_dim: int,
        sinks: UsedWeight | None = None,
        selected: Node | None = None,
        bias: Node | None = None,
    ) -> Node:
        by_key = selected is not None and len(selected.shape) == 3
        facts = {
            "top_k": mixer.top_k if by_key else None,
            "gathers": by_key and self.decode,
            # size and number of the selected blocks
            "blocks": None if selected is None else selected.attributes.get("blocks"),
            # the same of windows before the query's own
            "windows": None if selected is None else selected.attributes.get("windows"),
            "window": mixer.window,
            "past_tokens": self.past_tokens,
            "transform": mixer.score_transform,
            "head_dim": head_dim,
        }
        inputs = (q, k, v, *[x for x in (selected, bias) if x is not None])
        return self.add_node(
            "attention", inputs, (*q.shape[:-1], v.shape[-1]), weights=(sinks,), **facts
        )

    def hash_ngrams(
        self, mixer: _Bound, multipliers: UsedWeight, sizes: UsedWeight, offsets: UsedWeight
    ) -> Node:
        shape, weights = (
            (self.batch, self.new_tokens, sizes.shape[0]),
            (multipliers, sizes, offsets),
        )
        return self.add_node(
            "hash_ngrams", (), shape, width=INT64, weights=weights, ngram_size=mixer.ngram_size
        )

    def causal_conv(
        self,
        mixer: _Bound,  # noqa: ARG002
        x: Node,
        weight: UsedWeight,
        bias: UsedWeight | None,
        dilation: int = 1,
    ) -> Node:
        return self.add_node(
            "causal_conv", (x,), x.shape, weights=(weight, bias), dilation=dilation
        )

    def gated_delta_rule(
        self,
        mixer: _Bound,  # noqa: ARG002
        q: Node,
        k: Node,
        v: Node,
        g: Node,
        beta: Node,
    ) -> Node:
        return self.add_node("gated_delta_rule", (q, k, v, g, beta), v.shape, width=FLOAT32)

    def linear_attention(self, mixer: _Bound, q: Node, k: Node, v: Node, layers: int) -> Node:  # noqa: ARG002
        return self.add_node("linear_attention", (q, k, v), v.shape, width=FLOAT32)

    def ssm_scan(
        self,
        mixer: _Bound,  # noqa: ARG002
        x: Node,
        b: Node,
        c: Node,
        dt: Node,
        a_log: UsedWeight,
    ) -> Node:
        return self.add_node("ssm_scan", (x, b, c, dt), x.shape, width=FLOAT32, weights=(a_log,))

    def selective_scan(
        self,
        mixer: _Bound,  # noqa: ARG002
        x: Node,
        b: Node,
        c: Node,
        dt: Node,
        a_log: UsedWeight,
        skip: UsedWeight,
    ) -> Node:
        return self.add_node(
            "selective_scan", (x, b, c, dt), x.shape, width=FLOAT32, weights=(a_log, skip)
        )

    # One of many

    def route(self, logits: Node, correction: UsedWeight | None, moe: _Bound) -> tuple[Node, Node]:
        shape = (*logits.shape[:-1], Expr.const(moe.top_k))
        chosen = self.add_node(
            "route", (logits,), shape, width=INT64, weights=(correction,), moe=moe.block
        )
        return chosen, self.add_node("routing_weights", (logits, chosen), shape, width=FLOAT32)

    def route_by_token(self, logits: Node, table: UsedWeight, moe: _Bound) -> tuple[Node, Node]:
        shape = (*logits.shape[:-1], Expr.const(moe.top_k))
        chosen = self.add_node(
            "route", (logits,), shape, width=INT64, weights=(table,), moe=moe.block, by_token=True
        )
        return chosen, self.add_node("routing_weights", (logits, chosen), shape, width=FLOAT32)

    def scale_by_expert(self, weights: Node, chosen: Node, scale: UsedWeight) -> Node:
        return self.add_node("scale_by_expert", (weights, chosen), weights.shape, weights=(scale,))

    def experts(
        self, moe: _Bound, experts: _BoundStack, x: Node, chosen: Node, weights: Node
    ) -> Node:
        expert = experts.bind(experts.stack[0], LETTERS[1])
        rows = self.add_node(
            "dispatch", (x, chosen), (product(chosen.shape), x.shape[-1]), moe=moe.block
        )
        y: Node = expert(self, rows)
        return self.add_node(
            "combine", (y, chosen, weights), (*x.shape[:-1], y.shape[-1]), moe=moe.block
        )

    def layers(self, layers: _BoundStack, x: Node, *extra: Node) -> Node:
        outer = self._region
        for block, times in layers.stack.distinct():
            self._open(Region(layers.path, block, Expr.const(times)))
            region = self._region
            region.input = self.add_node("hidden_states", (), x.shape)
            inputs = [self.layer_input(y) for y in extra]
            region.output = layers.bind(block, LETTERS[0])(self, region.input, *inputs)
        self._region = outer
        return self.add_node("layers", (x,), x.shape)

    def layer_input(self, x: Node, layer: int | None = None) -> Node:
        """Return a layer's slice of a further input `(B, T, L, p)`, or all of an input `(B, T,
        d)`, the embeddings.
        """
        if len(x.shape) < 4:
            return self.add_node("embeddings", (x,), x.shape, view=True)
        return self.add_node(
            "select_layer", (x,), (*x.shape[:2], x.shape[3]), view=True, index=layer
        )


def _pairs_in_windows(rows: int, columns: int, side: int) -> int:
    """Return the pairs of patches in the same window of side × side patches."""
    heights, widths = ([min(side, n - i) for i in range(0, n, side)] for n in (rows, columns))
    return sum(h * h for h in heights) * sum(w * w for w in widths)


def _num_rows(rows: Sequence[UsedWeight]) -> int:
    """Return the number of learned tokens, each a vector or rows of a table."""
    return sum(int(x.shape[-2]) if len(x.shape) > 1 else 1 for x in rows)


ENCODED_ROWS = ("keys", "values")
"""What is kept of the tokens of an encoder."""


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
    recorder = GraphRecorder(
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
    recorder = GraphRecorder(
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
