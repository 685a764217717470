"""`find_device` and `find_devices`: every device by the names that people and drivers give it.

`nvidia.json`, `amd.json` and `others.json` have the devices that rankings and the page choose from,
with their rates; `named.json` has all others, some of them with the memory alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple

from ..render.report import Report
from ..render.tables import Cell, Column, Part, Table, Text
from ..utils.errors import Call, Command, LlamathError, Name, nearest, safe
from ..utils.number_format import format_count
from ..utils.units import parse_bandwidth, parse_bytes, parse_flops
from .device import DTYPES, Device

FOLDER = os.path.dirname(__file__)
DEFAULT_NETWORK = 100 * 10**9 // 8
"""100 Gbit/s: the network of each device across nodes, if its vendor sells no system with
another."""
_RANKED = ("nvidia", "amd", "others")
_IGNORED_WORDS = (
    r"\b(nvidia|amd|intel|google|apple|aws|qualcomm|instinct|geforce|radeon|arc|tesla|generation|"
    r"macbook (?:pro|air)|mac studio|mac mini|macbook|imac|"
    r"data center gpu|gpu|cpu|graphics|processor|tm|r|hbm\w*)\b"
)
"""Words of drivers' names that are not needed to tell devices apart."""
_SERIES = r"^(rtx|gtx|rx)-"
"""What people leave out of a name."""


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
        rates = [
            f"{gpu.flops[x] / 1e12:,.4g} {x} TFLOP/s"
            for x in ("bf16", "fp16", "fp32")
            if gpu.flops.get(x)
        ]
        memory = f"{gpu.memory / 2**30:,.2f} GiB" if gpu.memory else "memory of the machine"
        speed = f"{gpu.bandwidth / 1e9:,.0f} GB/s" if gpu.bandwidth else "bandwidth unknown"
        return f"{gpu.title}: {', '.join((memory, speed, *rates))}"

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
        *(x.name, x.title, x.vendor, x.memory or None, x.nominal or None, x.bandwidth or None),
        sixteen,
        *(x.flops.get(y) for y in ("fp8", "int8", "fp4")),
        *(*others, x.link, x.kind, x.network, x.node, x.source),
    )


def _details(x: Device) -> Iterator[tuple[str, Cell]]:
    memory = f"{x.memory:,} bytes = {x.memory / 1e9:.2f} GB = {x.memory / 2**30:.2f} GiB"
    if not x.memory:
        memory = "that of the machine"
    if x.nominal != x.memory:
        memory += f" ({x.nominal / 2**30:g} GiB nominal)"
    yield "name", Cell(x.name)
    yield "vendor", Cell(x.vendor)
    if x.compute_capability:
        yield "compute capability", Cell(x.compute_capability)
    yield "memory", Cell(x.memory or None, text=memory)
    speed, unit = (
        (x.bandwidth / 1e12, "TB/s") if x.bandwidth >= 1e12 else (x.bandwidth / 1e9, "GB/s")
    )
    bandwidth = f"{speed:g} {unit}" if x.bandwidth else "unknown"
    yield "bandwidth", Cell(x.bandwidth or None, text=bandwidth)
    for dtype, rate in x.flops.items():
        yield dtype, Cell(rate, text=f"{rate / 1e12:g} TFLOP/s dense")
    if x.link:
        node = format_count(x.node, "device")
        text = f"{x.link / 1e9:g} GB/s one way, {x.kind}, {node} a node"
        yield "link", Cell(x.link, text=text)
    network = f"{x.network / 1e9:g} GB/s a device, one way"
    yield "network", Cell(x.network, text=network)


class _Entry(NamedTuple):
    """A device of the catalog."""

    device: Device
    names: tuple[str, ...]
    ranked: bool  # whether rankings and the page choose from it
    pattern: str = ""  # of the normalized names of one series of processors


def find_devices(words: Sequence[str] = ()) -> DeviceList:
    """Return the devices that have all these words in their name, title or vendor.

    Words that are the whole name of a device or a chip name nothing else: RTX 4070 is not RTX 4070
    Ti. An unknown name is an error with the nearest ones.
    """
    name = normalize_name(" ".join(words))
    everything = [x.device for x in _read_catalog()]
    if not words:
        smaller = _smaller_sizes()
        return DeviceList(gpus=tuple(x for x in everything if x.name not in smaller))
    if exact := [x for x in everything if name in map(normalize_name, (x.name, x.chip))]:
        return DeviceList(gpus=tuple(exact))
    matching = tuple(x for x in everything if all(_has_word(x, word) for word in words))
    return DeviceList(gpus=matching if len(matching) > 1 else (find_device(" ".join(words)),))


