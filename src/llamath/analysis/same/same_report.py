"""Report of `llamath same`: whether two checkpoints hold the same weights, and if not, where and
why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from ...utils.errors import safe
from ...utils.number_format import format_count
from ...utils.record_type import Record
from ...utils.report import Report, html_table
from .compared_side import SideFacts


class Cause(Record):
    """A likely reason of differences, and the weights that it explains."""

    code: str
    message: str
    paths: tuple[str, ...]


class WeightDifference(Record):
    """A weight that is not bit-identical."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "path",
            "verdict",
            "cause",
            "stored_a",
            "stored_b",
            "dtype_a",
            "dtype_b",
            "shape_a",
            "shape_b",
            "elements",
            "differing",
            "beyond",
        ),
        *(
            "max_difference",
            "relative_error",
            "cosine",
            "share_of_bound",
            "first",
            "rank",
            "rank_limit",
        ),
    )

    path: str
    verdict: str  # rounding or different
    stored_a: str
    stored_b: str
    dtype_a: str
    dtype_b: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    elements: int = 0
    differing: int = 0
    beyond: int = 0  # number of values beyond the rounding bound
    max_difference: float = 0.0
    relative_error: float = 0.0
    cosine: float = 1.0
    share_of_bound: float = 0.0  # of the value that uses most of its bound
    first: tuple[int, ...] | None = None  # index of the first value beyond its bound
    rows: int = 0  # with values beyond the bound
    rank: int | None = None  # numerical rank of the difference in a sample
    rank_limit: int = 0  # the smaller side of the sample
    cause: str = ""


class RoundedType(Record):
    """The weights of one pair of dtypes that are equal within rounding."""

    dtype_a: str
    dtype_b: str
    weights: int
    share_of_bound: float
    relative_error: float  # the largest of a weight


class SameReport(Report):
    """The comparison of two checkpoints."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "verdict",
            "same",
            "a",
            "b",
            "compared",
            "identical",
            "within_rounding",
            "different",
            "only_in_a",
            "only_in_b",
        ),
        *(
            "others_compared",
            "others_only_in_a",
            "others_only_in_b",
            "rounded_types",
            "causes",
            "differences",
            "notes",
        ),
    )

    a: SideFacts
    b: SideFacts
    compared: int
    identical: int
    differences: tuple[WeightDifference, ...]
    only_in_a: tuple[str, ...] = ()
    only_in_b: tuple[str, ...] = ()
    others_compared: int = 0  # stored tensors outside of the model's tree, compared by name
    others_only_in_a: tuple[str, ...] = ()
    others_only_in_b: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def within_rounding(self) -> int:
        """The number of weights that are equal within rounding."""
        return sum(x.verdict == "rounding" for x in self.differences)

    @property
    def different(self) -> int:
        """The number of weights that differ by more than rounding."""
        return len(self.differences) - self.within_rounding

    @property
    def verdict(self) -> str:
        """The verdict: identical, rounding or different."""
        if self.different or self.only_in_a or self.only_in_b:
            return "different"
        return "rounding" if self.differences else "identical"

    @property
    def same(self) -> bool:
        """Whether the checkpoints hold the same weights, at least within rounding."""
        return self.verdict != "different"

    @property
    def rounded_types(self) -> tuple[RoundedType, ...]:
        """The weights that are equal within rounding, by dtypes."""
        groups: dict[tuple[str, str], list[WeightDifference]] = {}
        for x in self.differences:
            if x.verdict == "rounding":
                groups.setdefault((x.dtype_a, x.dtype_b), []).append(x)
        return tuple(
            RoundedType(
                dtype_a=a,
                dtype_b=b,
                weights=len(x),
                share_of_bound=max(y.share_of_bound for y in x),
                relative_error=max(y.relative_error for y in x),
            )
            for (a, b), x in groups.items()
        )

    @property
    def answer(self) -> str:
        """The verdict in words."""
        if self.verdict == "identical":
            return f"identical: {format_count(self.compared, 'weight')} have the same values"
        if self.verdict == "rounding":
            equal = f"{self.identical:,} identical, " if self.identical else ""
            return (
                "equal within rounding: "
                f"{equal}{format_count(self.within_rounding, 'weight')} within the bounds of "
                "their types"
            )
        parts = (
            [f"{self.different:,} of {format_count(self.compared, 'weight')} differ"]
            if self.different
            else []
        )
        parts += [
            f"{format_count(len(x), 'weight')} only in {name}"
            for name, x in (("A", self.only_in_a), ("B", self.only_in_b))
            if x
        ]
        return f"different: {', '.join(parts)}"

    @property
    def summary(self) -> str:
        """The verdict and the first cause in one line."""
        cause = f"; {self.causes[0].message}" if self.causes else ""
        return f"{safe(self.a.path)} and {safe(self.b.path)}: {self.answer}{cause}"

    def html_tables(self) -> Iterable[str]:
        """The weights that differ."""
        rows = [
            (x.path, x.verdict, x.differing, x.beyond, f"{x.relative_error:.3g}", x.cause)
            for x in self.differences
        ]
        yield html_table(
            ("weight", "verdict", "values that differ", "beyond bound", "relative error", "cause"),
            rows,
        )
