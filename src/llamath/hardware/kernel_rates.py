"""The shares of a GPU's data sheet that kernels reach: attention by head dimension and length,
large matrix products, memory.

The figures are benchmarks of kernels that others published, in `kernels.json`, each with its
source; no training run is among them. A GPU without a benchmark of its own counts as the one that
is nearest to it, or as an A100, and `KernelRates.notes` says so.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from math import log2
from statistics import mean
from typing import Any, NamedTuple

from ..utils.errors import ArgumentError, LlamathError, safe
from . import FOLDER, Device, find_device

ATTENTION_KERNELS = {
    "flash1": "FlashAttention (2022)",
    "flash2": "FlashAttention-2",
    "flash3": "FlashAttention-3",
    "cudnn": "cuDNN's attention",
}
"""The fused attention kernels with published benchmarks."""
ATTENTION_CHOICES = ("flash", "eager", *ATTENTION_KERNELS)
"""Ways to compute attention: `flash` is the fused kernel that is usual on the GPU."""
_DEFAULT_KERNEL, _DEFAULT_GPU = "flash2", "a100"
BACKWARD_FLOPS = 2.5
"""Forward passes of a backward pass of fused attention, which computes the scores again (Dao
2023, arXiv:2307.08691, §4.1)."""


class AttentionShares(NamedTuple):
    """The shares of the peak that a forward and a backward pass of attention reach."""

    forward: float
    backward: float


class KernelRates:
    """What kernels reach on one device."""

    def __init__(self, device: Device, attention: str = "flash") -> None:
        if attention not in ATTENTION_CHOICES:
            raise ArgumentError(
                "attention",
                f": unknown {safe(repr(attention), 40)}",
                hint=f"it is one of {', '.join(ATTENTION_CHOICES)}",
            )
        self.device, data = device, _read_benchmarks()
        known = _base_name(device)
        self._gpu = next((name for name, devices in data["gpus"].items() if known in devices), "")
        self._attention_gpu, self.kernel = self._find_kernel(
            "" if attention in ("flash", "eager") else attention
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What was measured on another GPU than this one."""
        title, other = self.device.title, self._attention_gpu.upper()
        if not self._gpu:
            return (
                f"no benchmarks of kernels on {title} are known: the shares of the peak are "
                f"those of an {_DEFAULT_GPU.upper()}",
            )
        if self._attention_gpu in (self._gpu, _read_benchmarks()["nearest"].get(self._gpu)):
            return ()
        return (
            f"no benchmark of {ATTENTION_KERNELS[self.kernel]} on {title} is known: its "
            f"share of the peak is that on {other}",
        )

    def matmul(self, dtype: str) -> float:
        """Return the share of the dense peak that a large matrix product reaches."""
        table: Mapping[str, Sequence[float]] = _read_benchmarks()["matmul"][
            "fp8" if dtype == "fp8" else "bf16"
        ]
        if (found := self._of(table)) is not None:
            return found
        return (
            mean(x / peak for x, peak in table.values())
            if dtype == "fp8"
            else _share(table[_DEFAULT_GPU])
        )

    @cached_property
    def memory(self) -> float:
        """The share of the memory's bandwidth that a kernel which reads and writes it reaches."""
        table = _read_benchmarks()["memory"]["triad"]
        found = self._of(table)
        return mean(map(_share, table.values())) if found is None else found

    def attention(self, head_dim: int, keys: float, causal: bool) -> AttentionShares:
        """Return the shares of the peak for heads of this size and queries that attend to this
        many keys on average.
        """
        return _attention_shares(
            self.kernel,
            self._attention_gpu,
            head_dim,
            max(keys * (2 if causal else 1), 1.0),
            causal,
        )

    def _of(self, table: Mapping[str, Sequence[float]]) -> float | None:
        """The share of this GPU, or of the one that is nearest to it."""
        near = _read_benchmarks()["nearest"].get(self._gpu, "")
        return next((_share(table[name]) for name in (self._gpu, near) if name in table), None)

    def _find_kernel(self, asked: str) -> tuple[str, str]:
        """Return the GPU and the kernel whose benchmark stands for this device."""
        data = _read_benchmarks()
        near = (self._gpu, data["nearest"].get(self._gpu, ""), _DEFAULT_GPU)
        kernel = asked or data["default_kernel"].get(self._gpu, _DEFAULT_KERNEL)
        measured = {(x["gpu"], x["kernel"]) for x in data["attention"]}
        if asked and self._gpu and not any((gpu, asked) in measured for gpu in near[:2]):
            known = sorted({k for gpu, k in measured if gpu in near[:2]})
            hint = f"known for it: {', '.join(known)}" if known else "attention=flash"
            raise ArgumentError(
                "attention",
                f": no benchmark of {ATTENTION_KERNELS[asked]} on {self.device.title} is known",
                hint=hint,
            )
        return next(
            ((gpu, kernel) for gpu in near if (gpu, kernel) in measured),
            (_DEFAULT_GPU, _DEFAULT_KERNEL),
        )


