"""A model's weights as an SVG treemap: a rectangle for each group, divided into one for each
weight with all its copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...model import DescribedModel
from ...utils.number_format import format_percent, short_count
from .svg_shapes import CHAR_WIDTH, LIGHT, rect, svg_document, text, text_fits, truncate_text

WIDTH, HEIGHT, TOP, EDGE = 960, 640, 76, 24
Box = tuple[float, float, float, float]


class _Tile(NamedTuple):
    """A weight with all its copies in the model."""

    name: str
    group: str
    shape: str
    copies: int
    parameters: int


def treemap_svg(model: DescribedModel) -> str:
    """Return the treemap as SVG, with a legend of the groups below it."""
    total = model.parameters.total
    tiles = _tiles(model)
    groups = sorted({x.group for x in tiles}, key=lambda name: (-_sum(tiles, name), name))
    label = "; ".join(
        f"{name} {_sum(tiles, name):,} ({_share(_sum(tiles, name), total)})" for name in groups
    )
    title = f"{model.name}: {total:,} parameters ({short_count(total)})"
    return svg_document(
        (WIDTH, HEIGHT + 68),
        title,
        f"Areas are numbers of parameters: {label}.",
        _shapes(model, title, tiles, groups),
    )


def _shapes(
    model: DescribedModel, title: str, tiles: list[_Tile], groups: list[str]
) -> Iterator[str]:
    total = model.parameters.total
    yield text((EDGE, 36), truncate_text(title, WIDTH - 2 * EDGE, 20), size=20, bold=True)
    yield text((EDGE, 58), "areas to scale; each weight with all its copies", "faint")
    sizes = [_sum(tiles, name) for name in groups]
    for name, box in zip(
        groups, squarify(sizes, (EDGE, TOP, WIDTH - 2 * EDGE, HEIGHT - TOP)), strict=True
    ):
        inside = sorted((x for x in tiles if x.group == name), key=lambda x: -x.parameters)
        for tile, place in zip(inside, squarify([x.parameters for x in inside], box), strict=True):
            yield from _tile(tile, place, total)
    x, y = float(EDGE), HEIGHT + 16
    for name, size in zip(groups, sizes, strict=True):
        label = f"{name} {_share(size, total)}"
        wide = len(label) * 13 * CHAR_WIDTH + 36
        if x + wide > WIDTH:
            x, y = float(EDGE), y + 24
        yield rect((x, y, 14, 14), _color(name))
        yield text((x + 20, y + 12), label)
        x += wide


def _color(group: str) -> str:
    return group if group in LIGHT else "other"


def _tile(tile: _Tile, box: Box, total: int) -> Iterator[str]:
    x, y, width, height = (box[0] + 1, box[1] + 1, max(box[2] - 2, 0.3), max(box[3] - 2, 0.3))
    many = f" × {tile.copies:,}" if tile.copies > 1 else ""
    note = (
        f"{tile.name}: {tile.shape}{many} = {tile.parameters:,} ({_share(tile.parameters, total)})"
    )
    yield rect((x, y, width, height), _color(tile.group), note)
    lines = [
        tile.name,
        f"{tile.shape}{many}",
        f"{short_count(tile.parameters)}, {_share(tile.parameters, total)}",
    ]
    size = 13 if text_fits(lines[0], width - 12) else 11
    if not text_fits(lines[0], width - 8, size):
        return
    for i, label in enumerate(lines):
        if (i + 1) * 17 + 2 > height or not text_fits(label, width - 8, size):
            return
        yield text(
            (x + 6, y + 16 + 17 * i),
            label,
            "ink" if i == 0 else "faint" if i == 1 else "ink",
            size=size,
        )


def _tiles(model: DescribedModel) -> list[_Tile]:
    """Return a tile for each weight of the folded table; weights of the same name and shape are
    merged.
    """
    tiles: dict[tuple[str, str], _Tile] = {}
    for section in model.count.sections:
        for row in section.rows:
            name, shape = (
                row.pattern.removesuffix(".weight"),
                "×".join(str(int(x)) for x in row.weight.shape),
            )
            copies, parameters = (
                int(section.times) * int(row.copies),
                int(section.times) * row.parameters,
            )
            if not parameters:
                continue
            previous = tiles.get((name, shape))
            tiles[name, shape] = _Tile(
                name,
                row.group or "other",
                shape,
                copies + (previous.copies if previous else 0),
                parameters + (previous.parameters if previous else 0),
            )
    return list(tiles.values())


def _sum(tiles: list[_Tile], group: str) -> int:
    return sum(x.parameters for x in tiles if x.group == group)


def _share(n: int, total: int) -> str:
    from fractions import Fraction

    share = Fraction(n, total or 1)
    return "<0.01%" if 0 < share < Fraction(1, 20_000) else format_percent(share)


def squarify(sizes: Sequence[int], box: Box) -> list[Box]:
    """Divide a box into boxes of these relative areas, largest first, with low aspect ratios
    (squarified treemap, Bruls et al. 2000).
    """
    total, boxes = sum(sizes), list[Box]()
    x, y, width, height = box
    scale = width * height / total if total else 0.0
    areas = [n * scale for n in sizes]
    while areas:
        side = min(width, height)
        row = 1
        while row < len(areas) and _max_aspect_ratio(areas[: row + 1], side) <= _max_aspect_ratio(
            areas[:row], side
        ):
            row += 1
        thickness = sum(areas[:row]) / side if side else 0.0
        at = 0.0
        for area in areas[:row]:
            length = area / thickness if thickness else 0.0
            boxes.append(
                (x, y + at, thickness, length)
                if width >= height
                else (x + at, y, length, thickness)
            )
            at += length
        if width >= height:
            x, width = x + thickness, max(width - thickness, 0.0)
        else:
            y, height = y + thickness, max(height - thickness, 0.0)
        areas = areas[row:]
    return boxes


def _max_aspect_ratio(row: Sequence[float], side: float) -> float:
    """Return the largest aspect ratio of the boxes in a row."""
    total = sum(row)
    if not side or not total or not min(row):
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))
