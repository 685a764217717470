"""`Calibration`: what `gpus this` found on a machine, and the speed that follows for other models
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ....hardware import DTYPES, Device
from ....utils.errors import Command, LlamathError, Name, safe
from ....utils.record_type import Record
from ....utils.strict_json import read_json
from ..memory.speed_limits import SpeedLimits

VERSION = 1
"""Of the file."""


class Calibration(Record):
    """The rates of a machine, and the shares of the limits that follow from them which a model
    reached.
    """

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "llamath_calibration",
            "machine",
            "engine",
            "threads",
            "model",
            "memory",
            "bandwidth",
            "flops",
            "decode_share",
            "prefill_share",
        ),
    )

    machine: str
    engine: str
    threads: int
    model: str
    memory: int  # bytes
    bandwidth: int  # bytes per second
    flops: Mapping[str, int]  # dtype → FLOP/s
    decode_share: float
    prefill_share: float

    @property
    def llamath_calibration(self) -> int:
        """The version of the file."""
        return VERSION

    @property
    def device(self) -> Device:
        """The machine as a device."""
        return Device(
            name="this machine",
            title=f"{self.machine}, {self.engine} engine",
            vendor="",
            memory=self.memory,
            nominal=self.memory,
            bandwidth=self.bandwidth,
            flops=self.flops,
            link=0,
            kind="",
            network=0,
            node=1,
            source="measured",
        )

    def expected(self, limits: SpeedLimits) -> ExpectedSpeed:
        """Return the speed at the shares that were measured."""
        prefill = (
            None
            if limits.prefill is None
            else limits.prefill.tokens_per_second * self.prefill_share
        )
        return ExpectedSpeed(
            decode=limits.decode.tokens_per_second * self.decode_share,
            prefill=prefill,
            source=f"{self.model} reached {self.decode_share:.0%} and {self.prefill_share:.0%} "
            f"of the limits on {self.machine}",
        )


class ExpectedSpeed(Record):
    """Tokens per second at the shares of the limits that another model reached on the same
    machine.
    """

    decode: float
    prefill: float | None
    source: str


def read_calibration(path: str) -> Calibration:
    """Read the file that `gpus this` wrote."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("llamath_calibration") != VERSION:
        raise LlamathError(
            f"{safe(path)} is no calibration of llamath",
            hint=f"{Command('gpus', 'this', Name('model'), output=Name('file'))} writes one",
        )
    flops = data.get("flops")
    if not isinstance(flops, dict) or not set(flops) <= set(DTYPES) or not flops:
        raise LlamathError(
            f"{safe(path)}: flops should map dtypes to FLOP/s", hint=f"dtypes: {', '.join(DTYPES)}"
        )
    return Calibration(
        machine=_text(data, "machine", path),
        engine=_text(data, "engine", path),
        threads=_count(data, "threads", path),
        model=_text(data, "model", path),
        memory=_count(data, "memory", path),
        bandwidth=_count(data, "bandwidth", path),
        decode_share=_share(data, "decode_share", path),
        prefill_share=_share(data, "prefill_share", path),
        flops={name: _count(flops, name, path) for name in flops},
    )


def _text(data: Mapping[str, Any], name: str, path: str) -> str:
    if not isinstance(value := data.get(name), str) or not 0 < len(value) <= 200:
        raise LlamathError(f"{safe(path)}: {name} should be a short text")
    return safe(value)


def _count(data: Mapping[str, Any], name: str, path: str) -> int:
    if type(value := data.get(name)) is not int or not 0 < value < 2**63:
        raise LlamathError(f"{safe(path)}: {safe(name)} should be a positive integer")
    return value


def _share(data: Mapping[str, Any], name: str, path: str) -> float:
    value = data.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= 10:
        raise LlamathError(f"{safe(path)}: {name} should be a share of a limit, above 0")
    return float(value)
