"""`plan`: how to lay a training step over so many GPUs: every admissible layout with its memory, its predicted time and MFU, ranked."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...core.errors import LlamathError
from ...core.record_type import Record
from ...hardware import Device
from ..parallel_layout import Layout
from ..training.training_memory import TrainRequest, plainly
from .layout_space import LAYOUT_AXES, LayoutSpace, Rejected, StepSpec, sort_rejected
from .training_run import TrainingCostModel, TrainingPlan

if TYPE_CHECKING:
    from ...model import Model

DEFAULT_BATCH_TOKENS, MIN_BATCH_TOKENS_PER_GPU = 4 * 2**20, 1024
"""Tokens of a step, unless it is said: so many, or so many for each GPU if that is more."""
DEFAULT_TOP = 10
MAX_BATCH_TOKENS = 2**40
MAX_VARIANTS = 20_000
"""So many variants are looked at before the search ends without as many plans as are asked for."""


class PlanRequest(Record):
    """What is asked: everything is optional."""

    dtype: str = ""  # empty: what the configuration says, else bf16
    optimizer: str = "adamw"
    gradients: str = "fp32"
    context: int | None = None
    batch_tokens: int | None = None  # of a step
    flash: bool = True
    fixed: Mapping[str, int] = MappingProxyType({})  # of tp, pp, cp, ep, dp, zero, microbatch, interleave: only these
    top: int = DEFAULT_TOP


class PlanReport(Record):
    """The ranking."""

    device: Device
    gpus: int
    context: int
    sequences: int  # of a step
    request: PlanRequest
    dtype: str
    peak: int
    plans: tuple[TrainingPlan, ...]
    rejected: tuple[Rejected, ...]
    layouts: int  # admissible
    variants: int
    least: int | None  # if none fits: what the smallest needs, and
    smallest: Layout | None  # which that is
    padded_vocab: int | None  # rows of a vocabulary that tensor parallelism makes longer, in the first plan

    @property
    def batch_tokens(self) -> int:
        """Tokens of a step."""
        return self.sequences * self.context


def plan(model: Model, on: tuple[int, Device], request: PlanRequest | None = None) -> PlanReport:
    """Rank the layouts of a training step over so many devices."""
    return _Search(model, on, request or PlanRequest()).report()


class _Search:
    """A model on a cluster."""

    def __init__(self, model: Model, on: tuple[int, Device], request: PlanRequest) -> None:
        self.gpus, self.device = on
        self.request, self.model = request, model
        asked = TrainRequest(
            dtype=request.dtype or plainly(model),
            optimizer=request.optimizer,
            gradients=request.gradients,
            context=request.context,
            layout=Layout(flash=request.flash),
            fused=True,
        )
        self.model_cost = TrainingCostModel(model, asked, self.device)
        context = self.model_cost.job.context
        self.sequences = sequences_per_step(request.batch_tokens, context, self.gpus)
        step = StepSpec(
            gpus=self.gpus,
            node=self.device.node,
            context=context,
            sequences=self.sequences,
            flash=request.flash,
            fixed=request.fixed,
        )
        self.space = LayoutSpace(model.tree, step)

    def report(self) -> PlanReport:
        """Search, and say what was found."""
        layouts = list(self.space.layouts())
        queue, variants = self._queue(layouts)
        found = list(self._fitting(queue))
        if not variants:
            raise LlamathError(f"no layout is possible on {self.gpus:,} GPUs{_why(self)}", hint=_hint(self))
        smallest = None if found else min(map(self._smallest_variant, layouts), key=self.model_cost.memory.max_bytes)
        return PlanReport(
            device=self.device,
            gpus=self.gpus,
            context=self.model_cost.job.context,
            sequences=self.sequences,
            request=self.request,
            dtype=self.model_cost.job.packer.name,
            peak=self.model_cost.peak,
            plans=tuple(map(self.model_cost.plan, found)),
            rejected=sort_rejected(self.space.rejected.values()),
            layouts=len(layouts),
            variants=variants,
            least=self.model_cost.memory.max_bytes(smallest) if smallest else None,
            smallest=smallest,
            padded_vocab=_padded_vocab(self.model, found[0]) if found else None,
        )

    def _queue(self, layouts: list[Layout]) -> tuple[list[_QueueEntry], int]:
        """The variants of each layout, fastest first, as a heap by the fastest."""
        queue, n = [], 0
        for i, layout in enumerate(layouts):
            timed = [(self.model_cost.step_seconds(x), j, x) for j, x in enumerate(self.space.variants(layout))]
            timed.sort(reverse=True)
            n += len(timed)
            if timed:
                queue.append((timed[-1][0], i, timed))
        heapq.heapify(queue)
        return queue, n

    def _fitting(self, queue: list[_QueueEntry]) -> Iterator[Layout]:
        """The fastest variant of each layout that fits, fastest layout first."""
        found, tries = 0, 0
        too_large: dict[int, list[Layout]] = {}
        while queue and found < self.request.top and tries < MAX_VARIANTS:
            _, i, timed = heapq.heappop(queue)
            layout, tries = timed.pop()[2], tries + 1
            if self._fits(layout, too_large.setdefault(i, [])):
                found += 1
                yield layout
            elif timed:
                heapq.heappush(queue, (timed[-1][0], i, timed))

    def _fits(self, layout: Layout, too_large: list[Layout]) -> bool:
        """Whether a variant fits; not if one that needs no more did not."""
        if any(_needs_at_least(layout, x) for x in too_large):
            return False
        fits = self.model_cost.fits(layout)
        if not fits:
            too_large.append(layout)
        return fits

    def _smallest_variant(self, layout: Layout) -> Layout:
        """A layout in the variant that needs least."""
        zero = 3 if layout.replicas > 1 else 0
        return layout.replace(microbatches=self.sequences // layout.dp, recompute="full", zero=zero)


def _why(search: _Search) -> str:
    """What of that which is asked for is not possible."""
    fixed = search.request.fixed
    found = [x for x in sort_rejected(search.space.rejected.values()) if x.what.split()[0].lower() in fixed]
    if found:
        return ": " + "; ".join(f"{x.what}: {x.why}" for x in found)
    asked = [(name.upper(), fixed[name]) for name in ("tp", "pp", "cp", "dp") if name in fixed]
    if asked and search.gpus % prod(n for _, n in asked):
        return f": {' × '.join(f'{name} {n:,}' for name, n in asked)} does not divide them"
    shared = [x for x in search.space.rejected.values() if x.what.startswith("DP")]
    return f": {shared[0].what}: {shared[0].why}" if shared else ""


def _hint(search: _Search) -> str:
    """What to change where nothing is possible."""
    asked = ", ".join(f"{name}={n}" for name, n in search.request.fixed.items())
    return f"without --layout {asked} all that divide are tried" if asked else "another --batch-tokens or another number of GPUs"


_QueueEntry = tuple[float, int, list[tuple[float, int, Layout]]]


def _needs_at_least(x: Layout, y: Layout) -> bool:
    """Whether a variant of the same layout needs at least as much as another."""
    same = x.recompute == y.recompute and x.interleave == y.interleave
    return same and x.microbatch >= y.microbatch and (x.zero == y.zero or x.zero < y.zero < 3)


def _padded_vocab(model: Model, layout: Layout) -> int | None:
    rows = int(model.tree.vocab)
    return -rows % layout.tp + rows if rows % layout.tp else None


def sequences_per_step(batch_tokens: int | None, context: int, gpus: int) -> int:
    """How many make a step: as asked, else enough, and a number that GPUs divide well."""
    if batch_tokens is not None:
        if batch_tokens % context or not 0 < batch_tokens < MAX_BATCH_TOKENS:
            near = max(batch_tokens // context, 1) * context
            raise LlamathError(
                f"a step of {batch_tokens:,} tokens is no whole number of sequences of {context:,}", hint=f"--batch-tokens {near}"
            )
        return batch_tokens // context
    wanted = -(-max(DEFAULT_BATCH_TOKENS, MIN_BATCH_TOKENS_PER_GPU * gpus) // context)
    odd = gpus // (gpus & -gpus)
    n = odd if odd <= 4 * wanted else 1
    while n < wanted:
        n *= 2
    return n


def layout_axes(layout: Layout) -> dict[str, int]:
    """The ranks along each axis."""
    return {name: getattr(layout, name) for name in LAYOUT_AXES}
