"""`place` on a terminal: bytes on each device, the bound on decode, and the flags of engines."""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.serving.placement import PlacedShare, Placement
from ....utils.errors import safe
from ....utils.number_format import format_bytes, format_count, format_giga
from ...table import bold, dim, fit_table, note_lines, wrap

_MARKS = (("dense", "█"), ("experts", "▓"), ("cache", "▒"), ("own", "░"))
_LEGEND = "█ used by every token, ▓ experts, ▒ KV cache, ░ engine, . free"
_WIDTH = 44
_MAX_ENTRIES = 12
"""Entries of a device map that are printed."""


def place_text(report: Placement) -> str:
    """Return the whole report."""
    verdict = "fits" if report.fits else f"{format_bytes(report.shortfall)} too large"
    lines = [bold(x) for x in wrap(f"{safe(report.model.name)}: {verdict}", "")]
    sequences = (
        f"{format_count(report.batch, 'sequence')} of {format_count(report.context, 'token')}"
    )
    lines += [
        dim(x)
        for x in wrap(
            f"{report.dtype}, cache in {report.kv_dtype}; {sequences}; from {report.model.source}",
            "",
        )
    ]
    lines += ["", *_bars(report), "", *_table(report), ""]
    if not report.fits:
        lines += wrap("more RAM, --disk, a smaller --dtype or --context", "")
        return "\n".join([*lines, *note_lines(report.notes)])
    lines += [*_speed(report), "", bold("llama.cpp"), *report.llama_cpp.splitlines()]
    if report.override_tensor:
        lines += [dim("or, instead of --n-cpu-moe or --cpu-moe:"), report.override_tensor]
    lines += ["", *_device_map(report)]
    if report.ktransformers:
        lines += ["", bold("KTransformers, in SGLang"), *report.ktransformers.splitlines()]
    return "\n".join([*lines, *note_lines(report.notes)])


def _bars(report: Placement) -> Iterator[str]:
    indent = max(len(x.device) for x in report.devices)
    scale = max(max(x.memory, x.used) for x in report.devices)
    for x in report.devices:
        text, edge, done = "", round(x.memory / scale * _WIDTH), 0
        for name, mark in _MARKS:
            done += getattr(x, name)
            text += mark * (round(done / scale * _WIDTH) - len(text))
        yield f"{safe(x.device):{indent}}  {text + '.' * max(edge - len(text), 0)}"
    yield from map(dim, wrap(_LEGEND, " " * (indent + 2)))


def _table(report: Placement) -> Iterator[str]:
    header = ("GiB", "layers", "every token", "experts", "KV cache", "engine", "of", "read a step")
    rows = [header, *(_row(x) for x in report.devices)]
    head, *lines = fit_table(rows, right=range(2, len(header)), drop=(5, 1))
    yield dim(head)
    yield from lines


def _row(x: PlacedShare) -> tuple[str, ...]:
    layers = f"{x.layers[0]}–{x.layers[1] - 1}" if x.layers[1] else ""
    sizes = (format_giga(n, 2**30) for n in (x.dense, x.experts, x.cache, x.own))
    return (
        safe(x.device),
        layers,
        *sizes,
        format_giga(x.memory, 2**30) if x.memory else "",
        format_giga(round(x.read), 2**30),
    )


def _speed(report: Placement) -> Iterator[str]:
    yield bold("decode at most, an upper bound")
    times = " + ".join(
        f"{x.seconds * 1000:.3g} ms {safe(x.device)}" for x in report.devices if x.seconds
    )
    experts = (
        (f"; {report.distinct_experts:.3g} of {report.sizes.experts} experts of a layer are read")
        if report.sizes.experts
        else ""
    )
    yield from wrap(
        f"{report.decode_ceiling:,.3g} tokens/s: one after another {times}, bytes "
        f"over bandwidth{experts}"
    )


def _device_map(report: Placement) -> Iterator[str]:
    if not report.device_map:
        return
    yield bold("transformers")
    entries = [f"    {name!r}: {place!r}," for name, place in report.device_map.items()]
    yield "device_map = {"
    yield from entries[:_MAX_ENTRIES]
    if len(entries) > _MAX_ENTRIES:
        yield f"    # … {len(entries) - _MAX_ENTRIES:,} more: --json has all"
    yield "}"
