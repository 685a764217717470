"""`Batch`: some texts read together, token by token: padded on the left, remembered, read again where a model must."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..core.errors import LlamathError
from .debug.nan_check import nonfinite_check
from .kv_cache import Cache
from .layers import Decoder
from .rope import LENGTH_DEPENDENT

PREFILL_CHUNK = 2048
"""How many tokens of prompts are read at once, all rows together; what `memory` counts with."""
INITIAL_MARGIN = 512
"""How much room a cache begins with beyond its prompts, where nobody says how long the texts will be."""


class PrefixCache:
    """What is left of an earlier reading: its tokens, and a cache that knows them."""

    def __init__(self, tokens: list[int], cache: Cache) -> None:
        self.tokens, self.cache = tokens, cache


class Batch:
    """`read` gives the logits after the texts, `step` those after one more token of each; both `(B, V)`."""

    def __init__(self, module: Decoder, texts: Sequence[Sequence[int]], room: int, grows: bool = False) -> None:
        if module.head is None:
            raise LlamathError("the model has no head: it says nothing of next tokens", hint="a checkpoint for causal language modelling")
        self.module, self.sequences = module, [list(x) for x in texts]
        self.device = next(module.parameters()).device
        self.max_length = room  # tokens of the longest row, in all
        self.initial_capacity = min(room, max(map(len, texts)) + INITIAL_MARGIN) if grows else room
        self.check_memory: Callable[[int, int], object] = lambda _rows, _room: None  # asked before memory is taken
        self.cache: Cache | None = None
        self.nonfinite_check = nonfinite_check(module)
        ropes = [getattr(getattr(layer.attn, "spec", None), "rope", None) for layer in module.layers]
        self.has_length_dependent_rope = any(isinstance(x, LENGTH_DEPENDENT) for x in ropes)

    def resume(self, past: PrefixCache) -> None:
        """Read on from what was read before, as far as the text is the same."""
        (text,) = self.sequences
        same = next((i for i, (a, b) in enumerate(zip(past.tokens, text, strict=False)) if a != b), min(len(past.tokens), len(text)))
        same = min(same, len(text) - 1, past.cache.length)
        if same > 0 and not self.has_length_dependent_rope and past.cache.truncate(same):
            self.cache = past.cache

    @torch.inference_mode()
    def prefill(self) -> Tensor:
        """Everything that has not been read."""
        rows, longest = len(self.sequences), max(map(len, self.sequences))
        done = 0 if self.cache is None else self.cache.length
        begun = self.cache is None
        if self.cache is None:
            self.check_memory(rows, self.initial_capacity)
            self.cache = self.module.new_cache(self.initial_capacity)
        self._ensure_capacity(longest)
        pads = [longest - len(text) for text in self.sequences]
        ids = torch.tensor([[text[0]] * pad + text for pad, text in zip(pads, self.sequences, strict=True)], device=self.device)[:, done:]
        first = torch.tensor(pads, device=self.device) if begun and any(pads) else None
        logits, chunk = ids, ids.shape[1] if self.has_length_dependent_rope else max(1, PREFILL_CHUNK // rows)
        for part in ids.split(chunk, 1):
            logits = self.module(part, self.cache, first, True)
            self.nonfinite_check.raise_if_bad()
            first = None
        return logits[:, -1]

    @torch.inference_mode()
    def decode(self, ids: Tensor, taken: Sequence[int]) -> Tensor:
        """One more token of each row: as the device has them, and as the host does."""
        assert self.cache is not None
        for text, token in zip(self.sequences, taken, strict=True):
            text.append(token)
        if self.has_length_dependent_rope and self.module.crosses_long_rope_switch(self.cache, 1):
            self.cache = None
            return self.prefill()
        self._ensure_capacity(self.cache.length + 1)
        logits = self.module(ids[:, None], self.cache, None, True)[:, -1]
        self.nonfinite_check.raise_if_bad()
        return logits

    @torch.inference_mode()
    def select_rows(self, rows: Sequence[int]) -> Tensor:
        """Go on with these rows alone."""
        assert self.cache is not None
        which = torch.tensor(rows, device=self.device)
        self.sequences = [self.sequences[i] for i in rows]
        self.cache.select_rows(which)
        return which

    def _ensure_capacity(self, need: int) -> None:
        """See to room for so many tokens; twice what there is, if it is too little."""
        assert self.cache is not None
        if need > self.cache.capacity:
            room = max(need, min(self.max_length, 2 * self.cache.capacity))
            self.check_memory(len(self.sequences), room)
            self.cache.grow(self.module.new_cache(room))
