"""The size of the KV cache, layer by layer: keys and values, latent vectors, and recurrent states, which do not grow.

The sizes are those that transformers' static cache allocates: as many tokens as a sliding window or a chunk is long, as many columns of a
convolution's input as it has taps. transformers' dynamic cache keeps one token of a window less; llama.cpp and vLLM keep one tap less;
transformers before version 5 expanded latent attention before it cached it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...checkpoint.formats.dtypes import DType, parse_dtype
from ...core.blocks import Attention, LatentAttention
from ...core.expr import Expr, total
from ...core.mixers import GatedDeltaNet, Mamba2, ShortConv
from ...core.record_type import Record
from ...core.tree import Block, fold_blocks

KV_DTYPES = ("F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I8", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0", "IQ4_NL")
"""Types of KV caches: FP8 and INT8 with one scale per tensor, which is not counted; llama.cpp's block types with their scales."""


class CacheSpec(Record):
    """The cache of one kind of layer: `rows` for each token of the last `window` tokens, and states whose size is fixed."""

    kind: str
    layers: int = 1
    rows: tuple[Expr, ...] = ()  # the lengths of the vectors of one token; each is quantized by itself
    window: int | None = None  # the most tokens that are cached; None: all of them
    state: Expr | None = None  # elements of a recurrent state, always in fp32
    conv_state: Expr | None = None  # elements of a convolution's last inputs

    def tokens(self, context: int) -> int:
        """Return the number of cached tokens."""
        return context if self.window is None else min(context, int(self.window))

    def elements(self, context: int) -> int:
        """Return the number of cached elements of one layer and one sequence."""
        return sum(map(int, self.rows)) * self.tokens(context) + int(self.state or 0) + int(self.conv_state or 0)


def cache_spec(block: Block) -> CacheSpec | None:
    """Return what one mixer caches; None for a block that caches nothing of its own."""
    found = next((spec for kind, spec in _SPECS.items() if isinstance(block, kind)), None)
    return found(block) if found else None


def _attention(block: Attention) -> CacheSpec | None:
    if block.k is None:
        return None
    row = Expr.const(block.kv_heads) * block.head_dim
    window, kind = block.window.max_lookback, "keys and values"
    kind += "" if window is None else f", {'window' if block.window.chunk is None else 'chunks'} of {window:,}"
    return CacheSpec(kind=kind, rows=(row, row), window=window)


def _latent(block: LatentAttention) -> CacheSpec:
    return CacheSpec(kind="latent keys and values", rows=(total((block.kv_lora_rank, block.rope_dim)),))


def _delta(block: GatedDeltaNet) -> CacheSpec:
    state = Expr.const(block.value_heads) * block.key_dim * block.value_dim
    return CacheSpec(kind="delta rule's state", state=state, conv_state=block.conv.weight.size)


def _mamba(block: Mamba2) -> CacheSpec:
    state = Expr.const(block.heads) * block.head_dim * block.state_size
    return CacheSpec(kind="Mamba-2's state", state=state, conv_state=block.conv.weight.size)


def _short(block: ShortConv) -> CacheSpec:
    return CacheSpec(kind="short convolution's inputs", conv_state=block.conv.weight.size)


_SPECS: dict[type[Block], Callable[..., CacheSpec | None]] = {
    Attention: _attention,
    LatentAttention: _latent,
    GatedDeltaNet: _delta,
    Mamba2: _mamba,
    ShortConv: _short,
}


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
        return sum(x.growing + x.fixed for x in self.parts)

    @property
    def state(self) -> int:
        """The bytes that do not grow with the tokens."""
        return sum(x.fixed for x in self.parts)

    @property
    def elements(self) -> int:
        """The number of cached elements."""
        return self.batch * sum(x.spec.elements(self.context) * int(x.spec.layers) for x in self.parts)

    @property
    def kv_per_token(self) -> int:
        """The bytes that one more token of one sequence adds before any window is full."""
        return sum(x.per_token for x in self.parts)

    @property
    def kv_per_later_token(self) -> int:
        """The bytes that one more token of one sequence adds at this context."""
        return sum(x.per_token for x in self.parts if x.spec.window is None or int(x.spec.window) > self.context)


def cache_specs(tree: Block) -> tuple[CacheSpec, ...]:
    """Return what the layers of a model cache, equal layers together."""
    found: dict[CacheSpec, int] = {}
    for x in fold_blocks(tree):
        if (spec := cache_spec(x.block)) is not None:
            found[spec] = found[spec] + x.copies if spec in found else x.copies
    return tuple(spec.replace(layers=n) for spec, n in found.items())


def kv_cache_size(tree: Block, context: int, batch: int = 1, dtype: str = "bf16") -> KVCacheSize:
    """Return the size of the cache of `batch` sequences of `context` tokens; `dtype` is that of keys and values."""
    return sum_cache_specs(cache_specs(tree), context, batch, dtype)


def sum_cache_specs(specs: tuple[CacheSpec, ...], context: int, batch: int, dtype: str) -> KVCacheSize:
    """Return the size of a cache, given what the layers cache."""
    return KVCacheSize(parts=tuple(_parts(specs, context, batch, parse_kv_dtype(dtype))), context=context, batch=batch, dtype=dtype)


def parse_kv_dtype(name: str) -> DType:
    """Parse the dtype of a KV cache."""
    return parse_dtype(name, KV_DTYPES, "a KV cache")


def conv_state_bytes(cache_dtype: DType) -> int:
    """Return the bytes of one element of a convolution's state, which is never quantized, next to a cache of this dtype."""
    return cache_dtype.bytes if cache_dtype.block == 1 and cache_dtype.bytes > 1 else 2


def _parts(specs: tuple[CacheSpec, ...], context: int, batch: int, dtype: DType) -> Iterator[CachePart]:
    for x in specs:
        layers, token = int(x.layers), sum(dtype.size(int(row)) for row in x.rows)
        fixed = 4 * int(x.state or 0) + conv_state_bytes(dtype) * int(x.conv_state or 0)
        growing = batch * layers * token * x.tokens(context)
        yield CachePart(spec=x, growing=growing, fixed=batch * layers * fixed, per_token=layers * token)
