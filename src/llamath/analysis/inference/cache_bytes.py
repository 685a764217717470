"""`cache`: what a model remembers of the tokens before, layer by layer: keys and values, latent vectors, states that do not grow.

The numbers are those that an implementation must keep and that transformers' static cache allocates: of a window or a chunk so many
tokens as it is long, of a convolution as many columns as it has taps. transformers' dynamic cache keeps one token of a window less;
llama.cpp and vLLM one tap less; transformers before version 5 unpacked latent attention before it cached it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...checkpoint.formats.dtypes import DType, parse_dtype
from ...core.blocks import Attention, LatentAttention
from ...core.expr import Dim, total
from ...core.mixers import GatedDeltaNet, Mamba2, ShortConv
from ...core.record_type import Record
from ...core.tree import Block, fold_blocks

KV_DTYPES = ("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")
"""Types of KV caches: FP8 and INT8 with one scale per tensor, which is not counted; llama.cpp's block types with their scales."""


class CacheSpec(Record):
    """What one kind of mixer remembers: `rows` of each token, up to `span` tokens; `state` and `taps` however many there are."""

    kind: str
    layers: int = 1
    rows: tuple[Dim, ...] = ()  # of each token, the vectors that are kept: a row is quantised by itself
    window: int | None = None
    state: Dim | None = None  # always in single precision
    conv_state: Dim | None = None  # the last inputs of a convolution

    def tokens(self, context: int) -> int:
        """Of how many tokens something is kept."""
        return context if self.window is None else min(context, int(self.window))

    def elements(self, context: int) -> int:
        """How many numbers are kept in one layer, for one sequence."""
        return sum(map(int, self.rows)) * self.tokens(context) + int(self.state or 0) + int(self.conv_state or 0)


def cache_spec(block: Block) -> CacheSpec | None:
    """What one mixer remembers; None for a block that remembers nothing of its own."""
    found = next((kept for kind, kept in KEPT.items() if isinstance(block, kind)), None)
    return found(block) if found else None


def _attention(block: Attention) -> CacheSpec | None:
    if block.k is None:
        return None
    row = Dim.const(block.kv_heads) * block.head_dim
    span, kind = block.window.max_lookback, "keys and values"
    kind += "" if span is None else f", {'window' if block.window.chunk is None else 'chunks'} of {span:,}"
    return CacheSpec(kind=kind, rows=(row, row), window=span)


def _latent(block: LatentAttention) -> CacheSpec:
    return CacheSpec(kind="latent keys and values", rows=(total((block.kv_lora_rank, block.rope_dim)),))


def _delta(block: GatedDeltaNet) -> CacheSpec:
    state = Dim.const(block.value_heads) * block.key_dim * block.value_dim
    return CacheSpec(kind="delta rule's state", state=state, conv_state=block.conv.weight.size)


def _mamba(block: Mamba2) -> CacheSpec:
    return CacheSpec(
        kind="Mamba-2's state", state=Dim.const(block.heads) * block.head_dim * block.state_size, conv_state=block.conv.weight.size
    )


def _short(block: ShortConv) -> CacheSpec:
    return CacheSpec(kind="short convolution's inputs", conv_state=block.conv.weight.size)


KEPT: dict[type[Block], Callable[..., CacheSpec | None]] = {
    Attention: _attention,
    LatentAttention: _latent,
    GatedDeltaNet: _delta,
    Mamba2: _mamba,
    ShortConv: _short,
}


class CachePart(Record):
    """One kind of mixer with its layers, and the bytes that it comes to."""

    spec: CacheSpec
    growing: int  # bytes that grow with the tokens, all layers and sequences
    fixed: int  # bytes that do not
    per_token: int  # bytes of one more token of one sequence, until a window is full


class KVCacheSize(Record):
    """All that is remembered of `batch` sequences of `context` tokens."""

    parts: tuple[CachePart, ...]
    context: int
    batch: int
    dtype: str

    @property
    def bytes(self) -> int:
        """Everything."""
        return sum(x.growing + x.fixed for x in self.parts)

    @property
    def state(self) -> int:
        """What of it does not grow with the tokens."""
        return sum(x.fixed for x in self.parts)

    @property
    def elements(self) -> int:
        """How many numbers that is."""
        return self.batch * sum(x.spec.elements(self.context) * int(x.spec.layers) for x in self.parts)

    @property
    def kv_per_token(self) -> int:
        """What one more token of one sequence adds, as long as no window is full."""
        return sum(x.per_token for x in self.parts)

    @property
    def kv_per_later_token(self) -> int:
        """What one more token of one sequence adds at this context."""
        return sum(x.per_token for x in self.parts if x.spec.window is None or int(x.spec.window) > self.context)


def cache_specs(tree: Block) -> tuple[CacheSpec, ...]:
    """What the layers of a model remember, those alike together."""
    found: dict[CacheSpec, int] = {}
    for x in fold_blocks(tree):
        if (what := cache_spec(x.block)) is not None:
            found[what] = found[what] + x.copies if what in found else x.copies
    return tuple(what.replace(layers=n) for what, n in found.items())


def kv_cache_size(tree: Block, context: int, batch: int = 1, dtype: str = "bf16") -> KVCacheSize:
    """What `batch` sequences of `context` tokens leave behind; `dtype` is that of keys and values."""
    return sum_cache_specs(cache_specs(tree), context, batch, dtype)


def sum_cache_specs(found: tuple[CacheSpec, ...], context: int, batch: int, dtype: str) -> KVCacheSize:
    """The same of kinds that are known already, for many contexts."""
    return KVCacheSize(parts=tuple(_parts(found, context, batch, parse_kv_dtype(dtype))), context=context, batch=batch, dtype=dtype)


def parse_kv_dtype(name: str) -> DType:
    """Parse the type of a KV cache."""
    return parse_dtype(name, KV_DTYPES, "a KV cache")


def conv_state_bytes(kept: DType) -> int:
    """The bytes of a number beside a cache of this dtype: of a convolution's inputs, which nobody quantises."""
    return kept.bytes if kept.block == 1 and kept.bytes > 1 else 2


def _parts(found: tuple[CacheSpec, ...], context: int, batch: int, kept: DType) -> Iterator[CachePart]:
    for x in found:
        layers, token = int(x.layers), sum(kept.size(int(row)) for row in x.rows)
        fixed = 4 * int(x.state or 0) + conv_state_bytes(kept) * int(x.conv_state or 0)
        growing = batch * layers * token * x.tokens(context)
        yield CachePart(spec=x, growing=growing, fixed=batch * layers * fixed, per_token=layers * token)
