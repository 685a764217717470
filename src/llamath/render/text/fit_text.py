"""The verdict on a terminal: a bar for each GPU, its parts, what is left or what would fit instead, and the ceilings of speed."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.inference.fit_report import Fit, Instead
from ...analysis.inference.gpu_shards import Share
from ...analysis.inference.speed_limits import Speed
from ...core.errors import safe
from ...model import Model
from ..table import aligned, bold, columns, dim, wrapped
from .memory_text import giga, size

PARTS = (("weights", "█"), ("kv_cache", "▓"), ("activations", "▒"), ("logits", "▒"), ("overhead", "░"))
NAMES = {"kv_cache": "cache"}
FREE, EDGE = "·", "│"
MOST = 12
"""So many stages have a bar."""


def fit_text(model: Model, found: Fit) -> str:
    """The whole report."""
    lines = [bold(x) for x in wrapped(f"{safe(model.name)} {'fits' if found.fits else 'does not fit'} {_on(found)}", "")]
    lines += [dim(x) for x in wrapped(_asked(model, found), "")]
    lines += ["", *_bars(found), "", *_parts(found), ""]
    lines += _room(model, found) if found.fits else _instead(found)
    lines += ["", *_ceilings(found)]
    notes = (*found.notes, *model.notes)
    return "\n".join([*lines, *(line for note in notes for line in wrapped(f"note: {note}", ""))])


def _on(found: Fit) -> str:
    return f"on {found.count:,} × {found.device.title}" if found.count > 1 else f"on one {found.device.title}"


def sequences(batch: int, context: int) -> str:
    """How many of what length."""
    return f"{batch:,} sequence{'s' if batch > 1 else ''} of {context:,} tokens"


def layout_text(found: Fit) -> str:
    """How it is split: `TP 8 × PP 2`."""
    parts = [f"{name} {n}" for name, n in (("TP", found.layout.tp), ("PP", found.layout.pp)) if n > 1]
    return " × ".join(parts) or "whole on one GPU"


def _asked(model: Model, found: Fit) -> str:
    own = " (the model's own context)" if found.context == model.tree.context else ""
    return (
        f"{found.dtype}, cache in {found.kv_dtype}; {sequences(found.batch, found.context)}{own}; {layout_text(found)}; from {model.source}"
    )


def _label(share: Share, found: Fit) -> str:
    if found.count == 1:
        return "GPU"
    first = share.stage * share.gpus
    return f"GPU {first}" + (f"–{first + share.gpus - 1}" if share.gpus > 1 else "")


def _bars(found: Fit) -> Iterator[str]:
    """A bar a stage; GPUs of one stage hold the same."""
    labels, memory = [_label(x, found) for x in found.shares], found.device.memory
    verdicts = [f"{giga(x.total, 2**30)} of {giga(memory, 2**30)} GiB{'' if x.total <= memory else ' ✗'}" for x in found.shares]
    wide = max(map(len, labels))
    width = max(min(columns() - wide - max(map(len, verdicts)) - 5, 60), 20)
    for share, label, verdict in list(zip(found.shares, labels, verdicts, strict=True))[:MOST]:
        yield f"{label:{wide}}  {bar(share, memory, max(memory, found.most), width)}  {verdict}"
    if len(labels) > MOST:
        yield f"… and {len(labels) - MOST} more stages, of {giga(min(x.total for x in found.shares), 2**30)} GiB and more"
    yield from map(dim, wrapped(", ".join(f"{mark} {what}" for what, mark in _legend()), " " * (wide + 2)))


def _legend() -> list[tuple[str, str]]:
    return [("weights", "█"), ("cache", "▓"), ("activations, logits", "▒"), ("overhead", "░"), ("free", FREE)]


def bar(share: Share, memory: int, scale: int, width: int) -> str:
    """What a GPU holds, to scale; `│` is the end of its memory where that is passed."""
    text, edge, done = "", round(memory / scale * width), 0
    for name, mark in PARTS:
        done += getattr(share, name)
        text += mark * (round(done / scale * width) - len(text))
    text += FREE * (edge - len(text))
    return text if edge >= len(text) else f"{text[:edge]}{EDGE}{text[edge:]}"


def _parts(found: Fit) -> Iterator[str]:
    """The parts of each kind of GPU in GiB; a GPU a column while they are few, else the fullest and the emptiest."""
    shares = list(found.shares)
    if len(shares) > 4:
        ranked = sorted(shares, key=lambda x: x.total)
        shares = [ranked[-1], ranked[0]]
    names = [_label(x, found) for x in shares]
    header = ("GiB a GPU", *([f"{names[0]} (most)", f"{names[1]} (least)"] if len(shares) < len(found.shares) else names))
    rows: list[tuple[str, ...]] = [header]
    if found.layout.pp > 1:
        rows.append(("layers", *(", ".join(f"{a}–{b - 1}" for a, b in x.runs) for x in shares)))
    for name, _ in PARTS:
        rows.append((NAMES.get(name, name), *(giga(getattr(x, name), 2**30) for x in shares)))
    rows.append(("total", *(giga(x.total, 2**30) for x in shares)))
    lines = aligned(rows, right=range(1, len(header)))
    yield dim(lines[0])
    yield from lines[1:]


def _room(model: Model, found: Fit) -> list[str]:
    own = model.tree.context
    tokens = "any number of tokens" if found.max_context is None else f"up to {found.max_context:,} tokens"
    beyond = f" (the model's own context is {own:,})" if own and (found.max_context is None or found.max_context > own) else ""
    batch = (
        "any number of sequences" if found.max_batch is None else f"up to {found.max_batch:,} sequence{'s' if found.max_batch != 1 else ''}"
    )
    alone = f"{found.batch:,} sequence{'s' if found.batch > 1 else ''}"
    return [bold("room"), *wrapped(f"{alone} of {tokens}{beyond}, or {batch} of {found.context:,}")]


def _instead(found: Fit) -> list[str]:
    if not found.instead:
        return [
            bold("instead"),
            *wrapped("nothing that was tried fits: 8 or 4 or fewer bits, fewer tokens, more of these GPUs, larger ones"),
        ]
    rows = [_option(x) for x in found.instead]
    return [bold("instead, any one of"), *(f"  {line}" for line in aligned(rows, right=(2,)))]


def _option(x: Instead) -> tuple[str, ...]:
    return x.change, x.what, f"{giga(x.most, 2**30)} GiB"


def _ceilings(found: Fit) -> Iterator[str]:
    """Both bounds with what they rest on."""
    at, c, where = found.ceilings, found.batch, "in all stages, one after another" if found.layout.pp > 1 else "on each GPU"
    yield bold("ceilings: bounds that no implementation passes, not predictions")
    each = f", {at.decode.rate / c:,.1f} for each of {c:,} sequences" if c > 1 else ""
    yield from wrapped(
        f"decode   {rate(at.decode.rate)} tokens/s{each} at {found.context:,} tokens of context: {_why(at.decode, where)}", "  "
    )
    if at.prefill is None:
        yield "  prefill  not known: no rate of arithmetic is published for this GPU"
    else:
        seconds = f"{at.prefill.seconds:.3g} s for {sequences(found.batch, found.context)}"
        yield from wrapped(f"prefill  {rate(at.prefill.rate)} tokens/s, {seconds}: {_why(at.prefill, 'on each GPU')}", "  ")
    yield from map(dim, wrapped("assumed: " + "; ".join(at.assumptions), "  "))


def _why(x: Speed, where: str) -> str:
    if x.bound == "memory":
        return f"memory-bound, {size(x.bytes)} to read a pass {where}"
    return f"compute-bound, {rate(x.flops / 1e12)} TFLOP {where}"


def rate(value: float) -> str:
    """Tokens a second, to three digits."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"
