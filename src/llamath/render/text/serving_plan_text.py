"""Plans of a model that serves, on a terminal: TP × PP × replicas by the ceilings of decoding."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.plan.serving_plan import ServeReport
from ...core.errors import safe
from ...core.number_format import format_giga
from ...model import Model
from ..table import align, bold, dim, wrap
from .fit_text import format_rate
from .plan_text import rejected_text


def serving_text(model: Model, report: ServeReport, top: int) -> str:
    """The whole report."""
    lines = [bold(x) for x in wrap(f"{safe(model.name)}: plans to serve on {report.gpus:,} × {report.device.title}", "")]
    lines += [dim(x) for x in wrap(f"{model.family.name} family, from {model.source}", "")]
    within = f", each next token within {report.latency * 1000:g} ms" if report.latency is not None else ""
    lines += wrap(f"{report.dtype}, cache in {report.kv_dtype}; sequences of {report.context:,} tokens{within}", "")
    lines += ["", *_table(report, top)] if report.plans else ["", "no split holds one sequence" + (" in time" if within else "")]
    lines += ["", *rejected_text([*report.rejected, *report.too_large])]
    lines += map(dim, wrap(_assumed(), ""))
    return "\n".join([*lines, *(line for note in (*report.notes, *model.notes) for line in wrap(f"note: {note}", ""))])


def _table(report: ServeReport, top: int) -> Iterator[str]:
    rows = [("", "TP", "PP", "replicas", "sequences", "GiB", "ms", "tokens/s", "a GPU", "bound")]
    for i, x in enumerate(report.plans[:top], 1):
        axes = (str(i), str(x.layout.tp), str(x.layout.pp), f"{x.replicas:,}", f"{x.replicas * x.batch:,}")
        speeds = (f"{x.seconds * 1000:.3g}", format_rate(x.rate * report.gpus), format_rate(x.rate), x.bound)
        rows.append((*axes, format_giga(x.memory, 2**30), *speeds))
    table = align(rows, right=range(9), gap=2)
    yield bold(table[0])
    yield from table[1:]
    said = f"sequences: of all replicas at once; GiB on the fullest GPU, of {format_giga(report.device.memory, 2**30)}"
    yield from map(dim, wrap(f"{said}; ms from one token of a sequence to the next", ""))


def _assumed() -> str:
    return (
        "ceilings, not predictions: bytes over bandwidth or FLOPs over the peak, nothing spent on talking between GPUs; "
        "a pipeline has as many groups of sequences on their way as stages"
    )
