"""The room that text takes in the widest common font, and text that is made to fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..svg_shapes import escape_xml

_REGULAR: Mapping[int, str] = {
    30: "'′ijl", 35: " ,./:;\\|·", 40: "()-[]ft⌈⌉⌊⌋ᵀ", 45: "!r²", 50: '"*_`–', 55: "?csz",
    60: "FIJLkvxy", 65: "$0123456789EPSTYabdeghnopqu{}θ√€é", 70: "ABCKRVXZ", 75: "NU",
    80: "&DGHOQ", 85: "#+<=>^w~×→−≤≥", 90: "M", 100: "%@Wm…—",
}  # fmt: skip
_BOLD: Mapping[int, str] = {
    35: " '′jil", 40: ",./:;I\\|·", 45: "-f²ᵀ", 50: "!()[]_`rt⌈⌉⌊⌋–", 55: '"*', 60: "J?csz",
    65: "Lx", 70: "$0123456789EFTaekovyθ√€é", 75: "CPSYZbdghnpqu{}", 80: "ABKRVX",
    85: "#+<=>DGHNU^~×→−≤≥", 90: "&OQ", 95: "w", 100: "@M…—", 105: "%m", 115: "W",
}  # fmt: skip
"""Hundredths of the font size → characters that are at most as wide in DejaVu Sans."""
_WIDTHS = [{x: n / 100 for n, some in widths.items() for x in some} for widths in (_REGULAR, _BOLD)]
_WIDEST = 1.35
"""Of any other character, emoji included."""


def text_width(content: str, size: float, *, bold: bool = False) -> float:
    """Return an upper estimate of the width of a line of text."""
    widths = _WIDTHS[bold]
    return sum(widths.get(x, _WIDEST) for x in content) * size


def cut_to_width(content: str, room: float, size: float, *, bold: bool = False) -> str:
    """Return a text, or as much of its beginning as fits, with an ellipsis."""
    if text_width(content, size, bold=bold) <= room:
        return content
    room -= text_width("…", size, bold=bold)
    for i, x in enumerate(content):
        room -= text_width(x, size, bold=bold)
        if room < 0:
            return f"{content[:i].rstrip()}…"
    return content


def size_that_fits(
    content: str, room: float, size: float, least: float, *, bold: bool = False
) -> float:
    """Return the font size at which a text fits, from `least` to `size`."""
    wide = text_width(content, size, bold=bold)
    return size if wide <= room else max(least, int(size * room / wide * 2) / 2)


def wrap_to_width(content: str, room: float, size: float, *, bold: bool = False) -> Iterator[str]:
    """Yield lines that fit; a word that does not is truncated."""
    line = ""
    for word in content.split():
        longer = f"{line} {word}".lstrip()
        if line and text_width(longer, size, bold=bold) > room:
            yield cut_to_width(line, room, size, bold=bold)
            longer = word
        line = longer
    if line:
        yield cut_to_width(line, room, size, bold=bold)


class Canvas:
    """Shapes in order. A color is the name of a token of the page, after a `$`."""

    def __init__(self) -> None:
        self.shapes: list[str] = []

    def text(
        self,
        at: tuple[float, float],
        content: str,
        size: float,
        *,
        bold: bool = False,
        color: str = "$ink",
        anchor: str = "start",
        room: float = 10_000,
        least: float = 12,
    ) -> float:
        """Draw a line of text at its baseline, as large as the room allows, and truncated where the
        least size is too wide; return its width.
        """
        size = size_that_fits(content, room, size, least, bold=bold)
        content = cut_to_width(content, room, size, bold=bold)
        where = f'x="{_short(at[0])}" y="{_short(at[1])}" font-size="{_short(size)}"'
        weight = ' font-weight="700"' if bold else ""
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.shapes.append(
            f'<text {where}{weight}{side} fill="{color}">{escape_xml(content)}</text>'
        )
        return text_width(content, size, bold=bold)

    def boxes(
        self,
        boxes: list[tuple[float, float, float, float]],
        color: str,
        *,
        pale: bool = False,
    ) -> None:
        """Draw rectangles (x, y, width, height) of one color as one path; pale ones have an edge in
        the full color.
        """
        steps: list[str] = []
        x0 = y0 = 0.0
        for x, y, width, height in boxes:
            x, y, width, height = (round(n, 2) for n in (x, y, width, height))
            # relative to the last corner, so that what repeats is equal text
            steps.append(
                f"m{_short(x - x0)} {_short(y - y0)}h{_short(width)}v{_short(height)}"
                f"h{_short(-width)}z"
            )
            x0, y0 = x, y
        if not steps:
            return
        how = f' fill-opacity=".18" stroke="{color}"' if pale else ""
        self.shapes.append(f'<path fill="{color}"{how} d="{"".join(steps)}"/>')

    def line(
        self, a: tuple[float, float], b: tuple[float, float], color: str, width: float
    ) -> None:
        """Draw a line."""
        self.shapes.append(
            f'<path stroke="{color}" stroke-width="{_short(width)}" '
            f'd="M{_short(a[0])} {_short(a[1])}L{_short(b[0])} {_short(b[1])}"/>'
        )


def _short(n: float) -> str:
    text = f"{n:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
