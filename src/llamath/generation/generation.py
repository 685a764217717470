"""`Generation`: token-by-token generation for a batch of prompts; iterate over it for the pieces
of text as they come.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol, Self

from ..utils.errors import LlamathError
from ..utils.record_type import Record
from .detokenizer import StopStringMatcher, StreamingDetokenizer, TokenDecoder

STOP, LENGTH, STRING, INTERRUPTED = "stop", "length", "string", "interrupted"
"""Why a sequence ended: a stop token, the maximum length, a stop string, or an interrupt."""


class GenerationLimits(Record):
    """The stop conditions of generation, and whether log-probabilities are computed."""

    max_tokens: int | None = None  # of new tokens; None: up to the context length
    context: int | None = None  # prompt and new tokens together; None: unlimited
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    logprobs: int | None = None  # 0: of each generated token; n: of the n most likely tokens too

    def __init__(self, **values: object) -> None:
        super().__init__(**values)
        for name, x in (("max_tokens", self.max_tokens), ("context", self.context)):
            if x is not None and x < 1:
                raise LlamathError(f"{name} must be at least 1, found {x}")
        if self.logprobs is not None and self.logprobs < 0:
            raise LlamathError(f"logprobs must be 0 or more, found {self.logprobs}")

    def max_new_tokens(self, prompt_length: int) -> int | None:
        """Return the maximum number of new tokens after a prompt of this length; None:
        unlimited.
        """
        if self.context is None:
            return self.max_tokens
        if prompt_length >= self.context:
            relation = "fills" if prompt_length == self.context else "is longer than"
            raise LlamathError(
                f"the prompt of {prompt_length:,} tokens {relation} the context of "
                f"{self.context:,}",
                hint="use a shorter prompt",
            )
        return min(
            self.context - prompt_length,
            self.context if self.max_tokens is None else self.max_tokens,
        )


class GeneratedPiece(NamedTuple):
    """The text that one more token of one sequence adds, perhaps empty; in the sequence's last
    piece, why it ended.
    """

    row: int
    token: int  # −1 for buffered text after the last token
    text: str
    finish: str = ""  # stop, length, string or interrupted
    logprob: float | None = None  # of the model itself, before temperature and filters
    top: tuple[tuple[int, float], ...] = ()


class _SequenceState:
    """The progress of one sequence."""

    def __init__(self, index: int, prompt: Sequence[int], limits: GenerationLimits) -> None:
        self.index, self.limits, self.max_new_tokens = (
            index,
            limits,
            limits.max_new_tokens(len(prompt)),
        )
        self.prompt, self.prompt_length, self.ids, self.finish = (
            tuple(prompt),
            len(prompt),
            list[int](),
            "",
        )
        self.detokenizer: StreamingDetokenizer | None = None
        self.stop_matcher = StopStringMatcher(limits.stop_strings)

    def add_token(self, token: int) -> tuple[str, str]:
        """Return the text that a token adds, and why the sequence ends with it, if it does."""
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

    def finish_with(self, reason: str) -> tuple[str, str]:
        """Return the buffered text and the reason, which is a stop string if the text completes
        one.
        """
        self.finish = reason
        text = (
            self.stop_matcher.add(self.detokenizer.flush()) if self.detokenizer else ""
        ) + self.stop_matcher.flush()
        self.finish = STRING if self.stop_matcher.matched else reason
        return text, self.finish


class SampledTokens(NamedTuple):
    """The next token of each row, −1 where the logits are not finite, with the model's
    log-probabilities.
    """

    tokens: Sequence[int]
    logprobs: list[float] | None = None
    top: list[list[tuple[int, float]]] | None = None  # the most likely tokens, best first


def random_seed() -> int:
    """Return a random seed that is short enough to type."""
    return int.from_bytes(os.urandom(4), "little")


def _check_prompts(prompts: Sequence[Sequence[int]], vocab: int) -> None:
    if not prompts:
        raise LlamathError("expected at least one prompt, found none")
    for prompt in prompts:
        if not prompt:
            raise LlamathError("the prompt is empty", hint="generation needs at least one token")
        if unknown := [x for x in prompt if not 0 <= x < vocab]:
            raise LlamathError(
                f"the prompt has token {unknown[0]:,}, but the model's embedding has {vocab:,} "
                "rows",
                hint="the tokenizer seems to belong to another model",
            )


class TokenSource(Protocol):
    """Several sequences on an engine, each continued by one token after the other."""

    # whether a finished row could exceed a limit of the model, so that it must be dropped at once
    limit_reached_early: bool

    def prefill(self) -> SampledTokens:
        """Process the prompts; return the first new token of each row."""
        ...

    def decode(self, tokens: Sequence[int]) -> SampledTokens:
        """Process one more token of each row; return the next one of each."""
        ...

    def select_rows(self, rows: Sequence[int]) -> None:
        """Keep only these rows."""
        ...

    def discard(self) -> None:
        """Forget the cache: a pass was interrupted."""
        ...

    def explain(self, row: int) -> LlamathError:
        """Return the error for a row whose logits are not finite."""
        ...


class Generation:
    """Generation from several prompts; each sequence depends on its prompt, the seed and its
    row, not on the others.
    """

    source: TokenSource

    def __init__(
        self, prompts: Sequence[Sequence[int]], vocab: int, limits: GenerationLimits
    ) -> None:
        _check_prompts(prompts, vocab)
        self.rows = [_SequenceState(i, prompt, limits) for i, prompt in enumerate(prompts)]
        self.seed = 0
        self.started_at = self.first_token_at = self.last_token_at = perf_counter()
        self._active = list(self.rows)

    @property
    def max_length(self) -> int:
        """The maximum length of the longest row."""
        longest = max(row.prompt_length for row in self.rows)
        limits = [row.max_new_tokens for row in self.rows if row.max_new_tokens is not None]
        return longest + max(limits) if limits else 2**62

    def attach_tokenizer(
        self, decoder: TokenDecoder, before: Sequence[Sequence[int]] | None = None
    ) -> Self:
        """Produce text as well as tokens; `before` are tokens that precede each sequence's text,
        on which a space may depend.
        """
        for row, tokens in zip(self.rows, before or [()] * len(self.rows), strict=True):
            row.detokenizer = StreamingDetokenizer(decoder, tokens)
        return self

    def resume(self, prefix: Any) -> Self:  # noqa: ARG002
        """Process only the tokens that an earlier generation on the same engine has not read;
        all by default.
        """
        return self

    @property
    def prefix_cache(self) -> Any:
        """The tokens and cache of the only sequence, for a later generation to resume from; None
        if there is none.
        """
        return None

    @property
    def num_tokens(self) -> int:
        """Number of tokens generated so far, all sequences together."""
        return sum(len(row.ids) for row in self.rows)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second after the first token of each sequence; including these where there
        are no others.
        """
        later = self.num_tokens - sum(1 for row in self.rows if row.ids)
        n, seconds = (
            (later, self.last_token_at - self.first_token_at)
            if later
            else (self.num_tokens, self.last_token_at - self.started_at)
        )
        return n / seconds if seconds else 0.0

    def __iter__(self) -> Iterator[GeneratedPiece]:
        try:
            sampled = self.source.prefill()
            while True:
                yield from self._pieces(sampled)
                active = [i for i, row in enumerate(self._active) if not row.finish]
                if not active:
                    return
                sampled = self.source.decode(self._drop_finished(sampled.tokens, active))
        except KeyboardInterrupt:
            self.source.discard()  # layers may have processed different numbers of tokens
            yield from self.interrupt()

    def _pieces(self, sampled: SampledTokens) -> Iterator[GeneratedPiece]:
        now = perf_counter()
        self.first_token_at, self.last_token_at = (
            (self.first_token_at if self.num_tokens else now),
            now,
        )
        for i, (row, token) in enumerate(zip(self._active, sampled.tokens, strict=True)):
            if row.finish:
                continue
            if token < 0:
                raise self.source.explain(i)
            text, finish = row.add_token(token)
            logprob = None if sampled.logprobs is None else sampled.logprobs[i]
            yield GeneratedPiece(
                row.index,
                token,
                text,
                finish,
                logprob,
                tuple(sampled.top[i]) if sampled.top else (),
            )

    def _drop_finished(self, tokens: Sequence[int], active: list[int]) -> Sequence[int]:
        """Remove finished rows once a quarter has ended, or at once if a finished row could
        exceed a limit of the model.
        """
        worthwhile = 4 * len(active) <= 3 * len(self._active) or self.source.limit_reached_early
        if not worthwhile or len(active) == len(self._active):
            return tokens
        self.source.select_rows(active)
        self._active = [self._active[i] for i in active]
        return [tokens[i] for i in active]

    def interrupt(self) -> Iterator[GeneratedPiece]:
        """End all sequences; yield their buffered text."""
        for row in self.rows:
            if not row.finish:
                text, finish = row.finish_with(INTERRUPTED)
                yield GeneratedPiece(row.index, -1, text, finish)
        self._active = []