def _base_name(device: Device) -> str:
    """Return the name of the device in the catalog that a description changes, such as that of
    `h100 mem=94GiB`.
    """
    name = device.name.split()[0].split(",")[0] if device.name.strip() else ""
    try:
        return name if not name or "=" in name else find_device(name).name
    except LlamathError:
        return ""


def benchmark_sources() -> Iterator[tuple[str, str]]:
    """Yield what was measured, and its source."""
    data = _read_benchmarks()
    for x in data["attention"]:
        yield f"{ATTENTION_KERNELS[x['kernel']]} on {x['gpu'].upper()}", x["source"]
    yield "matrix products", data["matmul"]["source"]
    yield "memory", data["memory"]["source"]


@cache
def _read_benchmarks() -> Mapping[str, Any]:
    from ..utils.strict_json import read_json

    data: Mapping[str, Any] = read_json(os.path.join(FOLDER, "kernels.json"))
    return data


def _share(figures: Sequence[float]) -> float:
    return figures[0] / figures[1]


@cache
def _attention_shares(
    kernel: str, gpu: str, head_dim: int, length: float, causal: bool
) -> AttentionShares:
    table = next(
        x for x in _read_benchmarks()["attention"] if (x["gpu"], x["kernel"]) == (gpu, kernel)
    )
    rows = {x["head_dim"]: x for x in table["rows"] if x["causal"] == causal}
    passes = []
    for name in ("forward", "backward"):
        known = {d: _at_length(x, name, rows, table, length) for d, x in rows.items()}
        sizes = sorted(known)
        passes.append(
            min(1.0, _interpolate(sizes, [known[d] for d in sizes], head_dim) / table["peak"])
        )
    return AttentionShares(*passes)


def _at_length(
    row: Mapping[str, Any],
    name: str,
    rows: Mapping[int, Mapping[str, Any]],
    table: Mapping[str, Any],
    length: float,
) -> float:
    """TFLOP/s of a pass at a length; a backward pass that was not measured is as much slower
    than forward as that of heads of 128.
    """
    lengths = [log2(x) for x in row.get("lengths", table["lengths"])]
    values = row.get(name) or row.get("both")
    if values is None:
        ratio = _at_length(rows[128], "backward", rows, table, length) / _at_length(
            rows[128], "forward", rows, table, length
        )
        return _at_length(row, "forward", rows, table, length) * ratio
    return _interpolate(lengths, values, log2(length))


def _interpolate(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Interpolate linearly; outside of the range, the value at its end."""
    if x <= xs[0] or x >= xs[-1]:
        return ys[0] if x <= xs[0] else ys[-1]
    i = bisect_right(xs, x)
    return ys[i - 1] + (ys[i] - ys[i - 1]) * (x - xs[i - 1]) / (xs[i] - xs[i - 1])
