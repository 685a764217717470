"""Model FLOPs utilization (MFU) of a training run under each convention, from its measured
throughput.

The same throughput gives a different MFU under each convention, since the convention decides the
FLOPs per token. Recomputation counts only where a convention includes it (HFU).
"""

from __future__ import annotations

from fractions import Fraction

from ....utils.errors import LlamathError, nearest, safe
from ....utils.record_type import Record
from .flops_report import MFU, ConventionMFU, FlopsReport, plain_number
from .flops_tables import flops_by_convention


class Throughput(Record):
    """The throughput of a training run, and the peak of its GPUs."""

    tokens: Fraction  # a second, all GPUs together
    gpus: int
    peak: int  # dense FLOP/s of one GPU
    name: str  # of the GPU
    precision: str


class _Utilization(Record):
    """The FLOP/s and the MFU of a run under one convention."""

    name: str
    title: str
    per_token: Fraction
    rate: Fraction  # FLOP/s of one GPU
    share: Fraction  # of its peak


def speed_of(report: FlopsReport, rate: Fraction, convention: str) -> Fraction:
    """Return the tokens per second of one GPU at a FLOP/s rate that is given by one convention."""
    counts = flops_by_convention(report)
    if convention not in counts:
        near = nearest(convention, counts)
        raise LlamathError(
            f"unknown FLOPs convention {safe(convention, 60)!r}",
            hint=f"{'nearest' if near else 'known'}: {', '.join(near or counts)}",
        )
    return rate / counts[convention][1]


def with_mfu(report: FlopsReport, speed: Throughput) -> FlopsReport:
    """Return the report with the MFU of a training run."""
    by = {
        x.name: ConventionMFU(flops_per_second=plain_number(x.rate), mfu=float(x.share))
        for x in utilization(report, speed)
    }
    tokens = plain_number(speed.tokens)
    return report.replace(
        mfu=MFU(
            gpus=speed.gpus,
            gpu=speed.name,
            precision=speed.precision,
            peak=speed.peak,
            tokens_per_second=tokens,
            by=by,
        )
    )


def utilization(report: FlopsReport, speed: Throughput) -> tuple[_Utilization, ...]:
    """Return the MFU by every convention."""
    each = speed.tokens / speed.gpus
    return tuple(
        _Utilization(
            name=name,
            title=title,
            per_token=per_token,
            rate=each * per_token,
            share=each * per_token / speed.peak,
        )
        for name, (title, per_token) in flops_by_convention(report).items()
    )
