"""Pictures as PNG, drawn by resvg, the one rasterizer that is used."""

from __future__ import annotations

import os
import re
from functools import cache

from ..utils.errors import LlamathError, MissingExtra, safe

_ZOOM = 2
"""Pixels of a length of 1 in the picture: enough for print at the width of a page."""
_SIZE = re.compile(r'width="[^"]*" height="[^"]*"')
_FONTS = ("Arial", "DejaVu Sans", "Liberation Sans", "Noto Sans", "Helvetica", "Segoe UI")
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n(?:  .*\n)*\}\n")


def is_png(path: str, where: str = "") -> bool:
    """Whether a file is to be a PNG, by the end of its name, or an SVG; another one is refused, and
    so is a PNG that cannot be drawn here. `where` begins the error.
    """
    ending = os.path.splitext(path)[1].lower()
    if ending not in (".svg", ".png"):
        raise LlamathError(
            f"{where}expected a name that ends in .svg or .png, found {safe(repr(path), 60)}",
            hint="a name such as picture.svg",
        )
    if ending == ".png":
        check_png()
    return ending == ".png"


def check_png() -> None:
    """Raise an error if PNG cannot be drawn here."""
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise MissingExtra("resvg_py", "png") from None


def svg_to_png(svg: str, size: tuple[int, int] | None = None) -> bytes:
    """Return one of this package's SVG pictures as PNG, in its light colors, of a size in pixels,
    or at twice its own.
    """
    from resvg_py import svg_to_bytes

    check_png()
    font = _sans_serif()
    if not font:
        raise LlamathError(
            "no font for the text of the picture is installed",
            hint="install DejaVu Sans (fonts-dejavu-core)",
        )
    svg, zoom = _DARK.sub("", svg), _ZOOM
    if size is not None:  # one in millimeters would be rounded twice
        svg, zoom = _SIZE.sub('width="{}" height="{}"'.format(*size), svg, count=1), 1
    return bytes(svg_to_bytes(svg_string=svg, zoom=zoom, sans_serif_family=font))


@cache
def _sans_serif() -> str:
    """Return the font that stands for sans-serif here, or ""; resvg takes Arial, and silently draws
    no text where a font is missing.
    """
    from resvg_py import svg_to_bytes

    def draw(content: str, font: str) -> bytes:
        words = f'<text y="9" font-family="{font}">{content}</text>'
        return bytes(
            svg_to_bytes(
                svg_string='<svg xmlns="http://www.w3.org/2000/svg" width="9" '
                f'height="9">{words}</svg>'
            )
        )

    return next((x for x in _FONTS if draw("X", x) != draw("", x)), "")
