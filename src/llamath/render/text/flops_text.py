"""FLOPs as text: products, passes, conventions next to the exact count, FLOPs per byte, and MFU
for a given throughput.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from ...analysis.flops.flops_report import MFU, FlopsReport, FlopsRow
from ...analysis.flops.mfu import flops_by_convention
from ...model import Model
from ...utils.number_format import (
    format_count,
    format_flops,
    format_percent,
    format_ranges,
    format_si,
)
from ..csv_rows import format_table
from ..table import bold, dim, fit_table, wrap

HEADER = ("product", "formula", "forward", "decode", "training", "share")


def flops_text(model: Model, report: FlopsReport) -> str:
    """Return the report as text."""
    request, total = report.request, report.forward.total
    T, B = request.context or 0, request.batch
    tokens = f"{'' if B == 1 else f'{B:,} sequences of '}{format_count(T, 'token')}"
    head = (
        f"{model.name}: {format_flops(total)} forward over {tokens}, "
        f"{format_flops(report.training.model)} to train on them"
    )
    lines = [bold(x) for x in wrap(head, indent="")]
    lines += [dim(x) for x in wrap(f"{model.family.name} family, from {model.source}", indent="")]
    lines += [dim(x) for x in wrap(_attention(report), indent="")]
    if report.images is not None:
        lines += [dim(x) for x in wrap(f"with {report.images.summary} of the context", indent="")]
    table = fit_table(list(_rows(report)), right=(2, 3, 4, 5), drop=(1,))
    lines += ["", bold(table[0]), *table[1:], *wrap(f"with {_legend(model, report)}"), ""]
    lines += [*_passes(report), "", *_conventions(report), "", *_intensity(report)]
    if report.mfu is not None:
        lines += ["", *_mfu_lines(report.mfu)]
    return "\n".join(
        [*lines, *(x for note in report.notes for x in wrap(f"note: {note}", indent=""))]
    )


def conventions_text(report: FlopsReport) -> str:
    """Return each convention with its formula, description and source."""
    lines: list[str] = []
    for x in report.conventions:
        lines += [
            bold(f"{x.name}: {x.title}"),
            *wrap(f"{x.train.symbol} = {int(x.train):,} per token"),
            *wrap(x.says),
        ]
        lines += [*wrap(x.source), ""]
    return "\n".join(lines[:-1])


def _attention(report: FlopsReport) -> str:
    if not report.request.masked:
        return (
            "attention over all query-key pairs, as plain matrix products compute them "
            "(--attention causal: masked pairs only)"
        )
    return "attention over the query-key pairs that the mask admits (--attention full: all pairs)"


def _rows(report: FlopsReport) -> Iterator[tuple[str, ...]]:
    yield HEADER
    placed: tuple[object, ...] = ()
    for row in report.rows:
        many, place = row.indices or row.times > 1, (row.section, row.indices, row.times)
        if many and place != placed:
            same_place = [x for x in report.rows if (x.section, x.indices, x.times) == place]
            label = (
                f"{row.section} {format_ranges(row.indices)}"
                if row.indices
                else f"{row.times:,} {row.section}"
            )
            yield _line(label, f"× {row.times:,}", report, same_place)
        placed = place
        name = ("  " if many else "") + row.what + (" mixing" if row.mixing else "")
        yield _line(name, row.formula, report, [row])
    yield _line("total", "", report, report.rows)


def _line(
    name: str, formula: str, report: FlopsReport, rows: Sequence[FlopsRow]
) -> tuple[str, ...]:
    forward, decode = sum(int(x.forward) for x in rows), sum(int(x.decode) for x in rows)
    return (
        name,
        formula,
        format_si(forward),
        format_si(decode),
        format_si(3 * forward),
        format_percent(Fraction(forward, report.forward.total)),
    )


def _legend(model: Model, report: FlopsReport) -> str:
    keys = {
        "T": "tokens",
        "B": "sequences",
        "A": "attended pairs",
        "Aw": "attended pairs in the window",
        "Ac": "attended pairs in chunks",
        **model.config.key_by_symbol,
    }
    return ", ".join(
        f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in report.letters.items()
    )


def _passes(report: FlopsReport) -> list[str]:
    t, B = report.training, report.request.batch
    rows = [("pass", "FLOPs", "per token")]
    if (images := report.images) is not None:
        rows += [
            _pass(f"images, {group}", images.flops.of(group), images.tokens * B)
            for group in ("vision", "projector")
        ]
        rows.append(
            _pass("images and prefill", images.flops.total + report.prefill.total, report.tokens)
        )
    rows.append(_pass("prefill, head on the last token", report.prefill.total, report.tokens))
    rows.append(_pass("forward, head on every token", report.forward.total, report.tokens))
    if report.request.masked:
        rows.append(_pass("  with full attention", report.full.total, report.tokens))
    rows.append(_pass(f"decode, token {report.request.context:,}", report.decode.total, B))
    if report.decode_otherwise.total != report.decode.total:
        decode_form = (
            "absorbed latent attention"
            if report.request.unpacked
            else ("decompressed keys and values")
        )
        rows.append(_pass(f"  with {decode_form}", report.decode_otherwise.total, B))
    rows.append(_pass("training: forward + 2·forward backward", t.model, report.tokens))
    if t.recomputed:
        rows.append(
            _pass(f"  recomputed ({report.request.recompute})", t.recomputed, report.tokens)
        )
    if t.rescored:
        rows.append(_pass("  scores recomputed by FlashAttention", t.rescored, report.tokens))
    if t.hardware != t.model:
        rows.append(_pass("  hardware FLOPs", t.hardware, report.tokens))
    lines = fit_table(rows, right=(1, 2))
    return [bold(lines[0]), *lines[1:]]


def _pass(name: str, flops: int, tokens: int) -> tuple[str, str, str]:
    return name, f"{flops:,}", format_si(Fraction(flops, tokens))


def _conventions(report: FlopsReport) -> list[str]:
    rows = [("convention", "FLOPs per training token", "FLOPs", "÷ exact")]
    formulas = {
        "exact": "3 · forward",
        "full": "attention over all pairs",
        "hardware": "with recomputation",
    }
    formulas |= {
        x.name: x.train.symbol if len(x.train.symbol) < 39 else x.title for x in report.conventions
    }
    for name, (_, per_token) in flops_by_convention(report).items():
        rows.append(
            (
                f"  {name}",
                formulas[name],
                format_si(per_token),
                f"{float(per_token / report.exact_per_token):.4f}",
            )
        )
    lines = fit_table(rows, right=(2, 3), drop=(1,))
    return [bold(lines[0]), *lines[1:], dim("formulas and sources: --format conventions")]


def _intensity(report: FlopsReport) -> list[str]:
    rows = [("FLOPs per byte read", "prefill", "decode")]
    rows += [
        (x.group, f"{x.ratio:,.1f}", f"{y.ratio:,.2f}")
        for x, y in zip(report.prefill_intensity, report.decode_intensity, strict=True)
    ]
    weight_dtype, cache_dtype = report.dtypes
    lines = fit_table(rows, right=(1, 2))
    return [
        bold(lines[0]),
        *lines[1:],
        *map(
            dim,
            wrap(
                f"weights {weight_dtype}, KV cache {cache_dtype}; activations are not counted", ""
            ),
        ),
    ]


def _mfu_lines(mfu: MFU) -> list[str]:
    peak = format_flops(mfu.peak)[:-1]
    head = (
        f"{float(mfu.tokens_per_second):,.0f} tokens per second on {mfu.gpus:,} × {mfu.gpu}, "
        f"{peak}/s each in {mfu.precision}"
    )
    rows = [("convention", "FLOP/s per GPU", "MFU")]
    rows += [
        (name, format_si(Fraction(x.flops_per_second)), format_percent(Fraction(x.mfu)))
        for name, x in mfu.by.items()
    ]
    lines = fit_table(rows, right=(1, 2))
    return [*wrap(head, indent=""), bold(lines[0]), *lines[1:]]


_PRODUCT_COLUMNS = (
    "group",
    "product",
    "layers",
    "times",
    "formula",
    "forward",
    "decode",
    "training",
)


def flops_rows(report: FlopsReport, form: str) -> Iterator[str]:
    """Yield the products as CSV or Markdown, the layers of one kind in one row."""
    rows = (
        (
            x.group,
            _product_name(x),
            format_ranges(x.indices),
            str(x.times),
            x.formula,
            *map(str, _row_passes(x)),
        )
        for x in report.rows
    )
    return format_table(_PRODUCT_COLUMNS, rows, form)


def _product_name(row: FlopsRow) -> str:
    return row.what + (" mixing" if row.mixing else "")


def _row_passes(row: FlopsRow) -> tuple[int, int, int]:
    return row.forward, row.decode, row.train
