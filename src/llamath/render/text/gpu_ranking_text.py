"""Which cards can run a model, on a terminal."""

from __future__ import annotations

from ...analysis.inference.fit_report import gpus_option
from ...analysis.inference.gpu_ranking import GPURanking, RankedGPU
from ...core.errors import safe
from ...core.number_format import format_giga
from ...model import Model
from ..table import align, bold, dim, wrap
from .fit_text import format_rate, format_sequences

HEADER = ("on", "split", "GiB each", "of", "context", "decode ≤")
MOST = 12
"""So many names of what is too small."""


def gpu_ranking_text(model: Model, found: GPURanking, kept: str) -> str:
    """One line a card, smallest first; `kept` says what weights and cache are in."""
    head = f"{safe(model.name)}: what can run it, smallest first"
    lines = [bold(x) for x in wrap(head, "")]
    lines += [dim(x) for x in wrap(f"{kept}; each holds {format_sequences(found.batch, found.context)}; from {model.source}", "")]
    if found.gpus:
        table = align([HEADER, *(_row(x) for x in found.gpus)], right=(2, 3, 4, 5))
        lines += ["", bold(table[0]), *table[1:], ""]
    else:
        lines += ["", "none, not even 8 of one kind in a node", ""]
    if found.too_small:
        names = [x.name for x in found.too_small]
        some = ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
        lines += wrap(f"too small, with as many as a node has, up to 8: {some}", "")
    lines += map(dim, wrap(_said(found), ""))
    return "\n".join([*lines, *(line for note in model.notes for line in wrap(f"note: {note}", ""))])


def _row(x: RankedGPU) -> tuple[str, ...]:
    split = " × ".join(f"{name} {n}" for name, n in (("TP", x.layout.tp), ("PP", x.layout.pp)) if n > 1)
    context = f"{x.max_context:,}" + (" =" if x.whole_context else "  ")
    return (
        gpus_option(x.count, x.device),
        split,
        format_giga(x.total, 2**30),
        format_giga(x.device.memory, 2**30),
        context,
        format_rate(x.decode_ceiling),
    )


def _said(found: GPURanking) -> str:
    at = f"{found.context:,} tokens"
    return (
        f"the smallest of 1, 2, 4 and 8 in a node that does; GiB at {at}; context: how many tokens fit, = where all that were looked "
        f"at, {found.limit:,}, do; decode: a ceiling in tokens/s at {at}, bytes over bandwidth, not a prediction"
    )
