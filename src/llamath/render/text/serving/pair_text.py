"""`pair` on a terminal: what each engine says to a draft, the sizes of both, and the bound on
the speed-up.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....analysis.serving.draft_pair import ACCEPTANCE, LENGTHS, PairReport
from ....utils.errors import safe
from ....utils.number_format import format_bytes, format_count, format_giga
from ...table import bold, dim, fit_table, note_lines, wrap, wrap_hanging


def pair_text(report: PairReport) -> str:
    """Return the whole report."""
    verdict = "a pair" if report.accepted else "not a pair for every engine"
    lines = [
        bold(x)
        for x in wrap(f"{safe(report.target.name)} with {safe(report.draft)}: {verdict}", "")
    ]
    lines += [
        "",
        *_vocabulary(report),
        "",
        *_engines(report),
        "",
        *_sizes(report),
        "",
        *_speed(report),
    ]
    return "\n".join([*lines, *note_lines(report.notes)])


def _vocabulary(report: PairReport) -> Iterator[str]:
    if report.kind != "model":
        yield from wrap(
            f"the head proposes {report.rows[1]:,} of the target's {report.rows[0]:,} tokens", ""
        )
        return
    rows = f"rows of the embedding: {report.rows[0]:,} and {report.rows[1]:,}"
    compared = report.compared
    if compared is None:
        yield from wrap(rows, "")
        return
    padded = [
        f"{n:,} of them padded" if n else ""
        for n in (report.rows[0] - compared.target_tokens, report.rows[1] - compared.draft_tokens)
    ]
    tokens = f"tokens: {compared.target_tokens:,} and {compared.draft_tokens:,}"
    yield from wrap(
        f"{rows}; {tokens}" + (f" ({'; '.join(x for x in padded if x)})" if any(padded) else ""), ""
    )
    if not compared.differing:
        yield "every id stands for the same token in both"
        return
    first = (
        f"the first is {compared.first:,}: {safe(compared.first_target, 40)!r} and "
        f"{safe(compared.first_draft, 40)!r}"
    )
    added = f", {compared.added_differ:,} of them added or special" if compared.added_differ else ""
    yield from wrap(
        f"{format_count(compared.differing, 'id')} stand for different tokens{added}; {first}", ""
    )


def _engines(report: PairReport) -> Iterator[str]:
    yield bold("engines")
    for x in report.verdicts:
        text = x.says if x.says else "no rule against it is known"
        yield from wrap_hanging(
            f"{x.engine}: {'' if x.accepts else 'refuses: '}{safe(text, 400)}", "  ", "    "
        )
        if x.source:
            yield from map(
                dim,
                wrap_hanging(
                    f"from {x.source}" + (f"; {x.workaround} avoids it" if x.workaround else ""),
                    "    ",
                    "    ",
                ),
            )


def _sizes(report: PairReport) -> list[str]:
    rows: list[tuple[str, ...]] = [("GiB", "target", "draft")]
    for name, sizes in (
        ("weights", report.weights),
        ("KV cache", report.caches),
        ("read for a token", report.reads),
    ):
        rows.append((name, *(format_giga(x, 2**30) for x in sizes)))
    header, *lines = fit_table(rows, right=(1, 2))
    what = (
        f"one sequence of {format_count(report.context, 'token')}; the draft has "
        f"{report.parameters:,} parameters"
    )
    return [dim(header), *lines, *map(dim, wrap(what, ""))]


def _speed(report: PairReport) -> Iterator[str]:
    yield bold("speed-up at most, from the bytes that are read")
    header = ("draft tokens", *(f"{rate:.0%} accepted" for rate in ACCEPTANCE))
    found = {(x.tokens, x.acceptance): x.speed_up for x in report.speed_ups}
    rows = [header, *((str(k), *(f"{found[k, rate]:.2f}" for rate in ACCEPTANCE)) for k in LENGTHS)]
    yield from fit_table(rows, right=range(len(header)))
    text = (
        "100% is the best case, the others are assumptions. A pass of the target over n draft "
        "tokens and one more reads its weights once "
        "(of experts, those that so many tokens are expected to use); each draft token reads "
        f"{format_bytes(report.reads[1])}. Launches, "
        "sampling and prefill take no time."
    )
    yield from map(dim, wrap(text, ""))
