"""`Device`: one GPU, accelerator or processor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ..utils.record_type import Record

DTYPES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4")


class Device(Record):
    """One GPU or accelerator."""

    name: str
    title: str
    vendor: str
    memory: int  # usable bytes; 0: unknown
    nominal: int  # bytes in its data sheet; 0: unknown
    bandwidth: int  # of its memory, bytes per second; 0: unknown
    flops: Mapping[str, int]  # dtype → dense FLOP/s
    link: int  # to the other devices of its node, bytes per second in one direction; 0: none
    kind: str  # of the link
    network: int  # across nodes, bytes per second of each device in one direction
    node: int  # devices that the link connects
    source: str
    common: str = ""  # why many people can use it; empty: no reason is known
    power: int = 0  # of the board in watts, the most that it may draw; 0: unknown
    chip: str = ""  # of a device that is sold with several sizes of memory, without its size
    unified: bool = False  # its memory is that of the machine
    compute_capability: str = ""  # of NVIDIA's GPUs, as 8.9
    # the different devices of one machine, of which this one has the lowest figures
    members: tuple[Device, ...] = ()

    @property
    def sm(self) -> int:
        """The compute capability as compilers write it: 89 for 8.9, and 0 if it is not known."""
        return int(self.compute_capability.replace(".", "") or 0)

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
            "compute_capability",
            "source",
        ),
    )

    def json_items(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys of `to_json` with their values; null is what is not known."""
        for key, value in super().json_items():
            yield key, value or None if key in _UNKNOWN else value


_UNKNOWN = ("memory", "nominal", "bandwidth", "compute_capability")
"""Fields in which 0 or an empty text means that the value is not known."""
