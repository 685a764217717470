"""`utilisation`: the share of a machine's arithmetic that a training run uses (MFU), under each convention, from its speed.

One speed is many MFUs: the convention decides how many FLOPs a token is worth. What repeats the forward pass counts as used only where a
convention says so (HFU).
"""

from __future__ import annotations

from fractions import Fraction

from ...core.errors import LlamathError, nearest, safe
from ...core.record_type import Record
from .flops_report import MFU, ConventionMFU, FlopsReport, plain_number


class Throughput(Record):
    """How fast a run goes, and what its machine could do."""

    tokens: Fraction  # a second, all GPUs together
    gpus: int
    peak: int  # dense FLOP/s of one GPU
    name: str  # of the GPU
    precision: str


class Utilization(Record):
    """What a run achieves, as one convention counts."""

    name: str
    title: str
    per_token: Fraction
    rate: Fraction  # FLOP/s of one GPU
    share: Fraction  # of its peak


def flops_by_convention(report: FlopsReport) -> dict[str, tuple[str, Fraction]]:
    """FLOPs per token of training by every way of counting: the exact ones first."""
    full, exact = Fraction(3 * report.full.total, report.tokens), report.exact_per_token
    ways = {"exact": ("exact", exact), "full": ("exact, attention over all pairs", full)}
    if report.training.hardware != report.training.model:
        ways["hardware"] = ("exact, and what is repeated", Fraction(report.training.hardware, report.tokens))
    return ways | {x.name: (x.title, Fraction(int(x.train))) for x in report.conventions}


def speed_of(report: FlopsReport, rate: Fraction, way: str) -> Fraction:
    """The tokens a second of one GPU that achieves this rate as one way counts."""
    ways = flops_by_convention(report)
    if way not in ways:
        near = nearest(way, ways)
        raise LlamathError(
            f"{safe(way, 60)!r} is no way to count here", hint=f"{'nearest' if near else 'known'}: {', '.join(near or ways)}"
        )
    return rate / ways[way][1]


def with_mfu(report: FlopsReport, speed: Throughput) -> FlopsReport:
    """Return the report with the MFU of a training run."""
    by = {x.name: ConventionMFU(flops_per_second=plain_number(x.rate), mfu=float(x.share)) for x in utilization(report, speed)}
    tokens = plain_number(speed.tokens)
    return report.replace(mfu=MFU(gpus=speed.gpus, gpu=speed.name, peak=speed.peak, tokens_per_second=tokens, by=by))


def utilization(report: FlopsReport, speed: Throughput) -> tuple[Utilization, ...]:
    """The MFU by every way of counting."""
    each = speed.tokens / speed.gpus
    return tuple(
        Utilization(name=name, title=title, per_token=worth, rate=each * worth, share=each * worth / speed.peak)
        for name, (title, worth) in flops_by_convention(report).items()
    )
