"""`fit` on a terminal: a bar for each GPU, its parts, free memory or alternatives, and speed
limits; or the ranked GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.fit.fit_comparison import FitComparison
from ....analysis.fit.fit_report import FitReport
from ....analysis.fit.gpu_ranking import NODE_COUNTS, GPURanking, RankedGPU
from ....analysis.fit.suggestions import gpus_option
from ....analysis.inference.gpu_shards import StageMemory
from ....analysis.inference.speed_limits import SpeedLimit
from ....analysis.parallel_layout import Layout
from ....utils.errors import safe
from ....utils.number_format import format_bytes, format_count, format_giga, format_list
from ...table import bold, dim, fit_table, note_lines, terminal_width, wrap

_PARTS = (
    ("weights", "█"),
    ("kv_cache", "▓"),
    ("activations", "▒"),
    ("logits", "▒"),
    ("overhead", "░"),
)
_LEGEND = (
    ("weights", "█"),
    ("KV cache", "▓"),
    ("activations, logits", "▒"),
    ("overhead", "░"),
    ("free", "."),
)
_FREE, _EDGE = ".", "│"
_NAMES = {"kv_cache": "KV cache"}
_MAX_STAGES = 12
"""Stages that have a bar of their own."""
_MAX_SHARES = 4
"""GPUs that have a column of their own."""
_MAX_TOO_SMALL = 12
"""Names of GPUs that are too small."""


def fit_text(report: FitReport) -> str:
    """Return the whole report."""
    verdict = (
        f"{safe(report.model.name)} {'fits' if report.fits else 'does not fit'} {_gpus(report)}"
    )
    lines = [*(bold(x) for x in wrap(verdict, "")), *(dim(x) for x in wrap(_settings(report), ""))]
    lines += ["", *_bars(report), "", *_parts(report), ""]
    lines += _room(report) if report.fits else _alternatives(report)
    return "\n".join([*lines, "", *_speed(report), *note_lines(report.notes)])


def _gpus(report: FitReport) -> str:
    if report.gpu.members:
        return f"on {report.gpu.title}"
    return (
        f"on {report.count:,} × {report.gpu.title}"
        if report.count > 1
        else (f"on one {report.gpu.title}")
    )


def format_sequences(batch: int, context: int) -> str:
    """Return the number and the length of sequences as text."""
    return f"{format_count(batch, 'sequence')} of {format_count(context, 'token')}"


def split_text(layout: Layout) -> str:
    """Return how a model is split over GPUs: `TP 8 × PP 2`."""
    parts = [f"{name} {n}" for name, n in (("TP", layout.tp), ("PP", layout.pp)) if n > 1]
    return " × ".join(parts) or "whole on one GPU"


def _settings(report: FitReport) -> str:
    own = " (the model's own context)" if report.context == report.model.tree.context else ""
    sequences = format_sequences(report.batch, report.context)
    source = report.model.source
    split = split_text(report.layout) + (
        f" × {report.replicas:,} replicas" if report.replicas > 1 else ""
    )
    offload = (
        f"; {format_bytes(report.offload)} of the weights of each GPU on the host"
        if report.offload
        else ""
    )
    return (
        f"{report.dtype}, cache in {report.kv_dtype}; {sequences}{own}; {split}{offload}; "
        f"from {source}"
    )


def _label(stage: StageMemory, report: FitReport) -> str:
    if report.count == 1:
        return "GPU"
    first = stage.stage * stage.gpus
    return f"GPU {first}" + (f"–{first + stage.gpus - 1}" if stage.gpus > 1 else "")


def fit_comparison_text(comparison: FitComparison) -> str:
    """Return one line for each machine, with the change that gives up least where the model does
    not fit.
    """
    first = comparison.machines[0]
    settings = (
        f"{first.dtype}, cache in {first.kv_dtype}; "
        f"{format_sequences(first.batch, first.context)}; from {first.model.source}"
    )
    lines = [bold(x) for x in wrap(comparison.summary, "")] + [dim(x) for x in wrap(settings, "")]
    table = fit_table(
        [
            ("on", "", "GiB each", "of", "context", "decode ≤"),
            *map(_machine_row, comparison.machines),
        ],
        right=(2, 3, 4, 5),
    )
    lines += ["", bold(table[0]), *table[1:], ""]
    for x in comparison.machines:
        if not x.fits:
            change = f"fits with {x.instead[0].change}" if x.instead else "no change fits"
            lines += wrap(f"{gpus_option(x.count, x.gpu)}: {change}", "")
    legend = (
        "GiB: of the fullest GPU; context: the longest that fits; decode: a bound in "
        f"tokens/s at {first.context:,} tokens"
    )
    return "\n".join([*lines, *map(dim, wrap(legend, "")), *note_lines(comparison.notes)])


def _machine_row(x: FitReport) -> tuple[str, ...]:
    stage, gpu = x.fullest
    context = "any" if x.max_context is None else f"{x.max_context:,}"
    decode = format_rate(x.ceilings.decode.tokens_per_second) if x.ceilings and x.fits else ""
    memory = (format_giga(stage.total, 2**30), format_giga(gpu.memory, 2**30))
    return gpus_option(x.count, x.gpu), "fits" if x.fits else "✗", *memory, context, decode


def _bars(report: FitReport) -> Iterator[str]:
    """Yield one bar for each stage; its GPUs have the same memory."""
    labels = [_label(x, report) for x in report.stages]
    memory = [x.memory for x in report.stage_gpus]
    verdicts = [_verdict(x.total, n) for x, n in zip(report.stages, memory, strict=True)]
    scale = max(*memory, *(x.total for x in report.stages))
    indent = max(map(len, labels))
    width = max(min(terminal_width() - indent - max(map(len, verdicts)) - 5, 60), 20)
    for stage, n, label, verdict in list(zip(report.stages, memory, labels, verdicts, strict=True))[
        :_MAX_STAGES
    ]:
        yield f"{label:{indent}}  {_memory_bar(stage, n, scale, width)}  {verdict}"
    if len(labels) > _MAX_STAGES:
        least = format_giga(min(x.total for x in report.stages), 2**30)
        yield (
            f"… and {format_count(len(labels) - _MAX_STAGES, 'more stage')}, of {least} GiB or more"
        )
    yield from map(
        dim, wrap(", ".join(f"{mark} {what}" for what, mark in _LEGEND), " " * (indent + 2))
    )


def _verdict(total: int, memory: int) -> str:
    return (
        f"{format_giga(total, 2**30)} of {format_giga(memory, 2**30)} "
        f"GiB{'' if total <= memory else ' ✗'}"
    )


def _memory_bar(stage: StageMemory, memory: int, scale: int, width: int) -> str:
    """Return the memory of a GPU as a bar; `│` is the end of its memory if it is too small."""
    text, edge, done = "", round(memory / scale * width), 0
    for name, mark in _PARTS:
        done += getattr(stage, name)
        text += mark * (round(done / scale * width) - len(text))
    text += _FREE * (edge - len(text))
    return text if edge >= len(text) else f"{text[:edge]}{_EDGE}{text[edge:]}"


def _parts(report: FitReport) -> Iterator[str]:
    """Yield the parts of each stage in GiB; of many stages, those of the most and the least
    loaded GPU.
    """
    stages = list(report.stages)
    few = len(stages) <= _MAX_SHARES
    if not few:
        ranked = sorted(stages, key=lambda x: x.total)
        stages = [ranked[-1], ranked[0]]
    names = [_label(x, report) for x in stages]
    rows: list[tuple[str, ...]] = [
        ("GiB each", *(names if few else [f"{names[0]} (most)", f"{names[1]} (least)"]))
    ]
    if report.layout.pp > 1:
        rows.append(("layers", *(", ".join(f"{a}–{b - 1}" for a, b in x.runs) for x in stages)))
    for name, _ in _PARTS:
        rows.append(
            (_NAMES.get(name, name), *(format_giga(getattr(x, name), 2**30) for x in stages))
        )
    rows.append(("total", *(format_giga(x.total, 2**30) for x in stages)))
    header, *lines = fit_table(rows, right=range(1, len(rows[0])))
    yield dim(header)
    yield from lines


def _room(report: FitReport) -> list[str]:
    own, most = report.model.tree.context, report.max_context
    tokens = "any number of tokens" if most is None else f"up to {format_count(most, 'token')}"
    beyond = (
        f" (the model's own context is {own:,})" if own and (most is None or most > own) else ""
    )
    batch = (
        "any number of sequences"
        if report.max_batch is None
        else (f"up to {format_count(report.max_batch, 'sequence')}")
    )
    sequences = format_count(report.batch, "sequence")
    return [
        bold("free memory"),
        *wrap(f"fits {sequences} of {tokens}{beyond}, or {batch} of {report.context:,} tokens"),
    ]


def _alternatives(report: FitReport) -> list[str]:
    if not report.instead:
        tried = (
            "dtypes that the GPU supports, fewer tokens, an 8-bit KV cache, weights on the "
            "host, more of these GPUs, larger GPUs"
        )
        return [bold("no change fits"), *wrap(f"tried: {tried}")]
    rows = [(f"  {x.change}", x.what, f"{format_giga(x.total, 2**30)} GiB") for x in report.instead]
    return [
        bold("fits with one of these changes, least loss first"),
        *fit_table(rows, right=(2,), drop=(1,)),
    ]


def _speed(report: FitReport) -> Iterator[str]:
    """Yield the bounds of decode and prefill, and their assumptions."""
    if report.ceilings is None:
        yield "speed: unknown without the memory bandwidth, such as bw=1TB/s"
        return
    limits, batch = report.ceilings, report.batch
    where = "in all stages, one after another" if report.layout.pp > 1 else "on each GPU"
    yield bold("speed limits: upper bounds, not predictions")
    each = (
        f", {limits.decode.tokens_per_second / batch:,.1f} for each of {batch:,} sequences"
        if batch > 1
        else ""
    )
    speed = (
        f"{format_rate(limits.decode.tokens_per_second)} tokens/s{each} at "
        f"{format_count(report.context, 'token')} of context"
    )
    yield from wrap(f"decode   {speed}: {_reason(limits.decode, where)}")
    if limits.prefill is None:
        yield from wrap("prefill  unknown: the vendor publishes no FLOP/s for this GPU")
    else:
        seconds = f"{limits.prefill.seconds:.3g} s for {format_sequences(batch, report.context)}"
        speed = f"{format_rate(limits.prefill.tokens_per_second)} tokens/s, {seconds}"
        yield from wrap(f"prefill  {speed}: {_reason(limits.prefill, 'on each GPU')}")
    if report.expected is not None:
        prefill = (
            ""
            if report.expected.prefill is None
            else (f", prefill {format_rate(report.expected.prefill)} tokens/s")
        )
        yield from wrap(
            f"expected decode {format_rate(report.expected.decode)} "
            f"tokens/s{prefill}: {report.expected.source}"
        )
    yield from map(dim, wrap("assumed: " + "; ".join(limits.assumptions)))


def _reason(limit: SpeedLimit, where: str) -> str:
    if limit.bound == "memory":
        return f"memory-bound, {format_bytes(limit.bytes)} read in a pass {where}"
    return f"compute-bound, {format_rate(limit.flops / 1e12)} TFLOP {where}"


def format_rate(value: float) -> str:
    """Return tokens per second to three digits."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def gpu_ranking_text(ranking: GPURanking) -> str:
    """Return one line for each GPU, smallest first."""
    dtype = f"weights in {ranking.dtype}" if ranking.dtype else "weights as stored"
    settings = (
        f"{dtype}, cache in {ranking.kv_dtype}; "
        f"{format_sequences(ranking.batch, ranking.context)} each; from {ranking.model.source}"
    )
    lines = [
        bold(x)
        for x in wrap(f"{safe(ranking.model.name)}: GPUs that can run it, smallest first", "")
    ]
    lines += [*(dim(x) for x in wrap(settings, "")), ""]
    if ranking.gpus:
        header = ("on", "split", "GiB each", "of", "context", "decode ≤")
        table = fit_table([header, *map(_ranking_row, ranking.gpus)], right=(2, 3, 4, 5), drop=(1,))
        lines += [bold(table[0]), *table[1:], ""]
    else:
        lines += [f"none, not even {NODE_COUNTS[-1]} of one kind in a node", ""]
    if ranking.too_small:
        names = format_list(ranking.too_small, _MAX_TOO_SMALL)
        lines += wrap(
            f"too small, even {NODE_COUNTS[-1]} of them or as many as a node has: {names}", ""
        )
    return "\n".join(
        [*lines, *map(dim, wrap(_ranking_legend(ranking), "")), *note_lines(ranking.notes)]
    )


def _ranking_row(x: RankedGPU) -> tuple[str, ...]:
    context = f"{x.max_context:,}" + (" =" if x.whole_context else "  ")
    split = split_text(x.layout) if x.count > 1 else ""
    memory = (format_giga(x.total, 2**30), format_giga(x.device.memory, 2**30))
    return gpus_option(x.count, x.device), split, *memory, context, format_rate(x.decode_ceiling)


def _ranking_legend(ranking: GPURanking) -> str:
    tokens = format_count(ranking.context, "token")
    return (
        f"on: the smallest of 1, 2, 4 and 8 in a node that fits; GiB: at {tokens}; context: the "
        "longest that fits, = if all "
        f"{ranking.limit:,} that were tried do; decode: a bound in tokens/s at {tokens}, bytes "
        "over bandwidth, not a prediction"
    )
