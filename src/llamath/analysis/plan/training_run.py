"""The memory and the predicted step time of each layout of a training run.

Times are predictions by a model with five constants (`prediction_constants`), not measurements. MFU counts the model FLOPs, with attention
over the pairs that the mask admits, relative to the dense peak.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ...core.errors import LlamathError
from ...core.forward_pass import ForwardPass
from ...core.record_type import Record
from ...hardware import Device
from ..flops.flop_count import train_flops
from ..parallel_layout import Layout
from ..training.training_memory import TrainingJob, TrainRequest
from .microbatch_work import ACTIVATION_PASSES, ATTENTION_EFFICIENCY, MATMUL_EFFICIENCY, MicrobatchCosts, achieved_rates
from .network import LINK_EFFICIENCY, network_of
from .plan_memory import LayoutMemory
from .step_time import DP_OVERLAP, StepTime, StepTimeModel

if TYPE_CHECKING:
    from ...model import Model


class TrainingRun(Record):
    """A whole training with one plan, without failures."""

    tokens: int
    steps: int
    hours: float
    gpu_hours: float


class TrainingPlan(Record):
    """One complete layout with its memory, step time and MFU."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *("tp=layout.tp", "pp=layout.pp", "cp=layout.cp", "ep=layout.ep", "dp=layout.dp", "zero=layout.zero"),
        *("interleave=layout.interleave", "microbatch=layout.microbatch", "recompute=layout.recompute", "microbatches=layout.count"),
        *("memory", "mfu", "flops=rate", "tokens_per_second=tokens", "bubble=timing.bubble_share", "seconds=timing", "sent=timing.sent"),
        "*run",
    )

    layout: Layout
    memory: int  # bytes on a GPU of the largest stage
    timing: StepTime
    mfu: float
    rate: float  # model FLOP/s per GPU
    tokens: float  # tokens per second, all GPUs together
    run: TrainingRun | None = None  # if the number of training tokens is given


def prediction_constants() -> dict[str, float]:
    """Return the constants of the prediction, which are the same for every model and machine."""
    return {
        "matmul": MATMUL_EFFICIENCY,
        "attention": ATTENTION_EFFICIENCY,
        "wires": LINK_EFFICIENCY,
        "overlap": DP_OVERLAP,
        "passes": ACTIVATION_PASSES,
    }


class TrainingCostModel:
    """One training job on one kind of GPU."""

    def __init__(self, model: Model, request: TrainRequest, device: Device) -> None:
        self.model, self.device = model, device
        self.job = TrainingJob(model, request)
        found = achieved_rates(device, self.job.packer.name, self.job.packer.compute_dtype)
        if found is None:
            raise LlamathError(f"no FLOP/s figure is published for {device.title}", hint="describe it: '8x mem=80GiB bw=2TB/s bf16=300TF'")
        self.peak = round(found.matmul / MATMUL_EFFICIENCY)
        self.time = StepTimeModel(MicrobatchCosts(model.tree, self.job.context, self.job.kernels, found), network_of(device), device.node)
        self.memory = LayoutMemory(self.job, self.time.stages)

    def step_seconds(self, layout: Layout) -> float:
        """Return the seconds of a step."""
        return self.time.step(layout, self.memory.data_parallel_bytes(layout)).step

    def fits(self, layout: Layout) -> bool:
        """Whether the layout fits into the memory of a GPU of the largest stage."""
        room = self.device.memory
        return self.memory.persistent_bytes(layout) <= room and self.memory.max_bytes(layout) <= room

    def plan(self, layout: Layout) -> TrainingPlan:
        """Return the memory, step time and MFU of a layout."""
        timing, context = self.time.step(layout, self.memory.data_parallel_bytes(layout)), self.job.context
        sequences = layout.dp * layout.microbatch * layout.count
        rate = train_flops(self.model.tree, ForwardPass.prefill(context), sequences).model / timing.step / layout.gpus
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
