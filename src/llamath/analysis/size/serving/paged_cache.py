"""`PagedCache`: the KV cache of vLLM in pages: groups of layers that share block tables, bytes of a
block, and blocks of one request.

Layers of one kind (all tokens, a window, a chunk, a recurrent state) are divided into groups of
equal size, whose pages have equal bytes; all groups draw blocks from one pool. A request takes
blocks of each group, and the size that vLLM prints is its concurrency times the length of a
request. Where a model's cache is not one that vLLM keeps like this, `page_layers` says so and
returns no cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from ....core.blocks import Decoder
from ....engines import Engine
from ....utils.record_type import Record
from ...graph.node import Node
from ...graph.operations.operation import CachedTensor
from ...graph.recorder import Graph, Region
from ..memory.cache_bytes import parse_kv_dtype
from ..memory.inference_memory import largest_fitting

LayerKind = Literal["all", "window", "chunk", "state"]
MAX_LAYERS = 10_000
"""The most layers that are grouped one by one."""


class LayerCache(NamedTuple):
    """What one layer keeps of one request on one rank."""

    kind: LayerKind
    row_bytes: int = 0  # of one token
    tokens: int = 0  # of the window or chunk
    state_bytes: int = 0
    latent: bool = False


class PageGroup(Record):
    """Layers that share a block table."""

    kind: LayerKind
    layers: tuple[int, ...]  # their numbers
    block_tokens: int
    tokens: int  # of the window or chunk

    def blocks_of_request(self, length: int, in_flight: int, state_blocks: int) -> int:
        """Return the blocks that a request of this length may hold at once."""
        if self.kind == "state":
            return state_blocks
        if self.kind == "all":
            return -(-length // self.block_tokens)
        if self.kind == "chunk":
            return -(-min(self.tokens + in_flight, length) // self.block_tokens)
        return -(-min(self.tokens - 1 + in_flight, length) // self.block_tokens) + 1


class CacheCapacity(Record):
    """What vLLM prints for an amount of memory."""

    available: int  # bytes for the cache on each GPU
    blocks: int
    tokens: int  # the printed size of the cache
    concurrency: float
    needed: int  # bytes that one request of the length takes on the fullest GPU
    longest: int  # tokens of the longest request that starts, at most the length

    @property
    def starts(self) -> bool:
        """Whether one request of the length fits."""
        return self.longest >= 1 and self.needed <= self.available


class PagedCache(Record):
    """The groups of a model's layers, and the bytes of a block on each pipeline stage."""

    groups: tuple[PageGroup, ...]
    page_bytes: int  # of a layer in a block; of layers with different pages, their mean
    block_bytes: tuple[int, ...]  # of a block on each stage
    in_flight: int  # tokens that are scheduled and not yet settled
    state_blocks: int
    reserved_blocks: int
    size_line: str
    notes: tuple[str, ...] = ()

    def blocks_of_request(self, length: int) -> int:
        """Return the blocks of a request of this length in all groups."""
        return sum(
            x.blocks_of_request(length, self.in_flight, self.state_blocks) for x in self.groups
        )

    def capacity(self, available: int, length: int) -> CacheCapacity:
        """Return what vLLM prints with this many bytes on each GPU and requests of this length."""
        blocks = max(min(available // x for x in self.block_bytes), 0) if self.block_bytes else 0
        usable = available - self.reserved_blocks * max(self.block_bytes, default=0)
        concurrency = blocks / self.blocks_of_request(length)
        tokens = int(concurrency * length)
        if self.size_line == "blocks":
            tokens = blocks // len(self.groups) * min(x.block_tokens for x in self.groups)
        most = max(self.block_bytes)
        fits = (
            largest_fitting(lambda n: self.blocks_of_request(n) * most <= usable, length)
            if usable > 0
            else 0
        )
        return CacheCapacity(
            available=available,
            blocks=blocks,
            tokens=tokens,
            concurrency=concurrency,
            needed=self.blocks_of_request(length) * most,
            longest=length if fits is None else min(fits, length),
        )


class SparseRows(NamedTuple):
    """The rows of sparse latent attention: an indexer's keys in FP8 with scales, and latents, in
    an FP8 cache in a format of their own.
    """

    scaled_keys: int  # elements of an indexer's key for each scale
    scale_bytes: int
    latent_elements: int
    latent_fp8_bytes: int


def sparse_rows(engine: Engine, gpu: str) -> SparseRows | None:
    """Return the rows that an engine keeps for sparse latent attention on a GPU, if they are
    known.
    """
    if "sparse_latent_rows" not in engine.figures:
        return None
    rows = SparseRows(**engine.figure("sparse_latent_rows"))
    plain = gpu.startswith(tuple(engine.figure("plain_fp8_latents", ())))
    return rows._replace(latent_fp8_bytes=rows.latent_elements) if plain else rows


def layer_caches(
    graph: Graph,
    tp: int,
    kv_dtype: str,
    state_bytes: int,
    conv_bytes: int = 2,
    sparse: SparseRows | None = None,
) -> dict[int, LayerCache] | str:
    """Return the cache of each kind of layer, by the id of its block, or the reason why vLLM's
    cache of one is not known.

    `state_bytes` and `conv_bytes` are those of an element of a recurrent state, and of a
    convolution's last inputs.
    """
    found: dict[int, LayerCache] = {}
    if not any(_is_indexer(x) for region in graph.layers for _, x in _cached(region)):
        sparse = None
    for region in graph.layers:
        layer = _layer_cache(region, tp, kv_dtype, (state_bytes, conv_bytes), sparse)
        if isinstance(layer, str):
            return layer
        if layer is not None:
            found[id(region.block)] = layer
    return found


def _cached(region: Region) -> list[tuple[Node, CachedTensor]]:
    return [(node, rule(node)) for node in region.nodes if (rule := node.op.cached) is not None]


def _is_indexer(x: CachedTensor) -> bool:
    return x.kind == "row" and "indexer" in x.description


def _layer_cache(
    region: Region, tp: int, kv_dtype: str, elements: tuple[int, int], sparse: SparseRows | None
) -> LayerCache | str | None:
    dtype = parse_kv_dtype(kv_dtype)
    if dtype.block > 1:
        return f"{dtype.short_name} is a cache dtype of llama.cpp"
    cached = _cached(region)
    rows = [x for _, x in cached if x.kind == "row"]
    if any(x.every > 1 for x in rows) or (sparse is None and any(map(_is_indexer, rows))):
        return f"the pages of {', '.join(dict.fromkeys(x.description for x in rows))}"
    states = [x for _, x in cached if x.kind == "state"]
    inputs = [
        (node.weights[0].shape[-1] if node.weights else None, x)
        for node, x in cached
        if x.kind == "conv"
    ]
    if rows and (states or inputs):
        return "layers with attention and a recurrent state"
    if rows and sparse is not None:
        return _sparse_cache(rows, sparse, dtype.bytes)
    if rows:
        return _rows_cache(rows, tp, dtype.bytes)
    if not states and not inputs:
        return None
    if any(taps is None for taps, _ in inputs):
        return f"the pages of {', '.join(dict.fromkeys(x.description for _, x in inputs))}"
    sizes = [int(x.on_rank(tp)) * elements[0] for x in states]
    sizes += [
        int(x.on_rank(tp)) // int(taps) * (int(taps) - 1) * elements[1]
        for taps, x in inputs
        if taps is not None
    ]
    return LayerCache("state", state_bytes=sum(sizes))


def _sparse_cache(
    rows: Sequence[CachedTensor], sparse: SparseRows, element: int
) -> LayerCache | str:
    """Return the cache of latents and of an indexer's keys, all tokens of which every rank
    keeps.
    """
    row_bytes = 0
    for x in rows:
        size = int(x.size)
        known = (
            size % sparse.scaled_keys == 0
            if _is_indexer(x)
            else "latent" in x.description and (element > 1 or size == sparse.latent_elements)
        )
        if not known or (x.window is not None and x.window.max_lookback is not None):
            return f"the pages of {x.description} of {size} elements"
        if _is_indexer(x):
            row_bytes += size + size // sparse.scaled_keys * sparse.scale_bytes
        else:
            row_bytes += sparse.latent_fp8_bytes if element == 1 else size * element
    return LayerCache("all", row_bytes, latent=True)


def _rows_cache(rows: Sequence[CachedTensor], tp: int, element: int) -> LayerCache | str:
    windows = {x.window for x in rows}
    if len(windows) > 1:
        return "rows with several windows in one layer"
    (window,) = windows
    row_bytes = sum(int(x.on_rank(tp)) for x in rows) * element
    latent = all("latent" in x.description for x in rows)
    if window.max_lookback is None:
        return LayerCache("all", row_bytes, latent=latent)
    return LayerCache(
        "chunk" if window.chunk else "window", row_bytes, int(window.max_lookback), latent=latent
    )


def page_layers(
    tree: Decoder,
    caches: Mapping[int, LayerCache],
    engine: Engine,
    *,
    in_flight: int,
    stages: Sequence[Sequence[tuple[int, int]]],
) -> PagedCache | str:
    """Return the pages of a model's layers, whose runs on each pipeline stage are `stages`; or
    the reason why they are not known.
    """
    if int(tree.layers.n) > MAX_LAYERS:
        return f"{int(tree.layers.n):,} layers"
    layers = {i: caches[id(block)] for i, block in enumerate(tree.layers) if id(block) in caches}
    if not layers:
        return "a model without a cache"
    whole = engine.figure("kept_whole", ())
    if whole and any(x.kind == "all" for x in layers.values()):
        layers = {
            i: x._replace(kind="all", tokens=0) if x.kind in whole else x for i, x in layers.items()
        }
    block, notes = _block_tokens(layers.values(), engine)
    pages = {
        x: (block * x.row_bytes if x.kind != "state" else x.state_bytes)
        for x in dict.fromkeys(layers.values())
    }
    if states := [x for x in pages if x.kind == "state"]:
        if len({x.row_bytes for x in pages if x.kind != "state"}) > 1:
            return "recurrent states beside attention of several sizes"
        largest = max(pages[x] for x in pages)
        pages |= dict.fromkeys(states, largest)
    groups, page_of = _group_layers(layers, pages, block)
    block_bytes = tuple(_block_bytes(groups, page_of, runs) for runs in stages)
    used = [page_of[i] for x in groups for i in x.layers]
    return PagedCache(
        groups=tuple(groups),
        page_bytes=sum(used) // len(used),
        block_bytes=tuple(x for x in block_bytes if x),
        in_flight=in_flight,
        state_blocks=engine.figure("state_blocks_of_request", 1),
        reserved_blocks=engine.figure("reserved_blocks", 0),
        size_line=engine.figure("size_line", "concurrency"),
        notes=tuple(notes),
    )


def _block_tokens(layers: Iterable[LayerCache], engine: Engine) -> tuple[int, list[str]]:
    """Return the tokens of a block: more than the default if a page must hold a recurrent state."""
    kinds = list(dict.fromkeys(layers))
    latent = any(x.latent for x in kinds)
    block: int = engine.figure("latent_block_tokens" if latent else "block_tokens")
    state, row = (
        max((x.state_bytes for x in kinds), default=0),
        max((x.row_bytes for x in kinds), default=0),
    )
    if not state or not row:
        return block, []
    alignment: int = max(engine.figure("hybrid_alignment_tokens", block), block)
    needed = alignment * -(-state // (alignment * row))
    if needed <= block:
        return block, []
    return needed, [
        f"Setting attention block size to {needed} tokens to ensure that attention "
        "page size is >= mamba page size."
    ]


def _group_layers(
    layers: Mapping[int, LayerCache], pages: Mapping[LayerCache, int], block: int
) -> tuple[list[PageGroup], dict[int, int]]:
    """Return groups of layers with the bytes of each layer's page in a block."""
    if len({(x.kind, x.tokens) for x in layers.values()}) == 1:
        first = next(iter(layers.values()))
        return [
            PageGroup(
                kind=first.kind, layers=tuple(layers), block_tokens=block, tokens=first.tokens
            )
        ], {i: pages[x] for i, x in layers.items()}
    largest = max(pages.values())
    buckets: dict[tuple[LayerKind, int, int, int], list[int]] = {}
    for i, x in layers.items():
        ratio = largest // pages[x] if x.kind != "state" and largest % pages[x] == 0 else 1
        buckets.setdefault(
            (x.kind, x.tokens, block * ratio, x.row_bytes + x.state_bytes), []
        ).append(i)
    sizes = [len(x) for x in buckets.values()]
    size = max(sizes) if max(sizes) < 1.5 * min(sizes) else min(sizes)
    groups = []
    for (kind, tokens, block_tokens, _), numbers in buckets.items():
        n = -(-len(numbers) // size)
        groups += [
            PageGroup(
                kind=kind, layers=tuple(numbers[i::n]), block_tokens=block_tokens, tokens=tokens
            )
            for i in range(n)
        ]
    return groups, dict.fromkeys(layers, largest)


def _block_bytes(
    groups: Sequence[PageGroup], page_of: Mapping[int, int], runs: Sequence[tuple[int, int]]
) -> int:
    """Return the bytes of a block on a stage: those of its fullest group."""
    return max(
        sum(page_of[i] for i in x.layers if any(a <= i < b for a, b in runs)) for x in groups
    )
