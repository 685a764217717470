"""The memory of a training step as expressions of its settings, for tensor and data parallelism: the terms of `training_memory`.

T is the sequence length, B the microbatch, P the tensor-parallel degree, D the data-parallel degree, Z the ZeRO stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ...analysis.graph.saved_rules import SavedTensor
from ...analysis.inference.fit_report import tp_degrees
from ...analysis.parallel_layout import Layout, PipelineStage, Recompute, pipeline_stages
from ...analysis.training.optimizers import OPTIMIZERS
from ...analysis.training.pipeline_schedule import SavedCopies, stage_activations
from ...analysis.training.saved_activations import SavedActivations
from ...analysis.training.training_memory import DEFAULT_CONTEXT, TrainingJob, TrainRequest
from ...analysis.training.zero_states import PersistentState, persistent_lines, zero3_gather_buffers
from ...core.expr import Expr, Letter
from ...core.tree import Stack
from ...model import Model
from .forms import Form, number, overhead_form, sum_of, times_of

RANKS = (1, 2, 4, 8)
GPUS = tuple(2**n for n in range(11))
MARK = 2**31 - 1
"""A prime context length that occurs in no model; its multiples stand for T."""


class Precision(NamedTuple):
    """The dtypes of a training step."""

    name: str
    title: str
    dtype: str
    master: bool | None


PRECISIONS = (
    Precision("bf16", "bf16, master weights in fp32", "bf16", None),
    Precision("bf16-alone", "bf16 alone", "bf16", False),
    Precision("fp32", "fp32", "fp32", None),
)
ATTENTION, KERNELS = {"flash": True, "written": False}, {"eager": False, "fused": True}
FROM = {"weights": "3", "gradients": "2", "master": "1", "optimizer": "1"}
"""The ZeRO stage from which each part is sharded."""
CHOICES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "precision": ("Numbers", [(x.name, x.title) for x in PRECISIONS]),
    "optimizer": ("Optimizer", [(x.name, x.title) for x in OPTIMIZERS.values()]),
    "zero": ("ZeRO", [("0", "0: none"), ("1", "1: optimizer states"), ("2", "2: also gradients"), ("3", "3: also weights")]),
    "recompute": ("Recompute", [("none", "nothing"), ("selective", "attention's scores"), ("full", "every layer")]),
    "attention": ("Attention", [("flash", "never writes its scores"), ("written", "writes its scores")]),
    "kernels": ("Kernels", [("eager", "transformers' own"), ("fused", "fused norms and SwiGLU")]),
}
"""The choices; the first is the default."""
Line = dict[str, Any]
AGAIN: tuple[Recompute, ...] = ("none", "selective", "full")


def training(model: Model) -> dict[str, Any]:
    """Return the choices, and the lines of each part for them."""
    ranks = [n for n in RANKS if n in tp_degrees(model.tree)]
    jobs = {x.name: TrainingJob(model, TrainRequest(dtype=x.dtype, master=x.master, context=MARK)) for x in PRECISIONS}
    return {
        "context": str(min(model.tree.context or DEFAULT_CONTEXT, DEFAULT_CONTEXT)),
        "tokens": ["*", "P", ["ceil", "T", "P"]],
        "choices": [{"label": label, "name": name, "options": [[*x] for x in options]} for name, (label, options) in CHOICES.items()],
        "kept": {x.name: x.dtype for x in PRECISIONS},
        "gpus": [str(n) for n in GPUS],
        "ranks": [str(n) for n in ranks],
        "static": {name: {str(n): _static(job, n) for n in ranks} for name, job in jobs.items()},
        "moving": {
            f"{x} {flash} {fused}": _moving(model, x, ATTENTION[flash], KERNELS[fused])
            for x in ("bf16", "fp32")
            for flash in ATTENTION
            for fused in KERNELS
        },
    }


def _static(job: TrainingJob, ranks: int) -> dict[str, Any]:
    """Return the persistent memory: weights, gradients, master copy, optimizer states, and the layers gathered by ZeRO-3."""
    there = job.with_layout(Layout(tp=ranks))
    (stage,) = pipeline_stages(there.tree, there.layout)
    resident = there.persistent_state(stage)
    first, *others = (_shared(resident._replace(optimizer=x)) for x in OPTIMIZERS.values())
    made = {kind: first[kind] for kind in ("weights", "gradients", "master")}
    states = dict(zip(OPTIMIZERS, (x["optimizer"] for x in (first, *others)), strict=True))
    lines = zero3_gather_buffers(resident, there.layers(stage), there.layout.replace(zero=3, dp=2))
    whole: Form = [">=", "Z", "3", [">=", "D", "2", str(sum(x.bytes for x in lines)), "0"], "0"]
    fixed = overhead_form("activations", "logits", whole)
    overhead = [_line("gathered weights", whole, "two layers at once, whole"), _line("overhead", fixed)]
    return {**made, "optimizer": states, "overhead": overhead}


def _line(what: str, form: Form, says: str = "") -> Line:
    return {"what": what, "form": form, "says": says}


def _shared(resident: PersistentState) -> dict[str, list[Line]]:
    """Yield the lines of persistent memory; dense weights and experts are sharded over replicas from some ZeRO stage on."""
    parts = [resident._replace(shards=[x for x in resident.shards if x.is_expert == dealt]) for dealt in (False, True)]
    alone = [(x, persistent_lines(x, Layout())) for x in parts if x.shards]
    made: dict[str, list[Line]] = {}
    for kind, lines in persistent_lines(resident, Layout()).items():
        shares = [_share(own, kind, found[kind][0].bytes) for own, found in alone if found[kind]]
        made[kind] = [_line(x.what, sum_of(*shares), x.formula) for x in lines if x.bytes]
    return made


def _share(own: PersistentState, kind: str, size: int) -> Form:
    """Return the bytes of shards on one replica, as bytes per element if that is whole."""
    numbers = sum(x.elements for x in own.shards if kind == "weights" or not x.buffer)
    each, rest = divmod(size, numbers or 1)
    many: Form = str(size) if rest or not each else times_of(["let", "N", str(numbers)], str(each))
    return ["ceil", many, [">=", "Z", FROM[kind], "D", "1"]]


def _moving(model: Model, precision: str, flash: bool, fused: bool) -> dict[str, Any]:
    """Return the activations for each recomputation policy."""
    job = TrainingJob(model, TrainRequest(dtype=precision, context=MARK, layout=Layout(flash=flash), fused=fused))
    (stage,) = pipeline_stages(job.tree, job.layout)
    flow = stage_activations(job.saved, stage, job.layout)
    loss = list(_lines(flow.loss))
    if flow.loss:
        numbers: Form = ["floor", _sum(flow.loss[:1]), str(flow.loss[0].saved.bytes)]
        note = "of the loss, in place" if fused else "of loss and softmax, both in fp32"
        loss.append(_line("logits", times_of(numbers, str(job.size)), "while the outputs are held"))
        loss.append(_line("gradients of the logits", times_of(numbers, str(job.logit_gradient_bytes)), note))
    freed = sum_of(*(x["form"] for x in loss if x["what"] != "logits"))
    return {"logits": loss} | {again: list(_kept(job, stage, again, freed)) for again in AGAIN}


def _kept(job: TrainingJob, stage: PipelineStage, again: Recompute, freed: Form) -> Iterator[Line]:
    """Yield the lines of the activations; a recomputed layer reuses the memory that the loss has freed."""
    layout = job.layout.replace(recompute=again)
    yield from _lines(stage_activations(job.saved, stage, layout).kept)
    works = []
    for block, _ in job.tree.layers.distinct():
        alone = SavedActivations(job.tree.replace(layers=Stack(((block,), 1))), job.kernels)
        works.append(_sum(stage_activations(alone, stage.replace(runs=((0, 1),)), layout).recomputed))
    if any(x != "0" for x in works):
        most: Form = works[0] if len(works) == 1 else ["max", *works]
        yield _line("recomputed layer", ["max", "0", ["-", most, freed]], "of the largest layer, minus what the loss has freed")


def _lines(shares: Iterable[SavedCopies]) -> Iterator[Line]:
    groups: dict[str, list[SavedCopies]] = {}
    for x in shares:
        groups.setdefault(x.saved.what, []).append(x)
    for what, same in groups.items():
        if (form := _sum(same)) != "0":
            yield _line(what, form, "an estimate" if any(x.saved.estimated for x in same) else "")


def _sum(shares: Iterable[SavedCopies]) -> Form:
    """Return the sum, with equal terms merged."""
    made: dict[str, tuple[Form, int]] = {}
    for x in shares:
        if int(x.saved.elements):
            form = _bytes(x.saved)
            made[str(form)] = (form, x.times + made.get(str(form), (form, 0))[1])
    return sum_of(*(times_of(str(times), form) for form, times in made.values() if times))


def _bytes(x: SavedTensor) -> Form:
    """Return what one GPU saves of a tensor for one layer."""
    one = Letter("T", 1)
    terms = {tuple(one if atom == ("s", MARK) else atom for atom in monomial): n for monomial, n in Expr.const(x.elements).terms.items()}
    tokens = ["T"] if x.shared_by_batch else ["T", "B"]
    whole = times_of(number(Expr.of(terms), {"T": "T"}), str(x.bytes), *tokens)
    ranks: Form = ["min", "P", str(x.max_parts)] if x.max_parts else "P"
    return whole if x.sharding == "gathered" else ["ceil", whole, "P" if x.sharding == "sequence" else ranks]
