"""Whether two checkpoints compute the same, on a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...analysis.verify.logits_agreement import ComparedCheckpoint, FirstDifference, LogitsComparison, TreeDifference
from ...core.errors import safe
from ...core.number_format import short_count
from ..table import align, bold, dim, wrap

FEW, WIDTH = 12, 24
"""Rows of a list, and the longest bar."""


def logits_text(found: LogitsComparison) -> str:
    """The verdict, the differences, where they begin, and what could be the cause."""
    lines = [bold(x) for x in wrap(_verdict(found), indent="")]
    lines += [dim(x) for side, letter in ((found.a, "A"), (found.b, "B")) for x in wrap(f"{letter}  {_side(side)}", indent="")]
    lines += [dim(x) for x in wrap(_read(found), indent="")]
    lines += ["", *align(list(_rows(found)), right=(1, 2))]
    if found.same:
        return "\n".join(lines)
    if found.first:
        lines += ["", *wrap(_first(found.first), indent="")]
    lines += ["", *_layers(found)] if found.layers else []
    if found.facts:
        lines += ["", "configured otherwise:", *align([_fact(x) for x in found.facts[:FEW]], gap=3)]
        lines += [f"and {len(found.facts) - FEW:,} more"] if len(found.facts) > FEW else []
    for x in found.hints:
        lines += ["", *wrap(f"hint: {safe(x, 500)}", indent="")]
    return "\n".join(lines)


def _verdict(found: LogitsComparison) -> str:
    if found.identical:
        return "the same, to the last bit"
    if found.same:
        return f"the same, within {found.tolerance:g} of the largest logit"
    return f"not the same: logits are apart by {found.relative:.2g} of the largest, where {found.tolerance:g} would do"


def _side(x: ComparedCheckpoint) -> str:
    return f"{safe(x.name)}: {x.family}, {short_count(x.parameters)}, {x.format}, {x.names} names, {x.dtype}"


def _read(found: LogitsComparison) -> str:
    said = found.text.replace("\n", " ")
    said = said if len(said) < 50 else f"{said[:46].rstrip()} …"
    what = f"tokens of “{safe(said)}”" if found.text else "token ids"
    return f"{len(found.tokens):,} {what}, in {found.dtype}"


def _rows(found: LogitsComparison) -> Iterator[tuple[str, ...]]:
    yield "", "mean", "largest"
    yield (
        "difference of logits",
        f"{found.mean_difference:.3g}",
        f"{found.max_difference:.3g}",
        f"the largest logit is {found.largest_logit:.3g}",
    )
    yield "KL(A‖B), nats", f"{found.kl_mean:.3g}", f"{found.kl_max:.3g}"
    yield "same likeliest token", f"{found.same_top1:,}", f"of {len(found.tokens):,}"
    if found.losses:
        yield "nats a token, A and B", f"{found.losses[0]:.3f}", f"{found.losses[1]:.3f}"


def _first(gap: FirstDifference) -> str:
    names = [x for x in dict.fromkeys(gap.stored) if x]
    where = f" ({safe(', '.join(names))})" if names else ""
    return f"first to differ: {gap.module}{where}, by {gap.difference:.2g} of its largest number"


def _layers(found: LogitsComparison) -> list[str]:
    """A bar for each layer; of many, some."""
    n = len(found.layers)
    shown = range(n) if n <= FEW else sorted({round(i * (n - 1) / (FEW - 1)) for i in range(FEW)})
    rows = [("after layer", "apart by", "")]
    rows += [(str(i), f"{found.layers[i]:.2g}", "█" * min(WIDTH, round(WIDTH * found.layers[i]))) for i in shown]
    return align(rows, right=(0, 1))


def _fact(x: TreeDifference) -> tuple[str, ...]:
    many = f"({x.layers} layers)" if x.layers > 1 else ""
    return "  " + x.path, f"A {safe(str(x.a), 40)}", f"B {safe(str(x.b), 40)}", many


def logits_json(found: LogitsComparison) -> dict[str, Any]:
    """The contract: `same`, `identical`, what differs by how much, `first`, `layers`, `facts`, `hints`."""
    first = found.first
    return {
        "same": found.same,
        "identical": found.identical,
        "tolerance": found.tolerance,
        "dtype": found.dtype,
        "a": {name: getattr(found.a, name) for name in found.a.fields},
        "b": {name: getattr(found.b, name) for name in found.b.fields},
        "tokens": list(found.tokens),
        "text": found.text,
        "logits": {"max": found.max_difference, "mean": found.mean_difference, "relative": found.relative, "largest": found.largest_logit},
        "kl": {"mean": found.kl_mean, "max": found.kl_max},
        "top1": {"same": found.same_top1, "of": len(found.tokens)},
        "losses": list(found.losses) if found.losses else None,
        "first": first and {"module": first.module, "layer": first.layer, "difference": first.difference, "stored": list(first.stored)},
        "layers": list(found.layers),
        "facts": [{"path": x.path, "a": str(x.a), "b": str(x.b), "layers": x.layers} for x in found.facts],
        "hints": list(found.hints),
    }
