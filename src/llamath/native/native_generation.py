"""`NativeGeneration`: generation on the native engine, and the cache that a later one resumes
from.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Self

from ..generation.generation import Generation, GenerationLimits, SampledTokens, random_seed
from ..generation.random_numbers import UniformNumbers
from ..generation.sampling_parameters import Sampling
from ..utils.errors import LlamathError
from .engine import NativeModel, NativeSession, Row
from .library import SamplingSpec

CHUNK = 512
"""Prompt tokens of a pass, all sequences together."""
INITIAL_MARGIN = 512
"""Cache capacity beyond the prompts at the start, where the number of new tokens is not limited."""


class _Sampler:
    """Samples the next token of each row, with the random numbers of the row."""

    def __init__(
        self,
        model: NativeModel,
        sampling: Sampling,
        numbers: Sequence[UniformNumbers],
        prompts: Sequence[Sequence[int]],
        logprobs: int | None,
    ) -> None:
        self._model, self.sampling, self._logprobs = model, sampling, logprobs
        self._numbers = list(numbers)
        self.vocab = min(model.vocab, model.kept_logits)
        limit = 2**31 - 1
        self._spec = SamplingSpec(
            0.0 if sampling.greedy else sampling.temperature,
            min(sampling.top_k, limit),
            sampling.top_p,
            sampling.min_p,
            sampling.repetition_penalty,
        )
        self._used: list[Any] = []
        if sampling.repetition_penalty != 1:
            for prompt in prompts:
                self._used.append((ctypes.c_uint8 * self.vocab)())
                for token in prompt:
                    self._used[-1][token] = 1

    def __call__(self, addresses: Sequence[int]) -> SampledTokens:
        """Return the next token of each row from the addresses of its logits."""
        tokens, greedy, sample = [], self.sampling.greedy, self._model.library.sample
        for i, address in enumerate(addresses):
            used = self._used[i] if self._used else None
            u = 0.0 if greedy else self._numbers[i]()
            token = sample(
                self._model.pool,
                address,
                self.vocab,
                self._spec,
                None if used is None else ctypes.addressof(used),
                u,
            )
            if used is not None:
                used[max(token, 0)] = 1
            tokens.append(token)
        if self._logprobs is None:
            return SampledTokens(tokens)
        logprobs, top = zip(
            *[
                self._log_probabilities(address, max(token, 0))
                for address, token in zip(addresses, tokens, strict=True)
            ],
            strict=True,
        )
        return SampledTokens(tokens, list(logprobs), list(top))

    def _log_probabilities(self, address: int, token: int) -> tuple[float, list[tuple[int, float]]]:
        """Return the log-probability of a token, and those of the most likely ones."""
        count = min(max(self._logprobs or 0, 1), self.vocab)
        ids, logprobs = (ctypes.c_int32 * count)(), (ctypes.c_float * count)()
        total = self._model.library.top_logprobs(
            self._model.pool,
            address,
            self.vocab,
            count,
            ctypes.addressof(ids),
            ctypes.addressof(logprobs),
        )
        own = ctypes.c_float.from_address(address + 4 * token).value - total
        return own, list(zip(ids, logprobs, strict=True))[: self._logprobs]

    def select_rows(self, rows: Sequence[int]) -> None:
        """Keep only these rows."""
        self._numbers = [self._numbers[i] for i in rows]
        self._used = [self._used[i] for i in rows] if self._used else []


class NativePrefix:
    """Tokens that an earlier generation has read, and the session that holds them."""

    def __init__(self, tokens: list[int], session: NativeSession) -> None:
        self.tokens, self.session = tokens, session


class _NativeTokens:
    """Sequences in the slots of a session, aligned at their last tokens."""

    def __init__(
        self,
        model: NativeModel,
        prompts: Sequence[Sequence[int]],
        sampler: _Sampler,
        max_length: int,
        initial_capacity: int,
        chunk: int,
    ) -> None:
        self.model, self.sampler = model, sampler
        self.sequences = [list(x) for x in prompts]
        self.slots = list(range(len(prompts)))
        self.max_length, self.initial_capacity = max_length, initial_capacity
        self.longest = max(map(len, self.sequences))
        # tokens of one sequence in a pass
        self.chunk = self.longest if model.has_length_dependent_rope else min(chunk, self.longest)
        self.pass_size = max(chunk, self.chunk)  # tokens of a pass, all sequences together
        self.session: NativeSession | None = None
        self.length = 0  # tokens in the cache, padding included
        self.limit_reached_early = model.max_positions is not None
        # called before a cache is allocated
        self.check_memory: Callable[[int, int], object] = lambda _rows, _capacity: None

    def resume(self, prefix: NativePrefix) -> None:
        """Reuse the cache of an earlier generation as far as the tokens are the same."""
        (tokens,) = self.sequences
        pairs = zip(prefix.tokens, tokens, strict=False)
        same = next(
            (i for i, (a, b) in enumerate(pairs) if a != b), min(len(prefix.tokens), len(tokens))
        )
        same = min(same, len(tokens) - 1)
        if (
            same > 0
            and not self.model.has_length_dependent_rope
            and prefix.session.can_truncate(len(prefix.tokens), same)
        ):
            self.session, self.length = prefix.session, same
            self.chunk = min(self.chunk, prefix.session.chunk)

    def prefill(self) -> SampledTokens:
        if self.session is None:
            self.check_memory(len(self.slots), self.initial_capacity)
            self.session = NativeSession(self.model, len(self.slots), self.chunk)
            self.longest = max(map(len, self.sequences))
            for slot, tokens in enumerate(self.sequences):
                self.session.set_start(slot, self.longest - len(tokens))
            self.slots = list(range(len(self.sequences)))
            self.session.reserve(max(self.initial_capacity, self.longest), 0)
        self._ensure_capacity(self.longest)
        return self._read(
            [
                Row(slot, tokens[max(0, self.length - start) :], max(self.length, start))
                for slot, tokens, start in self._rows()
            ]
        )

    def _rows(self) -> list[tuple[int, list[int], int]]:
        assert self.session is not None
        return [
            (slot, tokens, self.session.start[slot])
            for slot, tokens in zip(self.slots, self.sequences, strict=True)
        ]

    def _read(self, rows: list[Row]) -> SampledTokens:
        """Read prompts in passes of at most `chunk` tokens, short ones together; sample the next
        token of each.
        """
        assert self.session is not None
        waiting = list(rows)
        addresses: dict[int, Any] = {}
        size = 4 * self.model.kept_logits
        while waiting:
            room, batch, done = self.pass_size, list[Row](), list[Row]()
            while waiting and room:
                row = waiting.pop(0)
                now = row.tokens[: min(room, self.chunk)]
                batch.append(Row(row.slot, now, row.past))
                room -= len(now)
                if len(now) < len(row.tokens):
                    waiting.insert(0, Row(row.slot, row.tokens[len(now) :], row.past + len(now)))
                    break
                done.append(batch[-1])
            self.session.run(batch)
            for i, row in enumerate(batch):
                if any(row is x for x in done):
                    copy = ctypes.create_string_buffer(size)
                    ctypes.memmove(copy, self.session.logits_address(i), size)
                    addresses[row.slot] = copy
        self.length = self.longest
        return self.sampler([ctypes.addressof(addresses[slot]) for slot in self.slots])

    def decode(self, tokens: Sequence[int]) -> SampledTokens:
        assert self.session is not None
        for sequence, token in zip(self.sequences, tokens, strict=True):
            sequence.append(token)
        if self._crosses_long_rope_switch():
            self.session, self.length = None, 0
            self.initial_capacity = max(self.initial_capacity, max(map(len, self.sequences)))
            self.chunk = max(map(len, self.sequences))
            return self.prefill()
        self._ensure_capacity(self.length + 1)
        self.session.run(
            [
                Row(slot, [token], self.length)
                for slot, token in zip(self.slots, tokens, strict=True)
            ]
        )
        self.length += 1
        return self.sampler([self.session.logits_address(i) for i in range(len(self.slots))])

    def _crosses_long_rope_switch(self) -> bool:
        """Whether one more token changes the rotary angles of cached tokens, so that all must be
        recomputed (LongRoPE).
        """
        switches = {x.changes_after for x in self.model.program.ropes}
        return any(len(x) - 1 in switches for x in self.sequences)

    def select_rows(self, rows: Sequence[int]) -> None:
        self.sequences = [self.sequences[i] for i in rows]
        self.slots = [self.slots[i] for i in rows]
        self.sampler.select_rows(rows)

    def discard(self) -> None:
        self.session = None

    def explain(self, row: int) -> LlamathError:
        return self.model.explain(
            f"the model's logits after {len(self.sequences[row]):,} tokens are NaN or infinite"
        )

    def _ensure_capacity(self, need: int) -> None:
        """Grow the cache to at least `need` tokens, doubling it where it is too small."""
        assert self.session is not None
        if need > self.session.capacity:
            capacity = max(need, min(self.max_length, 2 * self.session.capacity))
            self.check_memory(len(self.slots), capacity)
            self.session.reserve(capacity, self.length)


class NativeGeneration(Generation):
    """Generation from several prompts; each sequence depends only on its own prompt and seed,
    however many are decoded together.
    """

    source: _NativeTokens

    def __init__(
        self,
        model: NativeModel,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        limits: GenerationLimits,
        *,
        prefill_chunk: int = CHUNK,
        initial_margin: int = INITIAL_MARGIN,
        first_row: int = 0,
    ) -> None:
        super().__init__(prompts, model.vocab, limits)
        self.seed = sampling.seed if sampling.seed is not None else random_seed()
        numbers = [UniformNumbers(self.seed, first_row + i) for i in range(len(prompts))]
        sampler = _Sampler(model, sampling, numbers, prompts, limits.logprobs)
        longest = max(map(len, prompts))
        capacity = (
            min(self.max_length, longest + initial_margin)
            if limits.max_tokens is None
            else self.max_length
        )
        self.source = _NativeTokens(
            model, prompts, sampler, self.max_length, capacity, prefill_chunk
        )

    def resume(self, prefix: NativePrefix | None) -> Self:
        if prefix is not None:
            self.source.resume(prefix)
        return self

    @property
    def prefix_cache(self) -> NativePrefix | None:
        source = self.source
        if source.session is None or len(source.sequences) != 1 or source.session.slots != 1:
            return None
        return NativePrefix(source.sequences[0][: source.length], source.session)
