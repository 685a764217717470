"""The hardware catalogue on a terminal, and as rows for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...hardware import DTYPES, Device
from ..csv_rows import format_table
from ..table import align, bold, dim, wrap

HEADER = ("gpu", "vendor", "GiB", "GB/s", "16-bit", "fp8", "int8", "fp4", "link")
NOTES = (
    "GiB as the driver reports it where known; dense TFLOP/s (bf16, or fp16 where there is no bf16), never with 2:4 sparsity; link in "
    "GB/s, one way, to the other devices of a node"
)


def gpus_text(found: Sequence[Device]) -> str:
    """One line a device; of a single one everything that is known."""
    if not found:
        return "no GPU has all these words"
    if len(found) == 1:
        return "\n".join(_one(found[0]))
    lines = align([HEADER, *map(_row, found)], right=range(2, 9), gap=2)
    return "\n".join([bold(lines[0]), *lines[1:], f"{len(found)} devices", *map(dim, wrap(NOTES, ""))])


def _row(x: Device) -> tuple[str, ...]:
    rates = (x.flops.get("bf16") or x.flops.get("fp16"), *(x.flops.get(dtype) for dtype in ("fp8", "int8", "fp4")))
    return (
        x.name,
        x.vendor,
        f"{x.memory / 2**30:.1f}",
        f"{x.bandwidth / 1e9:,.0f}",
        *map(tera, rates),
        f"{x.link / 1e9:,.0f}" if x.link else "",
    )


def tera(rate: int | None) -> str:
    """A rate of arithmetic in TFLOP/s; nothing where it is not known."""
    if not rate:
        return ""
    value = rate / 1e12
    return f"{value:,.1f}".removesuffix(".0") if value < 100 else f"{value:,.0f}"


def _one(x: Device) -> Iterator[str]:
    yield bold(x.title)
    net = f"{x.network / 1e9:g} GB/s a device, one way"
    memory = f"{x.memory:,} bytes = {x.memory / 1e9:.2f} GB = {x.memory / 2**30:.2f} GiB"
    if x.nominal != x.memory:
        memory += f" ({x.nominal / 2**30:g} GiB nominal)"
    rows = [("name", x.name), ("vendor", x.vendor), ("memory", memory), ("bandwidth", f"{x.bandwidth / 1e12:g} TB/s")]
    rows += [(dtype, f"{rate / 1e12:g} TFLOP/s dense") for dtype, rate in x.flops.items()]
    rows += [("link", f"{x.link / 1e9:g} GB/s one way, {x.kind}, {x.node} devices a node")] if x.link else []
    yield from (line for line in align([*rows, ("network", net)]))
    yield from map(dim, wrap(f"source: {x.source}", ""))


def gpus_json(found: Sequence[Device]) -> dict[str, Any]:
    """What `llamath gpus --json` prints: bytes, bytes a second, FLOP/s."""
    return {"gpus": [gpu_json(x) for x in found]}


def gpu_json(x: Device) -> dict[str, Any]:
    """One device."""
    return {name: getattr(x, name) for name in x.fields} | {"flops": dict(x.flops)}


def gpus_csv(found: Sequence[Device]) -> Iterator[str]:
    """The same as CSV."""
    names = ("name", "title", "vendor", "memory", "nominal", "bandwidth", *DTYPES, "link", "kind", "network", "node", "source")
    return format_table(names, (tuple(str(x.flops.get(y, "")) if y in DTYPES else str(getattr(x, y)) for y in names) for x in found), "csv")
