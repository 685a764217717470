"""`Batch`: some texts read together, token by token: padded on the left, remembered, read again where a model must."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..core.errors import LlamathError
from .debug.nan_check import flaws
from .kv_cache import Cache
from .layers import Decoder
from .rope import STRETCHING

CHUNK = 2048
"""How many tokens of prompts are read at once, all rows together; what `memory` counts with."""
AHEAD = 512
"""How much room a cache begins with beyond its prompts, where nobody says how long the texts will be."""


class Past:
    """What is left of an earlier reading: its tokens, and a cache that knows them."""

    def __init__(self, tokens: list[int], cache: Cache) -> None:
        self.tokens, self.cache = tokens, cache


class Batch:
    """`read` gives the logits after the texts, `step` those after one more token of each; both `(B, V)`."""

    def __init__(self, module: Decoder, texts: Sequence[Sequence[int]], room: int, grows: bool = False) -> None:
        if module.head is None:
            raise LlamathError("the model has no head: it says nothing of next tokens", hint="a checkpoint for causal language modelling")
        self.module, self.texts = module, [list(x) for x in texts]
        self.device = next(module.parameters()).device
        self.room = room  # tokens of the longest row, in all
        self.first = min(room, max(map(len, texts)) + AHEAD) if grows else room
        self.afford: Callable[[int, int], object] = lambda _rows, _room: None  # asked before memory is taken
        self.cache: Cache | None = None
        self.flaws = flaws(module)
        ropes = [getattr(getattr(layer.attn, "spec", None), "rope", None) for layer in module.layers]
        self.stretching = any(isinstance(x, STRETCHING) for x in ropes)

    def resume(self, past: Past) -> None:
        """Read on from what was read before, as far as the text is the same."""
        (text,) = self.texts
        same = next((i for i, (a, b) in enumerate(zip(past.tokens, text, strict=False)) if a != b), min(len(past.tokens), len(text)))
        same = min(same, len(text) - 1, past.cache.length)
        if same > 0 and not self.stretching and past.cache.cut(same):
            self.cache = past.cache

    @torch.inference_mode()
    def read(self) -> Tensor:
        """Everything that has not been read."""
        rows, longest = len(self.texts), max(map(len, self.texts))
        done = 0 if self.cache is None else self.cache.length
        begun = self.cache is None
        if self.cache is None:
            self.afford(rows, self.first)
            self.cache = self.module.cache(self.first)
        self._widen(longest)
        pads = [longest - len(text) for text in self.texts]
        ids = torch.tensor([[text[0]] * pad + text for pad, text in zip(pads, self.texts, strict=True)], device=self.device)[:, done:]
        first = torch.tensor(pads, device=self.device) if begun and any(pads) else None
        logits, chunk = ids, ids.shape[1] if self.stretching else max(1, CHUNK // rows)
        for part in ids.split(chunk, 1):
            logits = self.module(part, self.cache, first, True)
            self.flaws.judge()
            first = None
        return logits[:, -1]

    @torch.inference_mode()
    def step(self, ids: Tensor, taken: Sequence[int]) -> Tensor:
        """One more token of each row: as the device has them, and as the host does."""
        assert self.cache is not None
        for text, token in zip(self.texts, taken, strict=True):
            text.append(token)
        if self.stretching and self.module.outgrown(self.cache, 1):
            self.cache = None
            return self.read()
        self._widen(self.cache.length + 1)
        logits = self.module(ids[:, None], self.cache, None, True)[:, -1]
        self.flaws.judge()
        return logits

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> Tensor:
        """Go on with these rows alone."""
        assert self.cache is not None
        which = torch.tensor(rows, device=self.device)
        self.texts = [self.texts[i] for i in rows]
        self.cache.keep(which)
        return which

    def _widen(self, need: int) -> None:
        """See to room for so many tokens; twice what there is, if it is too little."""
        assert self.cache is not None
        if need > self.cache.room:
            room = max(need, min(self.room, 2 * self.cache.room))
            self.afford(len(self.texts), room)
            self.cache.grow(self.module.cache(room))
