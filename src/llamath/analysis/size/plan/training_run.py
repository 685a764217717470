"""The memory and the predicted step time of each layout of a training run.

Times are predictions from published benchmarks of kernels and three constants
(`TrainingCostModel.constants`), not measurements. MFU counts the model FLOPs, with attention over
the pairs that the mask admits, relative to the dense peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ....hardware import Device
from ....questions.layout import Layout
from ....utils.errors import LlamathError
from ....utils.record_type import Record
from ...graph.flop_count import train_flops
from ...graph.operations.attention_operations import attention
from ...graph.recorder import record
from ...storage.memory_line import overhead_bytes
from ...storage.parallel_layout import PipelineStage, WeightShard
from ..training.fp8_recipes import Fp8Recipe
from ..training.pipeline_schedule import in_flight_microbatches
from ..training.training_memory import TrainingJob, TrainRequest
from ..training.zero_states import PersistentState, persistent_lines, zero3_gather_buffers
from .microbatch_work import ACTIVATION_PASSES, AchievedRates, MicrobatchCosts, achieved_rates
from .network import LINK_EFFICIENCY, network_of
from .step_time import DP_OVERLAP, DataParallelBytes, StepTime, StepTimeModel, largest_stage

if TYPE_CHECKING:
    from ....model import FamilyModel


class _UnshardedState(NamedTuple):
    """The elements on one GPU before expert parallelism and ZeRO, the bytes of a gradient, and
    the bytes moved to update one element.
    """

    dense: int
    experts: int
    gradient: int
    update: float


Stages = Callable[[Layout], Sequence[PipelineStage]]


class LayoutMemory:
    """The memory of a training job under many layouts; `stages` returns the pipeline stages to
    compare.
    """

    def __init__(self, job: TrainingJob, stages: Stages) -> None:
        self.job, self._stages = job, stages
        self._states: dict[tuple[int, ...], PersistentState] = {}
        self._layers: dict[tuple[int, ...], list[list[WeightShard]]] = {}
        self._persistent: dict[tuple[int, ...], tuple[int, int]] = {}
        self._activations: dict[tuple[object, ...], int] = {}
        self._unsharded: dict[tuple[int, ...], _UnshardedState] = {}

    def max_bytes(self, layout: Layout) -> int:
        """Bytes on a GPU of the largest stage."""
        return max(self._stage_bytes(x, layout) for x in self._stages(layout))

    def persistent_bytes(self, layout: Layout) -> int:
        """Bytes that persist from step to step on that GPU: a lower bound for these degrees
        under the same ZeRO stage.
        """
        return max(self._persistent_bytes(x, layout)[0] for x in self._stages(layout))

    def _stage_bytes(self, stage: PipelineStage, layout: Layout) -> int:
        persistent, gathered = self._persistent_bytes(stage, layout)
        temporary = self._activation_bytes(stage, layout) + gathered
        return persistent + temporary + overhead_bytes(temporary)

    def _persistent_bytes(self, stage: PipelineStage, layout: Layout) -> tuple[int, int]:
        """Bytes of weights, gradients, master copy and optimizer states; and bytes of the
        weights that ZeRO-3 gathers.
        """
        key = (stage.index, *_weight_split(layout), layout.replicas, layout.zero)
        if key not in self._persistent:
            resident = self._persistent_state(stage, layout)
            lines = [
                x
                for lines_of_kind in persistent_lines(resident, layout).values()
                for x in lines_of_kind
            ]
            gathered = (
                zero3_gather_buffers(resident, self._stage_layers(stage, layout), layout)
                if layout.zero == 3
                else []
            )
            self._persistent[key] = sum(x.bytes for x in lines), sum(x.bytes for x in gathered)
        return self._persistent[key]

    def _persistent_state(self, stage: PipelineStage, layout: Layout) -> PersistentState:
        key = (stage.index, *_weight_split(layout))
        if key not in self._states:
            self._states[key] = self.job.with_layout(layout).persistent_state(stage)
        return self._states[key]

    def _stage_layers(self, stage: PipelineStage, layout: Layout) -> list[list[WeightShard]]:
        key = (stage.index, *_weight_split(layout))
        if key not in self._layers:
            self._layers[key] = self.job.with_layout(layout).layers(stage)
        return self._layers[key]

    def _activation_bytes(self, stage: PipelineStage, layout: Layout) -> int:
        """Bytes of activations, logits and loss."""
        flights = tuple(in_flight_microbatches(stage, layout))
        key = (
            stage.index,
            *_weight_split(layout),
            layout.cp,
            layout.microbatch,
            layout.recompute,
            flights,
        )
        if key not in self._activations:
            self._activations[key] = self.job.with_layout(layout).activation_bytes(stage)
        return self._activations[key]

    def data_parallel_bytes(self, layout: Layout) -> DataParallelBytes:
        """Return the bytes that data parallelism communicates and the optimizer updates."""
        key = layout.tp, layout.pp, layout.expert_tp, layout.interleave
        if key not in self._unsharded:
            self._unsharded[key] = self._unsharded_state(layout.replace(ep=1, zero=0))
        state = self._unsharded[key]
        elements = state.dense, state.experts // layout.ep
        shares = (layout.replicas, layout.expert_replicas) if layout.zero else (1, 1)
        return DataParallelBytes(
            weights=(elements[0] * self.job.size, elements[1] * self.job.size),
            gradients=(elements[0] * state.gradient, elements[1] * state.gradient),
            update=state.update * (elements[0] / shares[0] + elements[1] / shares[1]),
        )

    def _unsharded_state(self, layout: Layout) -> _UnshardedState:
        resident = self.job.with_layout(layout).persistent_state(
            largest_stage(self._stages(layout))
        )
        dense, experts = (
            sum(x.elements for x in resident.shards if bool(x.is_expert) == is_expert)
            for is_expert in (False, True)
        )
        sums = {
            name: sum(line.bytes for line in lines)
            for name, lines in persistent_lines(resident, layout).items()
        }
        bytes_moved = sums["gradients"] + 2 * (sums["master"] + sums["optimizer"]) + sums["weights"]
        return _UnshardedState(
            dense, experts, resident.gradient_bytes, bytes_moved / (dense + experts)
        )


def _weight_split(layout: Layout) -> tuple[int, ...]:
    """The parts of a layout that decide which weights a GPU has."""
    return layout.tp, layout.pp, layout.ep, layout.expert_tp, layout.interleave


class TrainingRun(Record):
    """A whole training with one plan, without failures."""

    tokens: int
    steps: int
    hours: float
    gpu_hours: float


class TrainingPlan(Record):
    """One complete layout with its memory, step time and MFU."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "tp=layout.tp",
            "pp=layout.pp",
            "cp=layout.cp",
            "ep=layout.ep",
            "dp=layout.dp",
            "zero=layout.zero",
        ),
        *(
            "interleave=layout.interleave",
            "microbatch=layout.microbatch",
            "recompute=layout.recompute",
            "microbatches=layout.count",
        ),
        *(
            "memory",
            "mfu",
            "flops=rate",
            "tokens_per_second=tokens",
            "bubble=timing.bubble_share",
            "seconds=timing",
            "sent=timing.sent",
        ),
        "*run",
    )

    layout: Layout
    memory: int  # bytes on a GPU of the largest stage
    timing: StepTime
    mfu: float
    rate: float  # model FLOP/s per GPU
    tokens: float  # tokens per second, all GPUs together
    run: TrainingRun | None = None  # if the number of training tokens is given


