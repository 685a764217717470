"""The memory of a training step as expressions of its settings, for tensor and data parallelism.

T is the sequence length, B the microbatch, TP the tensor-parallel degree, and DP_weights,
DP_gradients, DP_master and DP_optimizer are the data-parallel ranks over which ZeRO shards each of
these: 1 below the stage that does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....analysis.size.fit.serving_layouts import tp_degrees
from ....analysis.size.memory.gpu_shards import BATCH, TOKENS
from ....analysis.size.plan.training_run import LayoutMemory
from ....analysis.size.training.optimizers import OPTIMIZERS
from ....analysis.size.training.pipeline_schedule import stage_activations
from ....analysis.size.training.training_memory import TrainingJob, TrainRequest
from ....analysis.size.training.zero_states import (
    ZERO_STAGES,
    optimizer_line,
    persistent_lines,
    zero3_gather_buffers,
)
from ....analysis.storage.memory_line import MemoryLine, overhead_bytes
from ....analysis.storage.parallel_layout import pipeline_stages
from ....core.expr import Expr, ceil_div, total
from ....hardware import find_device
from ....model import FamilyModel
from ....questions.layout import Layout, Recompute
from ....utils.number_marks import unmarked
from .inference_data import DEFAULT_GPU, variable

RANKS = (1, 2, 4, 8)
GPUS = tuple(2**n for n in range(11))
TP = Expr.variable("TP", 1)


class Precision(NamedTuple):
    """The dtypes of a training step."""

    name: str
    title: str
    dtype: str
    master: bool | None
    gradients: str = ""

    def request(self, *, fused: bool = False) -> TrainRequest:
        return TrainRequest(
            dtype=self.dtype, master=self.master, gradients=self.gradients, fused=fused
        )


SUMMED = Precision("bf16-fp32", "bf16, gradients and master weights in fp32", "bf16", None, "fp32")
"""That of the layouts, whose gradients are summed over microbatches."""
PRECISIONS = (
    Precision("bf16", "bf16, master weights in fp32", "bf16", None),
    SUMMED,
    Precision("bf16-alone", "bf16 alone", "bf16", False),
    Precision("fp32", "fp32", "fp32", None),
)
ATTENTION, KERNELS = {"flash": True, "written": False}, {"eager": False, "fused": True}
CHOICES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "precision": ("Precision", [(x.name, x.title) for x in PRECISIONS]),
    "optimizer": ("Optimizer", [(x.name, x.title) for x in OPTIMIZERS.values()]),
    "zero": (
        "ZeRO",
        [
            ("0", "0: no sharding"),
            ("1", "1: optimizer states"),
            ("2", "2: also gradients"),
            ("3", "3: also weights"),
        ],
    ),
    "recompute": (
        "Activation checkpointing",
        [("none", "nothing"), ("selective", "attention scores"), ("full", "every layer")],
    ),
    "attention": (
        "Attention",
        [("flash", "FlashAttention"), ("written", "scores written to memory")],
    ),
    "kernels": ("Kernels", [("eager", "transformers' own"), ("fused", "fused norms and SwiGLU")]),
}
"""The choices; the first is the default."""
_AGAIN: tuple[Recompute, ...] = ("none", "selective", "full")
_NOTES = {
    "gathered weights": "two layers at once, whole",
    "logits": "while the outputs are held",
    "recomputed layer": "of the largest layer, minus what the loss has freed",
}
_LOSS_NOTES = {False: "of loss and softmax, both in fp32", True: "of the loss, in place"}
_Line = dict[str, Any]


def training(model: FamilyModel) -> dict[str, Any]:
    """Return the choices, and the lines of each part for them."""
    ranks = _ranks(model)
    with unmarked():
        start = smallest_cluster(model)
    jobs = {x.name: TrainingJob(model, x.request()) for x in PRECISIONS}
    lines: list[_Line] = []
    return {
        "tokens": (TP * ceil_div(TOKENS, TP)).to_expression_json(),
        "zero": {f"DP_{kind}": str(stage) for kind, stage in ZERO_STAGES.items()},
        "choices": [
            {"label": label, "name": name, "options": [[*x] for x in options]}
            for name, (label, options) in CHOICES.items()
        ],
        "kept": {x.name: x.dtype for x in PRECISIONS},
        "gpus": [str(n) for n in GPUS],
        "start": start,
        "ranks": [str(n) for n in ranks],
        "static": {
            name: {str(n): _pooled(_static(job, n), lines) for n in ranks}
            for name, job in jobs.items()
        },
        "moving": {
            f"{x} {flash} {fused}": _pooled(
                _moving(model, x, ATTENTION[flash], KERNELS[fused]), lines
            )
            for x in ("bf16", "fp32")
            for flash in ATTENTION
            for fused in KERNELS
        },
        "lines": lines,
    }


def _pooled(x: Any, lines: list[_Line]) -> Any:
    """Return the same with the place of each line among all distinct ones in its stead."""
    if isinstance(x, Mapping):
        return {name: _pooled(y, lines) for name, y in x.items()}
    lines.extend(y for y in x if y not in lines)
    return [lines.index(y) for y in x]


def start_of_training(
    model: FamilyModel, smallest: dict[str, str], planned: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the settings to begin with: the best of the plans, or where it has stages or experts
    on ranks of their own, what fits on as many GPUs; without a plan, the smallest cluster.
    """
    if planned is None or not planned["plans"] or int(planned["gpus"]) not in GPUS:
        return smallest
    best, count = planned["plans"][0], planned["gpus"]
    if all(best["axes"][x] == "1" for x in ("pp", "cp", "ep")):
        found = {"tp": best["axes"]["tp"], "zero": best["zero"], "recompute": best["recompute"]}
    else:
        found = smallest_cluster(model, (int(count),), SUMMED.request(fused=True))
    return found | {"trainers": count, "precision": SUMMED.name, "kernels": "fused"}


