"""The parts of a poster: the open layer, the whole model, its shares and facts."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from ....analysis.understand.model_bars import Bar, ModelBars
from .drawn_text import Canvas, size_that_fits, text_width
from .layer_packing import Box, MatrixGroup, PlacedGroup, Tiles, pack_layer
from .poster_content import Fact, OpenLayer

_FOOT = ("attn", "norm", "router", "ffn", "experts", "vision", "embed", "head")
"""The parts of a bar from its foot upwards: what each token uses is its solid foot."""
_STREAM = 6
_LEAST_WIDTH, _LEAST_HEIGHT = 16.0, 0.6  # of a bar
_PART_GAP = 14
_LEAST_SHARE = 0.65
"""The smallest size of the names of components, of that which is asked for."""


class _Run(NamedTuple):
    """Layers that are drawn as one bar."""

    bar: Bar
    layers: int


def draw_layer(canvas: Canvas, layer: OpenLayer, width: int, box: Box, size: float) -> float:
    """Draw the matrices of a layer under its title, and return where they end."""
    x, y, wide, high = box
    canvas.text((x, y + size), layer.title, size, bold=True, room=wide, least=size * 0.7)
    top, small = size * 1.9, size * 0.9
    # beside experts the other matrices are small, and named in their heading
    has_experts = any(y.copies > 1 for x in layer.groups for y in x.matrices)
    groups = [
        x._replace(
            least_width=text_width(f"{x.heading}  {_note(x)}", small)
            if has_experts
            else text_width(x.heading, small * 0.8)
        )
        for x in layer.groups
    ]
    inner = (x, y + top, wide, high - top)
    placed = pack_layer(groups, width, inner, size * 1.45)
    for group in placed:
        _draw_group(canvas, group, small)
    return max((t.bottom for group in placed for t in group.tiles), default=y + top)


def _draw_group(canvas: Canvas, placed: PlacedGroup, size: float) -> None:
    at = (placed.x, placed.y + size)
    heading = placed.group.heading
    used = canvas.text(at, heading, size, room=placed.room, least=size * 0.8)
    note = placed.group.note
    if not all(_label_size(x, size) for x in placed.tiles if x.matrix.label):
        names = _note(placed.group)
        fits = used + size / 2 + text_width(names, size) <= placed.room
        note = names if fits else note
    if used + size / 2 + text_width(note, size) <= placed.room:
        canvas.text((placed.x + used + size / 2, at[1]), note, size, color="$ink-2")
    for tiles in placed.tiles:
        _draw_tiles(canvas, tiles, size)


def _draw_tiles(canvas: Canvas, tiles: Tiles, size: float) -> None:
    matrix, boxes = tiles.matrix, tiles.boxes
    color = f"$c-{matrix.component}"
    if matrix.active < matrix.copies and len(boxes) == matrix.copies:
        chosen = _spread(matrix.active, matrix.copies)
        inset = 0.5
        pale = [
            (x + inset, y + inset, w - 2 * inset, h - 2 * inset)
            for i, (x, y, w, h) in enumerate(boxes)
            if i not in chosen
        ]
        canvas.boxes(pale, color, pale=True)
        canvas.boxes([boxes[i] for i in sorted(chosen)], color)
    else:
        canvas.boxes(boxes, color, pale=matrix.active < matrix.copies)
    if len(boxes) > 1 or not matrix.label:
        return
    (x, y, wide, high) = boxes[0]
    on = f"$on-{matrix.component}"
    if size := _label_size(tiles, size):
        pad = min(5.0, (wide - text_width(matrix.label, size, bold=True)) / 2)
        canvas.text((x + pad, y + size + 2), matrix.label, size, bold=True, color=on)
        sides = "{:,} × {:,}".format(*matrix.shape)
        small = size * 0.85
        if text_width(sides, small) + 10 <= wide and 2.3 * size + 8 <= high:
            canvas.text((x + pad, y + 2.2 * size + 2), sides, small, color=on)


def _note(group: MatrixGroup) -> str:
    """Return the parameters of a group, and the names of its matrices."""
    names = ", ".join(x.label for x in group.matrices if x.label)
    return f"{group.note}: {names}" if names else group.note


def _label_size(tiles: Tiles, size: float) -> float:
    """Return the size of a label inside its matrix; 0 where it has no room."""
    label, (_, _, wide, high) = tiles.matrix.label, tiles.boxes[0]
    size = size_that_fits(label, wide - 4, size, 11, bold=True)
    return size if text_width(label, size, bold=True) + 4 <= wide and size + 6 <= high else 0


def _spread(some: int, many: int) -> set[int]:
    """Return positions that look chosen at will, the same ones every time."""
    step = int(many * 0.618) or 1
    while gcd(step, many) != 1:
        step += 1
    return {(many // 3 + i * step) % many for i in range(some)}


class _Column(NamedTuple):
    """A bar, with the height of a parameter in it."""

    bar: Bar
    width: float
    unit: float
    space: float  # behind it


def draw_model(
    canvas: Canvas, bars: ModelBars, box: Box, words: tuple[str, str, str], size: float
) -> None:
    """Draw a bar for each layer between those of what stands before and after them, on the
    residual stream: area is parameters. `words` are the labels of these three parts.
    """
    x, y, wide, high = box
    foot = y + high - size * 1.6 - _STREAM
    parts = [[b for b in some if _is_drawn(b)] for some in (bars.before, bars.after)]
    columns = _columns(parts[0], _runs(bars, wide), parts[1], wide, foot - 2 - y)
    boxes: dict[tuple[str, bool], list[Box]] = {}
    places, at = list[float](), x
    for some in columns:
        places.append(at)
        for column in some:
            _add_bar(boxes, column, at, foot - 2)
            at += column.width + column.space
    for (component, pale), found in boxes.items():
        canvas.boxes(found, f"$c-{component}", pale=pale)
    canvas.line((x, foot + _STREAM / 2), (x + wide, foot + _STREAM / 2), "$ink", _STREAM)
    _label_parts(canvas, (x, foot + _STREAM + size * 1.2), wide, places, words, size)


def _columns(
    before: Sequence[Bar], runs: Sequence[_Run], after: Sequence[Bar], wide: float, high: float
) -> tuple[list[_Column], list[_Column], list[_Column]]:
    """Return the bars of the three parts, as large as they fit: the layers are equally wide, and
    the bars before and after them are as wide as their height allows.
    """
    many = sum(run.layers for run in runs)
    gap = 2 if wide >= 8 * many else 1 if wide >= 4 * many else 0
    tallest = max((_size(run.bar) for run in runs), default=0)
    ends = [_size(bar) for bar in (*before, *after)]
    room = wide - _PART_GAP * len(ends) - gap * max(0, many - 1)

    def end_width(size: int, density: float) -> float:
        return max(_LEAST_WIDTH, size / (density * high))

    least, most = 0.0, (many * tallest + sum(ends)) / (room * high) * 100 + 1
    for _ in range(60):
        density = (least + most) / 2
        used = many * tallest / (density * high) + sum(end_width(x, density) for x in ends)
        least, most = (density, most) if used > room else (least, density)
    density = most
    each = tallest / (density * high)
    if gap:  # equal steps once they are written, so that the page's data compress
        each = int(each * 20) / 20

    def end(bar: Bar) -> _Column:
        width = end_width(_size(bar), density)
        return _Column(bar, width, 1 / (density * width), _PART_GAP)

    layers = [
        column
        for run in runs
        for column in (
            [_Column(run.bar, each, 1 / (density * each), gap)] * run.layers
            if gap
            else [_Column(run.bar, each * run.layers, 1 / (density * each), 0)]
        )
    ]
    if layers:
        layers[-1] = layers[-1]._replace(space=_PART_GAP)
    return [end(x) for x in before], layers, [end(x) for x in after]


def _runs(bars: ModelBars, wide: float) -> list[_Run]:
    """Return the layers; of more than can be drawn, those of each kind together."""
    runs = bars.runs
    if len(runs) > wide / 2:
        counts: dict[int, int] = {}
        for kind, n in runs:
            counts[kind] = counts.get(kind, 0) + n
        runs = tuple(counts.items())
    return [_Run(bars.kinds[kind], n) for kind, n in runs if _size(bars.kinds[kind])]


def _size(bar: Bar) -> int:
    return sum(x.parameters for x in bar)


def _is_drawn(bar: Bar) -> bool:
    return any(x.component != "norm" for x in bar)


def _add_bar(
    boxes: dict[tuple[str, bool], list[Box]], column: _Column, x: float, foot: float
) -> None:
    for part in sorted(column.bar, key=lambda x: _FOOT.index(x.component)):
        idle = part.parameters - part.active
        for n, pale in ((part.parameters - idle, False), (idle, True)):
            height = n * column.unit
            foot -= height
            if height < _LEAST_HEIGHT:
                continue
            paper = 1 if height > 4 else 0
            box = (x, foot + paper, column.width, height - paper)
            if pale:
                box = (box[0] + 0.5, box[1] + 0.5, max(0.1, box[2] - 1), max(0.1, box[3] - 1))
            boxes.setdefault((part.component, pale), []).append(box)


def _label_parts(
    canvas: Canvas,
    at: tuple[float, float],
    wide: float,
    places: Sequence[float],
    words: tuple[str, str, str],
    size: float,
) -> None:
    """Write the names of the three parts below the stream: at its ends, and in the middle."""
    x, y = at
    left = canvas.text((x, y), words[0], size, color="$ink-2") + size if words[0] else 0
    right = text_width(words[2], size) + size if words[2] else 0
    if words[2]:
        canvas.text((x + wide, y), words[2], size, color="$ink-2", anchor="end")
    middle = (places[1] + (places[2] if words[2] else x + wide)) / 2
    room = wide - left - right
    size = size_that_fits(words[1], room, size, 12, bold=True)
    half = min(room, text_width(words[1], size, bold=True)) / 2
    middle = min(max(middle, x + left + half), x + wide - right - half)
    canvas.text((middle, y), words[1], size, bold=True, anchor="middle", room=room)


def draw_shares(
    canvas: Canvas, shares: Sequence[tuple[str, str, str]], box: Box, size: float
) -> None:
    """Draw the color, the name and the share of each component, in a row: smaller ones if there
    are many.
    """
    x, y, wide, _ = box
    note, largest = "areas are parameters", size

    def needed() -> float:
        each = (
            size * 3.05 + text_width(name, size) + text_width(share, size, bold=True)
            for _, name, share in shares
        )
        return sum(each) + text_width(note, size)

    while needed() > wide and size > largest * _LEAST_SHARE:
        size -= 0.5
    at = x
    for component, name, share in shares:
        if at + size * 3 + text_width(name + share, size) + text_width(note, size) > x + wide:
            break
        canvas.boxes([(at, y + size * 0.1, size * 0.9, size * 0.9)], f"$c-{component}")
        at += size * 1.4
        at += canvas.text((at, y + size * 0.9), name, size, color="$ink-2") + size * 0.35
        at += canvas.text((at, y + size * 0.9), share, size, bold=True) + size * 1.3
    canvas.text((x + wide, y + size * 0.9), note, size, color="$ink-2", anchor="end")


def draw_facts(canvas: Canvas, facts: Sequence[Fact], box: Box, size: float, rows: int = 1) -> None:
    """Draw values above their names: one row with equal space between, or a grid."""
    x, y, wide, high = box
    small = size * 0.62
    in_row = -(-len(facts) // rows)
    if rows == 1:
        while True:
            widths = [
                max(text_width(f.value, size, bold=True), text_width(f.name, small)) for f in facts
            ]
            space = (wide - sum(widths)) / max(1, len(facts) - 1)
            if space >= size * 0.5 or size < 14:
                break
            size, small = size - 0.5, (size - 0.5) * 0.62
        if space < 0:
            widths, space = [wide / len(facts)] * len(facts), 0
        lefts = [sum(widths[:i]) + space * i for i in range(len(facts))]
    else:
        lefts = [wide / in_row * (i % in_row) for i in range(len(facts))]
        widths = [wide / in_row - size * 0.4] * len(facts)
    for i, fact in enumerate(facts):
        top = y + high / rows * (i // in_row)
        left, room = x + lefts[i], widths[i] + 0.1
        canvas.text((left, top + size), fact.value, size, bold=True, color=fact.color, room=room)
        canvas.text((left, top + size + small * 1.4), fact.name, small, color="$ink-2", room=room)


def draw_mark(canvas: Canvas, at: tuple[float, float], size: float) -> None:
    """Draw the mark and the name of llamath, `at` the end of its baseline."""
    x, y = at
    left = x - text_width("llamath", size, bold=True)
    canvas.text((x, y), "llamath", size, bold=True, anchor="end")
    unit = size / 20
    x0, y0 = left - 30 * unit, y - 18 * unit
    shapes = (
        *((n, 2, 4, 7) for n in (2, 9, 16)),
        *((n, 13, 2, 6) for n in (3, 10, 17)),
        (0, 9.5, 22, 3),
    )
    canvas.boxes(
        [(x0 + a * unit, y0 + b * unit, c * unit, d * unit) for a, b, c, d in shapes], "$ink"
    )
