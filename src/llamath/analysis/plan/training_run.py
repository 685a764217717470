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
from .microbatch_work import ATTENTION, MATMUL, PASSES, Work, rates
from .network import WIRES, wires
from .plan_memory import Held
from .step_time import OVERLAP, Clock, Timing

if TYPE_CHECKING:
    from ...model import Model


class Plan(Record):
    """One layout, all of it decided."""

    layout: Layout
    memory: int  # of a GPU of the fullest stage
    timing: Timing
    mfu: float
    rate: float  # model FLOP/s of one GPU
    tokens: float  # a second, all GPUs together


def constants() -> dict[str, float]:
    """The constants of the prediction, the same for every model and machine."""
    return {"matmul": MATMUL, "attention": ATTENTION, "wires": WIRES, "overlap": OVERLAP, "passes": PASSES}


class Run:
    """A model under one request on one kind of GPU."""

    def __init__(self, model: Model, request: TrainRequest, device: Device) -> None:
        self.model, self.device = model, device
        self.job = Job(model, request)
        found = rates(device, self.job.packer.name, self.job.packer.compute_dtype)
        if found is None:
            raise LlamathError(f"no rate of arithmetic is published for {device.title}", hint="--gpus '8x mem=80GiB bw=2TB/s bf16=300TF'")
        self.peak = round(found.matmul / MATMUL)
        self.clock = Clock(Work(model.tree, self.job.context, self.job.kernels, found), wires(device), device.node)
        self.held = Held(self.job, self.clock.stages)

    def step(self, layout: Layout) -> float:
        """Seconds of a step."""
        return self.clock.step(layout, self.held.owned(layout)).step

    def fits(self, layout: Layout) -> bool:
        """Whether a GPU of the fullest stage has the memory."""
        room = self.device.memory
        return self.held.least(layout) <= room and self.held.most(layout) <= room

    def plan(self, layout: Layout) -> Plan:
        """Everything about one layout."""
        timing, context = self.clock.step(layout, self.held.owned(layout)), self.job.context
        sequences = layout.dp * layout.microbatch * layout.count
        rate = train_flops(self.model.tree, ForwardPass.prefill(context), sequences).model / timing.step / layout.gpus
        return Plan(
            layout=layout,
            memory=self.held.most(layout),
            timing=timing,
            mfu=rate / self.peak,
            rate=rate,
            tokens=sequences * context / timing.step,
        )

    def best(self, layouts: Iterable[Layout]) -> Plan:
        """The fastest of these that fits; the fastest where none does."""
        ranked = sorted(layouts, key=self.step)
        return self.plan(next(filter(self.fits, ranked), ranked[0]))
