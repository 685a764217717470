"""How far the next-token probabilities of two models are apart, in the statistics that
`llama-perplexity --kl-divergence` prints.

A is the base model, B the other one. A position is a token with a token after it. KLD is KL(A‖B) in
nats; Δp is the difference of the probabilities of the token that follows, B's less A's; NLL is the
negative logarithm of this probability. Uncertainties are standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, fsum, sqrt
from typing import ClassVar, NamedTuple

from ....render.tables import Cell, Column, Part, Row, Table, Text
from ....utils.number_format import format_percent
from ....utils.record_type import Record

KLD_PERCENTS = (99.9, 99.0, 95.0, 90.0, 50.0, 10.0, 5.0, 1.0, 0.1)
DELTA_P_PERCENTS = (99.9, 99.0, 95.0, 90.0, 75.0, 50.0, 25.0, 10.0, 5.0, 1.0, 0.1)
"""The percentiles that are printed."""
_MIN_COUNT = 10
"""With fewer positions, an uncertainty is 0, as in llama.cpp."""


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float

    @property
    def exponential(self) -> Estimate:
        """The exponential, with its error."""
        return Estimate(exp(self.value), exp(self.value) * self.error)


class Percentile(NamedTuple):
    """The value below which this percentage of the values lie, interpolated linearly."""

    percent: float
    value: float


class Distribution(Record):
    """The mean, the extremes and percentiles of values."""

    mean: Estimate
    maximum: float
    minimum: float
    percentiles: tuple[Percentile, ...]


class Divergence(Record):
    """The statistics of two models on the same tokens."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "positions",
            "kld",
            "delta_p",
            "rms_delta_p",
            "same_top",
            "perplexity_a",
            "perplexity_b",
            "log_ratio",
            "ratio",
            "difference",
        ),
        "correlation",
    )

    positions: int
    kld: Distribution
    delta_p: Distribution
    rms_delta_p: Estimate
    same_top: Estimate  # share of positions with the same most likely token
    perplexity_a: Estimate
    perplexity_b: Estimate
    log_ratio: Estimate  # ln(PPL(B) / PPL(A))
    difference: Estimate  # PPL(B) − PPL(A)
    correlation: float  # of the NLLs of A and B

    @property
    def ratio(self) -> Estimate:
        """PPL(B) / PPL(A)."""
        return self.log_ratio.exponential


def divergence_statistics(
    kld: Sequence[float],
    p_a: Sequence[float],
    p_b: Sequence[float],
    nll_a: Sequence[float],
    nll_b: Sequence[float],
    same_top: int,
) -> Divergence:
    """Return the statistics of values at each position: KLD, the probabilities of the next
    token, their NLL.
    """
    n = len(kld)
    delta = [b - a for a, b in zip(p_a, p_b, strict=True)]
    squares = _mean([x * x for x in delta])
    rms = sqrt(squares.value)
    a, b = _mean(nll_a), _mean(nll_b)
    covariance = _covariance(nll_a, nll_b)
    ppl_a, ppl_b = a.exponential, b.exponential
    difference = ppl_a.error**2 + ppl_b.error**2 - 2 * ppl_a.value * ppl_b.value * covariance
    share = same_top / n
    return Divergence(
        positions=n,
        kld=_distribution(kld, KLD_PERCENTS),
        delta_p=_distribution(delta, DELTA_P_PERCENTS),
        rms_delta_p=Estimate(rms, 0.5 / rms * squares.error if rms else 0.0),
        same_top=Estimate(share, sqrt(share * (1 - share) / (n - 1)) if n > 1 else 0.0),
        perplexity_a=ppl_a,
        perplexity_b=ppl_b,
        log_ratio=Estimate(
            b.value - a.value, sqrt(max(0.0, a.error**2 + b.error**2 - 2 * covariance))
        ),
        difference=Estimate(ppl_b.value - ppl_a.value, sqrt(max(0.0, difference))),
        correlation=covariance / (a.error * b.error) if a.error and b.error else 0.0,
    )


