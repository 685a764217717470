"""Training and serving plans on a terminal: the ranking, the time of the best plan by part, the
rejected degrees, the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....analysis.plan import PlanReport
from ....analysis.plan.layout_space import Rejected
from ....analysis.plan.serving_plan import ServeReport
from ....analysis.training.fp8_recipes import RECIPES
from ....analysis.training.optimizers import OPTIMIZERS
from ....hardware.kernel_rates import ATTENTION_KERNELS
from ....model import Model
from ....utils.errors import safe
from ....utils.number_format import format_bytes, format_giga, format_si
from ...table import bold, dim, fit_table, wrap
from ..memory_text import loss_text
from .fit_text import format_rate


def serving_text(model: Model, report: ServeReport, top: int) -> str:
    """Return the report as text."""
    lines = [
        bold(x)
        for x in wrap(
            f"{safe(model.name)}: plans to serve on {report.gpus:,} × {report.device.title}", ""
        )
    ]
    lines += [dim(x) for x in wrap(f"{model.family.name} family, from {model.source}", "")]
    within = (
        f", time per output token at most {report.latency * 1000:g} ms"
        if report.latency is not None
        else ""
    )
    lines += wrap(
        f"weights {report.dtype}, KV cache {report.kv_dtype}; sequences of "
        f"{report.context:,} tokens{within}",
        "",
    )
    nothing = "no split fits one sequence" + (" within the latency" if within else "")
    lines += ["", *(_serving_table(report, top) if report.plans else wrap(nothing, ""))]
    lines += ["", *_rejected_text([*report.rejected, *report.too_large])]
    lines += map(dim, wrap(_serving_assumptions(), ""))
    return "\n".join(
        [
            *lines,
            *(line for note in (*report.notes, *model.notes) for line in wrap(f"note: {note}", "")),
        ]
    )


def _serving_table(report: ServeReport, top: int) -> Iterator[str]:
    rows = [("", "TP", "PP", "replicas", "sequences", "GiB", "ms", "tokens/s", "per GPU", "bound")]
    for i, x in enumerate(report.plans[:top], 1):
        axes = (
            str(i),
            str(x.layout.tp),
            str(x.layout.pp),
            f"{x.replicas:,}",
            f"{x.replicas * x.batch:,}",
        )
        speeds = (
            f"{x.seconds * 1000:.3g}",
            format_rate(x.rate * report.gpus),
            format_rate(x.rate),
            x.bound,
        )
        rows.append((*axes, format_giga(x.memory, 2**30), *speeds))
    table = fit_table(rows, right=range(9), drop=(8, 9))
    yield bold(table[0])
    yield from table[1:]
    legend = (
        "sequences: concurrent, over all replicas; GiB on the most loaded GPU, of "
        f"{format_giga(report.device.memory, 2**30)}"
    )
    yield from map(dim, wrap(f"{legend}; ms: time per output token", ""))


def _serving_assumptions() -> str:
    return (
        "upper bounds, not predictions: bytes over bandwidth or FLOPs over the peak, with free "
        "communication and no speculative decoding; "
        "a pipeline has as many groups of sequences in flight as stages, or single sequences if "
        "fewer fit"
    )


PARTS = (
    ("arithmetic", "compute and memory", ""),
    ("tensor", "tensor parallelism", "tensor"),
    ("context", "context parallelism", "context"),
    ("expert", "expert parallelism", "expert"),
    ("pipeline", "pipeline sends", "pipeline"),
    ("bubble", "bubble", ""),
    ("data", "data parallelism, ZeRO", "data"),
    ("update", "optimizer", ""),
)
_RECOMPUTED = {"none": "", "selective": "scores", "op": "operations", "full": "layers"}
MAX_LISTED = 3
"""Longer lists of degrees are abbreviated after this many."""


def plan_text(model: Model, report: PlanReport) -> str:
    """Return the report as text."""
    lines = [bold(x) for x in wrap(_head(model, report), "")]
    lines += [dim(x) for x in wrap(f"{model.family.name} family, from {model.source}", "")]
    lines += wrap(_step(report), "")
    if report.plans:
        lines += ["", *_table(report), "", *_best_plan(report)]
        lines += (
            ["", *wrap(_training(report, tokens), "")]
            if (tokens := report.request.tokens) is not None
            else []
        )
    else:
        lines += ["", *wrap(_no_plan(report), "")]
    lines += ["", *_rejected_text(report.rejected), *map(dim, wrap(_assumptions(report), ""))]
    return "\n".join(
        [*lines, *(line for note in _notes(model, report) for line in wrap(f"note: {note}", ""))]
    )


def _head(model: Model, report: PlanReport) -> str:
    return f"{safe(model.name)}: plans to train on {report.gpus:,} × {report.device.title}"


def _step(report: PlanReport) -> str:
    request, n = report.request, report.sequences
    gradients = f", gradients in {request.gradients}" if request.gradients else ""
    attention = (
        "materialized attention scores"
        if report.attention == "eager"
        else ATTENTION_KERNELS[report.attention]
    )
    fp8 = f", {RECIPES[request.fp8].title}" if request.fp8 else ""
    sequences = f"{_count(n, 'sequence')} of {report.context:,} tokens"
    optimizer = OPTIMIZERS[request.optimizer.lower()].title
    settings = (
        f"{report.dtype}, {optimizer}{gradients}{fp8}, {request.kernels} kernels, "
        f"{attention}{loss_text(request.loss)}"
    )
    tried = f"{_count(report.layouts, 'layout')} in {_count(report.variants, 'variant')}"
    return f"one step: {sequences}, {report.batch_tokens:,} tokens in all; {settings}; {tried}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' if n > 1 else ''}"


def _table(report: PlanReport) -> Iterator[str]:
    """One row per plan; empty columns are left out."""
    experts = any(x.layout.ep > 1 for x in report.plans)
    axes_header = ["TP", "PP", "CP", *(["EP"] if experts else []), "DP"]
    header = [
        "",
        *axes_header,
        "ZeRO",
        "VPP",
        "batch",
        "recompute",
        "GiB",
        "bubble",
        "MFU",
        "tokens/s",
    ]
    rows = [header]
    for i, x in enumerate(report.plans, 1):
        layout = x.layout
        axes = [
            f"{n:,}"
            for n in (layout.tp, layout.pp, layout.cp, *([layout.ep] if experts else []), layout.dp)
        ]
        batch = f"{layout.microbatch}×{layout.count:,}"
        share = x.timing.bubble / x.timing.step
        figures = [
            format_giga(x.memory, 2**30),
            f"{share:.1%}",
            f"{x.mfu:.1%}",
            format_si(round(x.tokens)),
        ]
        rows.append(
            [
                str(i),
                *axes,
                str(layout.zero),
                str(layout.interleave),
                batch,
                _RECOMPUTED[layout.recompute],
                *figures,
            ]
        )
    if all(x.layout.recompute == "none" for x in report.plans):
        column = header.index("recompute")
        rows = [row[:column] + row[column + 1 :] for row in rows]
    columns = {name: i for i, name in enumerate(rows[0])}
    table = fit_table(
        rows,
        right=range(len(columns)),
        drop=[columns[x] for x in ("tokens/s", "bubble", "VPP", "ZeRO")],
    )
    yield bold(table[0])
    yield from table[1:]
    more = (
        ("; recompute: activation checkpointing of attention scores, operations or whole layers")
        if "recompute" in rows[0]
        else ""
    )
    legend = (
        "VPP: virtual pipeline stages per GPU; batch: microbatch size × microbatches per "
        f"step{more}; GiB per GPU, of"
    )
    yield from map(dim, wrap(f"{legend} {format_giga(report.device.memory, 2**30)}", ""))


def _best_plan(report: PlanReport) -> Iterator[str]:
    """Yield the step time of the best plan by part, with the bytes that each GPU sends."""
    best, timing = report.plans[0], report.plans[0].timing
    rows = [(f"plan 1, {_seconds(timing.step)} per step", "time", "sent per GPU")]
    for name, what, sent in PARTS:
        share = getattr(timing, name) / timing.step
        volume = getattr(timing.sent, sent) if sent else 0
        if share or volume:
            rows.append(
                (f"  {what}", f"{share:.1%}", format_bytes(round(volume)) if volume else "")
            )
    table = fit_table(rows, right=(1, 2))
    yield bold(table[0])
    yield from table[1:]
    speed = f"{best.rate / 1e12:,.1f} of {report.peak / 1e12:,.1f} TFLOP/s per GPU"
    yield from wrap(f"{speed}, {format_si(round(best.tokens))} tokens/s in total", "  ")


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _training(report: PlanReport, tokens: int) -> str:
    best = report.plans[0]
    seconds = tokens / best.tokens
    hours, days = seconds / 3600, seconds / 86400
    time = f"{hours:,.1f} hours" if hours < 100 else f"{hours:,.0f} hours ({days:,.1f} days)"
    steps = -(-tokens // report.batch_tokens)
    return (
        f"{tokens:,} tokens with plan 1: {steps:,} steps, {time}, {hours * report.gpus:,.0f} "
        "GPU-hours without failures"
    )


def _no_plan(report: PlanReport) -> str:
    assert report.least is not None and report.smallest is not None
    layout = report.smallest
    axes = " × ".join(
        f"{name.upper()} {n}"
        for name in ("tp", "pp", "cp", "ep", "dp")
        if (n := getattr(layout, name)) > 1
    )
    zero = f", ZeRO-{layout.zero}" if layout.zero else ""
    need = f"{format_giga(report.least, 2**30)} GiB of {format_giga(report.device.memory, 2**30)}"
    return (
        f"no plan fits: even {axes or 'one GPU'}{zero} with full recomputation needs about "
        f"{need} per GPU"
    )


def _rejected_text(rejected: Sequence[Rejected]) -> Iterator[str]:
    """List the rejected degrees, grouped by reason."""
    if not rejected:
        return
    yield bold("not possible")
    groups: dict[tuple[str, str], list[str]] = {}
    for x in rejected:
        name, _, n = x.what.partition(" ") if "×" not in x.what else ("", "", x.what)
        groups.setdefault((name, x.why), []).append(n)
    for (name, why), numbers in groups.items():
        shown = (
            numbers if len(numbers) <= MAX_LISTED + 1 else [*numbers[:MAX_LISTED], "…", numbers[-1]]
        )
        yield from wrap(f"{name} {', '.join(shown)}: {why}".strip(), "  ")


def _assumptions(report: PlanReport) -> str:
    c = report.constants
    fp8 = f" ({c['matmul_fp8']:.0%} in FP8)" if "matmul_fp8" in c else ""
    products = f"matrix products at {c['matmul']:.0%} of the peak{fp8} plus their memory traffic"
    if "attention" in c:
        products += (
            f", attention at {c['attention']:.0%} forward and "
            f"{c['attention_backward']:.0%} backward"
        )
    links = (
        f"memory at {c['memory']:.0%} and links at {c['wires']:.0%} of their published bandwidth"
    )
    return (
        f"MFU is predicted: {products}; {links}; {c['overlap']:.0%} of data-parallel "
        "communication overlapped; "
        "model FLOPs with masked attention over the dense peak (errors: docs/concepts/accuracy.md)"
    )


def _notes(model: Model, report: PlanReport) -> Iterator[str]:
    if report.padded_vocab is not None:
        yield (
            f"TP {report.plans[0].layout.tp} pads the vocabulary from "
            f"{int(model.tree.vocab):,} to {report.padded_vocab:,} rows"
        )
    if not report.device.link and report.device.node > 1:
        yield (
            f"no link bandwidth is published for {report.device.title}: the network bandwidth "
            "is used inside a node, too"
        )
    yield from report.kernel_notes
    if report.request.batch_tokens is None:
        yield f"no batch_tokens given; using {report.batch_tokens:,}"
    yield from model.notes
