"""`fit --engine` on a terminal: the verdict in the engine's words, what it prints as it starts,
and the command line to paste.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.serving.engine_layouts import BrokenRule
from ....analysis.serving.engine_report import EngineReport
from ....utils.errors import safe
from ....utils.number_format import format_count, format_giga
from ...table import bold, dim, note_lines, wrap, wrap_hanging


def engine_text(report: EngineReport) -> str:
    """Return the whole report."""
    where = (
        f"on {report.count:,} × {report.gpu.title}"
        if report.count > 1
        else (f"on one {report.gpu.title}")
    )
    head = (
        f"{report.engine.label} {report.verdict} with {safe(report.model.name)} {where}, "
        f"{report.layout}"
    )
    source = (
        f"requests of {format_count(report.context, 'token')}; rules from {report.engine.source}"
    )
    lines = [*(bold(x) for x in wrap(head, "")), *(dim(x) for x in wrap(source, ""))]
    if report.why:
        lines += ["", bold("because"), *_rules(report.why)]
    if report.warnings:
        lines += ["", bold("with a warning"), *_rules(report.warnings)]
    if report.older:
        lines += ["", bold("older versions do not start"), *_rules(report.older)]
    if report.memory is not None:
        lines += ["", *_memory(report)]
    if report.prints:
        lines += [
            "",
            bold("it prints"),
            *(y for x in report.prints for y in wrap_hanging(x, "  ", "    ")),
        ]
    if report.nearest:
        lines += ["", bold("starts instead"), *(f"  {x}" for x in report.nearest)]
    if report.command:
        lines += ["", bold("to paste"), *report.command.splitlines()]
    return "\n".join([*lines, *note_lines(report.notes)])


def _rules(rules: tuple[BrokenRule, ...]) -> Iterator[str]:
    for x in rules:
        where = f" ({safe(x.where, 100)})" if x.where else ""
        yield from wrap_hanging(f"{x.says}{where}", "  ", "    ")
        yield from map(
            dim,
            wrap_hanging(
                f"from {x.source}" + (f"; {x.workaround} avoids it" if x.workaround else ""),
                "    ",
                "    ",
            ),
        )


def _memory(report: EngineReport) -> Iterator[str]:
    memory = report.memory
    assert memory is not None
    own = " to ".join(dict.fromkeys(format_giga(x, 2**30) for x in memory.own))
    limit = (
        f"{format_giga(memory.limit, 2**30)} of {format_giga(report.gpu.memory, 2**30)} GiB "
        "on each GPU"
    )
    text = (
        f"may use {limit}: {format_giga(memory.weights, 2**30)} GiB of weights, {own} GiB of "
        "its own"
    )
    yield from wrap(text, "")
    yield from (y for x in memory.terms for y in map(dim, wrap_hanging(x, "  ", "    ")))
