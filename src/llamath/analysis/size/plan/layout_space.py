"""Enumerate every parallel layout of a training step that a model and a cluster admit, with a
reason for each rejected degree.

Degrees are divisors of the number of GPUs. Tensor parallelism stays inside a node. Context
parallelism gives each rank at least `MIN_TOKENS_PER_CP_RANK` tokens and is combined only with a
microbatch of one sequence: splitting two sequences in half costs more communication than giving
each rank one. Expert parallelism distributes whole experts. The variants of a layout differ in
microbatch size, interleaving, recomputation and ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import product
from math import isqrt
from types import MappingProxyType

from ....core.blocks import Decoder
from ....core.mixers import RecurrentMixer
from ....core.tree import fold, fold_blocks
from ....questions.layout import Layout, Recompute
from ....utils.record_type import Record
from ...storage.parallel_layout import layout_problems

MIN_TOKENS_PER_CP_RANK = 4096
"""The smallest share of a sequence for one rank: Megatron Core's guide recommends context
parallelism from 8K tokens."""
MICROBATCHES = (1, 2, 4, 8)
INTERLEAVES = (2, 3, 4, 5, 6, 8, 10, 12, 16)
MAX_TP = 256
"""The largest tensor-parallel degree that is tried."""
LAYOUT_AXES = ("tp", "pp", "cp", "ep", "dp")


class Rejected(Record):
    """An impossible degree of parallelism, with the reason: `TP 3`, `52 heads`."""

    what: str
    why: str


def sort_rejected(rejected: Iterable[Rejected]) -> tuple[Rejected, ...]:
    """Sort by axis, then by degree."""
    names = [x.upper() for x in LAYOUT_AXES]
    return tuple(
        sorted(
            rejected,
            key=lambda x: (names.index(x.what.split()[0]), int(x.what.split()[1].replace(",", ""))),
        )
    )


class StepSpec(Record):
    """The training step to plan for: GPUs, sequence length and batch."""

    gpus: int
    node: int
    context: int
    sequences: int
    flash: bool = True
    recompute: Recompute | None = None  # the only policy to try
    fixed: Mapping[str, int] = MappingProxyType({})  # degrees that the user has fixed


def divisors(n: int) -> list[int]:
    """Return all divisors of n in ascending order."""
    low = [i for i in range(1, isqrt(n) + 1) if n % i == 0]
    return sorted({*low, *(n // i for i in low)})


class LayoutSpace:
    """All layouts of a model for one training step."""

    def __init__(self, tree: Decoder, step: StepSpec) -> None:
        self.tree, self.step = tree, step
        self.rejected: dict[str, Rejected] = {}
        self._even_splits: dict[tuple[int, int], bool] = {}
        self._even_chunks: dict[tuple[int, int], bool] = {}

    def layouts(self) -> Iterator[Layout]:
        """Yield each combination of degrees once, with the whole batch in one microbatch and no
        other option set.
        """
        tensor, pipeline, context, expert = (
            self._tp_degrees(),
            self._pp_degrees(),
            self._cp_degrees(),
            self._ep_degrees(),
        )
        for tp, pp, cp in product(tensor, pipeline, context):
            if self.step.gpus % (tp * pp * cp) or not self._splits_evenly(tp, cp):
                continue
            dp = self.step.gpus // (tp * pp * cp)
            if self._is_allowed("dp", dp) and self._divides_batch(dp):
                yield from self._with_expert_parallelism(
                    Layout(tp=tp, pp=pp, cp=cp, dp=dp, flash=self.step.flash), expert
                )

    def variants(self, layout: Layout) -> Iterator[Layout]:
        """Yield the layout with every microbatch size, interleaving, recomputation policy and
        ZeRO stage.
        """
        sequences = self.step.sequences // layout.dp
        policies: tuple[Recompute, ...] = (
            ("none", "full") if self.step.flash else ("none", "selective", "full")
        )
        policies = (self.step.recompute,) if self.step.recompute else policies
        zeros = [
            x for x in (range(4) if layout.replicas > 1 else (0,)) if self._is_allowed("zero", x)
        ]
        sizes = (
            (self.step.fixed["microbatch"],) if "microbatch" in self.step.fixed else MICROBATCHES
        )
        for size in sizes:
            if sequences % size or (size > 1 and layout.cp > 1):
                continue
            for v in self._interleaves(layout.pp, sequences // size):
                for recompute, zero in product(policies, zeros):
                    yield layout.replace(
                        microbatch=size,
                        microbatches=sequences // size,
                        interleave=v,
                        recompute=recompute,
                        zero=zero,
                    )

    @cached_property
    def experts(self) -> list[int]:
        """The distinct numbers of experts in the model's MoE layers."""
        return list(dict.fromkeys(x.num_experts for x in fold(self.tree) if x.num_experts))

    def _is_allowed(self, name: str, n: int) -> bool:
        return self.step.fixed.get(name, n) == n

    def _reject(self, what: str, why: str) -> None:
        self.rejected.setdefault(what, Rejected(what=what, why=why))

    def _candidates(self, name: str) -> list[int]:
        """The divisors of the number of GPUs, or the degree that the user has fixed."""
        if name not in self.step.fixed:
            return divisors(self.step.gpus)
        n = self.step.fixed[name]
        if self.step.gpus % n:
            self._reject(f"{name.upper()} {n:,}", f"{self.step.gpus:,} GPUs")
        return [n]

    def _tp_degrees(self) -> list[int]:
        degrees = []
        for n in self._candidates("tp"):
            if n > min(self.step.node, MAX_TP):
                self._reject(
                    f"TP {n:,}",
                    f"a node has {self.step.node:,} GPUs"
                    if n > self.step.node
                    else f"more than {MAX_TP}",
                )
            elif problems := layout_problems(self.tree, Layout(tp=n)):
                self._reject(f"TP {n:,}", ", ".join(x.partition(": ")[2] for x in problems))
            else:
                degrees.append(n)
        return degrees

    def _pp_degrees(self) -> list[int]:
        degrees = []
        for n in self._candidates("pp"):
            if layout_problems(self.tree, Layout(pp=n)):
                self._reject(f"PP {n:,}", f"{int(self.tree.layers.n):,} layers")
            else:
                degrees.append(n)
        return degrees

    def _cp_degrees(self) -> list[int]:
        degrees = []
        is_recurrent = any(isinstance(x.block, RecurrentMixer) for x in fold_blocks(self.tree))
        for n in self._candidates("cp"):
            if n > 1 and is_recurrent:
                self._reject(f"CP {n:,}", "a recurrent state is passed from token to token")
            elif n > 1 and self.step.context < n * MIN_TOKENS_PER_CP_RANK:
                self._reject(
                    f"CP {n:,}",
                    f"{self.step.context:,} tokens are fewer than "
                    f"{MIN_TOKENS_PER_CP_RANK:,} per rank",
                )
            elif problems := [
                x
                for x in layout_problems(self.tree, Layout(cp=n), self.step.context)
                if x.startswith("CP")
            ]:
                self._reject(f"CP {n:,}", problems[0].partition(": ")[2])
            else:
                degrees.append(n)
        return degrees

    def _ep_degrees(self) -> list[int]:
        degrees = []
        for n in self._candidates("ep") if self.experts or "ep" in self.step.fixed else (1,):
            if n > 1 and not self.experts:
                self._reject(f"EP {n:,}", "the model has no experts")
            elif indivisible := [x for x in self.experts if x % n]:
                self._reject(f"EP {n:,}", f"{indivisible[0]:,} experts")
            else:
                degrees.append(n)
        return degrees

    def _splits_evenly(self, tp: int, cp: int) -> bool:
        """Return whether sequence parallelism splits each rank's part of a sequence evenly."""
        if (tp, cp) not in self._even_splits:
            problems = [
                x
                for x in layout_problems(self.tree, Layout(tp=tp, cp=cp), self.step.context)
                if "tokens" in x
            ]
            self._even_splits[tp, cp] = not problems
            if problems and cp == 1:
                self._reject(f"TP {tp:,}", problems[0].partition(": ")[2])
        return self._even_splits[tp, cp]

    def _divides_batch(self, dp: int) -> bool:
        if self.step.sequences % dp:
            self._reject(f"DP {dp:,}", f"{self.step.sequences:,} sequences per step")
        return self.step.sequences % dp == 0

    def _with_expert_parallelism(self, layout: Layout, expert: list[int]) -> Iterator[Layout]:
        """Yield the layout with each expert-parallel degree; with EP, each expert stays whole on
        one rank.
        """
        for n in expert:
            if n == 1:
                yield layout
            elif (layout.dp * layout.cp * layout.tp) % n == 0:
                yield layout.replace(ep=n, etp=1)

    def _interleaves(self, pp: int, microbatches: int) -> Iterator[int]:
        if self._is_allowed("interleave", 1):
            yield 1
        if pp == 1 or microbatches % pp:
            return
        yield from (
            v
            for v in INTERLEAVES
            if self._is_allowed("interleave", v) and self._has_even_chunks(pp, v)
        )

    def _has_even_chunks(self, pp: int, v: int) -> bool:
        """Return whether every pipeline chunk has the same number of layers, allowing one layer
        less at each end.
        """
        if (pp, v) not in self._even_chunks:
            n, layout = int(self.tree.layers.n), Layout(pp=pp, interleave=v, microbatches=pp)
            self._even_chunks[pp, v] = not layout_problems(self.tree, layout) and (
                n % (pp * v) in (0, pp * v - 2) or v in (2, 4, 8, 16)
            )
        return self._even_chunks[pp, v]
