"""The memory of inference on a terminal: each part with its bytes, in GB and in GiB, and its formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analysis.inference.inference_memory import MemoryLimit, MemoryReport, WeightsReport
from ...analysis.memory_line import MemoryLine
from ...core.number_format import format_bytes, format_count, format_giga
from ..table import bold, dim, fit_table, note_lines, wrap

_HEADER = ("part", "bytes", "GB", "GiB", "")
_ESTIMATE = "≈"


def memory_text(report: MemoryReport) -> str:
    """Return the lines at the longest context, a table of all contexts, and what fits."""
    model = report.model
    lines = [bold(line) for line in wrap(report.replace(limit=None).summary, "")]
    lines += [dim(line) for line in wrap(f"{model.family.name} family, from {model.source}; cache in {report.kv_dtype}", "")]
    lines += ["", *memory_lines(report.lines), *map(dim, wrap(f"with {_legend(report)}", "")), "", *_passes(report)]
    if len(report.contexts) > 1:
        lines += ["", *_contexts(report)]
    if report.limit is not None:
        lines += ["", *wrap(_limit(report.limit, report), "")]
    return "\n".join([*lines, *note_lines(report.notes)])


def weights_only_text(report: WeightsReport) -> str:
    """Return the lines of the weights of a checkpoint that no family fits."""
    note = "the memory of cache and activations is unknown"
    lines = [*(bold(x) for x in wrap(report.summary, "")), "", *memory_lines(report.lines)]
    return "\n".join([*lines, *note_lines([f"{report.reason}; {note}" if report.reason else note])])


def memory_lines(lines: Sequence[MemoryLine]) -> Iterator[str]:
    """Return lines and their sum, each with its formula below it; estimates are marked."""
    total = MemoryLine(what="total", bytes=sum(x.bytes for x in lines), formula="", exact=all(x.exact for x in lines))
    rows = [
        _HEADER,
        *((x.what, f"{x.bytes:,}", format_giga(x.bytes, 10**9), format_giga(x.bytes, 2**30), _mark(x)) for x in (*lines, total)),
    ]
    header, *table = fit_table(rows, right=(1, 2, 3), drop=(2,))
    yield bold(header)
    for row, x in zip(table, (*lines, total), strict=True):
        yield row
        if x.formula:
            yield from map(dim, wrap(x.formula))
    if not total.exact:
        yield from map(dim, wrap(f"{_ESTIMATE} depends on the implementation, which the formula names", ""))


def _mark(line: MemoryLine) -> str:
    return "" if line.exact else _ESTIMATE


def _legend(report: MemoryReport) -> str:
    keys = report.model.config.key_by_symbol
    letters = [f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in report.letters.items()]
    return ", ".join([f"T tokens {report.context:,}", f"B sequences {report.batch:,}", *letters])


def _passes(report: MemoryReport) -> list[str]:
    """The cache of one more token, and the activations of both kinds of passes."""
    cache = report.cache
    later = f"{cache.kv_per_later_token:,} once windows are full" if cache.kv_per_later_token != cache.kv_per_token else ""
    rows = [("cache per token", f"{cache.kv_per_token:,} bytes", later)]
    if cache.state:
        rows.append(("state per sequence", f"{cache.state // report.batch:,} bytes", "at any context"))
    rows.append(("activations, prefill", f"{report.prefill:,} bytes", f"{format_count(report.chunk, 'token')} at once (--chunk)"))
    rows.append(("activations, decode", f"{report.decode:,} bytes", "one token of each sequence"))
    return fit_table(rows, right=(1,), drop=(2,))


def _contexts(report: MemoryReport) -> Iterator[str]:
    limit = report.limit
    header = ("context", "weights", "cache", "rest", "total GB", "total GiB", *(["fits"] if limit else []))
    rows: list[tuple[str, ...]] = [header]
    for x in report.contexts:
        verdict = [] if limit is None else ["yes" if x.total <= limit.within else "no"]
        parts = (format_giga(n, 2**30) for n in (x.weights, x.kv_cache, x.total - x.weights - x.kv_cache))
        rows.append((f"{x.context:,}", *parts, format_giga(x.total, 10**9), format_giga(x.total, 2**30), *verdict))
    table = fit_table(rows, right=range(6), drop=(4,))
    yield bold(table[0])
    yield from table[1:]
    yield dim("weights, cache and rest in GiB")


def _limit(limit: MemoryLimit, report: MemoryReport) -> str:
    within, most, batch = format_bytes(limit.within), limit.max_context, limit.max_batch
    if most == 0:
        least = report.total - report.kv_cache - report.activations - report.logits
        return f"not even one token fits in {within}: weights and overhead alone are {format_bytes(least)}"
    own = report.model.tree.context
    tokens = "any number of tokens" if most is None else f"up to {format_count(most, 'token')}"
    beyond = f" (the model's own context is {own:,})" if own and (most is None or most > own) else ""
    sequences = "any number of sequences" if batch is None else f"up to {format_count(batch, 'sequence')}"
    return f"{within} holds {format_count(report.batch, 'sequence')} of {tokens}{beyond}, or {sequences} of {report.context:,} tokens"
