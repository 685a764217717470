"""`shards`: what each GPU holds of a model that serves, and what it reads for a pass: weights, cache, activations, logits, overhead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from ...checkpoint.formats.dtypes import DTYPES
from ...core.blocks import Decoder
from ...core.forward_pass import Mixer
from ...core.record_type import Record
from ...core.tree import Block, Folded, Stack, fold
from ..memory_line import overhead_bytes
from ..parallel_layout import Layout, PipelineStage, WeightShard, pipeline_stages, slice_layers, weight_shards
from .cache_bytes import CacheSpec, cache_specs, sum_cache_specs
from .inference_memory import MemoryCalculator

ALL_EXPERTS_TOKENS = 10_000
"""So many tokens touch every expert."""


class StageMemory(Record):
    """What each GPU of one stage holds, in bytes; `gpus` of them hold as much."""

    stage: int
    runs: tuple[tuple[int, int], ...]  # of layers
    gpus: int
    weights: int
    kv_cache: int
    activations: int
    logits: int
    overhead: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv_cache + self.activations + self.logits + self.overhead


class _WeightUse(NamedTuple):
    """How a pass meets a weight: by row, by the experts that it is sent to, or whole."""

    lookup: bool
    live: Fraction  # of an expert: the share of them that one token passes


class WeightRead(NamedTuple):
    """A weight on one GPU as a pass reads it."""

    bytes: Fraction  # of all of it
    rows: int = 0  # of a table, of which a token reads one; 0: it is no table
    live: Fraction = Fraction(1)

    def of(self, tokens: int) -> int:
        """The bytes that so many tokens in all read, to the nearest."""
        share = Fraction(min(tokens, self.rows), self.rows) if self.rows else expected_expert_share(self.live, tokens)
        read = self.bytes * share
        return (2 * read.numerator + read.denominator) // (2 * read.denominator)


class ShardedModel:
    """A model under one request and one layout; contexts and batches are asked for one after another."""

    def __init__(self, sizes: MemoryCalculator, layout: Layout) -> None:
        self.calculator, self.layout = sizes, layout
        self.tree: Decoder = sizes.tree
        self.stages = pipeline_stages(self.tree, layout)

    def with_dtype_of(self, sizes: MemoryCalculator) -> ShardedModel:
        """The same model in the same layout, its numbers kept in something else; what does not depend on that is not worked out again."""
        other = ShardedModel(sizes, self.layout)
        other._pieces, other._kinds, other.leaves, other._tied, other._uses = self._pieces, self._kinds, self.leaves, self._tied, self._uses
        return other

    def weights(self, i: int) -> int:
        """The bytes of weights that one GPU of a stage holds."""
        return self._weights[i]

    def elements_by_size(self, i: int) -> dict[Fraction, int]:
        """How many numbers of weights one GPU of a stage holds, by the bytes that one of them takes."""
        found: dict[Fraction, int] = {}
        for x in self._pieces[i]:
            each = self._rate(x.pattern)
            found[each] = found.get(each, 0) + x.elements
        return found

    def stage_memory(self, context: int, batch: int) -> list[StageMemory]:
        """One for each stage."""
        return [self._share(i, context, batch) for i in range(len(self.stages))]

    def max_memory(self, context: int, batch: int) -> int:
        """What the fullest GPU holds."""
        return max(x.total for x in self.stage_memory(context, batch))

    def _share(self, i: int, context: int, batch: int) -> StageMemory:
        stage, layout = self.stages[i], self.layout
        kept = self.kv_cache(i, context, batch)
        passing = self.activations(min(batch * context, max(self.calculator.request.chunk, batch)))
        logits = 4 * batch * int(self.tree.vocab) if stage.last else 0
        return StageMemory(
            stage=i,
            runs=stage.runs,
            gpus=layout.tp,
            weights=self.weights(i),
            kv_cache=kept,
            activations=passing,
            logits=logits,
            overhead=overhead_bytes(kept + passing + logits),
        )

    def kv_cache(self, i: int, context: int, batch: int) -> int:
        """The cache on one GPU of a stage; what stands in no layer is not remembered."""
        return sum_cache_specs(self.stage_cache_specs(i), context, batch, self.calculator.kv_dtype).bytes

    def stage_cache_specs(self, i: int) -> tuple[CacheSpec, ...]:
        """What the layers of a stage remember on one GPU, those alike together."""
        return self._kinds[i]

    def activations(self, tokens: int) -> int:
        """Activations of so many tokens at once: the residual stream whole, what lies inside a branch cut by tensor parallelism."""
        d, width = int(self.tree.width), int(self.calculator.peak.width)
        around = min(2 * d, width)
        return tokens * (around + -(-(width - around) // self.layout.tp)) * DTYPES[self.calculator.packer.compute_dtype].bytes

    def weight_reads(self, tokens: int) -> list[int]:
        """The bytes of weights that one GPU of each stage reads for a pass of so many tokens in all, every byte once.

        Of tables the rows looked up; of E experts, k of them for a token, those expected to be touched, E · (1 − (1 − k/E)^tokens), if
        choices are even and independent; a tied head is read whole.
        """
        return [sum(x.of(tokens) for x in self.reads(i)) for i in range(len(self.stages))]

    def reads(self, i: int) -> list[WeightRead]:
        """Every weight that a pass reads on one GPU of a stage."""
        return self._reads[i]

    @cached_property
    def _reads(self) -> list[list[WeightRead]]:
        return [
            [*map(self._read, held, sizes), *self._tied_head(i)]
            for i, (held, sizes) in enumerate(zip(self._pieces, self._held, strict=True))
        ]

    @cached_property
    def _pieces(self) -> list[list[WeightShard]]:
        return [weight_shards(self.tree, stage, self.layout) for stage in self.stages]

    @cached_property
    def _held(self) -> list[list[Fraction]]:
        return [[self._bytes(x) for x in held] for held in self._pieces]

    @cached_property
    def _weights(self) -> list[int]:
        return [round(sum(held)) for held in self._held]

    def _bytes(self, x: WeightShard) -> Fraction:
        return x.elements * self._rate(x.pattern)

    def _rate(self, pattern: str) -> Fraction:
        """Bytes of a number of this weight, scales and all, on average over the layers."""
        return self._rates.get(self._tied.get(pattern, pattern), self._mean)

    @cached_property
    def _rates(self) -> Mapping[str, Fraction]:
        if self.calculator.storage is None:
            return {}
        made: dict[str, tuple[int, int]] = {}
        for x in self.calculator.storage.weights:
            size, n = made.get(x.leaf.pattern, (0, 0))
            made[x.leaf.pattern] = (size + x.total, n + int(x.leaf.weight.size) * int(x.leaf.copies))
        return {pattern: Fraction(size, n or 1) for pattern, (size, n) in made.items()}

    @cached_property
    def _mean(self) -> Fraction:
        elements = sum(int(x.weight.parameters) * int(x.copies) for x in self.leaves)
        return Fraction(sum(x.bytes for x in self.calculator.weights), elements or 1)

    @cached_property
    def leaves(self) -> list[Folded]:
        """The weights, folded."""
        return fold(self.tree)

    @cached_property
    def _tied(self) -> Mapping[str, str]:
        return {x.pattern: x.weight.tied for x in self.leaves if x.weight.tied}

    @cached_property
    def _uses(self) -> Mapping[str, _WeightUse]:
        return {x.pattern: _WeightUse(x.weight.role == "lookup", Fraction(int(x.active), int(x.copies))) for x in self.leaves if x.copies}

    def _read(self, x: WeightShard, size: Fraction) -> WeightRead:
        use = self._uses[x.pattern]
        return WeightRead(size, x.shape[0] if use.lookup else 0, use.live)

    def _tied_head(self, i: int) -> Iterator[WeightRead]:
        """The matrix of a tied head that is held as the embedding, and listed no second time."""
        stage, head = self.stages[i], self.tree.head
        if head is not None and head.weight.tied and stage.first and stage.last:
            yield WeightRead(self._bytes(next(x for x in self._pieces[i] if x.pattern == head.weight.tied)))

    @cached_property
    def _kinds(self) -> list[tuple[CacheSpec, ...]]:
        return [cache_specs(self.tree.replace(layers=Stack(*self._layers(stage)))) for stage in self.stages]

    def _layers(self, stage: PipelineStage) -> Iterator[tuple[tuple[Block, ...], int]]:
        for run in stage.runs:
            for block, n in slice_layers(self.tree.layers, *run):
                mixers = {name: x for name, x in block.children if isinstance(x, Mixer)}
                yield (block.replace(**{name: shard_mixer(x, self.layout.tp) for name, x in mixers.items()}),), n


@lru_cache(maxsize=64)
def expected_expert_share(live: Fraction, tokens: int) -> Fraction:
    """The share of the experts that so many tokens are expected to touch, each choosing a share `live` of them, evenly."""
    return 1 - (1 - live) ** tokens if tokens < ALL_EXPERTS_TOKENS else Fraction(1)


def shard_mixer(block: Mixer, tp: int) -> Mixer:
    """A mixer as one rank of tensor parallelism runs it: its heads divided, or copied where ranks are more than they."""
    facts = {cut.parts: int(getattr(block, cut.parts)) for cut in block.cuts.values() if cut.parts}
    return block.replace(**{name: max(n // tp, 1) for name, n in facts.items()}) if tp > 1 else block
