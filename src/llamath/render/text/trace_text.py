"""A traced forward pass as text: every step with shapes, weights, parameters and FLOPs, then the
next token and the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from ...analysis.graph.operations.attention_operations import OVER_CACHED_KEYS
from ...analysis.graph.step_table import format_shape, format_weights, list_letters
from ...analysis.graph.steps import Step
from ...analysis.graph.walkthrough import Walkthrough, WalkthroughStage
from ...core.extensions.encoder_decoder import ENCODER
from ...utils.errors import safe
from ...utils.number_format import (
    format_count,
    format_flops,
    format_percent,
    format_ranges,
    format_si,
    short_count,
)
from ..table import align, bold, dim, terminal_width, wrap

if TYPE_CHECKING:
    from ...torch.debug.trace_run import Trace, TracedImages

HEADER = ("step", "output", "weights", "params", "FLOPs")
_WIDER = (*HEADER, "operation")
_MIXING_KINDS = frozenset(("scores", "softmax", "mix", "state", "conv"))
MIXING, PER_TOKEN = "── tokens are mixed", "── per token"
Row = tuple[str, ...]


class TokenTexts:
    """The text of tokens; without a tokenizer, their ids."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        self.texts = texts

    def __call__(self, token: int) -> str:
        return f"'{safe(self.texts[token], 40)}'" if token in self.texts else f"token {token:,}"


def trace_summary(trace: Trace) -> str:
    """Return the pass in one line: its tokens and FLOPs, and the most likely next token if there
    is a prompt.
    """
    words = TokenTexts(trace.texts)
    prediction = (
        f", next token {words(trace.top_tokens[0][0])} {trace.top_tokens[0][1]:.1%}"
        if trace.top_tokens
        else ""
    )
    return (
        f"{safe(trace.model.name)}: {_heading(trace)}, {format_flops(trace.walk.flops)}{prediction}"
    )


def trace_text(trace: Trace) -> str:
    """Return the pass that is shown as text, with a summary of the next one."""
    model, words = trace.model, TokenTexts(trace.texts)
    lines = [bold(x) for x in wrap(f"{model.name}: {_heading(trace)}", indent="")]
    lines += [dim(x) for x in wrap(f"{model.family.name} family, from {model.source}", indent="")]
    lines += [dim(x) for x in wrap(_checked_against(trace), indent="")]
    if words.texts:
        lines += wrap(
            "tokens: "
            + " ".join(map(words, trace.ids[:40]))
            + (" …" if len(trace.ids) > 40 else ""),
            indent="",
        )
    if trace.images is not None and not trace.shows_next and trace.layer is None:
        lines += ["", *_images(trace.images)]
    lines += [
        "",
        *_table(trace.walk, trace.layer),
        "",
        *wrap(f"with {', '.join(list_letters(model, trace.walk))}", indent=""),
        "",
    ]
    if not trace.shows_next:
        lines += _next_token(trace)
    lines += _top_tokens(trace, words)
    return "\n".join(
        [*lines, *(x for note in trace.notes for x in wrap(f"note: {note}", indent=""))]
    )


def _heading(trace: Trace) -> str:
    many = f"a prompt of {len(trace.ids):,} token{'s' * (len(trace.ids) != 1)}"
    images = (
        (f", {format_count(trace.images.images.tokens, 'token')} of {trace.images.images.images}")
        if trace.images
        else ""
    )
    return f"decode after {many}" if trace.shows_next else f"{many}{images}"


def _checked_against(trace: Trace) -> str:
    what = (
        f"{trace.dtype} tensors on {trace.device}"
        if trace.has_values
        else ("tensors on the meta device (no values)")
    )
    return f"shapes checked against {what}"


def _images(traced: TracedImages) -> list[str]:
    """Show the images in the vision tower and its projector."""
    flops, parameters = (
        sum(x.flops * x.times for x in traced.stages),
        sum(x.parameters * x.times for x in traced.stages),
    )
    heading = [bold(x) for x in wrap(traced.images.summary, indent="")]
    return [*heading, *_stage_table(traced.stages, None, (parameters, flops))]


def _table(walk: Walkthrough, layer: int | None) -> list[str]:
    return _stage_table(walk.stages, layer, (walk.parameters, walk.flops))


def _stage_table(
    stages: Sequence[WalkthroughStage], layer: int | None, totals: tuple[int, int]
) -> list[str]:
    rows = [HEADER, *(row for stage in stages for row in _stage(stage, layer))]
    rows.append(("total", "", "", short_count(totals[0]), format_si(totals[1]), ""))
    lines = _fit_steps(rows)
    captions = {row[0] for row in rows if len(row) == 1}
    return [bold(lines[0]), *(dim(x) if x in captions else x for x in lines[1:])]


