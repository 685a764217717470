"""The matrices of a layer in a box, all in one scale: area is parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import NamedTuple

GAP = 2
"""Paper between matrices."""
LEAST_SIDE = 1.5
"""A thinner matrix is not drawn."""
_BETWEEN_GROUPS, _BETWEEN_COLUMNS = 14, 28
_MOST_TILES = 4096
_STEPS = 18
"""Halvings of the interval in which the scale is."""
_COLUMN_WIDTHS = [x / 16 for x in range(2, 15)]
Box = tuple[float, float, float, float]


class Matrix(NamedTuple):
    """A matrix, or equal ones: the experts of a layer, each drawn as one rectangle."""

    label: str
    component: str
    sides: tuple[int, int]
    copies: int = 1
    active: int = 1
    shape: tuple[int, int] = (0, 0)  # as stored: `sides` may be turned


class MatrixGroup(NamedTuple):
    """Matrices under one heading."""

    heading: str
    note: str
    least_width: float  # of the heading
    matrices: tuple[Matrix, ...]


class Tiles(NamedTuple):
    """Where a matrix, or the copies of one, are drawn."""

    matrix: Matrix
    x: float
    y: float
    width: float  # of one copy
    height: float
    columns: int
    gap: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.columns * (self.width + self.gap) - self.gap

    @property
    def bottom(self) -> float:
        """The lower edge."""
        rows = -(-self.matrix.copies // self.columns)
        return self.y + rows * (self.height + self.gap) - self.gap

    @property
    def boxes(self) -> list[Box]:
        """The rectangles of the copies; of very many, one for all of them."""
        n = self.matrix.copies
        if n > _MOST_TILES or (n > 1 and not self.gap):
            rows = -(-n // self.columns)
            return [(self.x, self.y, self.width * self.columns, self.height * rows)]
        # equal steps once they are written, so that the page's data compress
        x, y, width, height = (round(n, 1) for n in self[1:5])
        across, down = round(width + self.gap, 1), round(height + self.gap, 1)
        return [
            (x + i % self.columns * across, y + i // self.columns * down, width, height)
            for i in range(n)
        ]


class PlacedGroup(NamedTuple):
    """A group with the place of its heading and of its matrices."""

    group: MatrixGroup
    x: float
    y: float  # the top of the heading
    room: float  # the width of its column
    tiles: tuple[Tiles, ...]


def pack_layer(
    groups: Sequence[MatrixGroup], width: int, box: Box, heading: float
) -> list[PlacedGroup]:
    """Return the groups in one or two columns of a box, as large as they fit there.

    `width` is that of the residual stream, with which all matrices that touch it have a side in
    common: it is upright in all of them, or level in all.
    """
    found: tuple[float, list[PlacedGroup]] = (0.0, [])
    for upright in (True, False):
        turned = [_turned(x, width, upright) for x in groups]
        least, most = found[0], sqrt(box[2] * box[3] / max(1, _area(groups)))
        for _ in range(_STEPS):
            scale = (least + most) / 2
            if placed := _place(turned, scale, box, heading):
                least, found = scale, (scale, placed)
            else:
                most = scale
    return found[1]


def _area(groups: Sequence[MatrixGroup]) -> int:
    return sum(y.sides[0] * y.sides[1] * y.copies for x in groups for y in x.matrices)


def _turned(group: MatrixGroup, width: int, upright: bool) -> MatrixGroup:
    """Return a group whose matrices have the side `width` upright or level; of those without it,
    the short side takes its place.
    """

    def turn(x: Matrix) -> Matrix:
        a, b = x.sides
        shared = width if width in x.sides else min(a, b)
        other = b if a == shared else a
        return x._replace(sides=(other, shared) if upright else (shared, other))

    return group._replace(matrices=tuple(map(turn, group.matrices)))


def _place(
    groups: Sequence[MatrixGroup], scale: float, box: Box, heading: float
) -> list[PlacedGroup]:
    """Return the groups at a scale; none if they do not fit."""
    x, y, width, height = box
    if (placed := _column(groups, scale, box, heading)) is not None:
        return placed
    for i in range(1, len(groups)):
        for share in _COLUMN_WIDTHS:
            left = share * (width - _BETWEEN_COLUMNS)
            right = width - _BETWEEN_COLUMNS - left
            first = _column(groups[:i], scale, (x, y, left, height), heading)
            if first is None:
                continue
            second = _column(groups[i:], scale, (x + width - right, y, right, height), heading)
            if second is not None:
                return first + _flush_right(second, x + width)
    return []


def _flush_right(column: list[PlacedGroup], right: float) -> list[PlacedGroup]:
    """Return a column as wide as its contents, at the right edge."""
    used = max((t.right for g in column for t in g.tiles), default=right)
    used = max(used, *(g.x + g.group.least_width for g in column))
    by = right - used
    return [
        g._replace(
            x=g.x + by, room=right - g.x - by, tiles=tuple(t._replace(x=t.x + by) for t in g.tiles)
        )
        for g in column
    ]


def _column(
    groups: Sequence[MatrixGroup], scale: float, box: Box, heading: float
) -> list[PlacedGroup] | None:
    """Return groups below each other; None if they do not fit."""
    x, y, width, height = box
    placed, top = list[PlacedGroup](), y
    for group in groups:
        if group.least_width > width:
            return None
        tiles = list(_flow(group.matrices, scale, (x, top + heading, width)))
        if any(t.right > x + width + 0.01 for t in tiles):
            return None
        placed.append(PlacedGroup(group, x, top, width, tuple(tiles)))
        top = max((t.bottom for t in tiles), default=top + heading) + _BETWEEN_GROUPS
        if top - _BETWEEN_GROUPS > y + height:
            return None
    return placed


def _flow(
    matrices: Sequence[Matrix], scale: float, at: tuple[float, float, float]
) -> Iterator[Tiles]:
    """Yield matrices from left to right, in rows like words."""
    x0, y, room = at
    x, row = x0, 0.0
    for matrix in matrices:
        width, height = (side * scale for side in matrix.sides)
        if min(width, height) < LEAST_SIDE and matrix.copies == 1:
            continue
        gap = 0.0 if min(width, height) < 2.5 else 1.0 if min(width, height) < 9 else GAP
        columns = 1
        if matrix.copies > 1:
            most = min(matrix.copies, max(1, int((room + gap) / (width + gap))))
            drawn = range(most, most // 2, -1) if matrix.copies <= _MOST_TILES else ()
            even = [n for n in drawn if matrix.copies % n == 0]
            columns = min(matrix.copies, even[0] if even else most)
        rows = -(-matrix.copies // columns)
        wide, high = columns * (width + gap) - gap, rows * (height + gap) - gap
        if x > x0 and (x + wide > x0 + room or matrix.copies > 1):
            x, y, row = x0, y + row + GAP, 0.0
        yield Tiles(matrix, x, y, width, height, columns, gap)
        x, row = x + wide + GAP, max(row, high)
