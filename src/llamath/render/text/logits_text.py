"""The report of `llamath logits` as text."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.verify.logits_agreement import ComparedCheckpoint, FirstDifference, LogitsComparison, TreeDifference
from ...core.errors import safe
from ...core.number_format import short_count
from ..table import align, bold, dim, wrap

MAX_ROWS, BAR_WIDTH = 12, 24
"""Rows shown of a list; length of the longest bar."""


def logits_text(found: LogitsComparison) -> str:
    """Format the verdict, the differences, where they begin, and possible causes."""
    lines = [bold(x) for x in wrap(_verdict(found), indent="")]
    lines += [dim(x) for side, letter in ((found.a, "A"), (found.b, "B")) for x in wrap(f"{letter}  {_side(side)}", indent="")]
    lines += [dim(x) for x in wrap(_describe_input(found), indent="")]
    lines += ["", *align(list(_rows(found)), right=(1, 2))]
    if found.same:
        return "\n".join(lines)
    if found.first:
        lines += ["", *wrap(_first(found.first), indent="")]
    lines += ["", *_layers(found)] if found.layers else []
    if found.facts:
        lines += ["", "config differences:", *align([_config_difference(x) for x in found.facts[:MAX_ROWS]], gap=3)]
        lines += [f"and {len(found.facts) - MAX_ROWS:,} more"] if len(found.facts) > MAX_ROWS else []
    for x in found.hints:
        lines += ["", *wrap(f"hint: {safe(x, 500)}", indent="")]
    return "\n".join(lines)


def _verdict(found: LogitsComparison) -> str:
    if found.identical:
        return "identical, bit by bit"
    if found.same:
        return f"the same within {found.tolerance:g} of the largest logit"
    return f"different: logits differ by {found.relative:.2g} of the largest logit (tolerance {found.tolerance:g})"


def _side(x: ComparedCheckpoint) -> str:
    return f"{safe(x.name)}: {x.family}, {short_count(x.parameters)}, {x.format}, {x.names} names, {x.dtype}"


def _describe_input(found: LogitsComparison) -> str:
    text = found.text.replace("\n", " ")
    text = text if len(text) < 50 else f"{text[:46].rstrip()} …"
    what = f"tokens of “{safe(text)}”" if found.text else "token ids"
    return f"{len(found.tokens):,} {what}, in {found.dtype}"


def _rows(found: LogitsComparison) -> Iterator[tuple[str, ...]]:
    yield "", "mean", "largest"
    yield (
        "logit difference",
        f"{found.mean_difference:.3g}",
        f"{found.max_difference:.3g}",
        f"largest logit {found.largest_logit:.3g}",
    )
    yield "KL(A‖B), nats", f"{found.kl_mean:.3g}", f"{found.kl_max:.3g}"
    yield "same top-1 token", f"{found.same_top1:,}", f"of {len(found.tokens):,}"
    if found.losses:
        yield "loss of A and B, nats/token", f"{found.losses[0]:.3f}", f"{found.losses[1]:.3f}"


def _first(gap: FirstDifference) -> str:
    names = [x for x in dict.fromkeys(gap.stored) if x]
    where = f" ({safe(', '.join(names))})" if names else ""
    return f"first difference: {gap.module}{where}, by {gap.difference:.2g} of its largest value"


def _layers(found: LogitsComparison) -> list[str]:
    """A bar per layer; of many layers, evenly spaced ones."""
    n = len(found.layers)
    shown = range(n) if n <= MAX_ROWS else sorted({round(i * (n - 1) / (MAX_ROWS - 1)) for i in range(MAX_ROWS)})
    rows = [("after layer", "difference", "")]
    rows += [(str(i), f"{found.layers[i]:.2g}", "█" * min(BAR_WIDTH, round(BAR_WIDTH * found.layers[i]))) for i in shown]
    return align(rows, right=(0, 1))


def _config_difference(x: TreeDifference) -> tuple[str, ...]:
    layers = f"({x.layers} layers)" if x.layers > 1 else ""
    return "  " + x.path, f"A {safe(str(x.a), 40)}", f"B {safe(str(x.b), 40)}", layers
