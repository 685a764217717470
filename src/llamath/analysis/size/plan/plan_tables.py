"""The tables of training and serving plans: the ranking, the time of the best plan by part, the
rejected degrees, the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ....engines import find_engine
from ....hardware.kernel_rates import ATTENTION_KERNELS
from ....render.tables import Cell, Code, Column, Part, Table, Text
from ....utils.number_format import format_bytes, format_count, format_giga, format_si
from ..training.fp8_recipes import RECIPES
from ..training.loss_memory import loss_text
from ..training.optimizers import OPTIMIZERS

if TYPE_CHECKING:
    from .layout_space import Rejected
    from .plan_ranking import PlanReport
    from .serving_plan import ServeReport

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
"""The parts of a step: the field of its time, the words, and the field of the bytes sent."""
_RECOMPUTED = {"none": "", "selective": "scores", "op": "operations", "full": "layers"}
MAX_LISTED = 3
"""Longer lists of degrees are abbreviated after this many."""
_PLANS = (
    Column("", "number", "rank"),
    *(Column(x.upper(), "count", x) for x in ("tp", "pp", "cp", "ep", "dp")),
    Column("ZeRO", "number", "zero", drop=4),
    Column("VPP", "number", "interleave", drop=3),
    Column("batch", "right", ""),
    Column("microbatch", shown=False),
    Column("microbatches", shown=False),
    Column("recompute", "right"),
    Column("GiB", "GiB", "memory"),
    Column("bubble", "percent.1", drop=2),
    Column("MFU", "percent.1", "mfu"),
    Column("tokens/s", "SI", "tokens_per_second", drop=1),
)
_STEP = (Column("", key="part"), Column("time", "percent.1"), Column("sent per GPU", "right"))
_SERVING = (
    Column("", "number", "rank"),
    Column("TP", "number", "tp"),
    Column("PP", "number", "pp"),
    Column("replicas", "count"),
    Column("sequences", "count"),
    Column("GiB", "GiB", "memory"),
    Column("ms", "ms", "seconds_per_token"),
    Column("tokens/s", "rate", "decode_ceiling"),
    Column("per GPU", "rate", "decode_ceiling_per_gpu", drop=1),
    Column("bound", "right", drop=2),
)
_REJECTED = (Column("", key="degrees"), Column("", key="why", wrap=True))


def plan_tables(report: PlanReport) -> Iterator[Part]:
    """Yield the ranking, the step of the best plan, the duration, and what is not possible."""
    if report.plans:
        yield Table(columns=_PLANS, rows=tuple(_plan_cells(report)), legend=_plan_legend(report))
        yield from _best_plan(report)
        if (tokens := report.request.tokens) is not None:
            yield Text(_training(report, tokens), apart=True)
    else:
        yield Text(_no_plan(report), apart=True)
    yield from _rejected(report.rejected)
    yield Text(_assumptions(report), "dim", apart=True)


def step_text(report: PlanReport) -> str:
    """Return what one step is, and how many layouts were tried."""
    request = report.request
    gradients = f", gradients in {request.gradients}" if request.gradients else ""
    attention = (
        "materialized attention scores"
        if report.attention == "eager"
        else ATTENTION_KERNELS[report.attention]
    )
    fp8 = f", {RECIPES[request.fp8].title}" if request.fp8 else ""
    sequences = f"{format_count(report.sequences, 'sequence')} of {report.context:,} tokens"
    optimizer = OPTIMIZERS[request.optimizer.lower()].title
    layouts, variants = (
        format_count(n, word)
        for n, word in ((report.layouts, "layout"), (report.variants, "variant"))
    )
    return (
        f"one step: {sequences}, {report.batch_tokens:,} tokens in all; {report.dtype}, "
        f"{optimizer}{gradients}{fp8}, {request.kernels} kernels, {attention}"
        f"{loss_text(request.loss)}; {layouts} in {variants}"
    )


def _plan_cells(report: PlanReport) -> Iterator[tuple[Any, ...]]:
    has_experts = any(x.layout.ep > 1 for x in report.plans)
    for i, x in enumerate(report.plans, 1):
        layout = x.layout
        ep = layout.ep if has_experts else Cell(layout.ep, text="")
        batch = f"{layout.microbatch}×{layout.count:,}"
        recompute = Cell(layout.recompute, text=_RECOMPUTED[layout.recompute])
        yield (
            *(i, layout.tp, layout.pp, layout.cp, ep, layout.dp, layout.zero, layout.interleave),
            *(batch, layout.microbatch, layout.count, recompute, x.memory),
            *(x.timing.bubble / x.timing.step, x.mfu, round(x.tokens)),
        )


def _plan_legend(report: PlanReport) -> str:
    recomputed = any(x.layout.recompute != "none" for x in report.plans)
    more = (
        "; recompute: activation checkpointing of attention scores, operations or whole layers"
        if recomputed
        else ""
    )
    return (
        "VPP: virtual pipeline stages per GPU; batch: microbatch size × microbatches per "
        f"step{more}; GiB per GPU, of {format_giga(report.device.memory, 2**30)}"
    )


def _best_plan(report: PlanReport) -> Iterator[Part]:
    """Yield the step time of the best plan by part, with the bytes that each GPU sends."""
    best, timing = report.plans[0], report.plans[0].timing
    rows = []
    for name, what, sent in PARTS:
        share = getattr(timing, name) / timing.step
        volume = round(getattr(timing.sent, sent)) if sent else 0
        if share or volume:
            rows.append((what, share, Cell(volume, text=format_bytes(volume) if volume else "")))
    yield Table(
        title=f"plan 1, {_seconds(timing.step)} per step",
        columns=_STEP,
        rows=tuple(rows),
    )
    speed = f"{best.rate / 1e12:,.1f} of {report.peak / 1e12:,.1f} TFLOP/s per GPU"
    yield Text(f"{speed}, {format_si(round(best.tokens))} tokens/s in total")


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def _training(report: PlanReport, tokens: int) -> str:
    seconds = tokens / report.plans[0].tokens
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
    zero = f", ZeRO-{layout.zero}" if layout.zero else ""
    least, memory = (format_giga(x, 2**30) for x in (report.least, report.device.memory))
    return (
        f"no plan fits: even {layout.axes or 'one GPU'}{zero} with full recomputation needs about "
        f"{least} GiB of {memory} per GPU"
    )


def _rejected(rejected: Iterable[Rejected]) -> Iterator[Table]:
    """Yield the rejected degrees, grouped by reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for x in rejected:
        name, _, n = x.what.partition(" ") if "×" not in x.what else ("", "", x.what)
        groups.setdefault((name, x.why), []).append(n)
    rows = tuple(
        (Cell(numbers, text=f"{name} {_listed(numbers)}".strip()), why)
        for (name, why), numbers in groups.items()
    )
    if rows:
        yield Table(title="not possible", columns=_REJECTED, rows=rows)


