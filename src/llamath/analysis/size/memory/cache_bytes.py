"""The size of the KV cache, layer by layer: keys and values, latent vectors, and recurrent states,
which do not grow.

The sizes are those that transformers' static cache allocates: as many tokens as a sliding window or
a chunk is long, as many columns of a convolution's input as it has taps. transformers' dynamic
cache keeps one token of a window less; llama.cpp and vLLM keep one tap less; transformers before
version 5 expanded latent attention before it cached it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ....checkpoint.formats.dtypes import DType, parse_dtype
from ....core.attention_facts import AttentionWindow
from ....core.blocks import Decoder
from ....core.expr import Expr, as_number, ceil_div, floor_div, product, total, written_ceil_div
from ....utils.record_type import Record
from ...graph.operations.operation import CachedTensor, cached_tokens
from ...graph.recorder import Graph, Region, record

KV_DTYPES = (
    "F32",
    "F16",
    "BF16",
    "F8_E4M3",
    "F8_E5M2",
    "I8",
    "Q8_0",
    "Q5_1",
    "Q5_0",
    "Q4_1",
    "Q4_0",
    "IQ4_NL",
)
"""Types of KV caches: FP8 and INT8 with one scale per tensor, which is not counted; llama.cpp's
block types with their scales."""


class CacheSpec(Record):
    """The cache of one kind of layer: `rows` for each token of the last `window` tokens, and
    states whose size is fixed.
    """

    kind: str
    layers: int = 1
    # the lengths of the vectors of one token; each is quantized by itself
    rows: tuple[Expr, ...] = ()
    window: int | None = None  # the most tokens that are cached; None: all of them
    every: int = 1  # tokens for each row
    state: Expr | None = None  # elements of a recurrent state, always in fp32
    conv_state: Expr | None = None  # elements of a convolution's last inputs
    of_encoder: bool = False  # a row for each token of the encoder

    def tokens(self, context: int) -> int:
        """Return the number of cached tokens."""
        tokens = cached_tokens(context, self.window)
        return floor_div(Expr.const(tokens), self.every) if self.every > 1 else tokens

    def elements(self, context: int) -> int:
        """Return the number of cached elements of one layer and one sequence."""
        return total(
            (
                product((total(self.rows), self.tokens(context))),
                self.state or 0,
                self.conv_state or 0,
            )
        )

    def growing_bytes(self, context: int, batch: int, stored: KVFormat) -> Expr:
        """Return the bytes that grow with the tokens, of all layers and sequences."""
        blocks = [written_ceil_div(row, stored.block) for row in self.rows]
        rows = (
            (Expr.factor(len(blocks)), self.layer_count, blocks[0])
            if len(set(self.rows)) == 1
            else (self.layer_count, total(blocks))
        )
        return (
            product(
                (
                    *(x.in_brackets() for x in rows),
                    self.tokens(context),
                    batch,
                    _factor(stored.bytes),
                )
            )
            if blocks
            else Expr.const(0)
        )

    def fixed_bytes(self, batch: int, stored: KVFormat) -> Expr:
        """Return the bytes of states, of all layers and sequences."""
        sizes = ((self.state, _STATE_BYTES), (self.conv_state, stored.conv_state_bytes))
        states = total(
            product((n.in_brackets(), _factor(size))) for n, size in sizes if n is not None
        )
        return product((self.layer_count, batch, states.in_brackets()))

    @property
    def layer_count(self) -> Expr:
        """The number of layers: one letter, or a number."""
        layers = Expr.const(self.layers)
        return (
            layers
            if len(layers.atoms) == 1 and layers == layers.atoms.get(layers.symbol)
            else Expr.factor(as_number(layers))
        )


class KVFormat(NamedTuple):
    """How a cache is stored; the numbers may be expressions."""

    block: int  # elements of a block
    bytes: int  # of a block
    conv_state_bytes: int  # of an element of a convolution's state, which is never quantized


_STATE_BYTES = 4


def _factor(n: int) -> Expr:
    return n if isinstance(n, Expr) else Expr.factor(n)


class CachePart(Record):
    """The cache of all layers of one kind."""

    spec: CacheSpec
    growing: int  # bytes that grow with the tokens, all layers and sequences
    fixed: int  # bytes of states
    per_token: int  # bytes of one more token of one sequence, until a window is full


class KVCacheSize(Record):
    """The cache of `batch` sequences of `context` tokens."""

    parts: tuple[CachePart, ...]
    context: int
    batch: int
    dtype: str

    @property
    def bytes(self) -> int:
        """The whole cache, states included."""
        return total(y for x in self.parts for y in (x.growing, x.fixed))

    @property
    def state(self) -> int:
        """The bytes that do not grow with the tokens."""
        return sum(x.fixed for x in self.parts)

    @property
    def elements(self) -> int:
        """The number of cached elements."""
        return total(
            product((self.batch, x.spec.layers, x.spec.elements(self.context))) for x in self.parts
        )

    @property
    def kv_per_token(self) -> int:
        """The bytes that one more token of one sequence adds before any window is full."""
        return sum(x.per_token for x in self.parts)

    @property
    def kv_per_later_token(self) -> int:
        """The bytes that one more token of one sequence adds at this context."""
        return sum(
            x.per_token
            for x in self.parts
            if x.spec.window is None or int(x.spec.window) > self.context
        )


def cache_specs(
    graph: Graph, tp: int = 1, layers: Mapping[int, int] | None = None
) -> tuple[CacheSpec, ...]:
    """Return what the layers of a model cache on one rank of tensor parallelism, equal layers
    together.

    `layers` are the numbers of layers by the id of their block, for a part of the model.
    """
    found: dict[CacheSpec, Expr] = {}
    for region in graph.layers:
        times = region.times if layers is None else Expr.const(layers.get(id(region.block), 0))
        for spec in _region_specs(region, tp) if times else ():
            found[spec] = found[spec] + times if spec in found else times
    return tuple(spec.replace(layers=n) for spec, n in found.items())


def _region_specs(region: Region, tp: int) -> Iterator[CacheSpec]:
    """Yield what one layer caches: the rows of its attention, and the state of its recurrence."""
    cached = [cached(node) for node in region.nodes if (cached := node.op.cached) is not None]
    rows, states, inputs = (
        [x for x in cached if x.kind == kind] for kind in ("row", "state", "conv")
    )
    for kind in dict.fromkeys(map(_rows_of, rows)):
        same, (window, every, of_encoder) = [x for x in rows if _rows_of(x) == kind], kind
        yield CacheSpec(
            kind=_rows_kind(same),
            rows=tuple(x.on_rank(tp) for x in same),
            window=window.max_lookback,
            every=every,
            of_encoder=of_encoder,
        )
    if states or inputs:
        state, conv_state = (
            total(x.on_rank(tp) for x in each) if each else None for each in (states, inputs)
        )
        yield CacheSpec(kind=(states or inputs)[0].description, state=state, conv_state=conv_state)


def _rows_of(x: CachedTensor) -> tuple[AttentionWindow, int, bool]:
    """Return the tokens for which there are rows: those of equal ones are cached together."""
    return x.window, x.every, x.of_encoder


def _rows_kind(rows: list[CachedTensor]) -> str:
    window, what = rows[0].window, ", ".join(dict.fromkeys(x.description for x in rows))
    if rows[0].every > 1:
        return f"{what} of {int(rows[0].every):,} tokens"
    return (
        what
        if window.max_lookback is None
        else (f"{what}, {'chunks of' if window.chunk else 'window of'} {window.max_lookback:,}")
    )


def kv_cache_size(tree: Decoder, context: int, batch: int = 1, dtype: str = "bf16") -> KVCacheSize:
    """Return the size of the cache of `batch` sequences of `context` tokens; `dtype` is that of
    keys and values.
    """
    return sum_cache_specs(cache_specs(record(tree)), context, batch, dtype)


def sum_cache_specs(
    specs: tuple[CacheSpec, ...], context: int, batch: int, dtype: str
) -> KVCacheSize:
    """Return the size of a cache, given what the layers cache."""
    return KVCacheSize(
        parts=tuple(_parts(specs, context, batch, kv_format(dtype))),
        context=context,
        batch=batch,
        dtype=dtype,
    )


def parse_kv_dtype(name: str) -> DType:
    """Parse the dtype of a KV cache."""
    return parse_dtype(name, KV_DTYPES, "a KV cache")


def kv_format(name: str) -> KVFormat:
    """Return how a cache of this dtype is stored; the states of convolutions next to a quantized
    cache have 16 bits.
    """
    dtype = parse_kv_dtype(name)
    return KVFormat(
        dtype.block, dtype.bytes, dtype.bytes if dtype.block == 1 and dtype.bytes > 1 else 2
    )


def _parts(
    specs: tuple[CacheSpec, ...], context: int, batch: int, stored: KVFormat
) -> Iterator[CachePart]:
    for x in specs:
        growing, fixed = x.growing_bytes(context, batch, stored), x.fixed_bytes(batch, stored)
        yield CachePart(
            spec=x,
            growing=growing,
            fixed=fixed,
            per_token=ceil_div(x.growing_bytes(x.every, 1, stored), x.every),
        )
