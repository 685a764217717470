"""Rank the parallel layouts of a training step on a cluster by predicted throughput, among those
that fit into memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from ....hardware import Device
from ....questions.layout import Layout, Recompute
from ....questions.plan_questions import FRAMEWORK_NAMES, PlanQuestion, PlanTraining
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import Argument, LlamathError
from ....utils.number_format import format_giga
from ....utils.record_type import Record
from ..training.training_memory import TrainRequest, training_dtype
from .layout_space import LAYOUT_AXES, LayoutSpace, Rejected, StepSpec, sort_rejected
from .plan_tables import plan_notes, plan_tables, step_text
from .training_configs import TrainingConfig, refused_config, training_config
from .training_run import TrainingCostModel, TrainingPlan, TrainingRun

if TYPE_CHECKING:
    from ....model import FamilyModel

DEFAULT_BATCH_TOKENS, MIN_BATCH_TOKENS_PER_GPU = 4 * 2**20, 1024
"""The default batch: DEFAULT_BATCH_TOKENS, or MIN_BATCH_TOKENS_PER_GPU for each GPU if that is
more."""
_MAX_BATCH_TOKENS = 2**40
_MAX_VARIANTS = 20_000
"""The search ends after this many variants, even with fewer plans than requested."""


class PlanRequest(Record):
    """The options of `plan` for training; all are optional."""

    dtype: str = PlanQuestion.dtype  # empty: the config's dtype, else bf16
    optimizer: str = PlanTraining.optimizer
    gradients: str = PlanTraining.grad_dtype
    context: int | None = None
    batch_tokens: int | None = None  # of a step
    attention: str = PlanTraining.attention  # or another of ATTENTION_CHOICES
    kernels: str = PlanTraining.kernels  # or eager
    recompute: Recompute | None = None  # None: whichever is fastest
    loss: str = PlanTraining.loss
    fp8: str = PlanTraining.fp8  # a recipe; empty: none
    # fixed values of tp, pp, cp, ep, dp, zero, microbatch, interleave
    fixed: Mapping[str, int] = MappingProxyType({})
    top: int = PlanQuestion.top
    tokens: int | None = None  # of the whole training


class PlanReport(Report):
    """The ranked plans of a training step, and the degrees that were rejected."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=model.family.name",
            "source=model.source",
            "device=device.name",
            "gpus",
            "memory=device.memory",
        ),
        *(
            "peak",
            "dtype",
            "optimizer=request.optimizer",
            "gradients=request.gradients",
            "context",
            "sequences",
            "batch_tokens",
        ),
        *(
            "constants",
            "attention",
            "layouts",
            "variants",
            "plans",
            "configs",
            "rejected",
            "least",
            "notes=model.notes",
        ),
    )

    model: FamilyModel
    device: Device
    gpus: int
    context: int
    sequences: int  # of a step
    request: PlanRequest
    dtype: str
    peak: int
    plans: tuple[TrainingPlan, ...]
    rejected: tuple[Rejected, ...]
    layouts: int  # admissible layouts
    variants: int
    least: int | None  # the bytes that the smallest layout needs, if none fits
    smallest: Layout | None  # that layout
    constants: Mapping[str, float]  # of the prediction
    kernel_notes: tuple[str, ...]  # benchmarks that stand for missing ones
    attention: str  # the kernel of attention
    # the padded vocabulary size of the first plan, if tensor parallelism pads it
    padded_vocab: int | None

    @property
    def batch_tokens(self) -> int:
        """Tokens of a step."""
        return self.sequences * self.context

    @property
    def fits(self) -> bool:
        """Return whether there is a plan."""
        return bool(self.plans)

    @property
    def configs(self) -> tuple[TrainingConfig, ...]:
        """The best plan, written for each framework that it is possible in."""
        return tuple(training_config(self, x) for x in FRAMEWORK_NAMES) if self.plans else ()

    def config(self, framework: str) -> TrainingConfig:
        """Return the best plan written for a framework; where it is not possible there, the error
        names the nearest plan that is.
        """
        found = training_config(self, framework)
        if found.text is None:
            raise refused_config(found, self._with_fixed)
        return found

    def _with_fixed(self, degrees: Mapping[str, int]) -> PlanReport:
        request = self.request.replace(fixed={**self.request.fixed, **degrees}, top=1)
        return plan(self.model, (self.gpus, self.device), request)

    @property
    def summary(self) -> str:
        """The best plan."""
        where = f"{self.model.name} on {self.gpus:,} × {self.device.title}"
        if not self.plans:
            return f"{where}: no layout fits"
        best = self.plans[0]
        axes = (
            " × ".join(
                f"{name.upper()} {n}" for name, n in layout_axes(best.layout).items() if n > 1
            )
            or "1 GPU"
        )
        return (
            f"{where}: {axes}, predicted MFU {best.mfu:.1%}, "
            f"{format_giga(best.memory, 2**30)} GiB per GPU"
        )

    @property
    def headline(self) -> str:
        """The question."""
        return f"{self.model.name}: plans to train on {self.gpus:,} × {self.device.title}"

    @property
    def setting(self) -> str:
        """The source and the step."""
        family = f"{self.model.family.name} family, from {self.model.source}"
        return f"{family}\n{step_text(self)}"

    @property
    def entries(self) -> Sequence[TrainingPlan]:
        """The plans, best first."""
        return self.plans

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """The notes on the plans and on the model."""
        return tuple(plan_notes(self))

    def tables(self) -> Iterable[Part]:
        """The ranking, the step of the best plan, and what is not possible."""
        return plan_tables(self)

    def __bool__(self) -> bool:
        return self.fits


