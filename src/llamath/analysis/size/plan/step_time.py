"""The predicted time of a training step, by part.

Pipeline stages run concurrently, so each microbatch takes as long as the slowest stage; the bubble
is (p − 1)/v of a microbatch (Narayanan et al. 2021, arXiv:2104.04473). The communication of tensor,
context, expert and pipeline parallelism is not overlapped. Of the communication of data parallelism
and ZeRO, `DP_OVERLAP` is overlapped with compute where there is enough of it. Under ZeRO-2,
gradients are reduced after every microbatch, or after every p microbatches with interleaving;
ZeRO-3 gathers weights as often, in the forward and in the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

from ....core.blocks import Decoder
from ....core.tree import Block
from ....questions.layout import Layout
from ....utils.record_type import Record
from ...storage.parallel_layout import PipelineStage, pipeline_stages, stage_layers
from .microbatch_work import MicrobatchCosts, PassCost, sum_costs
from .network import Network, RankGroup, rank_group

DP_OVERLAP = 0.8
"""The fraction of data-parallel and ZeRO communication that is overlapped with compute, where
there is enough compute: a guess."""


class DataParallelBytes(NamedTuple):
    """Bytes on one GPU of the largest stage before ZeRO, for dense weights and for experts."""

    weights: tuple[int, int]
    gradients: tuple[int, int]
    update: float  # bytes that an optimizer step reads and writes, after ZeRO


Times = tuple[float, float, float, float]
"""Seconds of compute, and of tensor-, context- and expert-parallel communication."""


class _BytesSent(NamedTuple):
    """Bytes that one GPU communicates in a step, by kind of parallelism: whole buffers, before
    they are divided among ranks.
    """

    tensor: float
    context: float
    expert: float
    pipeline: float
    data: float


STEP_PARTS = ("arithmetic", "tensor", "context", "expert", "pipeline", "bubble", "data", "update")
"""The parts of a step that take time."""


class StepTime(Record):
    """The seconds of a training step, by part."""

    json_fields: ClassVar[tuple[str, ...]] = (*STEP_PARTS, "step")

    arithmetic: float  # matrix products and memory-bound operations
    tensor: float
    context: float
    expert: float
    pipeline: float  # sends between stages
    bubble: float
    data: float  # not overlapped
    update: float
    sent: _BytesSent

    @property
    def step(self) -> float:
        """The whole step."""
        return _whole(getattr(self, name) for name in STEP_PARTS)

    @property
    def bubble_share(self) -> float:
        """The share of the pipeline bubble in the step."""
        return self.bubble / self.step


def _whole(parts: Iterable[float]) -> float:
    """Return the sum of the parts, added in order: `sum` of Python 3.12 rounds floats otherwise."""
    found = 0.0
    for x in parts:
        found += x
    return found


_Kind = tuple[PipelineStage, Sequence[tuple[Block, int]]]


class StepTimeModel:
    """The step times of a model on a cluster under many layouts."""

    def __init__(self, costs: MicrobatchCosts, network: Network, node: int) -> None:
        self.costs, self.network, self.node = costs, network, node
        self.tree: Decoder = costs.tree
        self._stages: dict[tuple[int, int], list[_Kind]] = {}
        self._parts: dict[tuple[object, ...], list[PassCost]] = {}
        self._slowest: dict[tuple[object, ...], tuple[PassCost, Times]] = {}

    def step(self, layout: Layout, owned: DataParallelBytes) -> StepTime:
        """Return the time of one step: all microbatches and the optimizer update."""
        return _Step(self, layout, owned).timing

    def seconds(self, layout: Layout, owned: DataParallelBytes) -> float:
        """Return the seconds of one step alone, as many layouts are ranked by it."""
        return _whole(_Step(self, layout, owned).parts)

    def stages(self, layout: Layout) -> list[PipelineStage]:
        """The pipeline stages that differ; of several stages with the same layers, the first."""
        return [stage for stage, _ in self._distinct(layout)]

    def _distinct(self, layout: Layout) -> list[_Kind]:
        """Return the stages that differ, with their layers."""
        key = layout.pp, layout.interleave
        if key not in self._stages:
            distinct: dict[object, _Kind] = {}
            for x in pipeline_stages(self.tree, layout):
                layers = stage_layers(self.tree.layers, x)
                kinds = tuple((id(block), n) for block, n in layers)
                distinct.setdefault((kinds, x.first, x.last), (x, layers))
            self._stages[key] = list(distinct.values())
        return self._stages[key]

    def slowest_stage(self, layout: Layout) -> tuple[PassCost, Times]:
        """The cost of a microbatch on the slowest stage and its seconds, forward and backward."""
        key = (layout.pp, layout.interleave, *self.costs.key(layout))
        if key not in self._parts:
            self._parts[key] = [self._stage_cost(*x, layout) for x in self._distinct(layout)]
        if (again := (*key, layout.recompute)) not in self._slowest:
            pairs = [(x, self._microbatch_time(x, layout)) for x in self._parts[key]]
            self._slowest[again] = max(pairs, key=lambda pair: sum(pair[1]))
        return self._slowest[again]

    def _stage_cost(
        self, stage: PipelineStage, layers: Sequence[tuple[Block, int]], layout: Layout
    ) -> PassCost:
        inner = [self.costs.layer_cost(block, layout).scaled(n) for block, n in layers]
        return sum_costs(
            [*inner, self.costs.embedding_and_head_cost(layout, stage.first, stage.last)]
        )

    def _microbatch_time(self, x: PassCost, layout: Layout) -> Times:
        """Seconds of a microbatch, forward and backward."""
        again = layout.recompute == "full"
        near = self.group(layout.tp, 1)
        tensor = self.network.all_gather_seconds(near, x.tensor) * (2 + again)
        context = self.network.all_gather_seconds(self.group(layout.cp, layout.tp), x.context) * (
            3 + again
        )
        ranks = self.group(layout.ep, layout.tp if layout.expert_tp > 1 else 1)
        return (
            x.seconds(layout.recompute),
            tensor,
            context,
            self.network.all_to_all_seconds(ranks, x.expert) * (2 + again),
        )

    def group(self, size: int, stride: int) -> RankGroup:
        """Place the ranks of a collective on this cluster."""
        return rank_group(size, stride, self.node)


class _Step:
    """The step time of one layout."""

    def __init__(self, model: StepTimeModel, layout: Layout, owned: DataParallelBytes) -> None:
        self.model, self.layout, self.dp_bytes = model, layout, owned
        self.network, self.tree = model.network, model.tree

    @property
    def timing(self) -> StepTime:
        """The step time by part."""
        slowest, _ = self.model.slowest_stage(self.layout)
        times = dict(zip(STEP_PARTS, self.parts, strict=True))
        return StepTime(**times, sent=self._bytes_sent(slowest))

    @property
    def parts(self) -> tuple[float, ...]:
        """The seconds of each of `STEP_PARTS`."""
        layout, m, passing, shared = (
            self.layout,
            self.layout.count,
            self._send_seconds,
            self._dp_seconds,
        )
        slowest, each = self.model.slowest_stage(layout)
        arithmetic, tensor, context, expert = (m * x for x in each)
        bubble = (layout.pp - 1) / layout.interleave * (sum(each) + passing)
        data = shared - min(DP_OVERLAP * shared, self._overlappable_seconds(sum(each)))
        update = (self.dp_bytes.update + slowest.fp8_weights) / self.model.costs.rates.memory
        return arithmetic, tensor, context, expert, m * passing, bubble, data, update

    @cached_property
    def _send_seconds(self) -> float:
        """Seconds for sending the hidden states and gradients of a microbatch; each rank sends
        its part.
        """
        layout = self.layout
        if layout.pp == 1:
            return 0.0
        ranks = self.model.group(layout.pp, layout.tp * layout.cp * layout.dp)
        return self.network.send_seconds(ranks, self._sent_bytes_per_microbatch)

    @property
    def _sent_bytes_per_microbatch(self) -> float:
        """Bytes sent to the next stage for a microbatch, forward and backward, over all chunks."""
        layout, work = self.layout, self.model.costs
        tokens = layout.microbatch * -(-work.context // layout.cp)
        return (
            2.0 * layout.interleave * tokens * int(self.tree.width) * work.kernels.width / layout.tp
        )

    @property
    def _sync_rounds(self) -> int:
        """The number of gradient reductions and weight gathers within a step."""
        layout = self.layout
        if layout.zero < 2:
            return 1
        return -(-layout.count // layout.pp) if layout.interleave > 1 else layout.count

    @property
    def _dp_buffer_bytes(self) -> tuple[float, float]:
        """Bytes gathered or reduced in a step, for dense weights and for experts."""
        owned, rounds = self.dp_bytes, self._sync_rounds
        gathers = 2 * rounds if self.layout.zero == 3 else 1
        sums = 2 if self.layout.zero == 0 else rounds
        weights = (0, 0) if self.layout.zero == 0 else owned.weights
        return (
            sums * owned.gradients[0] + gathers * weights[0],
            sums * owned.gradients[1] + gathers * weights[1],
        )

    @cached_property
    def _dp_seconds(self) -> float:
        """Seconds of data-parallel and ZeRO communication."""
        layout, (dense, experts) = self.layout, self._dp_buffer_bytes
        time = self.network.all_gather_seconds(self.model.group(layout.replicas, layout.tp), dense)
        if experts:
            time += self.network.all_gather_seconds(
                self.model.group(layout.expert_replicas, layout.ep * layout.expert_tp), experts
            )
        return time

    def _overlappable_seconds(self, microbatch: float) -> float:
        """Seconds of compute available for overlap: one microbatch under ZeRO-0 and 1, otherwise
        all.
        """
        return microbatch * (self.layout.count if self.layout.zero >= 2 else 1)

    def _bytes_sent(self, x: PassCost) -> _BytesSent:
        layout, m = self.layout, self.layout.count
        again = layout.recompute == "full"
        return _BytesSent(
            tensor=m * (2 + again) * x.tensor,
            context=m * (3 + again) * x.context,
            expert=m * (2 + again) * x.expert,
            pipeline=m * self._sent_bytes_per_microbatch if layout.pp > 1 else 0.0,
            data=sum(self._dp_buffer_bytes) if layout.replicas > 1 else 0.0,
        )


def largest_stage(stages: Sequence[PipelineStage]) -> PipelineStage:
    """Return the stage with the most layers."""
    return max(stages, key=lambda x: x.layers)
