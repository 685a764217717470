"""`ShardedModel`: the memory of each GPU when a model is split for inference, and the bytes that
each GPU reads in a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, TypeVar

from ....checkpoint.formats.dtypes import DTYPES
from ....core.blocks import Decoder
from ....core.expr import (
    Expr,
    as_number,
    ceil_div,
    minimum,
    product,
    round_div,
    routed_bytes,
    total,
)
from ....core.tree import TOWER_GROUPS, Folded, Stack, fold, fold_blocks
from ....questions.layout import Layout
from ....utils.number_marks import is_marking
from ....utils.record_type import Record
from ...storage.memory_line import overhead_bytes
from ...storage.parallel_layout import (
    PipelineStage,
    WeightShard,
    pipeline_stages,
    stage_layers,
    weight_shards,
)
from .cache_bytes import CacheSpec, KVFormat, cache_specs, kv_format
from .inference_memory import MemoryCalculator, logits_bytes, prefill_chunk

T = TypeVar("T")
_ALL_EXPERTS_TOKENS = 10_000
"""A pass over at least this many tokens is assumed to use every expert."""


TOKENS, BATCH = Expr.variable("T", 1), Expr.variable("B", 1)
"""The context and the number of sequences in the expressions of this module."""


class StageMemory(Record):
    """The memory of each of the `gpus` of one pipeline stage, in bytes."""

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
        """The whole memory."""
        return self.weights + self.kv_cache + self.activations + self.logits + self.overhead


class _WeightUse(NamedTuple):
    """The part of a weight that a pass reads: rows, the experts that tokens are routed to, or
    all of it.
    """

    rows_read: int  # by a token, of a lookup table; 0: no table
    missed: int  # experts, or parts of a table, that a token does not use,
    experts: int  # of this many


class WeightRead(NamedTuple):
    """A weight of size / unit bytes on one GPU, and the part of it that a pass reads."""

    size: int
    unit: int = 1
    rows: int = 0  # of a lookup table; 0: no table
    missed: int = 0  # experts, or parts of a table, that a token does not use,
    experts: int = 1  # of this many
    rows_read: int = 1  # rows that a token reads of a table

    def of(self, tokens: int) -> Expr:
        """Return the bytes that a pass over this many tokens reads, rounded."""
        if self.rows:
            read = minimum(
                product((tokens, self.rows_read * (self.experts - self.missed))),
                product((self.rows, self.experts)),
            )
            return round_div(
                product((self.size, read)), product((self.rows, self.experts, self.unit))
            )
        if not self.missed:
            return round_div(self.size, self.unit)
        return routed_bytes(
            self.size, self.unit, self.missed, self.experts, tokens, _ALL_EXPERTS_TOKENS
        )


class ElementSizes(NamedTuple):
    """The bytes of cached elements and of an activation; the numbers may be expressions."""

    cache: KVFormat
    activation: int


def activation_bytes(tokens: Expr, width: int, stream: int, tp: int, element_bytes: int) -> Expr:
    """Return the bytes of the activations of these tokens: of the most elements of a token that
    live at once, the residual stream is whole, and tensor parallelism splits the rest.
    """
    around = minimum(product((2, stream)), width)
    return product((tokens, around + ceil_div(width - around, tp), element_bytes))


def _routed_stacks(tree: Decoder) -> Mapping[str, tuple[int, int]]:
    """Return the numbers of blocks, and of those that a token is routed to, of each stack, by its
    pattern; of stacks in several kinds of layers, the last.
    """
    return {
        f"{x.pattern}.{name}": (as_number(child.n), as_number(child.active))
        for x in fold_blocks(tree)
        for name, child in x.block.children
        if isinstance(child, Stack) and child.active is not None
    }


class ShardedModel:
    """A model split over GPUs by a layout, with its memory at any context and batch size."""

    def __init__(
        self,
        calculator: MemoryCalculator,
        layout: Layout,
        offload: int = 0,
        stages: Sequence[PipelineStage] | None = None,
    ) -> None:
        self.calculator, self.layout = calculator, layout
        # bytes of the weights of each GPU that stay in the memory of the host
        self.offload = offload
        self.tree: Decoder = calculator.tree
        self.stages = pipeline_stages(self.tree, layout) if stages is None else list(stages)

    def with_dtype_of(self, sizes: MemoryCalculator) -> ShardedModel:
        """Return the same model in the same layout with another calculator's dtypes; everything
        independent of them is shared.
        """
        other = ShardedModel(sizes, self.layout)
        for name in (
            *("_shards", "_elements", "_cache_specs", "equal_stages"),
            *("leaves", "_tied", "_uses"),
        ):
            vars(other)[name] = getattr(self, name)
        return other

    def weights(self, i: int) -> int:
        """Return the bytes of the weights on one GPU of a stage."""
        return max(self._weights[i] - self.offload, 0)

    def elements_by_pattern(self, i: int) -> dict[str, int]:
        """Return the elements of each weight on one GPU of a stage."""
        elements: dict[str, int] = {}
        for x, n in zip(self._shards[i], self._elements[i], strict=True):
            elements[x.pattern] = elements.get(x.pattern, 0) + n
        return elements

    def stage_memory(self, context: int, batch: int) -> list[StageMemory]:
        """Return the memory of each stage."""
        parts = ("weights", "kv_cache", "activations", "logits", "overhead")
        return [
            x.replace(
                **{
                    name: Expr.const(getattr(x, name)).evaluate(T=context, B=batch)
                    for name in parts
                }
            )
            for x in self._memory
        ]

    def max_memory(self, context: int, batch: int) -> int:
        """Return the memory of the most loaded GPU."""
        return max(x.evaluate(T=context, B=batch) for x in self._total_memory)

    @cached_property
    def _memory(self) -> list[StageMemory]:
        calculator = self.calculator
        sizes = ElementSizes(
            kv_format(calculator.kv_dtype), DTYPES[calculator.packer.compute_dtype].bytes
        )
        found = self._of_stages(lambda i: self.memory_of_stage(i, sizes))
        return [x.replace(stage=i, runs=self.stages[i].runs) for i, x in enumerate(found)]

    @cached_property
    def _total_memory(self) -> list[Expr]:
        """The memory of a GPU of each stage, once of those that are equal."""
        pairs = enumerate(zip(self._memory, self.equal_stages, strict=True))
        return [Expr.const(x.total) for i, (x, same) in pairs if same == i]

    def memory_of_stage(self, i: int, sizes: ElementSizes) -> StageMemory:
        """Return the memory of a stage as expressions in T and B."""
        cache = self.cache_bytes(i, sizes.cache)
        activations = self._activations(sizes.activation)
        logits = logits_bytes(BATCH, self.tree) if self.stages[i].last else Expr.const(0)
        return StageMemory(
            stage=i,
            runs=self.stages[i].runs,
            gpus=self.layout.tp,
            weights=self.weights(i),
            kv_cache=cache,
            activations=activations,
            logits=logits,
            overhead=overhead_bytes(cache + activations + logits),
        )

    def cache_bytes(self, i: int, stored: KVFormat) -> Expr:
        """Return the bytes of the KV cache on one GPU of a stage, in T and B."""
        return total(
            y
            for x in self.stage_cache_specs(i)
            for y in (x.growing_bytes(TOKENS, BATCH, stored), x.fixed_bytes(BATCH, stored))
        )

    def kv_cache(self, i: int, context: int, batch: int) -> int:
        """Return the bytes of the KV cache on one GPU of a stage."""
        return Expr.const(self._memory[i].kv_cache).evaluate(T=context, B=batch)

    def stage_cache_specs(self, i: int) -> tuple[CacheSpec, ...]:
        """Return the cache specs of the layers of a stage on one GPU, equal layers together."""
        return self._cache_specs[i]

    def _activations(self, element_bytes: int) -> Expr:
        return self.activations(self.calculator.peak.width, element_bytes)

    def activations(self, width: int, element_bytes: int) -> Expr:
        """Return the bytes of the activations, given the most elements of a token: the residual
        stream is whole, tensor parallelism splits the inside of a branch.
        """
        tokens = prefill_chunk(TOKENS, BATCH, Expr("chunk", self.calculator.request.chunk))
        return activation_bytes(tokens, width, self.tree.width, self.layout.tp, element_bytes)

    def weight_reads(self, tokens: int) -> list[int]:
        """Return the bytes of weights that one GPU of each stage reads in a pass over this many
        tokens, every byte once.

        Of lookup tables, only the rows of the tokens are read; of E experts with k for each token,
        E · (1 − (1 − k/E)^tokens) are expected to be used if routing is even and independent; a
        tied head is read whole.
        """
        return [total(x.of(tokens) for x in reads) for reads in self.reads]

    def host_reads(self, tokens: int) -> int:
        """Return the bytes of weights that one GPU of each stage reads from the host, which
        holds what a pass reads least of.
        """
        found = 0
        for reads in self.reads if self.offload else ():
            left = Fraction(self.offload)
            for share, stored in sorted(
                (Fraction(x.of(tokens) * x.unit, x.size), Fraction(x.size, x.unit))
                for x in reads
                if x.size
            ):
                found += round(min(left, stored) * share)
                left -= min(left, stored)
        return found

    @cached_property
    def reads(self) -> list[list[WeightRead]]:
        """Every weight that a pass over text reads on one GPU of each stage: not those of
        towers.
        """
        return self._of_stages(
            lambda i: [
                *(
                    self._read(x, n)
                    for x, n in zip(self._shards[i], self._shard_bytes[i], strict=True)
                    if x.group not in TOWER_GROUPS
                ),
                *self._tied_head(i),
            ]
        )

    def _of_stages(self, compute: Callable[[int], T]) -> list[T]:
        """Return what is computed of each stage, once for those that are equal."""
        found: list[T] = []
        for i, same in enumerate(self.equal_stages):
            found.append(found[same] if same < i else compute(i))
        return found

    def read_elements(self, i: int) -> list[tuple[str, int]]:
        """Return the pattern and the elements of every weight of `reads`."""
        own = [(x.pattern, n) for x, n in zip(self._shards[i], self._elements[i], strict=True)]
        kept = [
            x
            for x, shard in zip(own, self._shards[i], strict=True)
            if shard.group not in TOWER_GROUPS
        ]
        head = self.tree.head
        return (
            kept
            + [
                x
                for x in own
                if self._has_tied_head(i) and head is not None and x[0] == head.weight.tied
            ][:1]
        )

    @cached_property
    def equal_stages(self) -> list[int]:
        """For each stage the first one with the same layers and weights."""
        first: dict[object, int] = {}
        return [
            first.setdefault((stage.first, stage.last, tuple(layers or ()), tuple(shards)), i)
            for i, (stage, shards) in enumerate(zip(self.stages, self._shards, strict=True))
            for layers in [(self._num_layers(stage) or {}).items()]
        ]

    @cached_property
    def _shards(self) -> list[list[WeightShard]]:
        return [weight_shards(self.tree, stage, self.layout) for stage in self.stages]

    @cached_property
    def _elements(self) -> list[list[int]]:
        return self._of_stages(lambda i: [x.elements for x in self._shards[i]])

    @cached_property
    def _shard_bytes(self) -> list[list[Fraction]]:
        return self._of_stages(
            lambda i: [
                n * self.element_bytes(x.pattern)
                for x, n in zip(self._shards[i], self._elements[i], strict=True)
            ]
        )

    @cached_property
    def _weights(self) -> list[int]:
        return [
            int(round_div(*Fraction(sum(sizes)).as_integer_ratio())) for sizes in self._shard_bytes
        ]

    def element_bytes(self, pattern: str) -> Fraction:
        """Return the bytes of one element of this weight, scales included, on average over the
        layers.
        """
        return self.calculator.element_bytes_of(self._tied.get(pattern, pattern))

    @cached_property
    def leaves(self) -> Sequence[Folded]:
        """The weights, folded."""
        return fold(self.tree)

    @cached_property
    def _tied(self) -> Mapping[str, str]:
        return {x.pattern: x.weight.tied for x in self.leaves if x.weight.tied}

    @cached_property
    def _uses(self) -> Mapping[str, _WeightUse]:
        found: dict[str, _WeightUse] = {}
        routed = _routed_stacks(self.tree)
        for pattern in dict.fromkeys(x.pattern for x in self.leaves if x.copies):
            same = [x for x in self.leaves if x.pattern == pattern]
            share = Fraction(sum(int(x.active) for x in same), sum(int(x.copies) for x in same))
            rows = (same[0].weight.rows_read or 1) * (same[0].weight.role == "lookup")
            missed, experts = (1 - share).as_integer_ratio()
            # in the letters of the experts, where a page's data follow them
            stack, _, inside = pattern.rpartition(".{e}.")
            n, active = routed.get(stack, (1, 1)) if inside else (1, 1)
            if is_marking() and Fraction(int(active), int(n)) == share:
                missed, experts = n - active, n
            found[pattern] = _WeightUse(rows, missed, experts)
        return found

    def _read(self, x: WeightShard, size: Fraction) -> WeightRead:
        use = self._uses[x.pattern]
        return WeightRead(
            *size.as_integer_ratio(),
            x.shape[0] if use.rows_read else 0,
            use.missed,
            use.experts,
            use.rows_read,
        )

    def _tied_head(self, i: int) -> Iterator[WeightRead]:
        """Yield the read of a tied head, whose matrix is stored only as the embedding."""
        head = self.tree.head
        if head is not None and self._has_tied_head(i):
            place = [x.pattern for x in self._shards[i]].index(head.weight.tied)
            yield WeightRead(*self._shard_bytes[i][place].as_integer_ratio())

    def _has_tied_head(self, i: int) -> bool:
        return (
            self.tree.head is not None
            and bool(self.tree.head.weight.tied)
            and self.stages[i].first
            and self.stages[i].last
        )

    @cached_property
    def _cache_specs(self) -> list[tuple[CacheSpec, ...]]:
        return [
            cache_specs(self.calculator.decode, self.layout.tp, self._num_layers(stage))
            for stage in self.stages
        ]

    def _num_layers(self, stage: PipelineStage) -> Mapping[int, int] | None:
        """Return the numbers of layers in a stage, by the id of their block; None for all
        layers.
        """
        if self.layout.pp == 1:
            return None
        found: dict[int, int] = {}
        for block, n in stage_layers(self.tree.layers, stage):
            found[id(block)] = found.get(id(block), 0) + n
        return found