def plan(
    model: FamilyModel, on: tuple[int, Device], request: PlanRequest | None = None
) -> PlanReport:
    """Rank the layouts of a training step on a cluster, given as (number of GPUs, device)."""
    return _Search(model, on, request or PlanRequest()).report()


class _Search:
    """The search for one model on one cluster."""

    def __init__(self, model: FamilyModel, on: tuple[int, Device], request: PlanRequest) -> None:
        self.gpus, self.device = on
        self.request, self.model = request, model
        train_request = TrainRequest(
            dtype=request.dtype or training_dtype(model),
            optimizer=request.optimizer,
            gradients=request.gradients,
            context=request.context,
            layout=Layout(
                flash=request.attention != "eager",
                tp=request.fixed.get("tp", 1) if request.loss == "liger" else 1,
            ),
            fused=request.kernels == "fused",
            loss=request.loss,
            fp8=request.fp8,
        )
        self.model_cost = TrainingCostModel(model, train_request, self.device, request.attention)
        context = self.model_cost.job.context
        self.sequences = sequences_per_step(request.batch_tokens, context, self.gpus)
        step = StepSpec(
            gpus=self.gpus,
            node=self.device.node,
            context=context,
            sequences=self.sequences,
            flash=request.attention != "eager",
            recompute=request.recompute,
            fixed={"tp": 1, **request.fixed}
            if self.model_cost.job.loss.kind == "liger"
            else request.fixed,
        )
        self.space = LayoutSpace(model.tree, step)

    def report(self) -> PlanReport:
        """Run the search and return its report."""
        layouts = list(self.space.layouts())
        queue, variants = self._queue(layouts)
        fitting = list(self._fitting(queue))
        if not variants:
            raise LlamathError(
                f"no layout is possible on {self.gpus:,} GPUs{_why(self)}", hint=_hint(self)
            )
        smallest = (
            None
            if fitting
            else min(map(self._smallest_variant, layouts), key=self.model_cost.memory.max_bytes)
        )
        return PlanReport(
            model=self.model,
            device=self.device,
            gpus=self.gpus,
            context=self.model_cost.job.context,
            sequences=self.sequences,
            request=self.request,
            dtype=self.model_cost.job.packer.name,
            peak=self.model_cost.peak,
            plans=tuple(self._with_run(self.model_cost.plan(x)) for x in fitting),
            rejected=sort_rejected(self.space.rejected.values()),
            layouts=len(layouts),
            variants=variants,
            least=self.model_cost.memory.max_bytes(smallest) if smallest else None,
            smallest=smallest,
            constants=self.model_cost.constants,
            kernel_notes=self.model_cost.rates.kernels.notes,
            attention=self.model_cost.rates.kernels.kernel
            if self.model_cost.job.layout.flash
            else "eager",
            padded_vocab=_padded_vocab(self.model, fitting[0]) if fitting else None,
        )

    def _with_run(self, plan: TrainingPlan) -> TrainingPlan:
        """Return the plan with the length of the whole training, if the number of tokens is
        given.
        """
        if self.request.tokens is None:
            return plan
        tokens, hours = self.request.tokens, self.request.tokens / plan.tokens / 3600
        steps = -(-tokens // (self.sequences * self.model_cost.job.context))
        return plan.replace(
            run=TrainingRun(tokens=tokens, steps=steps, hours=hours, gpu_hours=hours * self.gpus)
        )

    def _queue(self, layouts: list[Layout]) -> tuple[list[_QueueEntry], int]:
        """Return the variants of each layout as a heap ordered by the fastest variant, and their
        number.
        """
        queue, n = [], 0
        for i, layout in enumerate(layouts):
            timed = [
                (self.model_cost.step_seconds(x), j, x)
                for j, x in enumerate(self.space.variants(layout))
            ]
            timed.sort(reverse=True)
            n += len(timed)
            if timed:
                queue.append((timed[-1][0], i, timed))
        heapq.heapify(queue)
        return queue, n

    def _fitting(self, queue: list[_QueueEntry]) -> Iterator[Layout]:
        """Yield the fastest variant of each layout that fits, fastest layout first."""
        num_found, tries = 0, 0
        too_large: dict[int, list[Layout]] = {}
        while queue and num_found < self.request.top and tries < _MAX_VARIANTS:
            _, i, timed = heapq.heappop(queue)
            layout, tries = timed.pop()[2], tries + 1
            if self._fits(layout, too_large.setdefault(i, [])):
                num_found += 1
                yield layout
            elif timed:
                heapq.heappush(queue, (timed[-1][0], i, timed))

    def _fits(self, layout: Layout, too_large: list[Layout]) -> bool:
        """Return whether a variant fits; one that needs at least as much as a rejected variant
        does not.
        """
        if any(_needs_at_least(layout, x) for x in too_large):
            return False
        fits = self.model_cost.fits(layout)
        if not fits:
            too_large.append(layout)
        return fits

    def _smallest_variant(self, layout: Layout) -> Layout:
        """Return the variant of a layout that needs the least memory."""
        zero = self.request.fixed.get("zero", 3 if layout.replicas > 1 else 0)
        size = self.request.fixed.get("microbatch", 1)
        return layout.replace(
            microbatch=size,
            microbatches=self.sequences // layout.dp // size,
            recompute=self.request.recompute or "full",
            zero=zero,
        )


def _why(search: _Search) -> str:
    """Return why no layout is possible, for an error message."""
    fixed = search.request.fixed
    rejected = [
        x
        for x in sort_rejected(search.space.rejected.values())
        if x.what.split()[0].lower() in fixed
    ]
    if rejected:
        return ": " + "; ".join(f"{x.what}: {x.why}" for x in rejected)
    requested = [(name.upper(), fixed[name]) for name in ("tp", "pp", "cp", "dp") if name in fixed]
    if requested and search.gpus % prod(n for _, n in requested):
        return f": {' × '.join(f'{name} {n:,}' for name, n in requested)} does not divide them"
    rejected_dp = [x for x in search.space.rejected.values() if x.what.startswith("DP")]
    return f": {rejected_dp[0].what}: {rejected_dp[0].why}" if rejected_dp else ""


def _hint(search: _Search) -> str:
    """Return a hint for a request without a possible layout."""
    requested = ", ".join(f"{name}={n}" for name, n in search.request.fixed.items())
    return (
        f"without layout {requested}, all layouts that divide the model are tried"
        if requested
        else "try another batch_tokens or number of GPUs"
    )


_QueueEntry = tuple[float, int, list[tuple[float, int, Layout]]]


def _needs_at_least(x: Layout, y: Layout) -> bool:
    """Return whether variant x of a layout needs at least as much memory as variant y."""
    same = x.recompute == y.recompute and x.interleave == y.interleave
    return same and x.microbatch >= y.microbatch and (x.zero == y.zero or x.zero < y.zero < 3)


def _padded_vocab(model: FamilyModel, layout: Layout) -> int | None:
    rows = int(model.tree.vocab)
    return -rows % layout.tp + rows if rows % layout.tp else None


def sequences_per_step(batch_tokens: int | None, context: int, gpus: int) -> int:
    """Return the sequences per step: as requested, or else a number near the default batch that
    the GPUs divide evenly.
    """
    if batch_tokens is not None:
        if batch_tokens % context or not 0 < batch_tokens < _MAX_BATCH_TOKENS:
            near = max(batch_tokens // context, 1) * context
            raise LlamathError(
                f"a batch of {batch_tokens:,} tokens is not a multiple of the sequence length "
                f"{context:,}",
                hint=f"such as {Argument('batch_tokens', near)}",
            )
        return batch_tokens // context
    target = -(-max(DEFAULT_BATCH_TOKENS, MIN_BATCH_TOKENS_PER_GPU * gpus) // context)
    odd = gpus // (gpus & -gpus)
    n = odd if odd <= 4 * target else 1
    while n < target:
        n *= 2
    return n


def layout_axes(layout: Layout) -> dict[str, int]:
    """Return the degree of parallelism along each axis."""
    return {name: getattr(layout, name) for name in LAYOUT_AXES}
