"""`Generation` on a torch module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..generation import generation
from ..generation.generation import GeneratedPiece, GenerationLimits, SampledTokens, random_seed
from ..generation.random_numbers import UniformNumbers
from ..generation.sampling_parameters import Sampling
from ..questions.memory_questions import PREFILL_CHUNK
from ..utils.errors import LlamathError
from .batch import INITIAL_MARGIN, Batch, PrefixCache
from .debug.nan_check import explain_nonfinite
from .module import Decoder
from .sampling import Sampler


def vocab_size(module: Decoder) -> int:
    """Return the number of tokens that the model can read; its head may have more rows."""
    tables = [module.embed, *([module.per_layer.embed] if module.per_layer is not None else [])]
    return min(x.weight.shape[0] for x in tables)


class _TorchTokens:
    """The rows of a batch with a sampler."""

    def __init__(self, batch: Batch, sampler: Sampler, vocab: int) -> None:
        self.batch, self.sampler, self._vocab_size = batch, sampler, vocab
        self.limit_reached_early = batch.module.positions is not None

    def prefill(self) -> SampledTokens:
        return self._sample(self.batch.prefill())

    def decode(self, tokens: Sequence[int]) -> SampledTokens:
        return self._sample(
            self.batch.decode(torch.tensor(tokens, device=self.batch.device), tokens)
        )

    def _sample(self, logits: Tensor) -> SampledTokens:
        sampled = self.sampler(logits[:, : self._vocab_size])
        return SampledTokens(sampled.ids.tolist(), sampled.logprobs, sampled.top)

    def select_rows(self, rows: Sequence[int]) -> None:
        self.sampler.select_rows(self.batch.select_rows(rows))

    def discard(self) -> None:
        self.batch.cache = None

    def explain(self, row: int) -> LlamathError:
        return explain_nonfinite(self.batch.module, self.batch.sequences[row])


class Generation(generation.Generation):
    """Generation from several prompts; each depends on its prompt, the seed and its row, not on
    the others.
    """

    source: _TorchTokens

    def __init__(
        self,
        module: Decoder,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        limits: GenerationLimits,
        *,
        prefill_chunk: int = PREFILL_CHUNK,
        initial_margin: int = INITIAL_MARGIN,
        first_row: int = 0,
    ) -> None:
        vocab = vocab_size(module)
        super().__init__(prompts, vocab, limits)
        grows = limits.max_tokens is None
        self.batch = Batch(
            module,
            prompts,
            self.max_length,
            grows=grows,
            prefill_chunk=prefill_chunk,
            initial_margin=initial_margin,
        )
        self.seed = (
            sampling.seed if sampling.seed is not None else module.broadcast_int(random_seed())
        )
        sampler = Sampler(
            sampling,
            [UniformNumbers(self.seed, first_row + i) for i in range(len(prompts))],
            limits.logprobs,
        )
        sampler.note_prompts(prompts, min(module.spec.vocab, vocab), self.batch.device)
        self.source = _TorchTokens(self.batch, sampler, vocab)

    def resume(self, prefix: PrefixCache) -> Generation:
        """Process only the tokens that an earlier generation has not read."""
        self.batch.resume(prefix)
        return self

    @property
    def prefix_cache(self) -> PrefixCache | None:
        """The tokens and cache of the only sequence, for a later generation to resume from."""
        cache = self.batch.cache
        return (
            None
            if cache is None or cache.padding is not None
            else PrefixCache(self.batch.sequences[0][: cache.length], cache)
        )

    def __iter__(self) -> Iterator[GeneratedPiece]:
        try:
            yield from super().__iter__()
        except (RuntimeError, MemoryError) as error:
            if not isinstance(
                error, torch.OutOfMemoryError | MemoryError
            ) and "allocate memory" not in str(error):
                raise
            raise LlamathError(
                f"out of memory on {self.batch.device} after {self.num_tokens:,} tokens",
                hint="use fewer prompts at once, a shorter context, or a smaller dtype",
            ) from None