def _listed(numbers: Sequence[str]) -> str:
    few = len(numbers) <= MAX_LISTED + 1
    return ", ".join(numbers if few else [*numbers[:MAX_LISTED], "…", numbers[-1]])


def _assumptions(report: PlanReport) -> str:
    c = report.constants
    fp8 = f" ({c['matmul_fp8']:.0%} in FP8)" if "matmul_fp8" in c else ""
    products = f"matrix products at {c['matmul']:.0%} of the peak{fp8} plus their memory traffic"
    if "attention" in c:
        products += (
            f", attention at {c['attention']:.0%} forward and "
            f"{c['attention_backward']:.0%} backward"
        )
    return (
        f"MFU is predicted: {products}; memory at {c['memory']:.0%} and links at {c['wires']:.0%} "
        f"of their published bandwidth; {c['overlap']:.0%} of data-parallel communication "
        "overlapped; model FLOPs with masked attention over the dense peak (errors: "
        "docs/concepts/accuracy.md)"
    )


def plan_notes(report: PlanReport) -> Iterator[str]:
    """Yield the notes on the first plan, on missing figures, and on the model."""
    if report.padded_vocab is not None:
        yield (
            f"TP {report.plans[0].layout.tp} pads the vocabulary from "
            f"{int(report.model.tree.vocab):,} to {report.padded_vocab:,} rows"
        )
    if not report.device.link and report.device.node > 1:
        yield (
            f"no link bandwidth is published for {report.device.title}: the network bandwidth "
            "is used inside a node, too"
        )
    yield from report.kernel_notes
    if report.request.batch_tokens is None:
        yield f"no batch_tokens given; using {report.batch_tokens:,}"
    yield from report.model.notes


def serving_tables(report: ServeReport) -> Iterator[Part]:
    """Yield the ranking, the splits that are not possible, and the assumptions."""
    if report.plans:
        memory = format_giga(report.device.memory, 2**30)
        yield Table(
            columns=_SERVING,
            rows=tuple(_serving_cells(report)),
            most=report.top,
            legend="sequences: concurrent, over all replicas; GiB on the most loaded GPU, of "
            f"{memory}; ms: time per output token",
        )
    else:
        within = " within the latency" if report.latency is not None else ""
        yield Text(f"no split fits one sequence{within}", apart=True)
    best = report.plans[0] if report.plans else None
    if best is not None and best.layout.gpus > report.device.node:
        yield from _commands(report, best.replicas)
    yield from _rejected([*report.rejected, *report.too_large])
    yield Text(
        "upper bounds, not predictions: bytes over bandwidth or FLOPs over the peak, with free "
        "communication and no speculative decoding; a pipeline has as many groups of sequences "
        f"in flight as stages, or single sequences if fewer fit. Each sequence has "
        f"{report.context:,} tokens in the cache at each step; requests that grow have fewer on "
        "average",
        "dim",
        apart=True,
    )


def _commands(report: ServeReport, replicas: int) -> Iterator[Part]:
    """Yield the commands of one replica that spans several nodes."""
    each = "" if replicas == 1 else f", each of {replicas:,} replicas"
    for x in report.commands:
        title = f"plan 1 with {find_engine(x.engine).title} {x.version}{each}"
        yield Code(x.command, title) if x.command else Text(f"{title}: {x.why}", apart=True)


def _serving_cells(report: ServeReport) -> Iterator[tuple[Any, ...]]:
    for i, x in enumerate(report.plans, 1):
        yield (
            *(i, x.layout.tp, x.layout.pp, x.replicas, x.replicas * x.batch, x.memory),
            *(x.seconds, x.rate * report.gpus, x.rate, x.bound),
        )
