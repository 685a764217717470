"""The texts of a poster with the room that the library reckons for them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import NamedTuple

from llamath.render.svg.poster.drawn_text import text_width


class DrawnText(NamedTuple):
    """A line of text and its box."""

    text: str
    left: float
    right: float
    top: float
    bottom: float

    def overlaps(self, other: DrawnText) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


def drawn_texts(svg: str) -> Iterator[DrawnText]:
    """Yield the lines of text of a poster."""
    for x in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        size, at, y = (float(x.attrib[name]) for name in ("font-size", "x", "y"))
        wide = text_width(x.text or "", size, bold="font-weight" in x.attrib)
        left = at - wide * {"start": 0, "middle": 0.5, "end": 1}[x.get("text-anchor", "start")]
        # digits and capitals are as high as this, and what hangs below is as deep
        yield DrawnText(x.text or "", left, left + wide, y - 0.72 * size, y + 0.2 * size)
