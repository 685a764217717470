"""Scaling laws: the compute-optimal number of training tokens for a model of N parameters, by five
published fits.

Compute is C = 6·N·D floating-point operations for N parameters and D tokens (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1). Each law is a fit to its authors' own data and training setup;
outside their model sizes it is an extrapolation.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import ClassVar

from ....utils.errors import LlamathError, nearest, safe
from ....utils.record_type import Record

_PF_DAY = 8.64e19
_CHINCHILLA = "Hoffmann et al. 2022, arXiv:2203.15556"
_CHINCHILLA_DATA = "fitted to over 400 models of 70M to 16B parameters and 5B to 500B tokens"

_APPROACH_1 = (
    (400e6, 1.92e19), (1e9, 1.21e20), (10e9, 1.23e22), (67e9, 5.76e23), (175e9, 3.85e24),
    (280e9, 9.90e24), (520e9, 3.43e25), (1e12, 1.27e26), (10e12, 1.30e28),
)  # fmt: skip
"""Parameters and training FLOPs as table 3 of Hoffmann et al. prints them."""

_APPROACH_2 = (
    (400e6, 1.84e19), (1e9, 1.20e20), (10e9, 1.32e22), (67e9, 6.88e23), (175e9, 4.54e24),
    (280e9, 1.18e25), (520e9, 4.19e25), (1e12, 1.59e26), (10e12, 1.75e28),
)  # fmt: skip
"""The same data from their table A3."""


class ScalingLaw(Record):
    """A scaling law: the compute-optimal tokens for a model size, with its source."""

    name: str
    says: str
    source: str
    trained: str
    sizes: tuple[float, float]  # of the models that it was fitted to
    curve: Callable[[float], float]  # ln parameters → ln tokens

    def tokens(self, parameters: float) -> float:
        """Return the compute-optimal number of tokens for a model of this size."""
        return exp(self.curve(log(parameters)))

    def for_compute(self, flops: float) -> float:
        """Return the compute-optimal model size for this compute."""
        return self._solve(lambda n: n + self.curve(n), log(flops / 6))

    def for_tokens(self, tokens: float) -> float:
        """Return the compute-optimal model size for this number of tokens."""
        return self._solve(self.curve, log(tokens))

    def extrapolates(self, parameters: float) -> bool:
        """Return whether a size is outside the range that the law was fitted to."""
        return not self.sizes[0] <= parameters <= self.sizes[1]

    def _solve(self, function: Callable[[float], float], goal: float) -> float:
        low, high = -50.0, 150.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if function(middle) < goal else (low, middle)
        return exp(low)


class _InterpolatedTable(Record):
    """Straight lines between the logarithms of a printed table, extended at its mean slope."""

    rows: tuple[tuple[float, float], ...]  # (parameters, training FLOPs)

    def __call__(self, x: float) -> float:
        """Return ln tokens for ln parameters."""
        points = [(log(n), log(c / (6 * n))) for n, c in self.rows]
        (x0, y0), (x1, y1) = points[0], points[-1]
        slope = (y1 - y0) / (x1 - x0)
        if x <= x0 or x >= x1:
            return y0 + slope * (x - x0) if x <= x0 else y1 + slope * (x - x1)
        i = next(i for i, point in enumerate(points) if x <= point[0])
        (a, low), (b, high) = points[i - 1], points[i]
        return low + (high - low) * (x - a) / (b - a)


class ParametricLoss(Record):
    """The minimum of E + A/N^alpha + B/D^beta for a given N·D: alpha·A/N^alpha = beta·B/D^beta."""

    A: float
    B: float
    alpha: float
    beta: float

    def __call__(self, x: float) -> float:
        """Return ln tokens for ln parameters."""
        return (log(self.beta * self.B / (self.alpha * self.A)) + self.alpha * x) / self.beta


def _kaplan(x: float) -> float:
    """N = 1.3e9 · C_min^0.73 with C_min in PF-days; a batch of the critical size takes C =
    2·C_min (their sections 5.1 and 6.1).
    """
    return log(2 * _PF_DAY) + (x - log(1.3e9)) / 0.73 - log(6) - x


LAWS = {
    law.name: law
    for law in (
        ScalingLaw(
            name="hoffmann-1",
            says="minima of training curves (N ∝ C^0.50), through the printed table 3",
            source=_CHINCHILLA,
            trained=_CHINCHILLA_DATA,
            sizes=(70e6, 16e9),
            curve=_InterpolatedTable(rows=_APPROACH_1),
        ),
        ScalingLaw(
            name="hoffmann-2",
            says="profiles of equal FLOPs (N ∝ C^0.49), through the printed table A3",
            source=_CHINCHILLA,
            trained=_CHINCHILLA_DATA,
            sizes=(70e6, 16e9),
            curve=_InterpolatedTable(rows=_APPROACH_2),
        ),
        ScalingLaw(
            name="hoffmann-3",
            says="parametric loss (N ∝ C^0.46), unrounded: A 406.401, B 410.723, α 0.339171, β "
            "0.284908; 6 to 19% above their table A3",
            source=f"{_CHINCHILLA}; the unrounded values are those of its TeX source, quoted by "
            "arXiv:2404.10102",
            trained=_CHINCHILLA_DATA,
            sizes=(70e6, 16e9),
            curve=ParametricLoss(A=406.401018, B=410.722827, alpha=0.33917084, beta=0.2849083),
        ),
        ScalingLaw(
            name="besiroglu",
            says="the same loss fitted again: A 482.01, B 2085.43, α 0.3478, β 0.3658",
            source="Besiroglu et al. 2024, arXiv:2404.10102",
            trained="fitted to 240 of the same models, read off a figure",
            sizes=(70e6, 16e9),
            curve=ParametricLoss(A=482.01, B=2085.43, alpha=0.3478, beta=0.3658),
        ),
        ScalingLaw(
            name="kaplan",
            says="N = 1.3e9·C^0.73, C in PF-days at the critical batch, N without embeddings",
            source="Kaplan et al. 2020, arXiv:2001.08361",
            trained="fitted to models of up to 1.5B parameters without embeddings and 22M to 23B "
            "tokens",
            sizes=(768, 1.5e9),
            curve=_kaplan,
        ),
    )
}
DEFAULT_LAW = "hoffmann-1"


def find_law(name: str) -> ScalingLaw:
    """Return the law with this name."""
    if law := LAWS.get(name):
        return law
    near = nearest(name, LAWS)
    raise LlamathError(
        f"unknown scaling law {safe(name)!r}",
        hint=f"{'nearest' if near else 'known'}: {', '.join(near or LAWS)}",
    )


class TrainingBudget(Record):
    """The tokens and the compute of a model's training, and the optima of a scaling law."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "parameters",
            "tokens",
            "flops",
            "tokens_per_parameter",
            "law=law.name",
            "source=law.source",
            "trained=law.trained",
        ),
        *(
            "optimal_tokens=rounded_optimal_tokens",
            "optimal_parameters=rounded_optimal_parameters",
            "extrapolated",
        ),
    )

    parameters: int  # active
    tokens: int
    flops: int
    law: ScalingLaw
    optimal_tokens: float  # for the parameters
    optimal_parameters: float  # for the compute

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens per parameter, to four digits."""
        return round(self.per_parameter, 4)

    @property
    def rounded_optimal_tokens(self) -> int:
        """The optimal tokens, whole."""
        return round(self.optimal_tokens)

    @property
    def rounded_optimal_parameters(self) -> int:
        """The optimal parameters, whole."""
        return round(self.optimal_parameters)

    @property
    def extrapolated(self) -> bool:
        """Return whether the model is outside the sizes that the law was fitted to."""
        return self.law.extrapolates(self.parameters)

    @property
    def per_parameter(self) -> float:
        """Tokens per parameter."""
        return self.tokens / self.parameters


def training_budget(
    parameters: int, law: ScalingLaw, tokens: int | None = None, flops: int | None = None
) -> TrainingBudget:
    """Return the budget of a model; without tokens or compute, those that the law recommends."""
    num_tokens = tokens or (
        max(flops // (6 * parameters), 1) if flops else round(law.tokens(parameters))
    )
    compute = 6 * parameters * num_tokens
    return TrainingBudget(
        parameters=parameters,
        tokens=num_tokens,
        flops=compute,
        law=law,
        optimal_tokens=law.tokens(parameters),
        optimal_parameters=law.for_compute(compute),
    )
