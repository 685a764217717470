"""SVG shapes and text as strings, with every text escaped, colors for light and dark mode, and
only system fonts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...utils.errors import safe
from ..table import wrap

CHAR_WIDTH = 0.62
"""A conservative ratio of character width to font size for common sans-serif fonts."""

LIGHT = {
    "page": "#ffffff", "ink": "#1c2128", "faint": "#57606a", "line": "#afb8c1",
    "up": "#2c7a4b", "down": "#b3541e", "total": "#4a6b9a",
    "embedding": "#c5dbf5", "head": "#dccff2", "attention": "#fbd9b0", "mixer": "#f7e59a",
    "mlp": "#cbe8c4", "experts": "#bfe6e2",
    "router": "#f6cbd9", "norm": "#d5d9de", "other": "#e6e6e6",
}  # fmt: skip
DARK = {
    "page": "#12161c", "ink": "#f0f3f6", "faint": "#a9b4c0", "line": "#58626e",
    "up": "#57c785", "down": "#f0955a", "total": "#86aee0",
    "embedding": "#27507f", "head": "#563f82", "attention": "#7d4d12", "mixer": "#6d6010",
    "mlp": "#2f6129", "experts": "#1b615b",
    "router": "#7a304b", "norm": "#4c545d", "other": "#3d3d3d",
}  # fmt: skip


def escape_xml(text: str) -> str:
    """Escape a text for XML."""
    text = safe(text, 20_000)
    for character, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ('"', "&quot;"),
        ("'", "&#39;"),
    ):
        text = text.replace(character, entity)
    return text


def svg_document(size: tuple[int, int], title: str, description: str, shapes: Iterable[str]) -> str:
    """Return a whole SVG document, with a title and a description for screen readers."""
    width, height = size
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            'aria-labelledby="title desc">',
            f'<title id="title">{escape_xml(title)}</title>',
            f'<desc id="desc">{escape_xml(description)}</desc>',
            "<style>",
            "text { font-family: system-ui, 'DejaVu Sans', sans-serif; font-size: 13px }",
            *_colors(LIGHT, ""),
            "@media (prefers-color-scheme: dark) {",
            *_colors(DARK, "  "),
            "}",
            "</style>",
            rect((0, 0, width, height), "page"),
            *shapes,
            "</svg>",
            "",
        ]
    )


_SIZE = re.compile(r'viewBox="0 0 (\d+) (\d+)" width="\d+" height="\d+"')
_FOOTER, _FOOTER_LINE = 11, 15
"""The size of the text of a footer, and the height of its lines."""


def with_footer(document: str, content: str) -> str:
    """Return a picture of `svg_document` with a footer below it: how it was made."""
    found = _SIZE.search(document)
    assert found is not None
    width, height = int(found[1]), int(found[2])
    lines = wrap(content, "", int((width - 48) / (_FOOTER * CHAR_WIDTH)))
    taller = height + len(lines) * _FOOTER_LINE + 9
    background = rect((0, 0, width, height), "page")
    assert background in document
    document = document.replace(
        found[0], f'viewBox="0 0 {width} {taller}" width="{width}" height="{taller}"', 1
    )
    document = document.replace(background, rect((0, 0, width, taller), "page"), 1)
    footer = [
        text((24, height + _FOOTER + i * _FOOTER_LINE), x, "faint", size=_FOOTER)
        for i, x in enumerate(lines)
    ]
    return document.replace("</svg>", "\n".join([*footer, "</svg>"]))


def _colors(theme: dict[str, str], indent: str) -> list[str]:
    return [f"{indent}.{name} {{ fill: {color} }}" for name, color in theme.items()] + [
        f"{indent}.stroke {{ stroke: {theme['line']} }}"
    ]


def text(
    at: tuple[float, float],
    content: str,
    style: str = "ink",
    anchor: str = "start",
    size: int = 13,
    bold: bool = False,
) -> str:
    """Return a line of text; `at` is the start, middle or end of its baseline, as `anchor` says."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" class="{style}" text-anchor="{anchor}" '
        f'style="font-size: {size}px"{weight}>'
        f"{escape_xml(content)}</text>"
    )


def rect(box: tuple[float, float, float, float], style: str, note: str = "") -> str:
    """Return a filled rectangle (x, y, width, height); the note is its tooltip."""
    x, y, width, height = box
    shape = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" class="{style}"'
    )
    return f"{shape}><title>{escape_xml(note)}</title></rect>" if note else f"{shape}/>"


def path(points: Iterable[tuple[float, float]], style: str, note: str = "") -> str:
    """Return a filled polygon; the note is its tooltip."""
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    title = f"<title>{escape_xml(note)}</title>" if note else ""
    return f'<polygon points="{where}" class="{style}">{title}</polygon>'


def circle(at: tuple[float, float], radius: float, style: str, note: str = "") -> str:
    """Return a filled circle; the note is its tooltip."""
    shape = f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:g}" class="{style}"'
    return f"{shape}><title>{escape_xml(note)}</title></circle>" if note else f"{shape}/>"


def line(a: tuple[float, float], b: tuple[float, float]) -> str:
    """Return a thin dashed line."""
    return (
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" '
        'class="stroke" stroke-dasharray="2 3"/>'
    )


def text_fits(content: str, room: float, size: int = 13) -> bool:
    """Return whether a text fits a width."""
    return len(content) * size * CHAR_WIDTH <= room


def truncate_text(content: str, room: float, size: int = 13) -> str:
    """Truncate a text to a width, with an ellipsis."""
    most = int(room / (size * CHAR_WIDTH))
    return content if len(content) <= most else f"{content[: max(most - 1, 0)]}…"
