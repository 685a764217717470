"""The verdict on a terminal: a bar for each GPU, its parts, what is left or what would fit instead, and the ceilings of speed."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.inference.fit_report import FitAlternative, FitReport
from ...analysis.inference.gpu_shards import StageMemory
from ...analysis.inference.speed_limits import SpeedLimit
from ...core.errors import safe
from ...core.number_format import format_bytes, format_giga
from ...model import Model
from ..table import align, bold, dim, terminal_width, wrap

PARTS = (("weights", "█"), ("kv_cache", "▓"), ("activations", "▒"), ("logits", "▒"), ("overhead", "░"))
NAMES = {"kv_cache": "cache"}
FREE, EDGE = "·", "│"
MOST = 12
"""So many stages have a bar."""


def fit_text(model: Model, found: FitReport) -> str:
    """The whole report."""
    lines = [bold(x) for x in wrap(f"{safe(model.name)} {'fits' if found.fits else 'does not fit'} {_on(found)}", "")]
    lines += [dim(x) for x in wrap(_asked(model, found), "")]
    lines += ["", *_bars(found), "", *_parts(found), ""]
    lines += _room(model, found) if found.fits else _instead(found)
    lines += ["", *_ceilings(found)]
    notes = (*found.notes, *model.notes)
    return "\n".join([*lines, *(line for note in notes for line in wrap(f"note: {note}", ""))])


def _on(found: FitReport) -> str:
    return f"on {found.count:,} × {found.gpu.title}" if found.count > 1 else f"on one {found.gpu.title}"


def format_sequences(batch: int, context: int) -> str:
    """How many of what length."""
    return f"{batch:,} sequence{'s' if batch > 1 else ''} of {context:,} tokens"


def split_text(found: FitReport) -> str:
    """How it is split: `TP 8 × PP 2`."""
    parts = [f"{name} {n}" for name, n in (("TP", found.layout.tp), ("PP", found.layout.pp)) if n > 1]
    return " × ".join(parts) or "whole on one GPU"


def _asked(model: Model, found: FitReport) -> str:
    own = " (the model's own context)" if found.context == model.tree.context else ""
    sequences = format_sequences(found.batch, found.context)
    return f"{found.dtype}, cache in {found.kv_dtype}; {sequences}{own}; {split_text(found)}; from {model.source}"


def _label(share: StageMemory, found: FitReport) -> str:
    if found.count == 1:
        return "GPU"
    first = share.stage * share.gpus
    return f"GPU {first}" + (f"–{first + share.gpus - 1}" if share.gpus > 1 else "")


def _bars(found: FitReport) -> Iterator[str]:
    """A bar a stage; GPUs of one stage hold the same."""
    labels, memory = [_label(x, found) for x in found.stages], found.gpu.memory
    verdicts = [
        f"{format_giga(x.total, 2**30)} of {format_giga(memory, 2**30)} GiB{'' if x.total <= memory else ' ✗'}" for x in found.stages
    ]
    wide = max(map(len, labels))
    width = max(min(terminal_width() - wide - max(map(len, verdicts)) - 5, 60), 20)
    for share, label, verdict in list(zip(found.stages, labels, verdicts, strict=True))[:MOST]:
        yield f"{label:{wide}}  {memory_bar(share, memory, max(memory, found.total), width)}  {verdict}"
    if len(labels) > MOST:
        yield f"… and {len(labels) - MOST} more stages, of {format_giga(min(x.total for x in found.stages), 2**30)} GiB and more"
    yield from map(dim, wrap(", ".join(f"{mark} {what}" for what, mark in _legend()), " " * (wide + 2)))


def _legend() -> list[tuple[str, str]]:
    return [("weights", "█"), ("cache", "▓"), ("activations, logits", "▒"), ("overhead", "░"), ("free", FREE)]


def memory_bar(share: StageMemory, memory: int, scale: int, width: int) -> str:
    """What a GPU holds, to scale; `│` is the end of its memory where that is passed."""
    text, edge, done = "", round(memory / scale * width), 0
    for name, mark in PARTS:
        done += getattr(share, name)
        text += mark * (round(done / scale * width) - len(text))
    text += FREE * (edge - len(text))
    return text if edge >= len(text) else f"{text[:edge]}{EDGE}{text[edge:]}"


def _parts(found: FitReport) -> Iterator[str]:
    """The parts of each kind of GPU in GiB; a GPU a column while they are few, else the fullest and the emptiest."""
    shares = list(found.stages)
    if len(shares) > 4:
        ranked = sorted(shares, key=lambda x: x.total)
        shares = [ranked[-1], ranked[0]]
    names = [_label(x, found) for x in shares]
    header = ("GiB a GPU", *([f"{names[0]} (most)", f"{names[1]} (least)"] if len(shares) < len(found.stages) else names))
    rows: list[tuple[str, ...]] = [header]
    if found.layout.pp > 1:
        rows.append(("layers", *(", ".join(f"{a}–{b - 1}" for a, b in x.runs) for x in shares)))
    for name, _ in PARTS:
        rows.append((NAMES.get(name, name), *(format_giga(getattr(x, name), 2**30) for x in shares)))
    rows.append(("total", *(format_giga(x.total, 2**30) for x in shares)))
    lines = align(rows, right=range(1, len(header)))
    yield dim(lines[0])
    yield from lines[1:]


def _room(model: Model, found: FitReport) -> list[str]:
    own = model.tree.context
    tokens = "any number of tokens" if found.max_context is None else f"up to {found.max_context:,} tokens"
    beyond = f" (the model's own context is {own:,})" if own and (found.max_context is None or found.max_context > own) else ""
    batch = (
        "any number of sequences" if found.max_batch is None else f"up to {found.max_batch:,} sequence{'s' if found.max_batch != 1 else ''}"
    )
    alone = f"{found.batch:,} sequence{'s' if found.batch > 1 else ''}"
    return [bold("room"), *wrap(f"{alone} of {tokens}{beyond}, or {batch} of {found.context:,}")]


def _instead(found: FitReport) -> list[str]:
    if not found.instead:
        return [
            bold("instead"),
            *wrap("nothing that was tried fits: 8 or 4 or fewer bits, fewer tokens, more of these GPUs, larger ones"),
        ]
    rows = [_option(x) for x in found.instead]
    return [bold("instead, any one of"), *(f"  {line}" for line in align(rows, right=(2,)))]


def _option(x: FitAlternative) -> tuple[str, ...]:
    return x.change, x.what, f"{format_giga(x.total, 2**30)} GiB"


def _ceilings(found: FitReport) -> Iterator[str]:
    """Both bounds with what they rest on."""
    at, c, where = found.ceilings, found.batch, "in all stages, one after another" if found.layout.pp > 1 else "on each GPU"
    yield bold("ceilings: bounds that no implementation passes, not predictions")
    each = f", {at.decode.tokens_per_second / c:,.1f} for each of {c:,} sequences" if c > 1 else ""
    speed = f"{format_rate(at.decode.tokens_per_second)} tokens/s{each} at {found.context:,} tokens of context"
    yield from wrap(f"decode   {speed}: {_why(at.decode, where)}", "  ")
    if at.prefill is None:
        yield "  prefill  not known: no rate of arithmetic is published for this GPU"
    else:
        seconds = f"{at.prefill.seconds:.3g} s for {format_sequences(found.batch, found.context)}"
        yield from wrap(
            f"prefill  {format_rate(at.prefill.tokens_per_second)} tokens/s, {seconds}: {_why(at.prefill, 'on each GPU')}", "  "
        )
    yield from map(dim, wrap("assumed: " + "; ".join(at.assumptions), "  "))


def _why(x: SpeedLimit, where: str) -> str:
    if x.bound == "memory":
        return f"memory-bound, {format_bytes(x.bytes)} to read a pass {where}"
    return f"compute-bound, {format_rate(x.flops / 1e12)} TFLOP {where}"


def format_rate(value: float) -> str:
    """Tokens a second, to three digits."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"
