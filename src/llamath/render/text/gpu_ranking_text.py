"""Which cards can run a model, on a terminal."""

from __future__ import annotations

from ...analysis.inference.fit_report import many
from ...analysis.inference.gpu_ranking import Card, Cards
from ...core.errors import safe
from ...model import Model
from ..table import aligned, bold, dim, wrapped
from .fit_text import rate, sequences
from .memory_text import giga

HEADER = ("on", "split", "GiB each", "of", "context", "decode ≤")
MOST = 12
"""So many names of what is too small."""


def cards_text(model: Model, found: Cards, kept: str) -> str:
    """One line a card, smallest first; `kept` says what weights and cache are in."""
    head = f"{safe(model.name)}: what can run it, smallest first"
    lines = [bold(x) for x in wrapped(head, "")]
    lines += [dim(x) for x in wrapped(f"{kept}; each holds {sequences(found.batch, found.context)}; from {model.source}", "")]
    if found.found:
        table = aligned([HEADER, *(_row(x) for x in found.found)], right=(2, 3, 4, 5))
        lines += ["", bold(table[0]), *table[1:], ""]
    else:
        lines += ["", "none, not even 8 of one kind in a node", ""]
    if found.short:
        names = [x.name for x in found.short]
        some = ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
        lines += wrapped(f"too small, with as many as a node has, up to 8: {some}", "")
    lines += map(dim, wrapped(_said(found), ""))
    return "\n".join([*lines, *(line for note in model.notes for line in wrapped(f"note: {note}", ""))])


def _row(x: Card) -> tuple[str, ...]:
    split = " × ".join(f"{name} {n}" for name, n in (("TP", x.layout.tp), ("PP", x.layout.pp)) if n > 1)
    context = f"{x.max_context:,}" + (" =" if x.whole else "  ")
    return many(x.count, x.device), split, giga(x.most, 2**30), giga(x.device.memory, 2**30), context, rate(x.decode)


def _said(found: Cards) -> str:
    at = f"{found.context:,} tokens"
    return (
        f"the smallest of 1, 2, 4 and 8 in a node that does; GiB at {at}; context: how many tokens fit, = where all that were looked "
        f"at, {found.limit:,}, do; decode: a ceiling in tokens/s at {at}, bytes over bandwidth, not a prediction"
    )
