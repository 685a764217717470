"""`Generation`: texts that go on, several at once; iterate over it for their pieces as they come."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.errors import LlamathError
from ..core.record_type import Record
from .batch import Batch, PrefixCache
from .debug.nan_check import explain_nonfinite
from .detokenizer import StopStringMatcher, StreamingDetokenizer, TokenDecoder
from .layers import Decoder
from .sampling import SampledTokens, Sampler, Sampling

STOP, LENGTH, STRING, INTERRUPTED = "stop", "length", "string", "interrupted"
"""Why a text is over: a token that ends texts, as long as it may be, a stop string, somebody had enough."""


class GenerationLimits(Record):
    """Where texts end, and what is told of their tokens."""

    max_tokens: int | None = None  # None: as many as the context has room for
    context: int | None = None  # tokens of prompt and text together; None: any number
    stop_ids: frozenset[int] = frozenset()  # tokens
    stop_strings: tuple[str, ...] = ()
    logprobs: int | None = None  # 0: of each token that is taken; n: of the n likeliest as well

    def __init__(self, **values: object) -> None:
        super().__init__(**values)
        for name, x in (("max_tokens", self.max_tokens), ("context", self.context)):
            if x is not None and x < 1:
                raise LlamathError(f"{name} is {x}, and should be at least 1")
        if self.logprobs is not None and self.logprobs < 0:
            raise LlamathError(f"logprobs is {self.logprobs}, and should be 0 or more")

    def max_new_tokens(self, tokens: int) -> int | None:
        """How many tokens may follow a prompt of so many."""
        if self.context is None:
            return self.max_tokens
        if tokens >= self.context:
            beyond = "fills" if tokens == self.context else "is longer than"
            raise LlamathError(
                f"the prompt of {tokens:,} tokens {beyond} the context of {self.context:,}",
                hint="a shorter prompt leaves room",
            )
        return min(self.context - tokens, self.context if self.max_tokens is None else self.max_tokens)


class GeneratedPiece(NamedTuple):
    """What one more token of one text brings: some text, perhaps none yet; in its last piece, why it is over."""

    row: int
    token: int  # −1 where nothing but held text is left to say
    text: str
    finish: str = ""  # stop, length, string or interrupted
    logprob: float | None = None  # by the model itself, before temperature and the rest
    top: tuple[tuple[int, float], ...] = ()


class SequenceState:
    """One text: how far it has come."""

    def __init__(self, number: int, prompt: Sequence[int], limits: GenerationLimits) -> None:
        self.index, self.limits, self.max_new_tokens = number, limits, limits.max_new_tokens(len(prompt))
        self.prompt_length, self.ids, self.finish = len(prompt), list[int](), ""
        self.detokenizer: StreamingDetokenizer | None = None
        self.stop_matcher = StopStringMatcher(limits.stop_strings)

    def add_token(self, token: int) -> tuple[str, str]:
        """The text that a token brings, and why it is the last, if it is."""
        self.ids.append(token)
        if token in self.limits.stop_ids:
            return self.finish_with(STOP)
        text = self.stop_matcher.add(self.detokenizer.add(token)) if self.detokenizer else ""
        if self.stop_matcher.matched:
            self.finish = STRING
        elif len(self.ids) == self.max_new_tokens:
            rest, _ = self.finish_with(LENGTH)
            text += rest
        return text, self.finish

    def finish_with(self, why: str) -> tuple[str, str]:
        """Whatever was held back, which may end with a stop string after all."""
        self.finish = why
        text = (self.stop_matcher.add(self.detokenizer.flush()) if self.detokenizer else "") + self.stop_matcher.flush()
        self.finish = STRING if self.stop_matcher.matched else why
        return text, self.finish


def _random_seed() -> int:
    """A seed that nobody has chosen, short enough to be typed."""
    return int.from_bytes(os.urandom(4), "little")


def vocab_size(module: Decoder) -> int:
    """How many tokens the model can read; it may give logits for more."""
    tables = [module.embed, *([module.per_layer.embed] if module.per_layer is not None else [])]
    return min(x.weight.shape[0] for x in tables)


def _check_prompts(prompts: Sequence[Sequence[int]], known: int) -> None:
    if not prompts:
        raise LlamathError("there are no prompts")
    for prompt in prompts:
        if not prompt:
            raise LlamathError("the prompt is empty", hint="a model goes on from at least one token")
        strange = [x for x in prompt if not 0 <= x < known]
        if strange:
            raise LlamathError(
                f"the prompt has token {strange[0]:,}, and the model's embedding has {known:,} rows",
                hint="the tokenizer seems to be another model's",
            )


class Generation:
    """Prompts being continued; each text depends on its own prompt and seed alone, however many are read together."""

    def __init__(self, module: Decoder, prompts: Sequence[Sequence[int]], sampling: Sampling, limits: GenerationLimits) -> None:
        self._vocab_size = vocab_size(module)
        _check_prompts(prompts, self._vocab_size)
        self.rows = [SequenceState(i, prompt, limits) for i, prompt in enumerate(prompts)]
        room, grows = self._max_length()
        self.batch = Batch(module, prompts, room, grows)
        self.seed = sampling.seed if sampling.seed is not None else module.broadcast_int(_random_seed())
        self.sampler = Sampler(sampling, [(self.seed + i) % 2**63 for i in range(len(prompts))], limits.logprobs)
        self.sampler.note_prompts(prompts, min(module.spec.vocab, self._vocab_size), self.batch.device)
        self.started_at = self.first_token_at = self.last_token_at = perf_counter()
        self._active = list(self.rows)

    def _max_length(self) -> tuple[int, bool]:
        """How many tokens the longest row may come to, and whether the cache had better grow up to there."""
        longest = max(row.prompt_length for row in self.rows)
        known = [row.max_new_tokens for row in self.rows if row.max_new_tokens is not None]
        limits = self.rows[0].limits
        return longest + max(known) if known else 2**62, limits.max_tokens is None

    def attach_tokenizer(self, words: TokenDecoder, before: Sequence[Sequence[int]] | None = None) -> Generation:
        """Give text as well as tokens; `before` are the tokens whose text comes first, on which a space may depend."""
        for row, known in zip(self.rows, before or [()] * len(self.rows), strict=True):
            row.detokenizer = StreamingDetokenizer(words, known)
        return self

    def resume(self, past: PrefixCache) -> Generation:
        """Read only what an earlier reading has not."""
        self.batch.resume(past)
        return self

    @property
    def prefix_cache(self) -> PrefixCache | None:
        """What has been read of the only text, for another to go on from."""
        cache = self.batch.cache
        return None if cache is None or cache.padding is not None else PrefixCache(self.batch.sequences[0][: cache.length], cache)

    @property
    def num_tokens(self) -> int:
        """How many there are so far, all texts together."""
        return sum(len(row.ids) for row in self.rows)

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second after the first ones; with those where there are no others."""
        later = self.num_tokens - sum(1 for row in self.rows if row.ids)
        n, seconds = (later, self.last_token_at - self.first_token_at) if later else (self.num_tokens, self.last_token_at - self.started_at)
        return n / seconds if seconds else 0.0

    def __iter__(self) -> Iterator[GeneratedPiece]:
        try:
            logits = self.batch.prefill()
            while True:
                choice = self.sampler(logits[:, : self._vocab_size])
                taken = choice.ids.tolist()
                yield from self._pieces(choice, taken)
                live = [i for i, row in enumerate(self._active) if not row.finish]
                if not live:
                    return
                ids, taken = self._drop_finished(choice.ids, taken, live)
                logits = self.batch.decode(ids, taken)
        except KeyboardInterrupt:
            self.batch.cache = None  # some layers may have read more than others
            yield from self.interrupt()
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "allocate memory" not in str(error):
                raise
            said = f"{self.batch.device} has no memory left after {self.num_tokens:,} tokens"
            raise LlamathError(said, hint="fewer prompts at once, a shorter context, or a smaller --dtype takes less") from None

    def _pieces(self, choice: SampledTokens, taken: list[int]) -> Iterator[GeneratedPiece]:
        now = perf_counter()
        self.first_token_at, self.last_token_at = (self.first_token_at if self.num_tokens else now), now
        for i, (row, token) in enumerate(zip(self._active, taken, strict=True)):
            if row.finish:
                continue
            if token < 0:
                raise explain_nonfinite(self.batch.module, self.batch.sequences[i])
            text, finish = row.add_token(token)
            logprob = None if choice.logprobs is None else choice.logprobs[i]
            yield GeneratedPiece(row.index, token, text, finish, logprob, tuple(choice.top[i]) if choice.top else ())

    def _drop_finished(self, ids: Tensor, taken: list[int], live: list[int]) -> tuple[Tensor, list[int]]:
        """The batch without texts that are over: at once where their positions are at an end, else when there are enough of them."""
        few = 4 * len(live) <= 3 * len(self._active) or self.batch.module.positions is not None
        if not few or len(live) == len(self._active):
            return ids, taken
        which = self.batch.select_rows(live)
        self.sampler.select_rows(which)
        self._active = [self._active[i] for i in live]
        return ids[which], [taken[i] for i in live]

    def interrupt(self) -> Iterator[GeneratedPiece]:
        """Stop here: what is left to say of texts that are not over."""
        for row in self.rows:
            if not row.finish:
                text, finish = row.finish_with(INTERRUPTED)
                yield GeneratedPiece(row.index, -1, text, finish)
        self._active = []
