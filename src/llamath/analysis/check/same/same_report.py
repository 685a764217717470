"""Report of `llamath same`: whether two checkpoints hold the same weights, and if not, where and
why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list, format_percent, short_count
from ....utils.record_type import Record
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
            "model=a.model",
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

    @property
    def headline(self) -> str:
        """The verdict in words."""
        return self.answer

    @property
    def setting(self) -> str:
        """Both sides."""
        return f"{_side(self.a, 'A')}\n{_side(self.b, 'B')}"

    @property
    def entries(self) -> Sequence[WeightDifference]:
        """The weights that differ, or are equal within rounding."""
        return self.differences

    def __bool__(self) -> bool:
        return self.same

    def tables(self) -> Iterable[Part]:
        """The rounded types, the likely causes, and the weights that differ."""
        if self.rounded_types:
            yield Table(columns=_ROUNDED, rows=tuple(map(_rounded_cells, self.rounded_types)))
        if self.causes:
            yield Table(
                title="likely causes",
                columns=(Column("", key="cause", wrap=True),),
                rows=tuple((x.message,) for x in self.causes),
                most=_MAX_ROWS,
            )
        ranked = sorted(self.differences, key=lambda x: x.verdict != "different")
        yield Table(
            columns=_DIFFERENCES,
            rows=tuple(map(_difference_cells, ranked)),
            most=min(self.different, _MAX_ROWS),
        )
        for letter, paths in (("A", self.only_in_a), ("B", self.only_in_b)):
            if paths:
                count = format_count(len(paths), "weight")
                text = f"{count} only in {letter}: {format_list(paths, 6)}"
                yield Text(text, apart=True, hanging="  ")


_MAX_ROWS = 12
"""The most weights that a terminal lists."""
_ROUNDED = (
    Column("within rounding", key="dtypes"),
    Column("weights", "count"),
    Column("relative error", "2 digits", "relative_error", drop=2),
    Column("of the bound", "percent", "share_of_bound", drop=1),
)
_DIFFERENCES = (
    Column("weight"),
    Column("verdict", shown=False),
    Column("differ", "count", "values that differ", drop=1),
    Column("of", "count", "values", drop=1),
    Column("beyond bound", shown=False),
    Column("relative error", "2 digits", drop=2),
    Column("cause"),
)


def _rounded_cells(x: RoundedType) -> tuple[Any, ...]:
    share = Cell(x.share_of_bound, text=None if x.share_of_bound else "within half a step")
    return f"{x.dtype_a} in A, {x.dtype_b} in B", x.weights, x.relative_error, share


def _difference_cells(x: WeightDifference) -> tuple[Any, ...]:
    if not x.elements:
        return x.path, x.verdict, None, None, None, None, x.cause
    rank = f", rank {x.rank}" if x.cause == "low rank" else ""
    figures = (x.differing, x.elements, x.beyond, x.relative_error)
    return x.path, x.verdict, *figures, x.cause + rank


def _side(x: SideFacts, letter: str) -> str:
    shares = [f"{name} {share}" if len(x.dtypes) > 1 else name for name, share in _shares(x)]
    merged = f"{x.adapter} merged with {x.base}: " if x.adapter else ""
    return (
        f"{letter}  {x.path}: {merged}{x.family}, {short_count(x.elements)}, "
        f"{x.format}, {x.names} names, {format_list(shares, 3)}"
    )


def _shares(x: SideFacts) -> Iterator[tuple[str, str]]:
    for name, n in x.dtypes.items():
        share = n / max(1, x.elements)
        yield name, format_percent(share, 0) if share >= 0.01 else "< 1%"
