"""Pictures as PNG, drawn by resvg, the one rasterizer that is used."""

from __future__ import annotations

import re

from ..utils.errors import LlamathError, MissingExtra

_ZOOM = 2
"""Pixels of a length of 1 in the picture: enough for print at the width of a page."""
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\n(?:  .*\n)*\}\n")


def check_png() -> None:
    """Raise an error if PNG cannot be drawn here."""
    try:
        import resvg_py  # noqa: F401
    except ImportError:
        raise MissingExtra("resvg_py", "png") from None


def svg_to_png(svg: str) -> bytes:
    """Return one of this package's SVG pictures as PNG, in its light colors and at twice its
    size.
    """
    from resvg_py import svg_to_bytes

    check_png()
    if not _has_fonts():
        raise LlamathError(
            "no font for the text of the picture is installed",
            hint="install DejaVu Sans (fonts-dejavu-core)",
        )
    return bytes(svg_to_bytes(svg_string=_DARK.sub("", svg), zoom=_ZOOM))


def _has_fonts() -> bool:
    """Whether text leaves any pixel; resvg silently draws none without a font."""
    from resvg_py import svg_to_bytes

    def draw(content: str) -> bytes:
        words = f'<text y="9" font-family="sans-serif">{content}</text>'
        return bytes(
            svg_to_bytes(
                svg_string='<svg xmlns="http://www.w3.org/2000/svg" width="9" '
                f'height="9">{words}</svg>'
            )
        )

    return draw("X") != draw("")
