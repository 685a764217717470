"""Pictures of the page as text that is the same on every machine: shapes, colours by token, labels, and geometry in whole pixels.

Pictures are drawn for a width and for the widths of their labels. `FIXED_SIZES` makes both independent of fonts and of the style sheets
around a picture: every character is 0.55 of the font's size wide, and every picture is as wide as `pictureWidth` says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from llamath.web.server.page_html import read_asset

FIXED_SIZES = """
CanvasRenderingContext2D.prototype.measureText = function (text) {
  return { width: Math.round(parseFloat(/([\\d.]+)px/.exec(this.font)[1]) * 55 * [...text].length) / 100 };
};
globalThis.ResizeObserver = class { observe() {} disconnect() {} };
Element.prototype.getBoundingClientRect = () => new DOMRect(0, 0, globalThis.pictureWidth, 400);
"""
"""Runs before the scripts of the page."""
PICTURE_NODES = """(elements, tokens) => {
  const style = document.documentElement.appendChild(document.createElement("i"));
  const shown = (color) => {
    style.style.color = "";
    style.style.color = color;
    return getComputedStyle(style).color;
  };
  const names = new Map([["rgba(0, 0, 0, 0)", "none"], ["rgb(0, 0, 0)", "black"]]);
  for (const name of tokens) {
    const tint = shown(`color-mix(in srgb, var(${name}) var(--tint), var(--panel))`);
    for (const [color, text] of [[shown(`var(${name})`), name.slice(2)], [tint, `${name.slice(2)} tint`]]) if (!names.has(color)) names.set(color, text);
  }
  style.remove();
  const paint = (color) => names.get(color) ?? (color.startsWith("url(") ? color.replaceAll('"', "") : color);
  const GEOMETRY = ["x", "y", "width", "height", "cx", "cy", "r", "x1", "y1", "x2", "y2", "points", "d", "transform"];
  const node = (element) => {
    const style = getComputedStyle(element);
    if (style.display === "none" && element.localName !== "title") return [];
    const isSvg = element.namespaceURI.endsWith("svg");
    const children = [...element.children].flatMap(node);
    const own = [...element.childNodes].filter((x) => x.nodeType === Node.TEXT_NODE).map((x) => x.data).join("").trim();
    const found = { tag: element.localName, text: own, label: element.getAttribute("aria-label") ?? "", children };
    if (!isSvg) return [{ ...found, kind: [...element.classList].sort().join(" "), filled: element.style.getPropertyValue("--filled") }];
    const at = Object.fromEntries(GEOMETRY.flatMap((name) => (element.hasAttribute(name) ? [[name, element.getAttribute(name)]] : [])));
    const [dash, opacity] = [style.strokeDasharray, style.opacity];
    const look = { fill: paint(style.fill), stroke: paint(style.stroke), dash: dash === "none" ? "" : dash, opacity: opacity === "1" ? "" : opacity };
    const words = element.localName === "text" ? { anchor: style.textAnchor, bold: Number(style.fontWeight) > 500 } : {};
    return [{ ...found, at, ...look, ...words }];
  };
  return elements.flatMap(node);
}"""
"""Returns the visible elements of pictures as a tree, with the names of their colours."""
TOKENS = sorted(
    set(
        re.findall(
            r"(--(?:c|on|ramp)-\w+|--(?:ink|paper|panel|sunk|rule|edge)[\w-]*)\s*:",
            read_asset("page.css"),
        )
    )
)
_HIDDEN_TAGS = frozenset(("style", "script"))
_PAINTED = frozenset(
    ("rect", "circle", "ellipse", "path", "line", "polyline", "polygon", "text", "tspan", "use")
)
_CONTAINERS = frozenset(("g", "svg", "defs", "pattern", "clippath", "mask", "title", "desc"))
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_LONG = 120
"""Longer outlines are written as their first and last point, their length and a sum."""
_RUN = 5
"""As many shapes of one size and colour in a row, or more, are written as one line."""
Node = Mapping[str, Any]


def picture_text(nodes: Sequence[Node]) -> str:
    """Return the text of pictures, an element a line."""
    return "\n".join(_lines(nodes, "")) + "\n"


def _lines(nodes: Sequence[Node], indent: str) -> Iterator[str]:
    shown = [x for x in nodes if x["tag"] not in _HIDDEN_TAGS]
    for key, run in groupby(shown, _kind_in_run):
        row = list(run)
        if key is not None and len(row) >= _RUN:
            places = [_place(x) for x in row]
            yield f"{indent}{len(row)} × {key}: {places[0]} … {places[-1]} {_sum(' '.join(places))}"
        else:
            for x in row:
                yield from _element_lines(x, indent)


def _element_lines(x: Node, indent: str) -> Iterator[str]:
    """Yield the line of an element, and those of what is in it; an element that says nothing has none of its own."""
    words = [x["tag"], *(_place(x).split() if "at" in x else []), _look(x)]
    if "at" not in x:
        words += [f".{x['kind'].replace(' ', '.')}"] if x["kind"] else []
        words += [x["filled"]] if x["filled"] else []
    words += [f"«{x['label']}»"] if x["label"] else []
    words += [repr(re.sub(r"\s+", " ", x["text"]))] if x["text"] else []
    line = " ".join(filter(None, words))
    is_silent = line == x["tag"]
    if not is_silent:
        yield indent + line
    yield from _lines(x["children"], indent if is_silent else f"{indent}  ")


def _kind_in_run(x: Node) -> str | None:
    """Return what the shapes of a run have in common; None for an element that stands alone."""
    if x["tag"] not in ("rect", "circle", "path") or x["children"] or x["label"]:
        return None
    size = _geometry(x, ("width", "height", "r"))
    return " ".join(filter(None, (x["tag"], size, _look(x))))


def _place(x: Node) -> str:
    """Return the geometry of an element in whole pixels."""
    if x["tag"] not in _PAINTED:
        return _geometry(x, ("width", "height", "transform"))
    return _geometry(x, tuple(x["at"]))


def _geometry(x: Node, names: Sequence[str]) -> str:
    return " ".join(f"{name}={_rounded(x['at'][name])}" for name in names if name in x["at"])


def _rounded(text: str) -> str:
    found = _NUMBER.sub(lambda x: str(round(float(x[0]))), text)
    compact = re.sub(r"\s+", ",", found.strip())
    if len(compact) <= _LONG:
        return compact
    return f"{compact[:20]}…{compact[-12:]}({len(_NUMBER.findall(text))} numbers, {_sum(compact)})"


def _look(x: Node) -> str:
    """Return the colours of what is painted."""
    if x["tag"] not in _PAINTED:
        return ""
    words = [x["fill"]] + ([f"edge {x['stroke']}"] if x["stroke"] != "none" else [])
    words += [f"{name} {x[name]}" for name in ("dash", "opacity") if x[name]]
    if x["tag"] == "text":
        words += [x["anchor"]] + (["bold"] if x["bold"] else [])
    return ", ".join(words)


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
