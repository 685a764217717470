"""What inference needs, on a terminal: each line with its bytes in full, in GB and in GiB, and the formula that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...analysis.inference.inference_memory import AS_STORED, MemoryReport
from ...analysis.memory_line import MemoryLine
from ...core.number_format import format_bytes, format_giga
from ...model import Model
from ..table import align, bold, dim, wrap

HEADER = ("what", "bytes", "GB", "GiB")
ROUGH = "≈"


Fitting = tuple[int, int | None, int | None]
"""So many bytes, and the longest context and the largest batch that fit in them: None stands for any number, 0 for none."""


def memory_text(model: Model, reports: Sequence[MemoryReport], fitting: Fitting | None) -> str:
    """The lines for the longest context, a table of all that are asked for, and what fits."""
    report = longest(reports)
    sequences = f"{report.batch:,} sequence{'s' if report.batch > 1 else ''} of {report.context:,} tokens"
    head = f"{model.name} {report.dtype if report.dtype == AS_STORED else f'in {report.dtype}'}, {sequences}: {format_bytes(report.total)}"
    lines = [bold(line) for line in wrap(head, "")]
    lines += [dim(line) for line in wrap(f"{model.family.name} family, from {model.source}; cache in {report.kv_dtype}", "")]
    lines += ["", *memory_lines(report.lines), *map(dim, wrap(f"with {_legend(model, report)}", "")), "", *_besides(report)]
    if len(reports) > 1:
        lines += ["", *_contexts(reports, fitting)]
    if fitting is not None:
        lines += ["", *wrap(_fits(fitting, model, report), "")]
    return "\n".join([*lines, *(line for note in model.notes for line in wrap(f"note: {note}", ""))])


def longest(reports: Sequence[MemoryReport]) -> MemoryReport:
    """The report of the longest context."""
    return max(reports, key=lambda x: x.context)


def memory_lines(lines: Sequence[MemoryLine]) -> Iterator[str]:
    """Lines and their sum, each with its formula below it; an estimate is marked."""
    whole = MemoryLine(what="total", bytes=sum(x.bytes for x in lines), formula="", exact=all(x.exact for x in lines))
    rows = [
        HEADER,
        *(
            (x.what, f"{x.bytes:,}", format_giga(x.bytes, 10**9), format_giga(x.bytes, 2**30), "" if x.exact else ROUGH)
            for x in (*lines, whole)
        ),
    ]
    table = align(rows, right=(1, 2, 3))
    yield bold(table[0])
    for row, x in zip(table[1:], (*lines, whole), strict=True):
        yield row
        if x.formula:
            yield from map(dim, wrap(x.formula))
    if not whole.exact:
        yield dim(f"{ROUGH} depends on the implementation: the formula says on what")


def _legend(model: Model, report: MemoryReport) -> str:
    keys = model.config.key_by_symbol
    said = [f"{x} {keys[x]} {n:,}" if x in keys else f"{x} {n:,}" for x, n in report.letters.items()]
    return ", ".join([f"T tokens {report.context:,}", f"B sequences {report.batch:,}", *said])


def _besides(report: MemoryReport) -> Iterator[str]:
    later = report.cache.kv_per_later_token
    rows = [
        (
            "cache per token",
            f"{report.cache.kv_per_token:,} bytes",
            f"{later:,} once windows are full" if later != report.cache.kv_per_token else "",
        )
    ]
    if report.cache.state:
        rows.append(("state per sequence", f"{report.cache.state // report.batch:,} bytes", "whatever the context"))
    rows.append(("activations, prefill", f"{report.prefill:,} bytes", f"{report.chunk:,} tokens at once (--chunk)"))
    rows.append(("activations, decode", f"{report.decode:,} bytes", "one token of each sequence"))
    return iter(align(rows, right=(1,)))


def _contexts(reports: Sequence[MemoryReport], fitting: Fitting | None) -> Iterator[str]:
    header = ("context", "weights", "cache", "rest", "total GB", "total GiB", *(["fits"] if fitting else []))
    rows: list[tuple[str, ...]] = [header]
    for x in reports:
        rest = x.total - x.weights - x.kv_cache
        verdict = [] if fitting is None else ["yes" if x.total <= fitting[0] else "no"]
        parts = (format_giga(n, 2**30) for n in (x.weights, x.kv_cache, rest))
        rows.append((f"{x.context:,}", *parts, format_giga(x.total, 10**9), format_giga(x.total, 2**30), *verdict))
    table = align(rows, right=range(6))
    yield bold(table[0])
    yield from table[1:]
    yield dim("weights, cache and rest in GiB")


def _fits(fitting: Fitting, model: Model, report: MemoryReport) -> str:
    budget, most, batch = f"in {format_bytes(fitting[0])}", fitting[1], fitting[2]
    if most == 0:
        least = report.total - report.kv_cache - report.activations - report.logits
        return f"{budget} not even one token fits: weights and overhead alone are {format_bytes(least)}"
    own = model.tree.context
    tokens = "any number of" if most is None else f"{most:,}"
    beyond = f" (the model's own context is {own:,})" if own and (most is None or most > own) else ""
    many = "any number of" if batch is None else f"{batch:,}"
    sequences = f"{report.batch:,} sequence{'s' if report.batch > 1 else ''}"
    most_batch = f"up to {many} sequence{'s' if batch != 1 else ''} of {report.context:,} tokens"
    return f"{budget} fit {sequences} of up to {tokens} tokens{beyond}, or {most_batch}"


def weights_only_text(name: str, lines: Sequence[MemoryLine], reason: str) -> str:
    """The weights alone, of a checkpoint that no family fits."""
    head = f"{name}: {format_bytes(sum(x.bytes for x in lines))} of weights"
    left = f"note: {reason}; cache and activations are not known" if reason else "note: cache and activations are not known"
    return "\n".join([bold(head), "", *memory_lines(lines), *wrap(left, "")])


def held_json(name: str, lines: Sequence[MemoryLine], reason: str) -> dict[str, Any]:
    """The same for programs: what is not known is null."""
    unknown = dict.fromkeys(("kv_cache", "kv_per_token", "activations", "logits", "overhead", "total"))
    known = {"model": name, "weights": sum(x.bytes for x in lines)}
    return known | unknown | {"lines": [lines_json(x) for x in lines], "notes": [reason] if reason else []}


def memory_json(model: Model, reports: Sequence[MemoryReport], fitting: Fitting | None) -> dict[str, Any]:
    """What `llamath memory --json` prints: bytes everywhere; of several contexts the longest, and all of them under `contexts`."""
    report = longest(reports)
    made: dict[str, Any] = {"model": model.name, "family": model.family.name, "source": model.source, **_figures(report)}
    made |= {"lines": [lines_json(x) for x in report.lines], "letters": dict(report.letters)}
    made["contexts"] = [_figures(x) for x in reports]
    if fitting is not None:
        made |= dict(zip(("within", "max_context", "max_batch"), fitting, strict=True)) | {"fits": report.total <= fitting[0]}
    return made | {"notes": list(model.notes)}


def lines_json(x: MemoryLine) -> dict[str, Any]:
    """One line of a report."""
    return {"what": x.what, "bytes": x.bytes, "formula": x.formula, "exact": x.exact}


def _figures(x: MemoryReport) -> dict[str, Any]:
    named = (
        "dtype",
        "kv_dtype",
        "context",
        "batch",
        "weights",
        "kv_cache",
        "activations",
        "logits",
        "overhead",
        "total",
        "prefill",
        "decode",
    )
    found = {name: getattr(x, name) for name in named}
    return found | {"kv_per_token": x.cache.kv_per_token, "kv_per_later_token": x.cache.kv_per_later_token, "state": x.cache.state}
