"""The FLOPs for programs: the contract of `--json`, and the products as CSV or Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.flops.flops_report import FlopsReport, FlopsRow
from ...analysis.flops.mfu import Throughput, Utilization, with_mfu
from ...core.number_format import format_ranges
from ...model import Model
from ..csv_rows import format_table

COLUMNS = ("group", "product", "layers", "times", "formula", "forward", "decode", "training")


def flops_json(_model: Model, report: FlopsReport, used: tuple[Throughput, Sequence[Utilization]] | None = None) -> dict[str, Any]:
    """Return the JSON of `llamath flops`."""
    return (report if used is None else with_mfu(report, used[0])).to_json()


def flops_rows(report: FlopsReport, form: str) -> Iterator[str]:
    """The products, layers of a kind together."""
    rows = ((x.group, _product(x), format_ranges(x.indices), str(x.times), x.formula, *map(str, _passes(x))) for x in report.rows)
    return format_table(COLUMNS, rows, form)


def _product(row: FlopsRow) -> str:
    return row.what + (" mixing" if row.mixing else "")


def _passes(row: FlopsRow) -> tuple[int, int, int]:
    return row.forward, row.decode, row.train
