"""`TokenPools`: the KV cache of SGLang in pools: one for layers that keep all tokens, one for
windows, and one of recurrent states.

The pool of windows has a fixed share of the tokens of the other; that of states gets a fixed share
of the memory. Layers of models without a pool of windows keep all tokens, whatever their window.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil

from ....core.blocks import Decoder
from ....engines import Engine
from ....utils.record_type import Record
from .paged_cache import MAX_LAYERS, CacheCapacity, LayerCache


class StageRows(Record):
    """What the layers of a pipeline stage keep on one GPU, in bytes."""

    full: int  # of a token in layers that keep all tokens
    window: int  # of a token in layers with a window
    state: int  # of a request in recurrent layers


class TokenPools(Record):
    """The pools of a model."""

    stages: tuple[StageRows, ...]
    page: int  # tokens
    window: int  # tokens of the longest window that has a pool; 0: none
    window_share: float  # tokens of the pool of windows for each of the other
    state_share: float  # memory of states for that of keys and values
    most_tokens: int = 0  # in the pool of layers that keep all tokens; 0: what fits

    def full_tokens(self, available: int) -> int:
        """Return the tokens of the pool of layers that keep all tokens; of that of windows, if
        there is no other.
        """
        fits = min(self._tokens(x, available) for x in self.stages)
        return min(fits, self.most_tokens or fits) // self.page * self.page

    def window_tokens(self, available: int) -> int:
        """Return the tokens of the pool of windows."""
        tokens = self.full_tokens(available)
        return (
            tokens
            if not any(x.full for x in self.stages)
            else int(tokens * self.window_share) // self.page * self.page
        )

    def states(self, available: int) -> int:
        """Return the recurrent states, of which one is for padding."""
        share = available * self.state_share / (1 + self.state_share)
        return min((max(int(share // x.state) - 1, 0) for x in self.stages if x.state), default=0)

    def _tokens(self, stage: StageRows, available: int) -> int:
        row = self._row(stage)
        states = self.states(available) * stage.state
        return int(max(available - states, 0) // row) if row else available

    def _row(self, stage: StageRows) -> float:
        return stage.full + stage.window * (
            self.window_share if any(x.full for x in self.stages) else 1
        )

    def capacity(self, available: int, length: int) -> CacheCapacity:
        """Return what fits in this many bytes on each GPU, with requests of this length."""
        tokens = self.full_tokens(available)
        admits = not self.window or self.window_tokens(available) > self.window + self.page
        admits &= not any(x.state for x in self.stages) or self.states(available) > 0
        return CacheCapacity(
            available=available,
            blocks=tokens // self.page,
            tokens=tokens,
            concurrency=tokens / length,
            needed=max(
                ceil(self._row(x) * length * (1 + self.state_share * bool(x.state)))
                for x in self.stages
            ),
            longest=min(tokens, length) if admits else 0,
        )

    def lines(self, low: int, high: int) -> tuple[str, ...]:
        """Return the lines about pools that SGLang prints with between these many bytes."""
        found = []
        if self.window:
            full, windows = (_span(f(low), f(high)) for f in (self.full_tokens, self.window_tokens))
            found.append(
                f"Use sliding window memory pool. full_layer_tokens={full}, "
                f"swa_layer_tokens={windows}"
            )
        if any(x.state for x in self.stages):
            found.append(
                "Mamba Cache is allocated. max_mamba_cache_size: "
                f"{_span(self.states(low), self.states(high))}"
            )
        return tuple(found)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


def pool_layers(
    tree: Decoder,
    caches: Mapping[int, LayerCache],
    engine: Engine,
    model_types: Collection[str],
    stages: Sequence[Sequence[tuple[int, int]]],
) -> TokenPools | str:
    """Return the pools of a model's layers, whose runs on each pipeline stage are `stages`; or
    the reason why they are not known.
    """
    if int(tree.layers.n) > MAX_LAYERS:
        return f"{int(tree.layers.n):,} layers"
    layers = {i: caches[id(block)] for i, block in enumerate(tree.layers) if id(block) in caches}
    if not layers:
        return "a model without a cache"
    pool = engine.figure("window_pool")
    has_windows = bool(set(model_types) & set(pool["types"]))
    has_windows &= not engine.figure("kept_whole", ())
    rows = [
        _stage_rows(
            [x for i, x in layers.items() if any(a <= i < b for a, b in runs)],
            has_windows=has_windows,
        )
        for runs in stages
    ]
    windows = [x.tokens for x in layers.values() if x.kind in {"window", "chunk"}]
    return TokenPools(
        stages=tuple(rows),
        page=engine.figure(
            "latent_block_tokens" if any(x.latent for x in layers.values()) else "block_tokens"
        ),
        window=max(windows, default=0) if has_windows else 0,
        window_share=pool["window_tokens_per_token"],
        state_share=engine.figure("state_pool"),
        most_tokens=engine.figure("asked_cached_tokens", 0),
    )


def _stage_rows(layers: Sequence[LayerCache], *, has_windows: bool) -> StageRows:
    windows = {"window", "chunk"} if has_windows else set()
    return StageRows(
        full=sum(x.row_bytes for x in layers if x.kind not in windows),
        window=sum(x.row_bytes for x in layers if x.kind in windows),
        state=sum(x.state_bytes for x in layers),
    )
