"""A placement as SVG: a bar for each device, and two rows of cells for the layers: what every
token uses, and the experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.size.placement.placement import PlacedShare, Placement
from ...utils.number_format import format_count, format_giga
from .svg_shapes import rect, svg_document, text, truncate_text

WIDTH, LEFT, RIGHT, TOP, BAR, STEP = 960, 36, 924, 128, 26, 62
_PARTS = (
    ("dense", "attention", "every token"),
    ("experts", "experts", "experts"),
    ("cache", "embedding", "KV cache"),
    ("own", "norm", "engine"),
)
_STYLES = ("attention", "mixer", "head", "router", "mlp", "embedding")
"""Colors of GPUs; RAM and disk have one of their own."""


def placement_svg(report: Placement) -> str:
    """Return the picture of a placement."""
    title = f"{report.model.name}: where each weight goes"
    sequences = (
        f"{format_count(report.batch, 'sequence')} of {format_count(report.context, 'token')}"
    )
    ceiling = report.decode_ceiling
    speed = "unknown" if ceiling is None else f"at most {ceiling:,.3g} tokens/s"
    detail = f"{report.dtype}, cache in {report.kv_dtype}; {sequences}; decode {speed}"
    height = TOP + STEP * len(report.devices) + 150
    shapes = [
        text((LEFT, 40), title, size=18, bold=True),
        text((LEFT, 64), truncate_text(detail, RIGHT - LEFT), "faint"),
    ]
    for i, (_, style, what) in enumerate((*_PARTS, ("", "other", "free"))):
        shapes += [
            rect((LEFT + i * 130, 82, 14, 14), style),
            text((LEFT + i * 130 + 20, 94), what, "faint"),
        ]
    scale = max(max(x.memory, x.used) for x in report.devices)
    for i, x in enumerate(report.devices):
        shapes += _device_bar(x, TOP + STEP * i, scale)
    shapes += _layer_cells(report, TOP + STEP * len(report.devices) + 28)
    summary = "; ".join(f"{x.device}: {format_giga(x.used, 2**30)} GiB" for x in report.devices)
    return svg_document((WIDTH, height), title, f"{detail}. {summary}", shapes)


def _device_bar(x: PlacedShare, y: float, scale: int) -> Iterator[str]:
    room = RIGHT - LEFT
    used, memory, read = (format_giga(round(n), 2**30) for n in (x.used, x.memory, x.read))
    label = f"{x.device}: {used} of {memory} GiB, {read} GiB read a step"
    yield text((LEFT, y - 8), truncate_text(label, room))
    yield rect(
        (LEFT, y, max(x.memory, x.used) / scale * room, BAR),
        "other",
        f"{x.device}: {x.memory:,} bytes",
    )
    at = float(LEFT)
    for name, style, what in _PARTS:
        width = getattr(x, name) / scale * room
        if width > 0:
            yield rect((at, y, width, BAR), style, f"{what}: {getattr(x, name):,} bytes")
            at += width


def _layer_cells(report: Placement, y: float) -> Iterator[str]:
    """Yield the layers: a cell for what every token uses, and one below for the experts, in the
    color of their device.
    """
    count = len(report.owners)
    width = (RIGHT - LEFT - 90) / max(count, 1)
    yield text((LEFT, y + 16), "attention")
    has_experts = any(x.experts for x in report.sizes.layers)
    if has_experts:
        yield text((LEFT, y + 44), "experts")
    for i, owner in enumerate(report.owners):
        x = LEFT + 90 + i * width
        yield rect(
            (x, y, max(width - 1, 0.5), 22), _style(owner), f"layer {i}: {_name(report, owner)}"
        )
        if report.sizes.layers[i].experts:
            place = -1 if i < report.cpu_experts else owner
            yield rect(
                (x, y + 28, max(width - 1, 0.5), 22),
                _style(place),
                f"experts of layer {i}: {_name(report, place)}",
            )
    yield text((LEFT + 90, y + 72), "layer 0", "faint")
    yield text((RIGHT, y + 72), f"layer {count - 1}", "faint", "end")
    names = [
        *((g, x.device) for g, x in enumerate(y for y in report.devices if y.kind == "gpu")),
        (-1, "RAM or disk"),
    ]
    for k, (owner, name) in enumerate(names):
        at = LEFT + 90 + k * 200
        yield rect((at, y + 86, 14, 14), _style(owner))
        yield text((at + 20, y + 98), truncate_text(name, 170), "faint")


def _style(owner: int) -> str:
    return "norm" if owner < 0 else _STYLES[owner % len(_STYLES)]


def _name(report: Placement, owner: int) -> str:
    return "RAM or disk" if owner < 0 else report.devices[owner].device
