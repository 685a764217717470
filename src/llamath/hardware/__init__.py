"""The catalog of GPUs and other accelerators: memory, bandwidth, dense FLOP/s and links, each
figure with its vendor's source.

Memory is in bytes, as the driver reports it where that is known, else the vendor's gigabytes read
as 2³⁰ bytes (memory chips come in powers of two). FLOP/s are dense, with FP32 accumulation where
the vendor distinguishes it; 2:4 sparsity is never counted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from ..render.report import Report
from ..render.tables import Cell, Column, Part, Table, Text
from ..utils.errors import Call, LlamathError, Name, nearest, safe
from ..utils.number_format import format_count
from ..utils.record_type import Record
from ..utils.units import parse_bandwidth, parse_bytes, parse_flops

FOLDER = os.path.dirname(__file__)
_DEFAULT_NETWORK = 100 * 10**9 // 8
"""100 Gbit/s: the network of each device across nodes, if its vendor sells no system with
another."""
DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")
_MAX_MEMBERS = 64
"""The largest number of equal devices in a machine with different ones."""
_MAX_DEVICES = 10**7
"""The largest number of devices."""
_VENDOR_WORDS = (
    r"\b(nvidia|amd|intel|google|apple|aws|instinct|geforce|tesla|generation|data "
    r"center gpu|hbm\w*)\b"
)
"""Words of drivers' names that are not needed to tell devices apart."""
COUNT = r"(?si)\s*([0-9]{1,9})\s*[x×*]\s*(.+)"
HINT = (
    "like 'mem=80GiB bw=3.35TB/s bf16=989TF'; optional are fp8=… int8=… fp4=… link=450GB/s "
    "net=50GB/s node=8 power=700W"
)


class Device(Record):
    """One GPU or accelerator."""

    name: str
    title: str
    vendor: str
    memory: int  # usable bytes
    nominal: int  # bytes in its data sheet
    bandwidth: int  # of its memory, bytes per second; 0: unknown
    flops: Mapping[str, int]  # dtype → dense FLOP/s
    link: int  # to the other devices of its node, bytes per second in one direction; 0: none
    kind: str  # of the link
    network: int  # across nodes, bytes per second of each device in one direction
    node: int  # devices that the link connects
    source: str
    power: int = 0  # of the board in watts, the most that it may draw; 0: unknown
    chip: str = ""  # of a device that is sold with several sizes of memory, without its size
    # the different devices of one machine, of which this one has the lowest figures
    members: tuple[Device, ...] = ()

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "name",
            "title",
            "vendor",
            "memory",
            "nominal",
            "bandwidth",
            "flops",
            "link",
            "kind",
            "network",
            "node",
            "power",
            "source",
        ),
    )


class DeviceList(Report):
    """Devices of the catalog; iterable."""

    json_fields: ClassVar[tuple[str, ...]] = ("gpus",)

    gpus: tuple[Device, ...]

    @property
    def summary(self) -> str:
        """The number of devices, or the memory, bandwidth and FLOP/s of a single one."""
        if len(self.gpus) > 1:
            return format_count(len(self.gpus), "device")
        gpu = self.gpus[0]
        rates = "".join(
            f", {gpu.flops[x] / 1e12:,.4g} {x} TFLOP/s"
            for x in ("bf16", "fp16", "fp32")
            if gpu.flops.get(x)
        )
        return f"{gpu.title}: {gpu.memory / 2**30:,.2f} GiB, {gpu.bandwidth / 1e9:,.0f} GB/s{rates}"

    @property
    def headline(self) -> str:
        """The name of a single device; the table of several begins at once."""
        return self.gpus[0].title if len(self.gpus) == 1 else ""

    @property
    def entries(self) -> Sequence[Device]:
        """The devices."""
        return self.gpus

    def tables(self) -> Iterable[Part]:
        """A row for each device; of a single one, all of its details."""
        if len(self.gpus) == 1:
            yield Table(columns=_DETAILS, rows=tuple(_details(self.gpus[0])))
            yield Text(f"source: {self.gpus[0].source}", "dim")
            return
        yield Table(columns=_COLUMNS, rows=tuple(map(_cells, self.gpus)))
        yield Text(format_count(len(self.gpus), "device"))
        yield Text(
            "GiB as the driver reports it where known; dense TFLOP/s (bf16, or fp16 where there "
            "is no bf16), never with 2:4 sparsity; link in GB/s, one way, to the other devices "
            "of a node",
            "dim",
        )


