"""The memory of inference and of a training step on a terminal: each part with its bytes, in GB
and in GiB, and its formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...analysis.inference.inference_memory import MemoryLimit, MemoryReport, WeightsReport
from ...analysis.memory_line import MemoryLine
from ...analysis.training.fp8_recipes import RECIPES
from ...analysis.training.loss_memory import parse_loss
from ...core.extensions.encoder_decoder import EncoderDecoder
from ...model import Model
from ...utils.number_format import format_bytes, format_count, format_giga
from ..table import align, bold, dim, fit_table, note_lines, terminal_width, wrap

if TYPE_CHECKING:
    from ...analysis.parallel_layout import Layout
    from ...analysis.training.training_memory import AdapterTotals, StageReport, TrainReport


def training_text(report: TrainReport) -> str:
    """Return the report as text: memory of the largest stage, its saved activations, the stages,
    and the adapters.
    """
    from ...analysis.training.optimizers import OPTIMIZERS

    model, request, full = report.model, report.request, report.largest_stage
    where = (
        "each GPU of the largest stage"
        if request.layout.pp > 1
        else "each GPU"
        if request.layout.gpus > 1
        else "one GPU"
    )
    what = (
        f"adapters of rank {request.rank} on {request.dtype}"
        if report.adapter_totals
        else f"training in {request.dtype}"
    )
    head = (
        f"{model.name}, {what} with {OPTIMIZERS[request.optimizer.lower()].title}: "
        f"{format_bytes(full.total)} on {where}"
    )
    lines = [bold(line) for line in wrap(head, "")]
    lines += [dim(line) for line in wrap(f"{model.family.name} family, from {model.source}", "")]
    lines += wrap(_setting(report), "")
    lines += [
        "",
        *_memory_lines(_merge_activation_lines(full)),
        "",
        *_saved_activations(full),
        *map(
            dim,
            wrap(
                f"with {_legend(model, report.context, request.layout.microbatch, full.letters)}",
                "",
            ),
        ),
    ]
    if report.adapter_totals:
        lines += ["", *wrap(_adapter_summary(report.adapter_totals), "")]
    if len(report.stages) > 1:
        lines += ["", *_stages(report)]
    if report.limit is not None:
        lines += ["", *wrap(_fits(report.limit.within, report.limit.max_batch, report), "")]
    return "\n".join(
        [*lines, *(line for note in report.notes for line in wrap(f"note: {note}", ""))]
    )


def _setting(report: TrainReport) -> str:
    layout, request = report.request.layout, report.request
    sequences = (
        f"{layout.microbatch:,} sequence{'s' if layout.microbatch > 1 else ''} of "
        f"{report.context:,} tokens"
    )
    kernels = "fused kernels" if request.fused else "eager kernels"
    attention = "FlashAttention" if layout.flash else "eager attention"
    recomputed = {
        "none": "no recomputation",
        "selective": "attention scores recomputed",
        "op": "recomputation by operation",
        "full": "full recomputation",
    }
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
        f"microbatch of {sequences}; {_layout_text(layout)}; {kernels}{drop}, {attention}, "
        f"{recomputed[layout.recompute]}{loss}"
    )


def loss_text(name: str) -> str:
    """Return how the loss is computed: `, loss in 8 chunks`; nothing for the whole at once."""
    loss = parse_loss(name)
    chunks = f"{loss.chunks:,} chunks"
    names = {
        "whole": "",
        "fused": ", fused cross-entropy",
        "chunked": f", loss in {chunks}",
        "summed": f", loss summed over {chunks}",
        "liger": ", Liger's fused loss",
    }
    return names[loss.kind]


def _layout_text(layout: Layout) -> str:
    """Return a layout in one line: `64 GPUs = TP 8 × PP 4 × DP 2, ZeRO-1`."""
    named = (("TP", layout.tp), ("PP", layout.pp), ("CP", layout.cp), ("DP", layout.dp))
    axes = " × ".join(f"{name} {n}" for name, n in named if n > 1)
    text = f"{layout.gpus:,} GPUs = {axes}" if axes else "1 GPU"
    text += f", EP {layout.ep}" if layout.ep > 1 else ""
    text += f", expert TP {layout.etp}" if layout.etp is not None else ""
    text += f", VPP {layout.interleave}" if layout.interleave > 1 else ""
    text += f", {layout.count} microbatches" if layout.pp > 1 else ""
    return text + (f", ZeRO-{layout.zero}" if layout.zero else "")


def _merge_activation_lines(stage: StageReport) -> list[MemoryLine]:
    """Return the lines with all activations as one."""
    note = "saved for the backward pass, see below"
    activations = MemoryLine(
        what="activations",
        bytes=int(stage.activations),
        note=note,
        exact=all(x.exact for x in stage.activation_lines),
    )
    first = stage.lines.index(stage.activation_lines[0])
    rest = [x for x in stage.lines[first:] if x not in stage.activation_lines]
    return [*stage.lines[:first], activations, *rest]


def _saved_activations(stage: StageReport) -> Iterator[str]:
    rows = [("saved activations", "GB", "copies·tokens·elements·bytes")]
    rows += [
        (f"  {x.what}", format_giga(x.bytes, 10**9), x.formula)
        for x in sorted(stage.activation_lines, key=lambda x: -x.bytes)
    ]
    table = align([row[:2] for row in rows], right=(1,))
    for i, (line, row) in enumerate(zip(table, rows, strict=True)):
        text = f"{line}  {row[2]}"
        if len(text) <= terminal_width():
            yield bold(text) if i == 0 else text
        else:
            yield line
            yield from map(dim, wrap(row[2], "    "))


def _adapter_summary(x: AdapterTotals) -> str:
    names = ", ".join(dict.fromkeys(matrix.name.rpartition(".")[2] for matrix in x.lora.targets))
    share = 100 * x.trainable / x.all_parameters
    full_names = ", ".join(dict.fromkeys(matrix.name for matrix in x.lora.modules_to_save))
    fully_trained = f"; fully trained: {full_names}" if full_names else ""
    return (
        f"trainable: {x.trainable:,} of {x.all_parameters:,} parameters ({share:.4f}%), "
        f"{x.bytes:,} bytes: "
        f"r·(in + out) with r = {x.lora.rank} for each {names}{fully_trained}"
    )


def _stages(report: TrainReport) -> Iterator[str]:
    """Yield the first, the last and the largest stage."""
    first, last, full = report.stages[0], report.stages[-1], report.largest_stage
    stages = sorted(
        {x.stage.index: x for x in (first, full, last)}.values(), key=lambda x: x.stage.index
    )
    rows: list[tuple[str, ...]] = [
        (
            "stage",
            "layers",
            "weights",
            "gradients",
            "optimizer",
            "activations",
            "logits",
            "total GB",
        )
    ]
    for x in stages:
        parts = (x.weights, x.gradients, x.master + x.optimizer, x.activations, x.logits, x.total)
        rows.append(
            (
                f"{x.stage.index + 1} of {len(report.stages)}",
                f"{x.stage.layers}",
                *(format_giga(n, 10**9) for n in parts),
            )
        )
    table = fit_table(rows, right=range(1, 8), drop=((2, 3, 4, 6), 5))
    yield bold(table[0])
    yield from table[1:]


def _fits(within: int, most: int | None, report: TrainReport) -> str:
    verdict = "fits" if report.largest_stage.total <= within else "does not fit"
    sequences = (
        "any number of sequences"
        if most is None
        else (f"{most:,} sequence{'s' if most != 1 else ''}")
    )
    more = (
        f"at most {sequences} of {report.context:,} tokens at a time"
        if most != 0
        else ("not even one sequence does")
    )
    return f"this {verdict} in {format_bytes(within)}; {more}"


_HEADER = ("part", "bytes", "GB", "GiB", "")
_ESTIMATE = "≈"


def memory_text(report: MemoryReport) -> str:
    """Return the lines at the longest context, a table of all contexts, and the limits."""
    model = report.model
    lines = [bold(line) for line in wrap(report.replace(limit=None).summary, "")]
    lines += [
        dim(line)
        for line in wrap(
            f"{model.family.name} family, from {model.source}; cache in {report.kv_dtype}", ""
        )
    ]
    lines += [
        "",
        *_memory_lines(report.lines),
        *map(dim, wrap(f"with {_legend(model, report.context, report.batch, report.letters)}", "")),
        "",
        *_passes(report),
    ]
    if len(report.contexts) > 1:
        lines += ["", *_contexts(report)]
    if report.limit is not None:
        lines += ["", *wrap(_limit(report.limit, report), "")]
    return "\n".join([*lines, *note_lines(report.notes)])


def weights_only_text(report: WeightsReport) -> str:
    """Return the lines of the weights of a checkpoint of an unsupported family."""
    note = "the memory of cache and activations is unknown"
    lines = [*(bold(x) for x in wrap(report.summary, "")), "", *_memory_lines(report.lines)]
    return "\n".join([*lines, *note_lines([f"{report.reason}; {note}" if report.reason else note])])


def _memory_lines(lines: Sequence[MemoryLine]) -> Iterator[str]:
    """Return lines and their sum, each with its formula below it; estimates are marked."""
    total = MemoryLine(
        what="total", bytes=int(sum(x.bytes for x in lines)), exact=all(x.exact for x in lines)
    )
    rows = [
        _HEADER,
        *(
            (
                x.what,
                f"{x.bytes:,}",
                format_giga(x.bytes, 10**9),
                format_giga(x.bytes, 2**30),
                _mark(x),
            )
            for x in (*lines, total)
        ),
    ]
    header, *table = fit_table(rows, right=(1, 2, 3), drop=(2,))
    yield bold(header)
    for row, x in zip(table, (*lines, total), strict=True):
        yield row
        if x.formula:
            yield from map(dim, wrap(x.formula))
    if not total.exact:
        yield from map(
            dim, wrap(f"{_ESTIMATE} depends on the implementation, which the formula names", "")
        )


def _mark(line: MemoryLine) -> str:
    return "" if line.exact else _ESTIMATE


def _legend(model: Model, context: int, batch: int, values: Mapping[str, int]) -> str:
    """Return the letters of the formulas with their names and values."""
    keys = model.config.key_by_symbol
    letters = [f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in values.items()]
    return ", ".join([f"T tokens {context:,}", f"B sequences {batch:,}", *letters])


def _passes(report: MemoryReport) -> list[str]:
    """Return the cache per token, and the activations of prefill and decode."""
    cache = report.cache
    later = (
        f"{cache.kv_per_later_token:,} once windows are full"
        if cache.kv_per_later_token != cache.kv_per_token
        else ""
    )
    rows = [("cache per token", f"{cache.kv_per_token:,} bytes", later)]
    if cache.state:
        rows.append(
            ("state per sequence", f"{cache.state // report.batch:,} bytes", "at any context")
        )
    # an encoder reads whole prompts
    option = "" if isinstance(report.model.tree, EncoderDecoder) else " (--chunk)"
    rows.append(
        (
            "activations, prefill",
            f"{report.prefill:,} bytes",
            f"{format_count(report.chunk, 'token')} at once{option}",
        )
    )
    rows.append(("activations, decode", f"{report.decode:,} bytes", "one token of each sequence"))
    return fit_table(rows, right=(1,), drop=(2,))


def _contexts(report: MemoryReport) -> Iterator[str]:
    limit = report.limit
    header = (
        "context",
        "weights",
        "cache",
        "rest",
        "total GB",
        "total GiB",
        *(["fits"] if limit else []),
    )
    rows: list[tuple[str, ...]] = [header]
    for x in report.contexts:
        verdict = [] if limit is None else ["yes" if x.total <= limit.within else "no"]
        parts = (
            format_giga(n, 2**30) for n in (x.weights, x.kv_cache, x.total - x.weights - x.kv_cache)
        )
        rows.append(
            (
                f"{x.context:,}",
                *parts,
                format_giga(x.total, 10**9),
                format_giga(x.total, 2**30),
                *verdict,
            )
        )
    table = fit_table(rows, right=range(6), drop=(4,))
    yield bold(table[0])
    yield from table[1:]
    yield dim("weights, cache and rest in GiB")


def _limit(limit: MemoryLimit, report: MemoryReport) -> str:
    within, most, batch = format_bytes(limit.within), limit.max_context, limit.max_batch
    if most == 0:
        least = report.total - report.kv_cache - report.activations - report.logits
        return (
            f"not even one token fits in {within}: weights and overhead alone are "
            f"{format_bytes(least)}"
        )
    own = report.model.tree.context
    tokens = "any number of tokens" if most is None else f"up to {format_count(most, 'token')}"
    beyond = (
        f" (the model's own context is {own:,})" if own and (most is None or most > own) else ""
    )
    sequences = (
        "any number of sequences" if batch is None else (f"up to {format_count(batch, 'sequence')}")
    )
    return (
        f"{within} holds {format_count(report.batch, 'sequence')} of {tokens}{beyond}, or "
        f"{sequences} of {report.context:,} tokens"
    )
