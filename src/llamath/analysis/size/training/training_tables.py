"""The tables of the memory of a training step: the parts of the largest stage, its saved
activations, the stages, and the adapters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ....render.tables import Column, Part, Table, Text
from ....utils.number_format import format_bytes, format_count
from ...storage.memory_line import MemoryLine, letters_text, lines_table
from .fp8_recipes import RECIPES
from .loss_memory import loss_text

if TYPE_CHECKING:
    from ....questions.layout import Layout
    from .training_memory import AdapterTotals, StageReport, TrainReport

_RECOMPUTED = {
    "none": "no recomputation",
    "selective": "attention scores recomputed",
    "op": "recomputation by operation",
    "full": "full recomputation",
}
_ACTIVATIONS = (
    Column("saved activations", key="part"),
    Column("GB", "GB", "bytes"),
    Column("copies·tokens·elements·bytes", key="formula", wrap=True),
)
_STAGES = (
    Column("stage"),
    Column("layers"),
    Column("weights", "GB", drop=1),
    Column("gradients", "GB", drop=1),
    Column("optimizer", "GB", drop=1),
    Column("activations", "GB", drop=2),
    Column("logits", "GB", drop=1),
    Column("total GB", "GB", "total"),
)
_INSTEAD = (Column("", key="argument"), Column("GiB", "GiB", "total"))


def training_tables(report: TrainReport) -> Iterator[Part]:
    """Yield the memory of the largest stage, its saved activations, the stages, and the
    adapters.
    """
    full = report.largest_stage
    microbatch = report.request.layout.microbatch
    yield lines_table(_merge_activation_lines(full))
    yield Table(
        columns=_ACTIVATIONS,
        rows=tuple(
            (x.what, x.bytes, x.formula)
            for x in sorted(full.activation_lines, key=lambda x: -x.bytes)
        ),
    )
    yield Text(letters_text(report.model, report.context, microbatch, full.letters), "dim")
    if report.adapter_totals:
        yield Text(_adapters(report.adapter_totals), apart=True)
    if len(report.stages) > 1:
        yield Table(columns=_STAGES, rows=tuple(_stages(report)))
    if report.limit is not None:
        yield Text(_fits(report.limit.within, report.limit.max_batch, report), apart=True)
    if report.instead:
        yield Table(
            title="fits with",
            columns=_INSTEAD,
            rows=tuple((x.text, x.total) for x in report.instead),
        )


def training_setting(report: TrainReport) -> str:
    """Return the microbatch, the layout, and how the step is computed."""
    layout, request = report.request.layout, report.request
    sequences = format_count(layout.microbatch, "sequence")
    own = request.adapter_dtype if request.rank else request.dtype
    gradients = f"gradients in {request.gradients or own}"
    kernels = "fused kernels" if request.fused else "eager kernels"
    attention = "FlashAttention" if layout.flash else "eager attention"
    drop = ", dropout" if request.dropout else ""
    loss = loss_text(request.loss)
    loss += f", {RECIPES[request.fp8].title}" if request.fp8 else ""
    loss += (
        f", inputs of layers on the host ({format_bytes(report.largest_stage.host)})"
        if request.offload
        else ""
    )
    loss += f", adapters in {request.adapter_dtype}" if request.adapter_dtype != "fp32" else ""
    loss += "" if request.accumulate else ", one microbatch per step"
    return (
        f"microbatch of {sequences} of {report.context:,} tokens; {_layout(layout)}; "
        f"{gradients}, {kernels}{drop}, {attention}, {_RECOMPUTED[layout.recompute]}{loss}"
    )


def _layout(layout: Layout) -> str:
    """Return a layout in one line: `64 GPUs = TP 8 × PP 4 × DP 2, ZeRO-1`."""
    text = f"{layout.gpus:,} GPUs = {layout.axes}" if layout.axes else "1 GPU"
    text += f", expert TP {layout.etp}" if layout.etp is not None else ""
    text += f", VPP {layout.interleave}" if layout.interleave > 1 else ""
    text += f", {layout.count} microbatches" if layout.pp > 1 else ""
    return text + (f", ZeRO-{layout.zero}" if layout.zero else "")


def _merge_activation_lines(stage: StageReport) -> list[MemoryLine]:
    """Return the lines with all activations as one."""
    activations = MemoryLine(
        what="activations",
        bytes=int(stage.activations),
        note="saved for the backward pass, see below",
        exact=all(x.exact for x in stage.activation_lines),
    )
    first = stage.lines.index(stage.activation_lines[0])
    rest = [x for x in stage.lines[first:] if x not in stage.activation_lines]
    return [*stage.lines[:first], activations, *rest]


def _adapters(x: AdapterTotals) -> str:
    names = ", ".join(dict.fromkeys(matrix.name.rpartition(".")[2] for matrix in x.lora.targets))
    share = 100 * x.trainable / x.all_parameters
    full_names = ", ".join(dict.fromkeys(matrix.name for matrix in x.lora.modules_to_save))
    fully_trained = f"; fully trained: {full_names}" if full_names else ""
    return (
        f"trainable: {x.trainable:,} of {x.all_parameters:,} parameters ({share:.4f}%), "
        f"{x.bytes:,} bytes: "
        f"r·(in + out) with r = {x.lora.rank} for each {names}{fully_trained}"
    )


def _stages(report: TrainReport) -> Iterator[tuple[Any, ...]]:
    """Yield the first, the last and the largest stage."""
    shown = (report.stages[0], report.largest_stage, report.stages[-1])
    for index, x in sorted({x.stage.index: x for x in shown}.items()):
        yield (
            f"{index + 1} of {len(report.stages)}",
            f"{x.stage.layers}",
            *(x.weights, x.gradients, x.master + x.optimizer, x.activations, x.logits, x.total),
        )


def _fits(within: int, most: int | None, report: TrainReport) -> str:
    verdict = "fits" if report.largest_stage.total <= within else "does not fit"
    sequences = "any number of sequences" if most is None else format_count(most, "sequence")
    more = (
        f"at most {sequences} of {report.context:,} tokens at a time"
        if most != 0
        else "not even one sequence does"
    )
    return f"this {verdict} in {format_bytes(within)}; {more}"
