"""`poster_svg`: a model as one picture to post or to hang on a wall."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ....analysis.understand.fact_sheet import FactSheet
from ....analysis.understand.model_bars import model_bars
from ....utils.errors import Argument, LlamathError, safe
from ..svg_shapes import escape_xml
from .drawn_text import Canvas, text_width, wrap_to_width
from .layer_packing import Box
from .poster_content import (
    facts_of,
    formula_of,
    letters_of,
    name_of,
    open_layer,
    origin_of,
    part_names,
    shares_of,
    size_note,
    source_of,
)
from .poster_parts import draw_facts, draw_layer, draw_mark, draw_model, draw_shares

THEMES: Mapping[str, Mapping[str, str]] = {
    "light": {
        "paper": "#fcfbf8", "ink": "#14171c", "ink-2": "#474d57", "rule": "#dfdcd4",
        "c-embed": "#1184cf", "c-attn": "#cf770f", "c-kv": "#ac0165", "c-ffn": "#438234",
        "c-experts": "#01555a", "c-router": "#7b4cbd", "c-norm": "#2e333d", "c-head": "#3033a4",
        "c-vision": "#5c5900",
        "on-embed": "#12161d", "on-attn": "#12161d", "on-ffn": "#ffffff", "on-experts": "#ffffff",
        "on-router": "#ffffff", "on-norm": "#ffffff", "on-head": "#ffffff", "on-vision": "#ffffff",
    },
    "dark": {
        "paper": "#0f131a", "ink": "#eef1f5", "ink-2": "#b4bcc8", "rule": "#2a323f",
        "c-embed": "#2d86ee", "c-attn": "#fda058", "c-kv": "#fe70a6", "c-ffn": "#469a61",
        "c-experts": "#0b7787", "c-router": "#ddb9ff", "c-norm": "#e1e5eb", "c-head": "#96a1fe",
        "c-vision": "#ad9106",
        "on-embed": "#0b0e13", "on-attn": "#0b0e13", "on-ffn": "#0b0e13", "on-experts": "#ffffff",
        "on-router": "#0b0e13", "on-norm": "#0b0e13", "on-head": "#0b0e13", "on-vision": "#0b0e13",
    },
}  # fmt: skip
"""The colors of the page: theme → token → color."""
FONT = "-apple-system,'Segoe UI',Roboto,'Noto Sans',system-ui,'DejaVu Sans',sans-serif"
_BETWEEN = 30
"""Between the open layer and the model below it."""
_MOST_LINES = 13
"""More lines of a formula are left out on paper."""
_TOKEN = re.compile(r'="\$([a-z0-9-]+)"')


class PosterFormat(NamedTuple):
    """The size of a poster, and what is where in it."""

    width: int
    height: int
    zoom: int  # pixels of a PNG per unit
    draw: Callable[[Canvas, FactSheet], None]

    @property
    def pixels(self) -> tuple[int, int]:
        """The size of the PNG."""
        return self.width * self.zoom, self.height * self.zoom


def parse_poster(text: str) -> tuple[str, str]:
    """Return format and theme: `a3-dark`."""
    name, dash, theme = text.partition("-")
    if name not in FORMATS or (theme or "light") not in THEMES or (dash and not theme):
        raise LlamathError(
            f"expected {', '.join(FORMATS)}, or one of them with -dark, "
            f"found {safe(repr(text), 60)}",
            hint=f"give {Argument('poster', 'square-dark')}",
        )
    return name, theme or "light"


def poster_svg(facts: FactSheet, name: str = "wide", theme: str = "light") -> str:
    """Return the poster of a model in a format and a theme."""
    colors = THEMES[theme]
    return _TOKEN.sub(lambda found: f'="{colors[found[1]]}"', poster_drawing(facts, name))


def poster_drawing(facts: FactSheet, name: str) -> str:
    """Return the poster with names of tokens, as `fill="$ink"`, in the place of colors."""
    form, canvas = FORMATS[name], Canvas()
    form.draw(canvas, facts)
    size = (
        'width="297mm" height="420mm"'
        if name == "a3"
        else f'width="{form.width}" height="{form.height}"'
    )
    title = f"{name_of(facts)}: {facts.total:,} parameters"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {form.width} {form.height}" '
            f'{size} role="img" aria-labelledby="t d" font-family="{FONT}">',
            f'<title id="t">{escape_xml(title)}</title>',
            f'<desc id="d">{escape_xml(facts.description)}</desc>',
            f'<rect width="{form.width}" height="{form.height}" fill="$paper"/>',
            *canvas.shapes,
            "</svg>",
            "",
        ]
    )


def _count(
    canvas: Canvas, facts: FactSheet, at: tuple[float, float], room: float, size: float
) -> None:
    canvas.text(at, f"{facts.total:,}", size, bold=True, room=room, least=20)


def _name(
    canvas: Canvas, facts: FactSheet, at: tuple[float, float], room: float, size: float
) -> None:
    """Draw the name, in two lines if it is long."""
    name = name_of(facts)
    if text_width(name, size * 0.6, bold=True) <= room:
        canvas.text(at, name, size, bold=True, room=room, least=size * 0.6)
        return
    small = size * 0.5
    lines = list(wrap_to_width(name, room, small, bold=True))
    for i, line in enumerate(lines[:2]):
        more = " …" if i and len(lines) > 2 else ""
        y = at[1] + small * (1.2 * i - 0.9)
        canvas.text((at[0], y), line + more, small, bold=True, room=room)


def _formula_or_description(
    canvas: Canvas, facts: FactSheet, at: tuple[float, float], room: float, size: float, lines: int
) -> None:
    """Draw the count in letters, if it is one line, or what the model is."""
    x, y = at
    shown = [formula_of(facts)]
    if text_width(shown[0], size) > room:
        said = facts.description
        found = list(wrap_to_width(said, room, size))
        while found[lines:] and "; " in said:  # whole clauses rather than half a sentence
            said = said.rpartition("; ")[0] + "."
            found = list(wrap_to_width(said, room, size))
        shown = found[:lines]
        shown[-1] = shown[-1].removesuffix(".") + (" …" if found[lines:] else "")
    for i, line in enumerate(shown):
        canvas.text((x, y + size * 1.3 * i), line, size, color="$ink-2", room=room)


def _draw_both(
    canvas: Canvas, facts: FactSheet, box: Box, least: float, sizes: tuple[float, float]
) -> None:
    """Draw the layer, and below it all layers, at least so high, with what the layer leaves."""
    x, y, wide, high = box
    top, layer = y, open_layer(facts)
    if layer is not None:
        room = (x, y, wide, high - least - _BETWEEN)
        top = draw_layer(canvas, layer, facts.width, room, sizes[0]) + _BETWEEN
    rest = (x, top, wide, y + high - top)
    draw_model(canvas, model_bars(facts.model), rest, part_names(facts), sizes[1])


def _draw_wide(canvas: Canvas, facts: FactSheet) -> None:
    left, right, wide, column = 56, 1144, 1088, 610
    canvas.text((left, 66), origin_of(facts), 20, color="$ink-2", room=column, least=16)
    _name(canvas, facts, (left, 124), column, 54)
    _count(canvas, facts, (left, 206), column, 80)
    canvas.text((left, 246), size_note(facts), 24, color="$ink-2", room=column, least=18)
    _formula_or_description(canvas, facts, (left, 280), column, 19, 2)
    layer = open_layer(facts)
    if layer is not None:
        draw_layer(canvas, layer, facts.width, (706, 46, right - 706, 246), 19)
    draw_model(canvas, model_bars(facts.model), (left, 318, wide, 140), part_names(facts), 19)
    draw_shares(canvas, shares_of(facts), (left, 470, wide, 20), 19)
    canvas.line((left, 508), (right, 508), "$rule", 1)
    draw_facts(canvas, list(facts_of(facts)), (left, 520, wide, 60), 27)
    draw_mark(canvas, (right, 610), 19)
    canvas.text((left, 610), source_of(facts), 16, color="$ink-2", room=wide - 180, least=14)


def _draw_square(canvas: Canvas, facts: FactSheet) -> None:
    left, right, wide = 64, 1136, 1072
    canvas.text((left, 84), origin_of(facts), 25, color="$ink-2", room=wide, least=18)
    _name(canvas, facts, (left, 164), wide, 74)
    _count(canvas, facts, (left, 284), wide, 122)
    canvas.text((left, 332), size_note(facts), 30, color="$ink-2", room=wide, least=20)
    _draw_both(canvas, facts, (left, 376, wide, 534), 180, (22, 21))
    draw_shares(canvas, shares_of(facts), (left, 926, wide, 22), 21)
    canvas.line((left, 968), (right, 968), "$rule", 1)
    draw_facts(canvas, list(facts_of(facts)), (left, 982, wide, 126), 30, 2)
    _formula_or_description(canvas, facts, (left, 1138), wide, 18, 1)
    draw_mark(canvas, (right, 1172), 22)
    canvas.text((left, 1172), source_of(facts), 17, color="$ink-2", room=wide - 200, least=14)


def _draw_a3(canvas: Canvas, facts: FactSheet) -> None:
    left, right, wide = 88, 1100, 1012
    canvas.text((left, 116), origin_of(facts), 25, color="$ink-2", room=wide, least=18)
    _name(canvas, facts, (left, 204), wide, 82)
    _count(canvas, facts, (left, 330), wide, 126)
    canvas.text((left, 380), size_note(facts), 30, color="$ink-2", room=wide, least=20)
    y = 422
    for line in list(wrap_to_width(facts.description, wide, 21))[:3]:
        canvas.text((left, y), line, 21, room=wide)
        y += 29
    canvas.line((left, y), (right, y), "$ink", 2)
    small = 19.0
    written = [formula_of(facts), letters_of(facts)]
    lines = [y for x in written for y in wrap_to_width(x, wide, small)]
    if len(lines) > 6:
        small = 14.0
        lines = [y for x in written for y in wrap_to_width(x, wide, small)]
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = [f"… and {len(lines) - _MOST_LINES + 1:,} lines more"]
    foot = 1612 - len(lines) * small * 1.45
    facts_top = foot - 210
    _draw_both(canvas, facts, (left, y + 24, wide, facts_top - 92 - y), 232, (23, 21))
    draw_shares(canvas, shares_of(facts), (left, facts_top - 54, wide, 22), 21)
    canvas.line((left, facts_top - 6), (right, facts_top - 6), "$rule", 1)
    draw_facts(canvas, list(facts_of(facts)), (left, facts_top + 8, wide, 140), 32, 2)
    canvas.line((left, foot - 46), (right, foot - 46), "$rule", 1)
    canvas.text((left, foot - 16), "The count in letters", 19, bold=True)
    for i, line in enumerate(lines):
        canvas.text((left, foot + 12 + i * small * 1.45), line, small, color="$ink-2", room=wide)
    draw_mark(canvas, (right, 1644), 22)
    canvas.text((left, 1644), source_of(facts), 16, color="$ink-2", room=wide - 200, least=12)


FORMATS = {
    "wide": PosterFormat(1200, 630, 1, _draw_wide),
    "square": PosterFormat(1200, 1200, 1, _draw_square),
    "a3": PosterFormat(1188, 1680, 2, _draw_a3),
}
"""The formats by name: the preview of a link, a post, and paper."""
PREVIEW = "wide"
"""The format of the picture that a link shows."""
