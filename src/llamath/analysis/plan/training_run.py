"""`Run`: a training step on a kind of GPU: what each layout of it takes of memory and, predicted, of time.

A prediction by a stated model with five constants (`constants`), not a measurement. The MFU counts the model's own FLOPs, attention over
the pairs that its mask lets through, over the dense peak.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core.errors import LlamathError
from ...core.forward_pass import ForwardPass
from ...core.record_type import Record
from ...hardware import Device
from ..flops.flop_count import train_flops
from ..parallel_layout import Layout
from ..training.training_memory import Job, TrainRequest
from .microbatch_work import ACTIVATION_PASSES, ATTENTION_EFFICIENCY, MATMUL_EFFICIENCY, MicrobatchCosts, achieved_rates
from .network import LINK_EFFICIENCY, network_of
from .plan_memory import LayoutMemory
from .step_time import DP_OVERLAP, StepTime, StepTimeModel

if TYPE_CHECKING:
    from ...model import Model


class TrainingPlan(Record):
    """One layout, all of it decided."""

    layout: Layout
    memory: int  # of a GPU of the fullest stage
    timing: StepTime
    mfu: float
    rate: float  # model FLOP/s of one GPU
    tokens: float  # a second, all GPUs together


def prediction_constants() -> dict[str, float]:
    """The constants of the prediction, the same for every model and machine."""
    return {
        "matmul": MATMUL_EFFICIENCY,
        "attention": ATTENTION_EFFICIENCY,
        "wires": LINK_EFFICIENCY,
        "overlap": DP_OVERLAP,
        "passes": ACTIVATION_PASSES,
    }


class TrainingCostModel:
    """A model under one request on one kind of GPU."""

    def __init__(self, model: Model, request: TrainRequest, device: Device) -> None:
        self.model, self.device = model, device
        self.job = Job(model, request)
        found = achieved_rates(device, self.job.packer.name, self.job.packer.compute)
        if found is None:
            raise LlamathError(f"no rate of arithmetic is published for {device.title}", hint="--gpus '8x mem=80GiB bw=2TB/s bf16=300TF'")
        self.peak = round(found.matmul / MATMUL_EFFICIENCY)
        self.time = StepTimeModel(MicrobatchCosts(model.tree, self.job.context, self.job.kernels, found), network_of(device), device.node)
        self.memory = LayoutMemory(self.job, self.time.stages)

    def step_seconds(self, layout: Layout) -> float:
        """Seconds of a step."""
        return self.time.step(layout, self.memory.data_parallel_bytes(layout)).step

    def fits(self, layout: Layout) -> bool:
        """Whether a GPU of the fullest stage has the memory."""
        room = self.device.memory
        return self.memory.persistent_bytes(layout) <= room and self.memory.max_bytes(layout) <= room

    def plan(self, layout: Layout) -> TrainingPlan:
        """Everything about one layout."""
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
        """The fastest of these that fits; the fastest where none does."""
        ranked = sorted(layouts, key=self.step_seconds)
        return self.plan(next(filter(self.fits, ranked), ranked[0]))
