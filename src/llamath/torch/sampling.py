"""Sampling the next token: greedy, or by temperature, top-k, top-p, min-p and a repetition
penalty, as in transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..generation.random_numbers import UniformNumbers
from ..generation.sampling_parameters import Sampling

_TOP_P_CANDIDATES = 1024
"""Tokens that top-p sorts at first; eight times as many while their probability does not
suffice."""


def apply_repetition_penalty(logits: Tensor, used: Tensor, penalty: float) -> Tensor:
    """Make used tokens less likely (CTRL: Keskar et al. 2019, arXiv:1909.05858)."""
    return torch.where(used, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def filter_top_k(logits: Tensor, k: int) -> Tensor:
    """Keep the k most likely tokens, and those as likely as the last of them (Fan et al. 2018,
    arXiv:1805.04833).
    """
    smallest = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < smallest, -torch.inf)


def filter_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the smallest set of most likely tokens with cumulative probability of at least p
    (Holtzman et al. 2020, arXiv:1904.09751).
    """
    probs = logits.softmax(-1)
    candidates, vocab = _TOP_P_CANDIDATES, probs.shape[-1]
    best = probs.topk(min(candidates, vocab)).values
    while candidates < vocab and bool((best.sum(-1) < p).any()):
        candidates *= 8
        best = probs.topk(min(candidates, vocab)).values
    kept = (best.cumsum(-1) - best < p).sum(-1, keepdim=True).clamp(min=1)
    return logits.masked_fill(probs < best.gather(-1, kept - 1), -torch.inf)


def filter_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep tokens with at least p times the highest probability (Nguyen et al. 2024,
    arXiv:2407.01082).
    """
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p * probs.amax(-1, keepdim=True), -torch.inf)


def filter_logits(logits: Tensor, sampling: Sampling) -> Tensor:
    """Apply temperature and filters; logits of tokens that are filtered out become −∞."""
    logits = logits / sampling.temperature
    if sampling.top_k:
        logits = filter_top_k(logits, sampling.top_k)
    if sampling.top_p < 1:
        logits = filter_top_p(logits, sampling.top_p)
    return filter_min_p(logits, sampling.min_p) if sampling.min_p else logits


def sample(logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first token whose cumulative probability exceeds u, and whether the
    probabilities are finite.
    """
    cumulative = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
    total = cumulative[:, -1:]
    return torch.searchsorted(cumulative, u * total, right=True)[:, 0], torch.isfinite(total[:, 0])


class SampledIds(NamedTuple):
    """The next token of each row, −1 where the logits are not finite, with the model's
    log-probabilities.
    """

    ids: Tensor  # (B,)
    logprobs: list[float] | None = None
    top: list[list[tuple[int, float]]] | None = None  # the most likely tokens, best first


class Sampler:
    """Samples the next tokens of a batch, each row with its own random numbers, so that a row
    does not depend on the others.
    """

    def __init__(
        self, sampling: Sampling, numbers: Sequence[UniformNumbers], num_logprobs: int | None = None
    ) -> None:
        self.sampling, self.num_logprobs = sampling, num_logprobs
        self._numbers = list(numbers)
        self.used: Tensor | None = None  # (B, V), with a repetition penalty

    def note_prompts(
        self, prompts: Sequence[Sequence[int]], vocab: int, device: torch.device
    ) -> None:
        """Mark the prompts' tokens as used."""
        if self.sampling.repetition_penalty != 1:
            self.used = torch.zeros(len(prompts), vocab, dtype=torch.bool, device=device)
            for row, prompt in zip(self.used, prompts, strict=True):
                row[torch.tensor(prompt, device=device)] = True

    def __call__(self, logits: Tensor) -> SampledIds:
        """Return the next tokens, from logits `(B, V)`."""
        logits = logits.float()
        penalty = self.sampling.repetition_penalty
        y = logits if self.used is None else apply_repetition_penalty(logits, self.used, penalty)
        if self.sampling.greedy:
            best, ids = y.max(-1)
            finite = torch.isfinite(best)
        else:
            ids, finite = sample(filter_logits(y, self.sampling), self._next_uniform().to(y.device))
        ids = ids.where(finite, -1)
        if self.used is not None:
            self.used.scatter_(1, ids.clamp(min=0)[:, None], True)
        return (
            SampledIds(ids)
            if self.num_logprobs is None
            else self._with_logprobs(logits, ids, self.num_logprobs)
        )

    def select_rows(self, rows: Tensor) -> None:
        """Keep only these rows."""
        self._numbers = [self._numbers[i] for i in rows.tolist()]
        if self.used is not None:
            self.used = self.used[rows]

    def _next_uniform(self) -> Tensor:
        """Return a random number from 0 to 1 for each row, `(B, 1)`."""
        return torch.tensor([[x()] for x in self._numbers], dtype=torch.float64)

    def _with_logprobs(self, logits: Tensor, ids: Tensor, count: int) -> SampledIds:
        logprobs = logits.log_softmax(-1)
        sampled = logprobs.gather(-1, ids.clamp(min=0)[:, None])[:, 0].tolist()
        best = logprobs.topk(min(count, logits.shape[-1]))
        top = [
            list(zip(i, x, strict=True))
            for i, x in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        return SampledIds(ids, sampled, top)