def smallest_cluster(
    model: FamilyModel, counts: Sequence[int] = GPUS, request: TrainRequest | None = None
) -> dict[str, str]:
    """Return the smallest cluster of the default GPU on which a step fits: alone, else with
    ZeRO-3, else also recomputing every layer.
    """
    capacity, ranks = find_device(DEFAULT_GPU).memory, _ranks(model)
    memory = LayoutMemory(
        TrainingJob(model, request or TrainRequest()),
        lambda layout: pipeline_stages(model.tree, layout),
    )
    choice: dict[str, str] = {}
    for gpus in counts:
        ways: tuple[tuple[int, Recompute], ...] = (
            ((0, "none"),) if gpus == 1 else ((3, "none"), (3, "full"))
        )
        for zero, recompute in ways:
            for tp in (x for x in ranks if x <= gpus):
                choice = {
                    "trainers": str(gpus),
                    "tp": str(tp),
                    "zero": str(zero),
                    "recompute": recompute,
                }
                if (
                    memory.max_bytes(Layout(tp=tp, dp=gpus // tp, zero=zero, recompute=recompute))
                    <= capacity
                ):
                    return choice
    return choice


def _ranks(model: FamilyModel) -> list[int]:
    return [n for n in RANKS if n in tp_degrees(model.tree)]


def _static(job: TrainingJob, ranks: int) -> dict[str, Any]:
    """Return the persistent memory: weights, gradients, master copy, optimizer states, and the
    layers gathered by ZeRO-3.
    """
    there = job.with_layout(Layout(tp=ranks))
    (stage,) = pipeline_stages(there.tree, there.layout)
    state = there.persistent_state(stage)
    sharded = there.layout.replace(zero=3, dp=Expr.variable("DP", 2))
    gathered = [
        x.replace(bytes=_over(x, "weights"))
        for x in zero3_gather_buffers(state, there.layers(stage), sharded)
    ]
    dynamic = total((variable("activations"), variable("logits"), *(x.bytes for x in gathered)))
    overhead = [
        *map(_line, gathered),
        {"what": "overhead", "form": overhead_bytes(dynamic).to_expression_json(), "says": ""},
    ]
    formulas = persistent_lines(state, Layout())
    return {
        **{
            kind: _sharded_lines(kind, lines, formulas[kind])
            for kind, lines in persistent_lines(state, sharded).items()
        },
        "optimizer": {
            name: _sharded_lines(
                "optimizer",
                *([optimizer_line(state._replace(optimizer=x), y)] for y in (sharded, Layout())),
            )
            for name, x in OPTIMIZERS.items()
        },
        "overhead": overhead,
    }


def _sharded_lines(
    kind: str, lines: Iterable[MemoryLine], formulas: Iterable[MemoryLine]
) -> list[_Line]:
    """Return the lines of a kind of persistent memory, with the formulas of a single replica."""
    return [
        _line(x.replace(bytes=_over(x, kind))) | {"says": y.formula}
        for x, y in zip(lines, formulas, strict=True)
        if x.bytes
    ]


def _over(x: MemoryLine, kind: str) -> Expr:
    """Return the bytes of a line as those of the data-parallel ranks that shard this kind of
    memory.
    """
    return Expr.const(x.bytes).at(DP=Expr.variable(f"DP_{kind}", 2))


def _line(x: MemoryLine) -> _Line:
    return {
        "what": x.what,
        "form": Expr.const(x.bytes).to_expression_json(),
        "says": _NOTES.get(x.what, "" if x.exact else "an estimate"),
    }


def _moving(
    model: FamilyModel, precision: str, flash: bool, fused: bool
) -> Mapping[str, Sequence[_Line]]:
    """Return the logits, and the activations for each recomputation policy."""
    layout = Layout(tp=TP, microbatch=BATCH, flash=flash)
    job = TrainingJob(
        model, TrainRequest(dtype=precision, context=TOKENS, layout=layout, fused=fused)
    )
    (stage,) = pipeline_stages(job.tree, layout)
    flows = {
        again: stage_activations(job.saved, stage, layout.replace(recompute=again))
        for again in _AGAIN
    }
    logits = [
        _line(x) | ({"says": _LOSS_NOTES[fused]} if "gradients" in x.what else {})
        for x in job.loss_lines(flows["none"])
    ]
    return {"logits": logits} | {
        again: list(_without_zeros(job.activation_lines(flow))) for again, flow in flows.items()
    }


def _without_zeros(lines: Iterable[MemoryLine]) -> Iterator[_Line]:
    return (_line(x) for x in lines if Expr.const(x.bytes).terms)