class TrainingCostModel:
    """One training job on one kind of GPU."""

    def __init__(
        self, model: FamilyModel, request: TrainRequest, device: Device, attention: str = "flash"
    ) -> None:
        self.model, self.device = model, device
        self.job = TrainingJob(model, request)
        rates = achieved_rates(
            device, self.job.packer.name, self.job.packer.compute_dtype, attention
        )
        if rates is None:
            raise LlamathError(
                f"no FLOP/s figure is published for {device.title}",
                hint="describe it: '8x mem=80GiB bw=2TB/s bf16=300TF'",
            )
        _check_fp8(self.job.recipe, rates)
        self.peak, self.rates = rates.peak, rates
        costs = MicrobatchCosts(self.job.saved, rates, self.job.recipe, self.job.loss)
        self.time = StepTimeModel(costs, network_of(device), device.node)
        self.memory = LayoutMemory(self.job, self.time.stages)
        self.sequence_flops = int(
            train_flops(record(model.tree, new_tokens=self.job.context)).model
        )

    @property
    def constants(self) -> dict[str, float]:
        """The shares of the data sheet's figures that the prediction assumes, and its other
        constants.
        """
        rates, graph = self.rates, record(self.model.tree, new_tokens=self.job.context)
        widths = [int(x.inputs[0].shape[-1]) for _, x in graph.nodes() if x.op is attention]
        shares = (
            rates.kernels.attention(widths[0], self.job.context / 2, causal=True)
            if widths and self.job.layout.flash
            else None
        )
        return {
            "matmul": rates.matmul / rates.peak,
            **({"matmul_fp8": rates.matmul_fp8 / rates.fp8} if self.job.recipe else {}),
            **(
                {"attention": shares.forward, "attention_backward": shares.backward}
                if shares
                else {}
            ),
            "memory": rates.kernels.memory,
            "wires": LINK_EFFICIENCY,
            "overlap": DP_OVERLAP,
            "passes": ACTIVATION_PASSES,
        }

    def step_seconds(self, layout: Layout) -> float:
        """Return the seconds of a step."""
        return self.time.seconds(layout, self.memory.data_parallel_bytes(layout))

    def fits(self, layout: Layout) -> bool:
        """Return whether the layout fits into the memory of a GPU of the largest stage."""
        capacity = self.device.memory
        return (
            self.memory.persistent_bytes(layout) <= capacity
            and self.memory.max_bytes(layout) <= capacity
        )

    def plan(self, layout: Layout) -> TrainingPlan:
        """Return the memory, step time and MFU of a layout."""
        timing, context = (
            self.time.step(layout, self.memory.data_parallel_bytes(layout)),
            self.job.context,
        )
        sequences = layout.dp * layout.microbatch * layout.count
        rate = sequences * self.sequence_flops / timing.step / layout.gpus
        return TrainingPlan(
            layout=layout,
            memory=self.memory.max_bytes(layout),
            timing=timing,
            mfu=rate / self.peak,
            rate=rate,
            tokens=sequences * context / timing.step,
        )

    def fastest_fitting(self, layouts: Iterable[Layout]) -> TrainingPlan:
        """Return the fastest layout that fits, or the fastest one if none fits."""
        ranked = sorted(layouts, key=self.step_seconds)
        return self.plan(next(filter(self.fits, ranked), ranked[0]))


def _check_fp8(recipe: Fp8Recipe | None, rates: AchievedRates) -> None:
    device = rates.kernels.device
    if recipe is None:
        return
    if not rates.fp8:
        raise LlamathError(f"{device.title} has no FP8 products", hint="leave fp8 out")
    if recipe.blackwell and "fp4" not in device.flops:
        raise LlamathError(
            f"{recipe.title} needs the tensor cores of Blackwell, not {device.title}",
            hint="fp8=current or fp8=blockwise",
        )
