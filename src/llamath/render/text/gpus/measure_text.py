"""`measure` on a terminal: the rates of the machine, and a model's speed beside its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....utils.errors import safe
from ...table import bold, dim, fit_table, wrap
from .fit_text import format_rate

if TYPE_CHECKING:
    from ....native.measure import MeasureReport


def measure_text(report: MeasureReport) -> str:
    """Return the whole report."""
    threads = f"{report.threads} thread{'s' if report.threads != 1 else ''}"
    lines = [bold(x) for x in wrap(f"{safe(report.machine)}, {threads}, {report.path}", "")]
    rates = [(f"  {name}", f"{rate / 1e9:,.0f} GFLOP/s") for name, rate in report.flops.items()]
    lines += [
        "",
        *fit_table(
            [("  memory bandwidth", f"{report.bandwidth / 1e9:,.1f} GB/s"), *rates], right=(1,)
        ),
        "",
    ]
    lines += [
        bold(x)
        for x in wrap(
            f"{safe(report.model.name)}, {report.engine} engine, "
            f"{report.prompt:,} + {report.tokens:,} tokens",
            "",
        )
    ]
    rows = [("", "tokens/s", "limit", "share")]
    rows.append(
        (
            "  decode",
            format_rate(report.decode),
            format_rate(report.limits.decode.tokens_per_second),
            f"{report.decode_share:.0%}",
        )
    )
    if report.limits.prefill is not None:
        limit = format_rate(report.limits.prefill.tokens_per_second)
        rows.append(
            ("  prefill", format_rate(report.prefill), limit, f"{report.prefill_share:.0%}")
        )
    lines += [*fit_table(rows, right=(1, 2, 3)), ""]
    about = (
        "rates: medians of the engine's own products, of one token (bandwidth) and of 512; "
        "the limits are those of fit at these rates"
    )
    if report.decode_share > 1:
        about += (
            "; decode is faster than the memory where the model stays in the processor's caches"
        )
    return "\n".join([*lines, *map(dim, wrap(about, ""))])