_DETAILS = (Column("", key="name"), Column("", key="value", wrap=True))
_COLUMNS = (
    Column("gpu", key="name"),
    Column("title", shown=False),
    Column("vendor", drop=1),
    Column("GiB", "GiB sold", "memory"),
    Column("nominal", "count", shown=False),
    Column("GB/s", "GB/s", "bandwidth"),
    Column("16-bit", "TFLOP/s", ""),
    Column("fp8", "TFLOP/s"),
    Column("int8", "TFLOP/s", drop=3),
    Column("fp4", "TFLOP/s", drop=3),
    *(Column(x, shown=False) for x in DTYPES if x not in ("fp8", "int8", "fp4")),
    Column("link", "GB/s", drop=2),
    *(Column(x, shown=False) for x in ("kind", "network", "node", "source")),
)


def _cells(x: Device) -> tuple[Any, ...]:
    sixteen = x.flops.get("bf16") or x.flops.get("fp16")
    others = (x.flops.get(y) for y in DTYPES if y not in ("fp8", "int8", "fp4"))
    return (
        *(x.name, x.title, x.vendor, x.memory, x.nominal, x.bandwidth, sixteen),
        *(x.flops.get(y) for y in ("fp8", "int8", "fp4")),
        *(*others, x.link, x.kind, x.network, x.node, x.source),
    )


def _details(x: Device) -> Iterator[tuple[str, Cell]]:
    memory = f"{x.memory:,} bytes = {x.memory / 1e9:.2f} GB = {x.memory / 2**30:.2f} GiB"
    if x.nominal != x.memory:
        memory += f" ({x.nominal / 2**30:g} GiB nominal)"
    yield "name", Cell(x.name)
    yield "vendor", Cell(x.vendor)
    yield "memory", Cell(x.memory, text=memory)
    yield "bandwidth", Cell(x.bandwidth, text=f"{x.bandwidth / 1e12:g} TB/s")
    for dtype, rate in x.flops.items():
        yield dtype, Cell(rate, text=f"{rate / 1e12:g} TFLOP/s dense")
    if x.link:
        node = format_count(x.node, "device")
        text = f"{x.link / 1e9:g} GB/s one way, {x.kind}, {node} a node"
        yield "link", Cell(x.link, text=text)
    network = f"{x.network / 1e9:g} GB/s a device, one way"
    yield "network", Cell(x.network, text=network)


def find_devices(words: Sequence[str] = ()) -> DeviceList:
    """Return the devices that have all these words in their name, title or vendor.

    One device alone is returned if the words name it: RTX 4070 is not RTX 4070 Ti. An unknown name
    is an error with the nearest ones.
    """
    name = " ".join(words)
    if exact := [x for x in devices() if x.name == name.lower()]:
        return DeviceList(gpus=tuple(exact))
    matching = tuple(x for x in devices() if all(_has_word(x, word) for word in words))
    return DeviceList(gpus=matching if len(matching) > 1 else (find_device(name),))


def _has_word(device: Device, word: str) -> bool:
    return (
        normalize_name(word) in normalize_name(f"{device.name} {device.title}")
        or word.lower() == device.vendor.lower()
    )


def devices() -> list[Device]:
    """Return the whole catalog, in the order of its files; of a device that is sold with several
    sizes of memory, the largest.
    """
    return [device for device, _ in _read_catalog() if device.name not in _smaller_sizes()]


def find_device(name: str) -> Device:
    """Return the device of this name, alias or driver's name; case and punctuation are ignored."""
    known = {normalize_name(x): device for device, names in _read_catalog() for x in names}
    if (normalized := normalize_name(name)) in known:
        return known[normalized]
    if (sizes := _sizes().get(normalized)) is not None:
        chip = sizes[0].name.rpartition("-")[0]
        hint = (
            f"choose one of {', '.join(x.name for x in sizes)}, or give the memory that a GPU "
            f"may use: '{chip} mem=27GiB'"
        )
        raise LlamathError(f"{safe(name, 60)} is sold with several sizes of memory", hint=hint)
    near = list(dict.fromkeys(known[x].name for x in nearest(normalized, known, most=4)))
    hint = (
        f"did you mean {', '.join(near)}? {Call('gpus')} lists all"
        if near
        else f"{Call('gpus')} lists all"
    )
    raise LlamathError(
        f"unknown GPU {safe(name, 60)!r}",
        hint=f"{hint}; describe any other as 'mem=80GiB bw=3.35TB/s bf16=989TF'",
    )


