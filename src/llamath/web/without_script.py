"""A page without scripts: the facts of its models, and a bar for each layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import chain, pairwise, repeat
from typing import Any

WIDTH, HEIGHT = 720, 120
PART_WIDTH, GAP = 32, 8
MOST_BARS = 240
_FILLED = 0.8
"""The share of a layer's width that its bar takes."""
_THINNEST = 0.1
_BROKEN = 3
"""A part larger than this many layers is cut at the height of the picture."""
COLORS = {
    "norm": "norm",
    "attention": "attn",
    "mixer": "attn",
    "router": "router",
    "mlp": "ffn",
    "embedding": "embed",
    "head": "head",
    "vision": "vision",
    "projector": "vision",
    "experts": "experts",
}
"""The colour of each group of weights, from the bottom of a bar to its top."""
_PLACES = {group: i for i, group in enumerate(COLORS)}


def model_without_script(model: Mapping[str, Any], *, is_alone: bool) -> str:
    """Return as HTML a model of the page's data; of one that is alone also its facts, while the
    title names it.
    """
    facts, name = model["facts"], "" if is_alone else f"{escape(model['name'])}: "
    rows = (
        f"<div><dt>{escape(x['name'])}</dt><dd>{escape(x['value'])}"
        f" <small>{escape(x['note'])}</small></dd></div>"
        for x in facts["rows"]
    )
    return "\n".join(
        [
            f"<h2>{name}{int(model['counts'][0]['value']):,} parameters</h2>",
            f"<p>{escape(facts['description'])}</p>",
            layers_svg(model["plate"]),
            *(('<dl class="facts">', *rows, "</dl>") if is_alone else ()),
        ]
    )


def layers_svg(plate: Mapping[str, Any]) -> str:
    """Return a bar for each layer between those of what stands before and after them; the height
    is parameters.
    """
    ends = [x for name in ("towers", "before", "after") for x in plate[name] if _is_drawn(x)]
    after = [x for x in ends if x in plate["after"]]
    before = ends[: len(ends) - len(after)]
    kinds = [x["sizes"] for x in plate["kinds"]]
    layers = list(chain.from_iterable(repeat(kind, n) for kind, n in plate["order"]))
    bars = layers[:: -(-len(layers) // MOST_BARS)]
    largest = max(int(x["parameters"]) for x in kinds)
    tallest = max(largest, *(int(x["parameters"]) for x in (*before, *after)), 1)
    unit = HEIGHT / min(tallest, _BROKEN * largest or 1)
    left = len(before) * (PART_WIDTH + GAP)
    pitch = (WIDTH - left - len(after) * (PART_WIDTH + GAP)) / max(len(bars), 1)
    places = [(i * (PART_WIDTH + GAP), x) for i, x in enumerate(before)]
    places += [(WIDTH - (i + 1) * (PART_WIDTH + GAP) + GAP, x) for i, x in enumerate(after[::-1])]
    label = escape("; ".join(plate["pattern"]) or f"{len(layers):,} layers")
    drawn = [_line(part["groups"], unit, x, x + PART_WIDTH) for x, part in places]
    for kind, x in enumerate(kinds):
        at = [left + i * pitch for i, y in enumerate(bars) if y == kind]
        if at:
            gaps = [b - a - pitch * _FILLED for a, b in pairwise(at)]
            if len({round(y, 3) for y in gaps}) == 1:
                gaps = gaps[:1]
            dashes = " ".join(f"{pitch * _FILLED:.4g} {y:.4g}" for y in gaps)
            line = _line(x["groups"], unit, at[0], at[-1] + pitch * _FILLED)
            drawn.append(f'<g stroke-dasharray="{dashes or "none"}">{line}</g>')
    return "\n".join(
        [
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 6}" width="{WIDTH}" height="{HEIGHT + 6}" '
            f'role="img" aria-label="{label}">',
            *drawn,
            f'<path d="M0 {HEIGHT + 3}H{WIDTH}" stroke="var(--ink)" stroke-width="6"/>',
            "</svg>",
        ]
    )


def _is_drawn(part: Mapping[str, Any]) -> bool:
    return any(x["group"] != "norm" for x in part["groups"])


def _line(groups: Sequence[Mapping[str, str]], unit: float, start: float, end: float) -> str:
    """Return the groups above each other as lines as thick as they are high; dashes are layers."""
    parts = list(_parts(sorted(groups, key=lambda x: _PLACES.get(x["group"], -1))))
    unit = min(unit, HEIGHT / max(sum(n for _, n, _ in parts), 1))
    y, lines = float(HEIGHT), list[str]()
    for group, n, is_idle in parts:
        height = n * unit
        y -= height
        pale = ' opacity=".25"' if is_idle else ""
        if height >= _THINNEST:
            lines.append(
                f'<path d="M{start:.4g} {y + height / 2:.4g}H{end:.4g}" '
                f'stroke-width="{height:.3g}" stroke="var(--c-{COLORS.get(group, "norm")})"{pale}/>'
            )
    return "".join(lines)


def _parts(groups: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, int, bool]]:
    for x in groups:
        n, active = int(x["parameters"]), int(x["active"])
        yield x["group"], active if x["group"] == "experts" else n, False
        if x["group"] == "experts":
            yield x["group"], n - active, True
