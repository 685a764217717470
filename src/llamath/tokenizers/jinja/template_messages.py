"""Messages between this process and the one that renders templates: their length, and JSON; and
the limits of that process.
"""

from __future__ import annotations

from typing import IO, NamedTuple

from ...utils.errors import LlamathError

_HEADER_BYTES = 8


class ProcessLimits(NamedTuple):
    """The limits of the process; the counter of operations ends most templates long before."""

    memory: int = 1 << 30  # bytes of address space, the interpreter included
    cpu_seconds: float = 30.0  # of the processor for a rendering
    cpu_seconds_per_megabyte: float = 30.0  # more for each megabyte of the request
    clock: float = 4.0  # seconds of the clock per second of the processor: a machine may be busy

    def processor_seconds(self, size: int) -> float:
        """Return the time that a rendering may take of the processor, for a request of this
        length in bytes.
        """
        return self.cpu_seconds + 1e-6 * size * self.cpu_seconds_per_megabyte


def read_message(stream: IO[bytes], most: int | None = None) -> bytes:
    """Return the next message, of at most this length in bytes; an empty one at the end."""
    length = int.from_bytes(stream.read(_HEADER_BYTES), "big")
    if most is not None and length > most:
        raise LlamathError(f"expected an answer of at most {most:,} bytes, found {length:,}")
    data = stream.read(length)
    return data if len(data) == length else b""


def write_message(stream: IO[bytes], data: bytes) -> None:
    """Write a message."""
    stream.write(len(data).to_bytes(_HEADER_BYTES, "big"))
    stream.write(data)
    stream.flush()