def _parse_device_spec(text: str) -> Device:
    """Parse a description such as `mem=80GiB bw=3.35TB/s bf16=989TF`; after a name (`h100
    mem=94GiB`), it changes that device.
    """
    words = re.split(r"[\s,]+", text.strip())
    base = None
    if "=" not in words[0]:
        name = " ".join(x for x in words if "=" not in x)
        sizes = _sizes().get(normalize_name(name))
        base = (
            sizes[-1] if sizes and any(x.startswith("mem=") for x in words) else find_device(name)
        )
    properties: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if equals and (key not in _READERS or key in properties):
            raise LlamathError(
                f"{safe(word, 60)!r} "
                f"{'is given twice' if key in properties else 'is not a property of a GPU'}",
                hint=HINT,
            )
        properties |= {key: value} if equals else {}
    return _build_device(safe(" ".join(words), 60), properties, base)


def parse_device(text: str) -> Device:
    """Parse the name or the description of a device."""
    return _parse_device_spec(text) if "=" in text else find_device(text)


def parse_devices(text: str) -> tuple[int, Device]:
    """Return the number of devices and the device: `2xh100`, `rtx-4090`, or different ones in one
    machine, `4090+2x3060`.

    Different devices count as that many copies of one device with the lowest figures, whose
    `members` they are: see `_lowest_figures`.
    """
    machines = split_machines(text)
    if len(machines) > 1:
        compare = Call("compare_machines", Name("model"), on=text)
        hint = (
            f"{compare} compares several; different GPUs of one machine are joined with +: "
            "4090+3060"
        )
        raise LlamathError(
            f"{safe(text, 60)!r} lists {len(machines)} machines, and one is expected", hint=hint
        )
    counted = [_parse_counted(part) for part in re.split(r"(?<!\de)\+", text)]
    if all(device == counted[0][1] for _, device in counted):
        return sum(n for n, _ in counted), counted[0][1]
    return sum(n for n, _ in counted), _lowest_figures(counted)


def split_machines(text: str) -> list[str]:
    """Split a list such as `3060,2x4090,4090+3060` at its commas; `bw=…` and other keys belong
    to the device before them.
    """
    parts: list[str] = []
    for part in text.split(","):
        key, equals, _ = part.strip().partition("=")
        if (
            parts
            and equals
            and key.isalnum()
            and (key != "mem" or ("=" in parts[-1] and "mem=" not in parts[-1]))
        ):
            parts[-1] += f" {part}"
        else:
            parts.append(part)
    return parts


def _lowest_figures(counted: Sequence[tuple[int, Device]]) -> Device:
    """Return a device with the least memory, bandwidth and FLOP/s of several, which limit each
    when the work is split evenly.
    """
    all_devices = [device for _, device in counted]
    if max(n for n, _ in counted) > _MAX_MEMBERS:
        raise LlamathError(f"a machine with different GPUs has at most {_MAX_MEMBERS} of each kind")
    rates = {
        dtype: min(x.flops[dtype] for x in all_devices)
        for dtype in DTYPES
        if all(dtype in x.flops for x in all_devices)
    }
    return Device(
        name="+".join(f"{n}x{x.name}" if n > 1 else x.name for n, x in counted),
        title=" + ".join(f"{n} × {x.title}" if n > 1 else x.title for n, x in counted),
        vendor=all_devices[0].vendor if len({x.vendor for x in all_devices}) == 1 else "",
        memory=min(x.memory for x in all_devices),
        nominal=min(x.nominal for x in all_devices),
        bandwidth=min(x.bandwidth for x in all_devices),
        flops=rates,
        link=min(x.link for x in all_devices),
        kind=all_devices[0].kind if len({x.kind for x in all_devices}) == 1 else "",
        network=min(x.network for x in all_devices),
        node=min(x.node for x in all_devices),
        source="the least of each",
        power=0
        if not all(x.power for x in all_devices)
        else sum(n * x.power for n, x in counted) // sum(n for n, _ in counted),
        members=tuple(x for n, x in counted for _ in range(min(n, _MAX_MEMBERS))),
    )


def _parse_counted(text: str) -> tuple[int, Device]:
    match = re.fullmatch(COUNT, text)
    if not match:
        return 1, parse_device(text)
    n = int(match[1])
    if not 1 <= n <= _MAX_DEVICES:
        raise LlamathError(
            f"{safe(text, 60)!r}: {n:,} devices", hint=f"a number from 1 to {_MAX_DEVICES:,}"
        )
    return n, parse_device(match[2])


def normalize_name(name: str) -> str:
    """Return a name without case, punctuation and vendors' words."""
    words = re.sub(_VENDOR_WORDS, " ", re.sub(r"[^a-z0-9]+", " ", name.lower()))
    return words.replace(" ", "") or name.lower()


@cache
def _sizes() -> dict[str, list[Device]]:
    """Return the devices of each chip that is sold with several sizes of memory, the smallest
    first, by the chip's name.
    """
    found: dict[str, list[Device]] = {}
    for device, _names in _read_catalog():
        if device.chip:
            found.setdefault(normalize_name(device.chip), []).append(device)
    return found


