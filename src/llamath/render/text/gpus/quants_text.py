"""`quants` on a terminal: a row for each dtype or file, and the one to choose."""

from __future__ import annotations

from ....analysis.fit.quants_report import QuantRow, QuantsReport
from ....analysis.fit.suggestions import gpus_option
from ....utils.errors import safe
from ....utils.number_format import format_giga
from ...table import bold, dim, fit_table, note_lines, wrap


def quants_text(report: QuantsReport) -> str:
    """Return the whole report."""
    lines = [bold(x) for x in wrap(report.summary, "")]
    lines += [
        dim(x) for x in wrap(f"KV cache in {report.kv_dtype}; from {report.model.source}", "")
    ]
    header: tuple[str, ...] = ("file" if report.are_files else "dtype", "GB", "bits", "unquantized")
    if report.gpu is None:
        rows = [header, *map(_row, report.rows)]
    else:
        rows = [(*header, "GiB", "context", ""), *((*_row(x), *_on_gpu(x)) for x in report.rows)]
    table = fit_table(rows, right=(1, 2, 4, 5), drop=(3,))
    lines += ["", bold(table[0]), *table[1:], "", *map(dim, wrap(_legend(report), ""))]
    return "\n".join([*lines, *note_lines(report.notes)])


def _row(x: QuantRow) -> tuple[str, ...]:
    names = x.unquantized if len(x.unquantized) < 3 else (*x.unquantized[:2], "…")
    plain = "all" if x.unquantized_bytes == x.bytes else ", ".join(names)
    return safe(x.name, 80), format_giga(x.bytes, 10**9), f"{x.bits:.2f}", plain


def _on_gpu(x: QuantRow) -> tuple[str, str, str]:
    total = format_giga(x.total, 2**30) if x.total is not None else ""
    verdict = ("fits" if x.fits else "✗") if x.supported else "no kernels"
    return total, f"{x.max_context:,}" if x.max_context else "", verdict


def _legend(report: QuantsReport) -> str:
    parts = ["bits: per weight, scales included", "unquantized: largest parts in 16 bits or more"]
    if report.gpu is not None:
        where = gpus_option(report.count, report.gpu)
        parts.append(
            f"GiB: on the fullest GPU of {where} with {report.context:,} tokens; context: the "
            "longest that fits, at most the model's own"
        )
    return "; ".join(parts)
