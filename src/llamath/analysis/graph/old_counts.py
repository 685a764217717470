"""Counts from the tree for modules that do not read the graph yet; deleted with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...core.blocks import Attention, LatentAttention
from ...core.expr import Expr, product, total
from ...core.forward_pass import ForwardPass, Mixer
from ...core.mixers import GatedDeltaNet, Mamba2, ShortConv
from ...core.tree import Block, fold, fold_blocks
from ..inference.cache_bytes import CacheSpec


class MatmulFlops(NamedTuple):
    """One matrix product of a pass with all its copies: with a weight, or the mixing of a mixer."""

    pattern: str
    group: str
    mixing: bool
    flops: Expr


def list_matmuls(part: Block, at: ForwardPass, batch: int = 1) -> Iterator[MatmulFlops]:
    """Yield every distinct product of a pass through a block: products with weights in tree order, then the mixing."""
    sequences = _variable("B", batch)
    for x in fold(part):
        if x.weight.role == "matmul":
            tokens = _variable("T", 1 if at.last and x.group == "head" else at.tokens)
            yield MatmulFlops(x.pattern, x.group, False, product((2, sequences, tokens, x.active, x.weight.size)))
    for y in fold_blocks(part):
        if isinstance(y.block, Mixer) and (each := y.block.mixing_flops(at)):
            yield MatmulFlops(y.pattern, y.block.group, True, product((sequences, y.active, each)))


def _variable(symbol: str, value: int) -> Expr:
    return Expr.const(1) if value == 1 else Expr(symbol, value)


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
