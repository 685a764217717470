"""How far down each page of a PDF that Chromium wrote has ink, from the operators of its content."""

from __future__ import annotations

import re
import zlib

Matrix = tuple[float, float, float, float, float, float]
IDENTITY: Matrix = (1, 0, 0, 1, 0, 0)
POINTS_PER_MM = 72 / 25.4
OBJECT = re.compile(rb"(\d+) 0 obj\n(.*?)\nendobj", re.DOTALL)
PAGE = re.compile(rb"/Type\s*/Page\b")
SIZE = re.compile(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]")
STREAM = re.compile(rb"stream\r?\n(.*)\r?\nendstream", re.DOTALL)
TOKEN = re.compile(rb"<[0-9A-Fa-f]*>|\((?:\\.|[^\\)])*\)|\[|\]|/[^\s/\[\]<>()]+|[^\s\[\]<>()/]+")


def times(a: Matrix, b: Matrix) -> Matrix:
    """Apply a, then b."""
    return (
        a[0] * b[0] + a[1] * b[2],
        a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2],
        a[2] * b[1] + a[3] * b[3],
        a[4] * b[0] + a[5] * b[2] + b[4],
        a[4] * b[1] + a[5] * b[3] + b[5],
    )


class Content:
    """The heights, in points from the lower edge, at which operators draw something that is not white."""

    def __init__(self, forms: dict[bytes, bytes]) -> None:
        self.forms = forms
        self.heights: list[float] = []

    def read(self, data: bytes, matrix: Matrix = IDENTITY) -> None:
        stack: list[tuple[Matrix, tuple[float, ...]]] = []
        fill: tuple[float, ...] = (0,)
        operands: list[bytes] = []
        path: list[float] = []
        line = text = matrix
        for token in TOKEN.findall(data):
            n = [float(x) for x in operands if re.fullmatch(rb"-?[\d.]+", x)]
            match token:
                case b"q":
                    stack.append((matrix, fill))
                case b"Q":
                    matrix, fill = stack.pop()
                case b"cm":
                    matrix = times((n[0], n[1], n[2], n[3], n[4], n[5]), matrix)
                case b"rg" | b"g":
                    fill = tuple(n)
                case b"re":
                    path += [self.y(matrix, n[0], n[1]), self.y(matrix, n[0] + n[2], n[1] + n[3])]
                case b"m" | b"l":
                    path.append(self.y(matrix, n[0], n[1]))
                case b"c":
                    path.append(self.y(matrix, n[4], n[5]))
                case b"f" | b"f*" | b"B" | b"S" | b"s":
                    if token in (b"S", b"s") or any(x < 0.999 for x in fill):
                        self.heights += path
                    path = []
                case b"n":
                    path = []
                case b"Tm":
                    line = text = (n[0], n[1], n[2], n[3], n[4], n[5])
                case b"Td":
                    line = text = times((1, 0, 0, 1, n[0], n[1]), line)
                case b"Tj" | b"TJ":
                    self.heights.append(times(text, matrix)[5])
                case b"Do":
                    self.read(self.forms.get(operands[-1][1:], b""), matrix)
                case _ if not token[:1].isalpha():
                    operands.append(token)
                    continue
            operands = []

    @staticmethod
    def y(matrix: Matrix, x: float, y: float) -> float:
        return x * matrix[1] + y * matrix[3] + matrix[5]


def _content(item: bytes) -> bytes:
    found = STREAM.search(item)
    assert found is not None
    return zlib.decompress(found[1]) if b"/FlateDecode" in item else found[1]


def filled_shares(pdf: bytes, top_mm: float, bottom_mm: float) -> list[float]:
    """Return for each page how much of the height between its margins its lowest ink leaves above it."""
    items = dict(OBJECT.findall(pdf))
    forms = {b"X" + n: _content(x) for n, x in items.items() if b"/Subtype /Form" in x}
    shares = []
    for page in (x for x in items.values() if PAGE.search(x)):
        size, at = SIZE.search(page), re.search(rb"/Contents (\d+) 0 R", page)
        assert size is not None and at is not None
        content = Content(forms)
        content.read(_content(items[at[1]]))
        top, bottom = float(size[2]) - top_mm * POINTS_PER_MM, bottom_mm * POINTS_PER_MM
        inside = [y for y in content.heights if bottom <= y <= top]
        shares.append((top - min(inside, default=top)) / (top - bottom))
    return shares
