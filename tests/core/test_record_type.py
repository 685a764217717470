"""`Record.to_json`, and the base class of reports."""

from __future__ import annotations

import copy
import json
import pickle
import typing
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from llamath.core.expr import Expr
from llamath.render.report import Report
from llamath.render.tables import Column, Part, Row, Table, Text
from llamath.utils.named_tuple import NamedTuple
from llamath.utils.record_type import Record, encode_json


class Span(NamedTuple):
    first: int
    last: int


class Timing(Record):
    step: Fraction
    spans: tuple[Span, ...] = ()


class Plan(Record):
    json_fields = ("name", "width=shape.width", "*timing", "double", "best=nothing.at.all")

    name: str
    shape: Any
    timing: Timing | None
    nothing: None = None

    @property
    def double(self) -> int:
        return 2 * self.shape.width


class Shape(Record):
    width: Expr
    letters: Mapping[str, int] = {}


SHAPE = Shape(width=Expr("d", 8), letters={"d": Expr("d", 8)})


def test_default_json_has_every_field_in_order() -> None:
    assert json.dumps(SHAPE.to_json()) == '{"width": 8, "letters": {"d": 8}}'


def test_json_fields_rename_follow_paths_and_merge() -> None:
    timing = Timing(step=Fraction(1, 4), spans=(Span(0, 3),))
    result = Plan(name="a", shape=SHAPE, timing=timing).to_json()
    assert result == {
        "name": "a",
        "width": 8,
        "step": 0.25,
        "spans": [{"first": 0, "last": 3}],
        "double": 16,
        "best": None,
    }
    assert list(Plan(name="a", shape=SHAPE, timing=None).to_json()) == [
        "name",
        "width",
        "double",
        "best",
    ]


def test_json_values_are_plain_types() -> None:
    result = encode_json([Expr("H", 32), True, {"b", "a"}, (x for x in (1, 2)), None, 0.5])
    assert result == [32, True, ["a", "b"], [1, 2], None, 0.5]
    assert [type(x) for x in result] == [int, bool, list, list, type(None), float]


def test_json_refuses_values_without_a_form() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        encode_json(object())


class Total(Report):
    model: str
    total: int

    @property
    def summary(self) -> str:
        return f"{self.model}, {self.total:,} parameters"

    def tables(self) -> Iterable[Part]:
        columns = (Column("weight"), Column("", "count", "parameters"), Column("dims", "shape"))
        rows = (Row(("<b>", self.total, (2, 3)), is_sum=True), ("q & k", 7, None), ("v", None, ()))
        yield Table(columns=columns, rows=rows)
        yield Text("<i>")

    def __bool__(self) -> bool:
        return self.total > 0


def test_report_has_a_one_line_repr() -> None:
    assert repr(Total(model="a", total=1000)) == "<Total: a, 1,000 parameters>"


def test_report_html_is_escaped_and_numbers_are_flushed_right() -> None:
    html = Total(model="<script>", total=1000)._repr_html_()
    assert "</style><p>&lt;script&gt;, 1,000 parameters</p><table" in html
    assert "&lt;b&gt;" in html and "q &amp; k" in html and "<b>" not in html and "<i>" not in html
    assert html.count("class=n>") == 4 and html.count("<tr class=b>") == 1 and ">1,000</td>" in html


def test_report_prints_its_tables_and_iterates_over_its_rows() -> None:
    found = Total(model="a", total=1000)
    assert str(found) == (
        "a, 1,000 parameters\n\nweight         dims\n<b>     1,000  2×3\nq & k       7\nv\n<i>"
    )
    rows = [
        {"weight": "q & k", "parameters": 7, "dims": None},
        {"weight": "v", "parameters": None, "dims": []},
    ]
    assert found.rows() == list(found) == rows and found[0] == rows[0] and found[-1:] == rows[1:]
    assert len(found) == 2 and found and not Total(model="a", total=0)


class Pair(NamedTuple):
    """Two numbers."""

    first: int
    second: int = 2

    @property
    def total(self) -> int:
        return self.first + self.second


class TypingPair(typing.NamedTuple):
    first: int
    second: int = 2


def test_named_tuples_behave_as_those_of_typing() -> None:
    ours, theirs = Pair(5, second=7), TypingPair(5, 7)
    assert ours == theirs == (5, 7)
    assert (ours.first, ours.total, Pair(5)) == (5, 12, (5, 2))
    assert ours._asdict() == theirs._asdict()
    assert ours._replace(second=3) == theirs._replace(second=3)
    assert pickle.loads(pickle.dumps(ours)) == copy.copy(ours) == Pair._make((5, 7)) == ours
    assert type(copy.copy(ours)) is Pair
    assert repr(ours) == "Pair(first=5, second=7)"
    assert not hasattr(ours, "__dict__")
    for wrong in (lambda: Pair(), lambda: Pair(1, 2, 3), lambda: Pair(1, third=3)):
        with pytest.raises(TypeError, match=r"Pair\.__new__\(\)"):
            wrong()
    with pytest.raises(ValueError, match="third"):
        ours._replace(third=3)
