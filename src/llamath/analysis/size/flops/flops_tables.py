"""The tables of FLOPs: products, passes, conventions next to the exact count, FLOPs per byte, and
the MFU for a given throughput.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ....render.tables import Cell, Column, Part, Row, Table, Text, heading
from ....utils.number_format import format_flops, format_ranges

if TYPE_CHECKING:
    from .flops_report import MFU, FlopsReport, FlopsRow

_PRODUCTS = (
    Column("group", shown=False),
    Column("product"),
    Column("layers", "layers", shown=False),
    Column("times", shown=False),
    Column("formula", drop=1),
    Column("forward", "SI"),
    Column("decode", "SI"),
    Column("training", "SI"),
    Column("share", "share", ""),
)
_PASSES = (Column("pass"), Column("FLOPs", "count"), Column("per token", "SI"))
_CONVENTIONS = (
    Column("convention"),
    Column("FLOPs per training token", key="formula", drop=1),
    Column("FLOPs", "SI"),
    Column("÷ exact", ".4"),
)
_INTENSITY = (
    Column("FLOPs per byte read", key="group"),
    Column("prefill", ".1"),
    Column("decode", ".2"),
)
_MFU = (Column("convention"), Column("FLOP/s per GPU", "SI"), Column("MFU", "share"))
_MAX_FORMULA = 38
"""A longer formula of a convention is shown by its title."""


def flops_tables(report: FlopsReport) -> Iterator[Part]:
    """Yield the products, the passes, the conventions, FLOPs per byte, and the MFU."""
    yield Table(columns=_PRODUCTS, rows=tuple(_products(report)))
    yield Text(f"with {_letters(report)}", indent="  ")
    yield Table(columns=_PASSES, rows=tuple(_passes(report)))
    yield Table(
        columns=_CONVENTIONS,
        rows=tuple(_conventions(report)),
        legend="formulas and sources: --format conventions",
    )
    weight_dtype, cache_dtype = report.dtypes
    yield Table(
        columns=_INTENSITY,
        rows=tuple(
            (x.group, x.ratio, y.ratio)
            for x, y in zip(report.prefill_intensity, report.decode_intensity, strict=True)
        ),
        legend=f"weights {weight_dtype}, KV cache {cache_dtype}; activations are not counted",
    )
    if report.mfu is not None:
        yield _mfu(report.mfu)


def convention_parts(report: FlopsReport) -> Iterator[Part]:
    """Yield each convention with its formula, description and source."""
    for x in report.conventions:
        yield heading(f"{x.name}: {x.title}")
        for text in (f"{x.train.symbol} = {int(x.train):,} per token", x.says, x.source):
            yield Text(text, indent="  ")


def attention_text(report: FlopsReport) -> str:
    """Return which query-key pairs are counted."""
    if not report.request.masked:
        return (
            "attention over all query-key pairs, as plain matrix products compute them "
            "(--attention causal: masked pairs only)"
        )
    return "attention over the query-key pairs that the mask admits (--attention full: all pairs)"


def _products(report: FlopsReport) -> Iterator[Row]:
    placed: tuple[object, ...] = ()
    for row in report.products:
        many, place = row.indices or row.times > 1, (row.section, row.indices, row.times)
        if many and place != placed:
            same = [x for x in report.products if (x.section, x.indices, x.times) == place]
            label = (
                f"{row.section} {format_ranges(row.indices)}"
                if row.indices
                else f"{row.times:,} {row.section}"
            )
            yield _sum(label, f"× {row.times:,}", report, same)
        placed = place
        name = row.what + (" mixing" if row.mixing else "")
        cells = (
            *(row.group, name, row.indices, row.times, row.formula),
            *(row.forward, row.decode, row.train, Fraction(row.forward, report.forward.total)),
        )
        yield Row(cells, level=int(bool(many)))
    yield _sum("total", "", report, report.products)


def _sum(name: str, formula: str, report: FlopsReport, rows: Sequence[FlopsRow]) -> Row:
    forward, decode = sum(int(x.forward) for x in rows), sum(int(x.decode) for x in rows)
    share = Fraction(forward, report.forward.total)
    cells = ("", name, None, None, formula, forward, decode, 3 * forward, share)
    return Row(cells, is_sum=True)


def _letters(report: FlopsReport) -> str:
    keys = {
        "T": "tokens",
        "B": "sequences",
        "A": "attended pairs",
        "Aw": "attended pairs in the window",
        "Ac": "attended pairs in chunks",
        **report.model.config.key_by_symbol,
    }
    return ", ".join(
        f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in report.letters.items()
    )


def _passes(report: FlopsReport) -> Iterator[Row]:
    t, batch, tokens = report.training, report.request.batch, report.tokens
    if (images := report.images) is not None:
        of_images = images.tokens * batch
        for group in ("vision", "projector"):
            yield _pass(f"images, {group}", images.flops.of(group), of_images)
        yield _pass("images and prefill", images.flops.total + report.prefill.total, tokens)
    yield _pass("prefill, head on the last token", report.prefill.total, tokens)
    yield _pass("forward, head on every token", report.forward.total, tokens)
    if report.request.masked:
        yield _pass("with full attention", report.full.total, tokens, level=1)
    yield _pass(f"decode, token {report.request.context:,}", report.decode.total, batch)
    if report.decode_otherwise.total != report.decode.total:
        form = (
            "absorbed latent attention"
            if report.request.unpacked
            else "decompressed keys and values"
        )
        yield _pass(f"with {form}", report.decode_otherwise.total, batch, level=1)
    yield _pass("training: forward + 2·forward backward", t.model, tokens)
    if t.recomputed:
        yield _pass(f"recomputed ({report.request.recompute})", t.recomputed, tokens, level=1)
    if t.rescored:
        yield _pass("scores recomputed by FlashAttention", t.rescored, tokens, level=1)
    if t.hardware != t.model:
        yield _pass("hardware FLOPs", t.hardware, tokens, level=1)


def _pass(name: str, flops: int, tokens: int, level: int = 0) -> Row:
    return Row((name, flops, Fraction(flops, tokens)), level)


def _conventions(report: FlopsReport) -> Iterator[tuple[Any, ...]]:
    formulas = {
        "exact": "3 · forward",
        "full": "attention over all pairs",
        "hardware": "with recomputation",
    }
    formulas |= {
        x.name: x.train.symbol if len(x.train.symbol) <= _MAX_FORMULA else x.title
        for x in report.conventions
    }
    for name, (_, per_token) in flops_by_convention(report).items():
        yield name, formulas[name], per_token, per_token / report.exact_per_token


def flops_by_convention(report: FlopsReport) -> dict[str, tuple[str, Fraction]]:
    """Return (title, training FLOPs per token) by every convention, exact counts first."""
    full, exact = Fraction(3 * report.full.total, report.tokens), report.exact_per_token
    counts = {"exact": ("exact", exact), "full": ("exact, attention over all pairs", full)}
    if report.training.hardware != report.training.model:
        counts["hardware"] = (
            "exact, with recomputation",
            Fraction(report.training.hardware, report.tokens),
        )
    return counts | {x.name: (x.title, Fraction(int(x.train))) for x in report.conventions}


def _mfu(mfu: MFU) -> Table:
    peak = format_flops(mfu.peak)[:-1]
    return Table(
        title=f"{float(mfu.tokens_per_second):,.0f} tokens per second on {mfu.gpus:,} × "
        f"{mfu.gpu}, {peak}/s each in {mfu.precision}",
        columns=_MFU,
        rows=tuple(
            (name, Cell(Fraction(x.flops_per_second)), Fraction(x.mfu))
            for name, x in mfu.by.items()
        ),
    )