def _fit_steps(rows: Sequence[Row]) -> list[str]:
    """Return the table in the first of these forms that fits the terminal.

    With descriptions; without them; with weights as letters; with the values of a shape on a line
    of their own; with narrow gaps; without weights; without the letters of a shape.
    """
    cut = [row[: len(HEADER)] for row in rows]
    short = [
        cut[0],
        *(
            (*row[:2], _short(row[2]), *row[3:]) if len(row) == len(HEADER) else row
            for row in cut[1:]
        ),
    ]
    lines = _align_steps(short)
    excess = max(map(len, lines)) - terminal_width()
    room = max(len(row[1]) for row in short if len(row) == len(HEADER)) - excess
    broken = [part for row in short for part in _break_shape(row, room)]
    unweighted = [(*row[:2], "", *row[3:]) if len(row) == len(HEADER) else row for row in broken]
    numbers = [
        (row[0], row[1].rpartition(" = ")[2], "", *row[3:]) if len(row) == len(HEADER) else row
        for row in short
    ]
    for form, gap in (
        ([_WIDER, *rows[1:]], 2),
        (cut, 2),
        (short, 2),
        (broken, 2),
        (broken, 1),
        (unweighted, 1),
        (numbers, 1),
    ):
        lines = _align_steps(form, gap)
        if max(map(len, lines)) <= terminal_width():
            break
    return lines


def _align_steps(rows: Sequence[Row], gap: int = 2) -> list[str]:
    """Align rows; a caption of three cells spans the first columns, one of a single cell the
    whole line.
    """
    cells = [
        row if len(row) >= len(HEADER) else ("", "", "", *row[1:]) for row in rows if len(row) > 1
    ]
    trace = iter(align(cells, right=(3, 4), gap=gap))
    lines = [row[0] if len(row) == 1 else next(trace) for row in rows]
    return [
        row[0] + line[len(row[0]) :] if len(row) == 3 else line
        for row, line in zip(rows, lines, strict=True)
    ]


def _short(uses: str) -> str:
    return (
        ("W, tied" if uses.endswith("tied") else "W, b" if ", b" in uses else "W")
        if "[" in uses
        else uses
    )


def _break_shape(row: Row, room: int) -> Iterator[Row]:
    letters, equals, numbers = row[1].partition(" = ") if len(row) == len(HEADER) else ("", "", "")
    if not equals or len(row[1]) <= room:
        yield row
    else:
        yield (row[0], letters, *row[2:])
        yield "", f"= {numbers}", "", "", ""


def _stage(stage: WalkthroughStage, only: int | None) -> Iterator[Row]:
    indent = ""
    if stage.name.endswith("layers"):
        name = (
            " ".join(
                [stage.name, *filter(None, [format_ranges(stage.indices)]), f"× {stage.times:,}"]
            )
            if stage.times > 1
            else f"{stage.name.removesuffix('s')} {stage.layer}"
        )
        yield (
            name,
            short_count(stage.parameters * stage.times),
            format_si(stage.flops * stage.times),
        )
        if only not in (None, stage.layer):
            return
        yield from ((line,) for x in _layer_caption(stage) for line in wrap(x))
        indent = "  "
    for mixing, steps in groupby(stage.steps, lambda x: x.kind in _MIXING_KINDS):
        group = list(steps)
        if mixing:
            yield (
                indent
                + (MIXING if any(x.weights for x in group) else f"{MIXING}, without weights"),
            )
        elif group[0] is not stage.steps[0]:
            yield (indent + PER_TOKEN,)
        yield from (_step_row(indent, x) for x in group)


def _step_row(indent: str, x: Step) -> Row:
    params = short_count(x.parameters) if x.weights else ""
    flops = format_si(int(x.flops)) if int(x.flops) else ""
    return indent + x.name, format_shape(x), format_weights(x.weights), params, flops, x.description


def _layer_caption(stage: WalkthroughStage) -> list[str]:
    """Name the layer shown, and the mask if it is not the plain causal one."""
    mask = next(
        (
            x.description
            for x in stage.steps
            if x.kind == "softmax" and x.description != OVER_CACHED_KEYS
        ),
        "",
    )
    facts = (
        [f"layer {stage.layer} shown; the others are identical"] if stage.times > 1 else []
    ) + ([f"softmax {mask}"] if mask else [])
    return ["; ".join(facts)] if facts else []


def _next_token(trace: Trace) -> list[str]:
    """Summarize the next decode step where it differs, and the cache."""
    lines, cache = [], trace.cache
    if trace.following is not None:
        walk = trace.following.walk
        steps = walk.layers[0].steps if walk.layers else ()
        lines.append(bold(f"next token: {format_flops(walk.flops)} (--next shows all steps)"))
        lines += align(
            [
                (f"  {x.name}", format_shape(x))
                for x in steps
                if x.kind in ("cache", "scores", "state")
            ]
        )
    if cache.tokens:
        states = any(x.kind == "state" for stage in trace.first.walk.layers for x in stage.steps)
        wide = f"{trace.dtype}, states in float32" if states else trace.dtype
        read = f"{cache.tokens:,} tokens"
        if any(x.name == ENCODER for x in trace.first.walk.stages):
            read = f"a prompt of {len(trace.ids):,} tokens and {read} of the decoder"
        lines += wrap(
            f"cached after {read}: {cache.elements:,} elements, {cache.nbytes:,} bytes ({wide})",
            indent="",
        )
    return [*lines, ""] if lines else []


def _top_tokens(trace: Trace, words: TokenTexts) -> list[str]:
    if not trace.top_tokens:
        return []
    from fractions import Fraction

    rows = [
        ("next token", "probability"),
        *((words(token), format_percent(Fraction(share))) for token, share in trace.top_tokens),
    ]
    lines = align(rows, right=(1,))
    return [bold(lines[0]), *lines[1:], ""]
