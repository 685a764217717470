"""The lists of presets and of GPUs on a terminal, and the GPUs as CSV."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.preset_list import UNKNOWN, PresetList, PresetSummary
from ...hardware import DTYPES, Device, DeviceList
from ...utils.number_format import format_count, short_count
from ..csv_rows import format_table
from ..table import bold, dim, fit_table, terminal_width, wrap

_PRESET_HEADER = (
    "preset",
    "total",
    "active",
    "L",
    "width",
    "H/K",
    "vocab",
    "context",
    "released",
    "license",
)
"""L layers, H heads, K key/value heads, as in all formulas."""
_LICENSE_WIDTH, _WIDE = 14, 130


def models_text(presets: PresetList) -> str:
    """Return one line for each preset."""
    if not presets.models:
        return "no preset matches all these words"
    lines = fit_table(
        [_PRESET_HEADER, *map(_preset_row, presets)], right=range(1, 8), drop=(6, 5, 4, 3, 7)
    )
    return "\n".join([bold(lines[0]), *lines[1:], format_count(len(presets), "preset")])


def _preset_row(x: PresetSummary) -> tuple[str, ...]:
    active = short_count(x.active) if x.active != x.total else ""
    heads = "/".join(str(n) for n in (x.heads, x.kv_heads) if n is not None)
    context = "" if x.context is None else f"{x.context:,}"
    sizes = (
        short_count(x.total),
        active,
        f"{x.layers}",
        f"{x.width:,}",
        heads,
        f"{x.vocabulary:,}",
        context,
    )
    return x.preset, *sizes, x.released or UNKNOWN, _shorten(x.license or UNKNOWN)


def _shorten(name: str) -> str:
    """Return the beginning of a long name where the terminal is too narrow for the table with
    the whole of it.
    """
    return (
        name
        if len(name) <= _LICENSE_WIDTH or terminal_width() >= _WIDE
        else f"{name[: _LICENSE_WIDTH - 1]}…"
    )


_GPU_HEADER = ("gpu", "vendor", "GiB", "GB/s", "16-bit", "fp8", "int8", "fp4", "link")
_GPU_LEGEND = (
    "GiB as the driver reports it where known; dense TFLOP/s (bf16, or fp16 where there is no "
    "bf16), never with 2:4 sparsity; link in "
    "GB/s, one way, to the other devices of a node"
)


def gpus_text(devices: DeviceList) -> str:
    """Return one line for each device, or all details of a single one."""
    gpus = devices.gpus
    if not gpus:
        return "no GPU matches all these words"
    if len(gpus) == 1:
        return "\n".join(_gpu_details(gpus[0]))
    lines = fit_table([_GPU_HEADER, *map(_gpu_row, gpus)], right=range(2, 9), drop=(1, 8, (6, 7)))
    return "\n".join(
        [
            bold(lines[0]),
            *lines[1:],
            format_count(len(gpus), "device"),
            *map(dim, wrap(_GPU_LEGEND, "")),
        ]
    )


def _gpu_row(x: Device) -> tuple[str, ...]:
    rates = (
        x.flops.get("bf16") or x.flops.get("fp16"),
        *(x.flops.get(dtype) for dtype in ("fp8", "int8", "fp4")),
    )
    link = f"{x.link / 1e9:,.0f}" if x.link else ""
    return (
        x.name,
        x.vendor,
        f"{x.memory / 2**30:.1f}",
        f"{x.bandwidth / 1e9:,.0f}",
        *map(_tera, rates),
        link,
    )


def _tera(rate: int | None) -> str:
    """Return FLOP/s as TFLOP/s; nothing if unknown."""
    if not rate:
        return ""
    value = rate / 1e12
    return f"{value:,.1f}".removesuffix(".0") if value < 100 else f"{value:,.0f}"


def _gpu_details(x: Device) -> Iterator[str]:
    yield bold(x.title)
    memory = f"{x.memory:,} bytes = {x.memory / 1e9:.2f} GB = {x.memory / 2**30:.2f} GiB"
    if x.nominal != x.memory:
        memory += f" ({x.nominal / 2**30:g} GiB nominal)"
    rows = [
        ("name", x.name),
        ("vendor", x.vendor),
        ("memory", memory),
        ("bandwidth", f"{x.bandwidth / 1e12:g} TB/s"),
    ]
    rows += [(dtype, f"{rate / 1e12:g} TFLOP/s dense") for dtype, rate in x.flops.items()]
    if x.link:
        rows.append(
            (
                "link",
                f"{x.link / 1e9:g} GB/s one way, {x.kind}, {format_count(x.node, 'device')} a node",
            )
        )
    rows.append(("network", f"{x.network / 1e9:g} GB/s a device, one way"))
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        first, *rest = wrap(text, " " * (width + 2))
        yield f"{name:{width}}  {first.lstrip()}"
        yield from rest
    yield from map(dim, wrap(f"source: {x.source}", ""))


def gpus_csv(devices: DeviceList) -> Iterator[str]:
    """Return one CSV row for each device."""
    names = (
        "name",
        "title",
        "vendor",
        "memory",
        "nominal",
        "bandwidth",
        *DTYPES,
        "link",
        "kind",
        "network",
        "node",
        "source",
    )
    rows = (
        tuple(str(x.flops.get(y, "")) if y in DTYPES else str(getattr(x, y)) for y in names)
        for x in devices
    )
    return format_table(names, rows, "csv")