def _has_word(device: Device, word: str) -> bool:
    return (
        normalize_name(word) in normalize_name(f"{device.name} {device.title}")
        or word.lower() == device.vendor.lower()
    )


def devices() -> list[Device]:
    """Return the devices that rankings and the page choose from, in the order of their files; of
    a chip with unified memory, the largest size.
    """
    smaller = _smaller_sizes()
    return [x.device for x in _read_catalog() if x.ranked and x.device.name not in smaller]


def find_device(name: str) -> Device:
    """Return the device of this name, alias or driver's name; case and punctuation are ignored.

    A name that fits several devices is an error with all of them.
    """
    normalized = normalize_name(name)
    known = _names()
    if normalized in known:
        return known[normalized]
    if normalized == "this":
        raise LlamathError(
            "this machine is looked at by the command line alone",
            hint=f"{Command('fit', Name('model'), on='this')} prints the words that stand for it",
        )
    if chip := find_chip(name):
        if len(chip) == 1:
            return chip[0]
        raise _several(name, chip)
    for x in _read_catalog():
        if x.pattern and len(normalized) < _LONGEST and re.fullmatch(x.pattern, normalized):
            return x.device
    if f"{normalized}gb" in known:  # m4 max 128
        return known[f"{normalized}gb"]
    begun = [x for y, x in known.items() if y.startswith(normalized) and len(normalized) > 2]
    if len({x.name for x in begun}) > 1:
        raise _several(name, list({x.name: x for x in begun}.values()))
    alike = (known[x] for x in nearest(normalized, known, most=4))
    near = list(dict.fromkeys(x.name for x in (*begun, *alike)))[:4]
    hint = (
        f"did you mean {', '.join(near)}? {Call('gpus')} lists all"
        if near
        else f"{Call('gpus')} lists all"
    )
    raise LlamathError(
        f"unknown GPU {safe(name, 60)!r}",
        hint=f"{hint}; describe any other as 'mem=80GiB bw=3.35TB/s bf16=989TF'",
    )


def is_known(name: str) -> bool:
    """Whether a whole text is the name of a device, or one that fits several sizes."""
    normalized = normalize_name(name)
    return normalized in _names() or normalized in _chips()


_LONGEST = 40
"""Letters of a name that is compared with patterns."""
_MOST_CANDIDATES = 12


def _several(name: str, found: Sequence[Device]) -> LlamathError:
    """Return the error of a name that fits several devices."""
    names = [x.name for x in found]
    more = f" and {len(names) - _MOST_CANDIDATES} more" if len(names) > _MOST_CANDIDATES else ""
    hint = f"choose one of {', '.join(names[:_MOST_CANDIDATES])}{more}"
    chip = found[0].chip
    if (
        not chip
        or len({x.nominal for x in found}) < len(found)
        or {x.chip for x in found} != {chip}
    ):
        return LlamathError(f"{safe(name, 60)} fits several devices", hint=hint)
    if found[0].unified:
        hint += f", or give the memory that a GPU may use: '{chip} mem=27GiB'"
    chips = dict.fromkeys(x.device.chip for x in _read_catalog() if x.device.chip)
    if others := [x for x in chips if x.startswith(f"{chip}-")]:
        hint += f"; {', '.join(others)} are others"
    return LlamathError(f"{safe(name, 60)} is sold with several sizes of memory", hint=hint)


def find_chip(name: str) -> list[Device]:
    """Return the devices of a chip that is sold as several of them, the smallest memory first."""
    return _chips().get(normalize_name(name), [])


def normalize_name(name: str) -> str:
    """Return a name without case, punctuation, and words that tell no devices apart."""
    text = re.sub(r"(\d)gib\b", r"\1gb", re.sub(r"[^a-z0-9]+", " ", name.lower()))
    words = re.sub(_IGNORED_WORDS, " ", re.sub(r"\bmobile\b", "laptop", text))
    return words.replace(" ", "") or name.lower()


@cache
def _names() -> dict[str, Device]:
    return {normalize_name(name): x.device for x in _read_catalog() for name in x.names}


@cache
def _chips() -> dict[str, list[Device]]:
    found: dict[str, dict[str, Device]] = {}
    for x in _read_catalog():
        if chip := x.device.chip:
            sized = (y for y in x.names if y.endswith("gb"))
            names = {chip, re.sub(_SERIES, "", chip), *(y.rpartition("-")[0] for y in sized)}
            for name in names - set(x.names):
                found.setdefault(normalize_name(name), {})[x.device.name] = x.device
    return {x: sorted(y.values(), key=lambda z: z.nominal) for x, y in found.items()}


