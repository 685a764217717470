"""`Batch`: sequences that are decoded together, padded on the left, with a KV cache that grows
as needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..questions.memory_questions import PREFILL_CHUNK
from ..utils.errors import LlamathError
from .debug.nan_check import nonfinite_check
from .kv_cache import Cache
from .module import Decoder

INITIAL_MARGIN = 512
"""Cache capacity beyond the prompts at the start, where the number of new tokens is not limited."""


class PrefixCache:
    """Tokens read by an earlier generation, and the cache that holds them."""

    def __init__(self, tokens: list[int], cache: Cache) -> None:
        self.tokens, self.cache = tokens, cache


class Batch:
    """`prefill` returns the logits after the sequences, `decode` those after one more token of
    each; both `(B, V)`.
    """

    def __init__(
        self,
        module: Decoder,
        sequences: Sequence[Sequence[int]],
        max_length: int,
        *,
        grows: bool = False,
        prefill_chunk: int = PREFILL_CHUNK,
        initial_margin: int = INITIAL_MARGIN,
    ) -> None:
        if module.head is None:
            raise LlamathError(
                "the model has no output head, so it predicts no next token",
                hint="use a checkpoint for causal language modeling",
            )
        self.module, self.sequences = module, [list(x) for x in sequences]
        self.device = next(module.parameters()).device
        self.max_length = max_length  # tokens of the longest row, prompt included
        self.prefill_chunk = prefill_chunk
        self.initial_capacity = (
            min(max_length, max(map(len, sequences)) + initial_margin) if grows else max_length
        )
        # called before a cache is allocated
        self.check_memory: Callable[[int, int], object] = lambda _rows, _capacity: None
        self.cache: Cache | None = None
        self.nonfinite_check = nonfinite_check(module)
        self.reads_prompt_at_once = module.reads_prompt_at_once

    def resume(self, prefix: PrefixCache) -> None:
        """Reuse the cache of an earlier generation as far as the tokens are the same."""
        (tokens,) = self.sequences
        same = next(
            (i for i, (a, b) in enumerate(zip(prefix.tokens, tokens, strict=False)) if a != b),
            min(len(prefix.tokens), len(tokens)),
        )
        same = min(same, len(tokens) - 1, prefix.cache.length)
        if same > 0 and not self.reads_prompt_at_once and prefix.cache.truncate(same):
            self.cache = prefix.cache

    @torch.inference_mode()
    def prefill(self) -> Tensor:
        """Process all tokens that are not in the cache."""
        rows, longest = len(self.sequences), max(map(len, self.sequences))
        done = 0 if self.cache is None else self.cache.length
        is_new = self.cache is None
        if self.cache is None:
            self.check_memory(rows, self.initial_capacity)
            self.cache = self.module.new_cache(self.initial_capacity)
        self._ensure_capacity(longest)
        paddings = [longest - len(x) for x in self.sequences]
        padded = [[x[0]] * padding + x for padding, x in zip(paddings, self.sequences, strict=True)]
        ids = torch.tensor(padded, device=self.device)[:, done:]
        padding = torch.tensor(paddings, device=self.device) if is_new and any(paddings) else None
        logits, chunk = (
            ids,
            ids.shape[1] if self.reads_prompt_at_once else max(1, self.prefill_chunk // rows),
        )
        for part in ids.split(chunk, 1):
            logits = self.module(part, self.cache, padding, True)
            self.nonfinite_check.raise_if_bad()
            padding = None
        return logits[:, -1]

    @torch.inference_mode()
    def decode(self, ids: Tensor, tokens: Sequence[int]) -> Tensor:
        """Process one more token of each row, given both on the device and as integers."""
        assert self.cache is not None
        for sequence, token in zip(self.sequences, tokens, strict=True):
            sequence.append(token)
        if self.reads_prompt_at_once and self.module.crosses_long_rope_switch(self.cache, 1):
            self.cache = None
            return self.prefill()
        self._ensure_capacity(self.cache.length + 1)
        logits = self.module(ids[:, None], self.cache, None, True)[:, -1]
        self.nonfinite_check.raise_if_bad()
        return logits

    @torch.inference_mode()
    def select_rows(self, rows: Sequence[int]) -> Tensor:
        """Keep only these rows; return their indices as a tensor."""
        assert self.cache is not None
        indices = torch.tensor(rows, device=self.device)
        self.sequences = [self.sequences[i] for i in rows]
        self.cache.select_rows(indices)
        return indices

    def _ensure_capacity(self, need: int) -> None:
        """Grow the cache to at least `need` tokens, doubling it where it is too small."""
        assert self.cache is not None
        if need > self.cache.capacity:
            capacity = max(need, min(self.max_length, 2 * self.cache.capacity))
            self.check_memory(len(self.sequences), capacity)
            self.cache.grow(self.module.new_cache(capacity))
