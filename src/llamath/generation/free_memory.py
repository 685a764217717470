"""The memory that this process can still allocate, by the system and by the limit of its
container.
"""

from __future__ import annotations

from ..utils.errors import Call, LlamathError, Name

CGROUP = "/sys/fs/cgroup/memory."
"""Prefix of the files with a container's memory limit and use."""


def free_host_bytes(cgroup: str = CGROUP) -> int | None:
    """Return the bytes that can still be allocated; None where the system does not report them."""
    known = [x for x in (_system_free_bytes(), _cgroup_free_bytes(cgroup)) if x is not None]
    return min(known, default=None)


def peak_process_bytes() -> int | None:
    """Return the most memory that this process has had at once, pages of mapped files included;
    None where the system does not report it.
    """
    kibibytes = _read_numbers("/proc/self/status").get("VmHWM:")
    return None if kibibytes is None else kibibytes * 1024


def check_free_memory(need: int, what: str, free: int | None, device: str = "cpu") -> None:
    """Raise an error if fewer than `need` bytes are free; `free` is None where that is not
    known.
    """
    if free is not None and need > free:
        raise LlamathError(
            f"{what} need {need:,} bytes ({need / 2**30:,.1f} GiB), but {free:,} "
            f"({free / 2**30:,.1f} GiB) are free on {device}",
            hint="use a smaller dtype, context or batch; "
            f"{Call('memory', Name('model'))} shows the memory of each",
        )


def _system_free_bytes() -> int | None:
    """Return the system's available memory, file cache included."""
    kibibytes = _read_numbers("/proc/meminfo").get("MemAvailable:")
    return None if kibibytes is None else kibibytes * 1024


def _cgroup_free_bytes(cgroup: str) -> int | None:
    """Return what a container may still allocate, file cache included."""
    limit, used = (
        next(iter(_read_numbers(cgroup + x, alone=True).values()), None) for x in ("max", "current")
    )
    if limit is None or used is None:
        return None
    return max(0, limit - used + _read_numbers(cgroup + "stat").get("file", 0))


def _read_numbers(path: str, alone: bool = False) -> dict[str, int]:
    """Read lines of a name and a number, or with `alone` of a number; an unreadable file has
    none.
    """
    try:
        with open(path, encoding="ascii") as file:
            rows = [line.split() for line in file]
    except (OSError, ValueError):
        return {}
    rows = [["", *row] if alone else row for row in rows]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
