"""`cost` on a terminal: what a million tokens cost, and a training run."""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.cost.cost_report import CostReport, format_interval
from ....utils.errors import safe
from ....utils.number_format import format_count
from ...table import bold, dim, fit_table, note_lines, wrap
from .fit_text import format_rate, split_text


def cost_text(report: CostReport) -> str:
    """Return the whole report."""
    found = report.generation
    lines = [
        bold(x)
        for x in wrap(f"{safe(report.model.name)} on {report.count:,} × {report.gpu.title}", "")
    ]
    replicas = f" × {report.replicas:,} replicas" if report.replicas > 1 else ""
    sequences = (
        f"{format_count(found.batch, 'sequence')} of {found.prompt:,} + {found.output:,} "
        "tokens at once"
    )
    lines += [
        dim(x)
        for x in wrap(
            f"{report.dtype}; {split_text(report.layout)}{replicas}; "
            f"{sequences}; from {report.model.source}",
            "",
        )
    ]
    lines += [
        "",
        *_generation(report),
        *_training(report),
        "",
        *map(dim, wrap("assumed: " + "; ".join(report.assumptions), "")),
    ]
    return "\n".join([*lines, *note_lines(report.notes)])


def _generation(report: CostReport) -> Iterator[str]:
    found, currency = report.generation, report.price.currency if report.price else ""
    rows = [("a million generated tokens", "like published runs", "at the bound")]
    rows.append(("  tokens/s, all GPUs", format_interval(found.rate), format_rate(found.bound)))
    if found.price is not None and found.price_bound is not None:
        rows.append(
            (
                "  price, prompts included",
                format_interval(found.price, currency),
                f"{currency}{found.price_bound:.3g}",
            )
        )
    if found.energy is not None:
        rows.append(("  kWh of the boards", format_interval(found.energy.scaled(1e-3)), ""))
    rows.append(("  kWh, EcoLogits", format_interval(found.co2.energy), ""))
    rows.append(("  kg CO₂e, EcoLogits", format_interval(found.co2.co2), ""))
    table = fit_table(rows, right=(1, 2))
    yield bold(table[0])
    yield from table[1:]


def _training(report: CostReport) -> Iterator[str]:
    found = report.training
    if found is None:
        return
    rows = [("training", f"{found.tokens:,} tokens, {found.flops:.3g} FLOPs")]
    rows.append(("  GPU-hours", format_interval(found.gpu_hours)))
    rows.append(
        ("  days on these GPUs", format_interval(found.gpu_hours.scaled(1 / 24 / report.count)))
    )
    if found.price is not None and report.price is not None:
        rows.append(("  price", format_interval(found.price, report.price.currency)))
    if found.energy is not None:
        rows.append(("  MWh of the boards", format_interval(found.energy.scaled(1e-3))))
    table = fit_table(rows)
    yield ""
    yield bold(table[0])
    yield from table[1:]