@cache
def _smaller_sizes() -> frozenset[str]:
    """Return the names of chips with unified memory for which a larger one is sold."""
    smaller = (x for sizes in _chips().values() for x in sizes[:-1])
    return frozenset(x.name for x in smaller if x.unified and x.memory)


@cache
def _read_catalog() -> tuple[_Entry, ...]:
    return tuple(entry for name in (*_RANKED, "named") for entry in _read_file(name))


def _read_file(name: str) -> Iterator[_Entry]:
    from ..utils.strict_json import read_json

    data = read_json(os.path.join(FOLDER, f"{name}.json"))
    for row in data["devices"]:
        x = {"vendor": data.get("vendor"), "node": 8, "aliases": (), "flops": {}, **row}
        x["source"] = row.get("source") or data["source"]
        sizes: Sequence[int] = x.get("sizes", ())
        names = (x["name"], *x["aliases"])
        for gigabytes in sizes:
            one = {**x, "memory": f"{gigabytes}GiB", "chip": x.get("chip", "")}
            own = (x["name"], *(f"{y}-{gigabytes}gb" for y in names), *names[1:])
            if len(sizes) > 1:
                one |= {"name": f"{x['name']}-{gigabytes}gb", "chip": x["name"]}
                own = tuple(f"{y}-{gigabytes}gb" for y in names)
            if not x["title"].endswith(f"{gigabytes}GB"):
                comma = "," if x["vendor"] == "Apple" else ""
                one["title"] = f"{x['title']}{comma} {gigabytes}GB"
            if x["vendor"] == "Apple":
                usable = _usable_by_apple_gpu(gigabytes)
                one |= {"reported": f"{usable}MiB", "unified": True}
                one["source"] += f"; a GPU may use {usable / 1024:.4g} GiB by default"
            yield _entry(one, own, name in _RANKED)
        if not sizes:
            yield _entry(x, names, name in _RANKED)


def _entry(x: Mapping[str, Any], names: Iterable[str], ranked: bool) -> _Entry:
    named = (*names, x["name"], x["title"])
    short = (re.sub(_SERIES, "", y) for y in named)
    every = tuple(dict.fromkeys((*named, *(y for y in short if re.search(r"\d", y)))))
    return _Entry(_parse_entry(x), every, ranked, x.get("pattern", ""))


def _usable_by_apple_gpu(gigabytes: int) -> int:
    """Return the MiB of unified memory that Metal recommends as a GPU's largest working set,
    which llama.cpp prints at start: two thirds up to 32 GB, then three quarters.
    """
    if gigabytes == 512:
        return 475136
    return gigabytes * 2048 // 3 if gigabytes <= 32 else gigabytes * 768


def _parse_entry(x: Mapping[str, Any]) -> Device:
    nominal = parse_bytes(x["memory"]) if "memory" in x else 0
    return Device(
        name=x["name"],
        title=x["title"],
        vendor=x["vendor"],
        memory=parse_bytes(x["reported"]) if "reported" in x else nominal,
        nominal=nominal,
        bandwidth=parse_bandwidth(x["bandwidth"]) if "bandwidth" in x else 0,
        flops={dtype: parse_flops(x["flops"][dtype]) for dtype in DTYPES if dtype in x["flops"]},
        link=parse_bandwidth(x["link"]) if "link" in x else 0,
        kind=x.get("kind", ""),
        network=parse_bandwidth(x["network"]) if "network" in x else DEFAULT_NETWORK,
        node=1 if x.get("unified") else x["node"],
        common=x.get("common", ""),
        power=x.get("power", 0),
        source=x["source"],
        chip=x.get("chip", ""),
        unified=x.get("unified", False),
        compute_capability=_compute_capability(x["name"]) if x["vendor"] == "NVIDIA" else "",
    )


def _compute_capability(name: str) -> str:
    """Return the compute capability of an NVIDIA GPU: that of the longest name that begins its
    own.
    """
    begins = (x for x in _capabilities().items() if name.startswith(x[0]))
    return max(begins, key=lambda x: len(x[0]), default=("", ""))[1]


@cache
def _capabilities() -> dict[str, str]:
    from ..utils.strict_json import read_json

    data = read_json(os.path.join(FOLDER, "nvidia_generations.json"))
    return {name: x["capability"] for x in data["generations"] for name in x["names"]}
