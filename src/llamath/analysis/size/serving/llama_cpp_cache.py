"""`llama_cpp_cache`: the KV cache as llama.cpp allocates and prints it: cells for each kind of
layer, in MiB.
"""

from __future__ import annotations

from ....engines import Engine
from ....utils.record_type import Record
from ..memory.cache_bytes import CacheSpec, kv_format
from ..memory.gpu_shards import ShardedModel
from ..memory.inference_memory import MemoryCalculator
from .paged_cache import layer_caches

_MIB = 2**20


class LlamaCppCache(Record):
    """The cache of all layers, and of the layers on the fullest card."""

    bytes: int
    bytes_of_fullest: int
    prints: tuple[str, ...]
    notes: tuple[str, ...] = ()


def padded_cells(tokens: int, padding: int) -> int:
    """Return the cells of a cache of this many tokens."""
    return -(-tokens // padding) * padding


def cells_of(spec: CacheSpec, context: int, batch: int, engine: Engine) -> int:
    """Return the cells of a kind of layer: those of a window hold a batch of tokens more than
    the window.
    """
    padding, ubatch = engine.figure("context_padding"), engine.figure("ubatch_tokens")
    cells = padded_cells(context, padding) * batch
    if spec.window is None or engine.figure("kept_whole", ()):
        return cells
    return min(cells, padded_cells(int(spec.window) * batch + ubatch, padding))


def llama_cpp_cache(
    engine: Engine, calculator: MemoryCalculator, shards: ShardedModel
) -> LlamaCppCache:
    """Return the cache that llama.cpp allocates for the context, for all sequences."""
    stored, context, batch = (
        kv_format(_gguf_cache_dtype(calculator)),
        calculator.context,
        calculator.request.batch,
    )

    found = layer_caches(calculator.decode, 1, "bf16", 4, 4)
    states = (
        max((x.state_bytes for x in found.values()), default=0) if isinstance(found, dict) else 0
    )

    def size(spec: CacheSpec) -> int:
        rows = sum(-(-int(row) // stored.block) * stored.bytes for row in spec.rows)
        return int(spec.layers) * (
            rows * cells_of(spec, context, batch, engine) // max(spec.every, 1)
            if spec.rows
            else states * batch
        )

    lines = []
    for x in calculator.cache_specs:
        cells = cells_of(x, context, batch, engine)
        if x.rows:
            lines.append(
                f"llama_kv_cache: size = {size(x) / _MIB:.2f} MiB ({cells:6d} cells, "
                f"{int(x.layers):3d} layers)"
            )
        else:
            lines.append(
                f"llama_memory_recurrent: size = {size(x) / _MIB:.2f} MiB ({batch} "
                f"cells, {int(x.layers):3d} layers)"
            )
    fullest = max(
        sum(size(x) for x in shards.stage_cache_specs(i)) for i in range(len(shards.stages))
    )
    return LlamaCppCache(
        bytes=sum(map(size, calculator.cache_specs)), bytes_of_fullest=fullest, prints=tuple(lines)
    )


def _gguf_cache_dtype(calculator: MemoryCalculator) -> str:
    """Return the dtype of the cache: F16 unless another was asked for."""
    return calculator.request.kv_dtype or "fp16"
