"""The catalog of GPUs and other devices: memory, bandwidth, dense FLOP/s and links, each figure
with its vendor's source.

Memory is in bytes, as the driver reports it where that is known, else the vendor's gigabytes read
as 2³⁰ bytes (memory chips come in powers of two). FLOP/s are dense, with FP32 accumulation where
the vendor distinguishes it; 2:4 sparsity is never counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..utils.errors import Call, LlamathError, Name, safe
from ..utils.units import parse_bandwidth, parse_bytes, parse_flops
from .device import DTYPES as DTYPES
from .device import Device as Device
from .known_devices import DEFAULT_NETWORK, is_known
from .known_devices import FOLDER as FOLDER
from .known_devices import DeviceList as DeviceList
from .known_devices import devices as devices
from .known_devices import find_chip as find_chip
from .known_devices import find_device as find_device
from .known_devices import find_devices as find_devices
from .known_devices import normalize_name as normalize_name

_MAX_MEMBERS = 64
"""The largest number of equal devices in a machine with different ones."""
_MAX_DEVICES = 10**7
"""The largest number of devices."""
COUNT = r"(?si)\s*([0-9]{1,9})\s*[x×*]\s*(.+)"
HINT = (
    "like 'mem=80GiB bw=3.35TB/s bf16=989TF'; optional are fp8=… int8=… fp4=… link=450GB/s "
    "net=50GB/s node=8 power=700W"
)


def _parse_device_spec(text: str) -> Device:
    """Parse a description such as `mem=80GiB bw=3.35TB/s bf16=989TF`; after a name (`h100
    mem=94GiB`), it changes that device.
    """
    words = re.split(r"[\s,]+", text.strip())
    base = None
    if "=" not in words[0]:
        name = " ".join(x for x in words if "=" not in x)
        memory = next((x[len("mem=") :] for x in words if x.startswith("mem=")), "")
        sizes = find_chip(name) if memory else []
        base = _smallest_with(sizes, parse_bytes(memory)) if sizes else find_device(name)
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


def _smallest_with(sizes: Sequence[Device], memory: int) -> Device:
    """Return the smallest device of a chip that has this memory, else the largest."""
    return next((x for x in sizes if x.nominal >= memory), sizes[-1])


def unknown_bandwidth(what: str, device: Device) -> LlamathError:
    """Return the error of something that needs the bandwidth of a device."""
    return LlamathError(
        f"{what} needs the memory bandwidth of {device.title}, which is not known",
        hint="give it after the name, like 'NAME bw=500GB/s bf16=60TF'",
    )


def parse_device(text: str) -> Device:
    """Parse the name or the description of a device; without a memory it is an error."""
    found = _parse_device_spec(text) if "=" in text else find_device(text)
    if not found.memory:
        raise LlamathError(
            f"the memory of {found.title} is that of the machine, which is not known",
            hint=f"give it: '{safe(text.strip(), 60)} mem=32GiB', and bw=100GB/s if you know it",
        )
    return found


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
    parts = [text] if is_known(text) else re.split(r"(?i)(?<!\de)(?<!ai max)\+", text)
    counted = [_parse_counted(part) for part in parts]
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
        unified=any(x.unified for x in all_devices),
        members=tuple(x for n, x in counted for _ in range(min(n, _MAX_MEMBERS))),
    )


def _parse_counted(text: str) -> tuple[int, Device]:
    match = re.fullmatch(COUNT, text)
    if not match or is_known(text):  # 7900xtx is not 7,900 of anything
        return 1, parse_device(text)
    n = int(match[1])
    if not 1 <= n <= _MAX_DEVICES:
        raise LlamathError(
            f"{safe(text, 60)!r}: {n:,} devices", hint=f"a number from 1 to {_MAX_DEVICES:,}"
        )
    return n, parse_device(match[2])


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


def _described_title(values: Mapping[str, int]) -> str:
    """Return what to call a device that is given by its figures alone."""
    speed = f", {values['bw'] / 1e9:,.4g} GB/s" if "bw" in values else ""
    return f"device of {values['mem'] / 2**30:,.4g} GiB{speed}"


def _build_device(name: str, properties: Mapping[str, str], base: Device | None) -> Device:
    values = {key: _READERS[key](value) for key, value in properties.items()}
    if base is None:
        if "mem" not in values:
            raise LlamathError(f"{name!r} lacks mem", hint=HINT)
        defaults: dict[str, Any] = {
            "link": 0,
            "kind": "",
            "network": DEFAULT_NETWORK,
            "node": 8,
            "flops": {},
            "vendor": "",
            "source": "as given",
        }
        base = Device(
            name=name,
            title=_described_title(values),
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