@cache
def _smaller_sizes() -> frozenset[str]:
    return frozenset(x.name for sizes in _sizes().values() for x in sizes[:-1])


@cache
def _read_catalog() -> tuple[tuple[Device, tuple[str, ...]], ...]:
    return tuple(entry for name in ("nvidia", "amd", "others") for entry in _read_file(name))


def _read_file(name: str) -> Iterator[tuple[Device, tuple[str, ...]]]:
    from ..utils.strict_json import read_json

    data = read_json(os.path.join(FOLDER, f"{name}.json"))
    for x in data["devices"]:
        vendor = x.get("vendor", data["vendor"])
        for gigabytes in x.get("sizes", ()):
            one = {
                **x,
                "name": f"{x['name']}-{gigabytes}gb",
                "title": f"{x['title']}, {gigabytes}GB",
                "memory": f"{gigabytes}GiB",
            }
            one |= {"reported": f"{_usable_by_apple_gpu(gigabytes)}MiB", "chip": x["name"]}
            one["source"] += (
                f"; a GPU may use {_usable_by_apple_gpu(gigabytes) / 1024:.4g} GiB by default"
            )
            yield _parse_entry(one, vendor), (one["name"],)
        if "sizes" not in x:
            yield _parse_entry(x, vendor), (x["name"], *x["aliases"])


def _usable_by_apple_gpu(gigabytes: int) -> int:
    """Return the MiB of unified memory that Metal recommends as a GPU's largest working set,
    which llama.cpp prints at start.
    """
    reported = {24: 16384, 32: 21845, 512: 475136}
    return reported.get(gigabytes, gigabytes * 768)


def _parse_entry(x: Mapping[str, Any], vendor: str) -> Device:
    nominal = parse_bytes(x["memory"])
    return Device(
        name=x["name"],
        title=x["title"],
        vendor=vendor,
        memory=parse_bytes(x["reported"]) if "reported" in x else nominal,
        nominal=nominal,
        bandwidth=parse_bandwidth(x["bandwidth"]),
        flops={dtype: parse_flops(x["flops"][dtype]) for dtype in DTYPES if dtype in x["flops"]},
        link=parse_bandwidth(x["link"]) if "link" in x else 0,
        kind=x.get("kind", ""),
        network=parse_bandwidth(x["network"]) if "network" in x else _DEFAULT_NETWORK,
        node=x["node"],
        power=x.get("power", 0),
        source=x["source"],
        chip=x.get("chip", ""),
    )


def _parse_node(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,6}", text, re.ASCII):
        raise LlamathError(
            f"node should be a positive number of devices, found {safe(text, 20)}", hint=HINT
        )
    return int(text)


def _parse_power(text: str) -> int:
    if not (match := re.fullmatch(r"([1-9]\d{0,4})W", text, re.ASCII)):
        raise LlamathError(f"power should be watts like 700W, found {safe(text, 20)}", hint=HINT)
    return int(match[1])


_READERS = {
    "mem": parse_bytes,
    "bw": parse_bandwidth,
    "link": parse_bandwidth,
    "net": parse_bandwidth,
    "node": _parse_node,
    "power": _parse_power,
    **dict.fromkeys(DTYPES, parse_flops),
}


def _build_device(name: str, properties: Mapping[str, str], base: Device | None) -> Device:
    values = {key: _READERS[key](value) for key, value in properties.items()}
    if base is None:
        if "mem" not in values:
            raise LlamathError(f"{name!r} lacks mem", hint=HINT)
        defaults: dict[str, Any] = {
            "link": 0,
            "kind": "",
            "network": _DEFAULT_NETWORK,
            "node": 8,
            "flops": {},
            "vendor": "",
            "source": "as given",
        }
        base = Device(
            name=name,
            title=name,
            memory=values["mem"],
            nominal=values["mem"],
            bandwidth=values.get("bw", 0),
            **defaults,
        )
    else:
        base = base.replace(
            name=name,
            title=name,
            source=f"{base.source}; changed: "
            f"{', '.join(f'{x}={y}' for x, y in properties.items())}",
        )
    fields = {
        "mem": "memory",
        "bw": "bandwidth",
        "link": "link",
        "net": "network",
        "node": "node",
        "power": "power",
    }
    changes = {fields[key]: value for key, value in values.items() if key in fields}
    rates = {
        key: values.get(key) or base.flops[key]
        for key in DTYPES
        if key in values or key in base.flops
    }
    return base.replace(
        flops=rates, **changes, **({"nominal": values["mem"]} if "mem" in values else {})
    )