def _mean(values: Sequence[float]) -> Estimate:
    """Return the mean and its standard error: √((E[x²] − E[x]²) / (n − 1))."""
    n = len(values)
    mean = fsum(values) / n
    variance = fsum((x - mean) ** 2 for x in values) / n
    return Estimate(mean, sqrt(variance / (n - 1)) if n > _MIN_COUNT else 0.0)


def _covariance(a: Sequence[float], b: Sequence[float]) -> float:
    n = len(a)
    if n < _MIN_COUNT:
        return 0.0
    mean_a, mean_b = fsum(a) / n, fsum(b) / n
    return fsum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True)) / n / (n - 1)


def _distribution(values: Sequence[float], percents: Sequence[float]) -> Distribution:
    ordered = sorted(values)
    return Distribution(
        mean=_mean(values),
        maximum=ordered[-1],
        minimum=ordered[0],
        percentiles=tuple(Percentile(x, _percentile(ordered, x / 100)) for x in percents),
    )


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value at this share of the ordered values, interpolated linearly."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def divergence_parts(x: Divergence) -> Iterator[Part]:
    """Yield the statistics as `llama-perplexity --kl-divergence` prints them: KLD and Δp side by
    side, and the perplexities.
    """
    columns = (
        Column(f"{x.positions:,} positions", key="of"),
        Column("KLD", "right", "kld"),
        Column("Δp, %", "right", "delta_p"),
    )
    yield Table(columns=columns, rows=tuple(_rows(x)))
    yield Text(f"same top token  {_with_error(x.same_top, 3, 100)}%", apart=True)
    perplexity = [
        ("perplexity of A", x.perplexity_a),
        ("perplexity of B", x.perplexity_b),
        ("PPL(B) / PPL(A)", x.ratio),
        ("ln(PPL(B) / PPL(A))", x.log_ratio),
        ("PPL(B) − PPL(A)", x.difference),
    ]
    yield Table(
        columns=(
            Column("", key="of"),
            Column("", "right", "value"),
            Column("error", shown=False),
        ),
        rows=tuple((name, _estimate(y, 6), y.error) for name, y in perplexity),
    )
    yield Text(f"correlation of ln PPL  {format_percent(x.correlation)}")


def _rows(x: Divergence) -> Iterator[Row]:
    yield _row("mean", _estimate(x.kld.mean, 6), _estimate(x.delta_p.mean, 3, 100))
    yield _row("maximum", _number(x.kld.maximum, 6), _number(x.delta_p.maximum, 3, 100))
    of_kld = {y.percent: _number(y.value, 6) for y in x.kld.percentiles}
    for y in x.delta_p.percentiles:
        name = "median" if y.percent == 50 else f"{y.percent:.1f}%"
        yield _row(name, of_kld.get(y.percent, Cell(None)), _number(y.value, 3, 100))
    yield _row("minimum", _number(x.kld.minimum, 6), _number(x.delta_p.minimum, 3, 100))
    yield _row("RMS", Cell(None), _estimate(x.rms_delta_p, 3, 100))


def _row(name: str, kld: Cell, delta_p: Cell) -> Row:
    return Row((name, kld, delta_p))


def _estimate(x: Estimate, digits: int, factor: float = 1.0) -> Cell:
    return Cell(factor * x.value, text=_with_error(x, digits, factor))


def _number(x: float, digits: int, factor: float = 1.0) -> Cell:
    return Cell(factor * x, text=_decimal(factor * x, digits))


def _with_error(x: Estimate, digits: int, factor: float = 1.0) -> str:
    return f"{_decimal(factor * x.value, digits)} ± {_decimal(factor * x.error, digits)}"


def _decimal(x: float, digits: int) -> str:
    """Return a number with this many decimals, as llama.cpp prints it, or with two significant
    digits if they would be too few.
    """
    return f"{x:.1e}" if 0 < abs(x) < 10 ** (1 - digits) else f"{x + 0.0:.{digits}f}"
