"""Serving plans as text: TP × PP × replicas by the upper bounds on decode speed."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.plan.serving_plan import ServeReport
from ...core.errors import safe
from ...core.number_format import format_giga
from ...model import Model
from ..table import bold, dim, fit_table, wrap
from .fit_text import format_rate
from .plan_text import rejected_text


def serving_text(model: Model, report: ServeReport, top: int) -> str:
    """Return the report as text."""
    lines = [bold(x) for x in wrap(f"{safe(model.name)}: plans to serve on {report.gpus:,} × {report.device.title}", "")]
    lines += [dim(x) for x in wrap(f"{model.family.name} family, from {model.source}", "")]
    within = f", time per output token at most {report.latency * 1000:g} ms" if report.latency is not None else ""
    lines += wrap(f"weights {report.dtype}, KV cache {report.kv_dtype}; sequences of {report.context:,} tokens{within}", "")
    nothing = "no split fits one sequence per pipeline stage" + (" within the latency" if within else "")
    lines += ["", *(_table(report, top) if report.plans else wrap(nothing, ""))]
    lines += ["", *rejected_text([*report.rejected, *report.too_large])]
    lines += map(dim, wrap(_assumed(), ""))
    return "\n".join([*lines, *(line for note in (*report.notes, *model.notes) for line in wrap(f"note: {note}", ""))])


def _table(report: ServeReport, top: int) -> Iterator[str]:
    rows = [("", "TP", "PP", "replicas", "sequences", "GiB", "ms", "tokens/s", "per GPU", "bound")]
    for i, x in enumerate(report.plans[:top], 1):
        axes = (str(i), str(x.layout.tp), str(x.layout.pp), f"{x.replicas:,}", f"{x.replicas * x.batch:,}")
        speeds = (f"{x.seconds * 1000:.3g}", format_rate(x.rate * report.gpus), format_rate(x.rate), x.bound)
        rows.append((*axes, format_giga(x.memory, 2**30), *speeds))
    table = fit_table(rows, right=range(9), drop=(8, 9))
    yield bold(table[0])
    yield from table[1:]
    legend = f"sequences: concurrent, over all replicas; GiB on the most loaded GPU, of {format_giga(report.device.memory, 2**30)}"
    yield from map(dim, wrap(f"{legend}; ms: time per output token", ""))


def _assumed() -> str:
    return (
        "upper bounds, not predictions: bytes over bandwidth or FLOPs over the peak, with free communication; "
        "a pipeline has as many groups of sequences in flight as stages"
    )
