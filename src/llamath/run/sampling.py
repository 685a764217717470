"""Which token comes next: the likeliest, or one drawn from what temperature, top-k, top-p, min-p and a repetition penalty leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.errors import LlamathError
from ..core.record_type import Record

TOP_P_CANDIDATES = 1024
"""Tokens that top-p puts in order at first; eight times as many if these are not enough."""
RANDOM_BLOCK = 64
"""Random numbers that a row draws at once."""
MAX_UNIFORM, MIN_TEMPERATURE = 1 - 2**-50, 1e-6
"""The largest random number, and the least temperature at which something is drawn."""


class Sampling(Record):
    """How a token is drawn; as it stands the likeliest is taken. The steps are transformers', in its order."""

    temperature: float = 0.0  # logits are divided by it; 0: the likeliest token
    top_k: int = 0  # the k likeliest; 0: all
    top_p: float = 1.0  # the likeliest that together have this share
    min_p: float = 0.0  # those that have this share of the likeliest's
    repetition_penalty: float = 1.0  # of tokens that are there already, logits are divided by it, negative ones multiplied
    seed: int | None = None

    def __init__(self, **values: float | None) -> None:
        super().__init__(**values)
        for name, (low, high, what) in RANGES.items():
            x = getattr(self, name)
            if x is not None and not (math.isfinite(x) and low <= x <= high):
                raise LlamathError(f"{name} is {x}, and should be {what}", hint=HINTS.get(name, ""))
        if self.repetition_penalty == 0:
            raise LlamathError("repetition_penalty is 0, and should be above 0", hint=HINTS["repetition_penalty"])

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature < MIN_TEMPERATURE or self.top_k == 1


RANGES: dict[str, tuple[float, float, str]] = {
    "temperature": (0, math.inf, "0 or more"),
    "top_k": (0, math.inf, "0 or more"),
    "top_p": (0, 1, "from 0 to 1"),
    "min_p": (0, 1, "from 0 to 1"),
    "repetition_penalty": (0, math.inf, "above 0"),
    "seed": (0, 2**63 - 1, "from 0 to 2⁶³ − 1"),
}
"""Between which numbers each lies, and how that is said."""
HINTS = {
    "temperature": "0 takes the likeliest token, 1 draws as the model says",
    "repetition_penalty": "1 leaves everything as it is, 1.1 is usual",
}


def apply_repetition_penalty(logits: Tensor, used: Tensor, penalty: float) -> Tensor:
    """Tokens that were used, made less likely (CTRL: Keskar et al. 2019, arXiv:1909.05858)."""
    return torch.where(used, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def filter_top_k(logits: Tensor, k: int) -> Tensor:
    """The k likeliest, and what is as likely as the last of them (Fan et al. 2018, arXiv:1805.04833)."""
    least = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < least, -torch.inf)


def filter_top_p(logits: Tensor, p: float) -> Tensor:
    """The likeliest that have p of the whole together, the last of them included (Holtzman et al. 2020, arXiv:1904.09751)."""
    shares = logits.softmax(-1)
    few, whole = TOP_P_CANDIDATES, shares.shape[-1]
    best = shares.topk(min(few, whole)).values
    while few < whole and bool((best.sum(-1) < p).any()):
        few *= 8
        best = shares.topk(min(few, whole)).values
    kept = (best.cumsum(-1) - best < p).sum(-1, keepdim=True).clamp(min=1)
    return logits.masked_fill(shares < best.gather(-1, kept - 1), -torch.inf)


def filter_min_p(logits: Tensor, p: float) -> Tensor:
    """Those that have at least p of the likeliest's share (Nguyen et al. 2024, arXiv:2407.01082)."""
    shares = logits.softmax(-1)
    return logits.masked_fill(shares < p * shares.amax(-1, keepdim=True), -torch.inf)


def filter_logits(logits: Tensor, how: Sampling) -> Tensor:
    """What there is to draw from: logits of the tokens that are left, −∞ for the others."""
    logits = logits / how.temperature
    if how.top_k:
        logits = filter_top_k(logits, how.top_k)
    if how.top_p < 1:
        logits = filter_top_p(logits, how.top_p)
    return filter_min_p(logits, how.min_p) if how.min_p else logits


def sample(logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The token at which the shares, summed up in the vocabulary's order, pass u of the whole; and whether there are any shares."""
    mass = logits.softmax(-1, dtype=torch.float64).cumsum(-1)
    whole = mass[:, -1:]
    return torch.searchsorted(mass, u * whole, right=True)[:, 0], torch.isfinite(whole[:, 0])


class SampledTokens(NamedTuple):
    """The next token of each row, −1 where the logits are no numbers; and what the model itself thought of it."""

    ids: Tensor  # (B,)
    logprobs: list[float] | None = None
    top: list[list[tuple[int, float]]] | None = None  # the likeliest, best first


class Sampler:
    """Chooses for the rows of a batch, each with random numbers of its own, so that its company makes no difference."""

    def __init__(self, how: Sampling, seeds: Sequence[int], logprobs: int | None = None) -> None:
        self.sampling, self.num_logprobs = how, logprobs
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self.used: Tensor | None = None  # (B, V), where there is a penalty
        self._uniforms, self._next_column = torch.empty(0), RANDOM_BLOCK

    def note_prompts(self, prompts: Sequence[Sequence[int]], vocab: int, device: torch.device) -> None:
        """Note the tokens that are there already."""
        if self.sampling.repetition_penalty != 1:
            self.used = torch.zeros(len(prompts), vocab, dtype=torch.bool, device=device)
            for row, prompt in zip(self.used, prompts, strict=True):
                row[torch.tensor(prompt, device=device)] = True

    def __call__(self, logits: Tensor) -> SampledTokens:
        """The next tokens, from logits `(B, V)`."""
        logits = logits.float()
        penalty = self.sampling.repetition_penalty
        y = logits if self.used is None else apply_repetition_penalty(logits, self.used, penalty)
        if self.sampling.greedy:
            best, ids = y.max(-1)
            sound = torch.isfinite(best)
        else:
            ids, sound = sample(filter_logits(y, self.sampling), self._next_uniform().to(y.device))
        ids = ids.where(sound, -1)
        if self.used is not None:
            self.used.scatter_(1, ids.clamp(min=0)[:, None], True)
        return SampledTokens(ids) if self.num_logprobs is None else self._with_logprobs(logits, ids, self.num_logprobs)

    def select_rows(self, rows: Tensor) -> None:
        """Go on with these rows alone."""
        self.generators = [self.generators[i] for i in rows.tolist()]
        if self.used is not None:
            self.used = self.used[rows]
        if self._next_column < RANDOM_BLOCK:
            self._uniforms = self._uniforms[rows.cpu()]

    def _next_uniform(self) -> Tensor:
        """A number from 0 to 1 for each row, `(B, 1)`."""
        if self._next_column == RANDOM_BLOCK:
            self._uniforms = torch.stack([torch.rand(RANDOM_BLOCK, generator=x, dtype=torch.float64) for x in self.generators]).clamp(
                max=MAX_UNIFORM
            )
            self._next_column = 0
        self._next_column += 1
        return self._uniforms[:, self._next_column - 1 : self._next_column]

    def _with_logprobs(self, logits: Tensor, ids: Tensor, most: int) -> SampledTokens:
        logprobs = logits.log_softmax(-1)
        own = logprobs.gather(-1, ids.clamp(min=0)[:, None])[:, 0].tolist()
        best = logprobs.topk(min(most, logits.shape[-1]))
        top = [list(zip(i, x, strict=True)) for i, x in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
        return SampledTokens(ids, own, top)
