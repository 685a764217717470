"""What each operation of a template costs: the tables have every filter, test, method, expression, function and statement there is.

An operation whose work grows with its operands takes more off the budget when they double, in proportion, and before it does the work:
with a small budget it ends before anything of their size is made. Any other takes the same steps for operands of any size (`=`).
"""

from __future__ import annotations

import re
import sys
import tracemalloc
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from llamath.tokenizers.jinja import Limits, TemplateText
from llamath.tokenizers.jinja import evaluate_template as evaluation
from llamath.tokenizers.jinja.render_template import parse_template
from llamath.tokenizers.jinja.template_filters import _FILTERS, _TESTS
from llamath.tokenizers.jinja.template_methods import (
    _CHANGES_CASE,
    _METHODS,
    _QUESTIONS,
    CONTAINER_METHODS,
)
from llamath.tokenizers.jinja.template_values import Budget, BudgetExceeded, Namespace

FILTERS = {
    "abs": "=1|abs", "attr": "=ns|attr('a')", "batch": "i|batch(3)", "capitalize": "t|capitalize", "center": "l|map('center', 200)",
    "count": "=l|count", "d": "=t|d('x')", "default": "=t|default('x')", "dictsort": "d|dictsort", "first": "=l|first", "float": "one|float",
    "format": "pd|format(a=1)", "groupby": "ds|groupby('a')", "indent": "o|indent(200)", "int": "one|int", "items": "d|items", "join": "l|join(w)",
    "last": "=l|last", "length": "=l|length", "list": "i|list", "lower": "t|lower", "map": "i|map('string')", "max": "l|max", "min": "l|min",
    "reject": "i|reject('odd')", "rejectattr": "ds|rejectattr('a')", "replace": "t|replace('a', 'xyz')", "reverse": "o|reverse",
    "round": "=1.5|round(2)", "safe": "o|safe", "select": "i|select('odd')", "selectattr": "ds|selectattr('a')", "slice": "i|slice(3)",
    "sort": "l|sort", "string": "t|string", "sum": "i|sum", "title": "t|title", "tojson": "ls|tojson(indent=100)", "trim": "e|trim(e)",
    "unique": "l|unique", "upper": "t|upper", "wordcount": "t|wordcount",
}  # fmt: skip
TESTS = {
    "boolean": "=l is boolean", "callable": "=l is callable", "defined": "=l is defined", "divisibleby": "p is divisibleby(1)", "even": "p is even",
    "false": "=l is false", "float": "=l is float", "in": "'q' is in l", "integer": "=l is integer", "iterable": "=l is iterable",
    "lower": "t is lower", "mapping": "=d is mapping", "none": "=l is none", "number": "=l is number", "odd": "p is odd", "sameas": "t is sameas t2",
    "sequence": "=l is sequence", "string": "=t is string", "true": "=l is true", "undefined": "=l is undefined", "upper": "t is upper",
    **{x: f"l is {x}(l2)" for x in "eq equalto ne lt lessthan le gt greaterthan ge".split()},
}  # fmt: skip
METHODS = {
    **{x: f"t.{x}()" for x in _CHANGES_CASE | _QUESTIONS}, **{x: f"t.{x}('q')" for x in ("count", "find", "rfind")},
    **{x: f"t.{x}('a')" for x in ("index", "rindex")}, **{x: f"w.{x}(many)" for x in ("startswith", "endswith")},
    **{x: f"{{% for x in l %}}{{% set y = x.{x}(200) %}}{{% endfor %}}" for x in ("center", "ljust", "rjust", "zfill")},
    **{x: f"e.{x}(e)" for x in ("strip", "lstrip", "rstrip", "removeprefix", "removesuffix")}, "expandtabs": "tabs.expandtabs(200)",
    "format": "pb.format(a=1)", "join": "w.join(l)", "split": "t.split()", "rsplit": "t.rsplit('a')", "splitlines": "t.splitlines()",
    "partition": "t.partition('q')", "rpartition": "t.rpartition('q')", "replace": "t.replace('a', 'xyz')", "dict.copy": "d.copy()",
    "dict.fromkeys": "{}.fromkeys(r)", "dict.get": "{}.get(u)", "dict.items": "=d.items()", "dict.keys": "=d.keys()", "dict.values": "=d.values()",
    "list.copy": "l.copy()", "list.count": "l.count('q')", "list.index": "l.index(l[-1])", "tuple.count": "u.count('q')", "tuple.index": "u.index(u[-1])",
}  # fmt: skip
EXPRESSIONS = {
    "Const": "=1", "TemplateData": "", "Name": "=l", "List": "=[l, l]", "Tuple": "=(l, l)", "Dict": "{u: 1}", "CondExpr": "=l if l else t",
    "And": "=l and t", "Or": "=l or t", "Not": "=not l", "Neg": "=-1", "Pos": "=+1", "Concat": "t ~ ls", "Getattr": "=ns.a", "Getitem": "=l[1]",
    "Call": "dict(d)", "Filter": "", "Test": "", "Add": "l + l2", "Sub": "=2 - 1", "Mul": "o * 2", "Div": "=1 / 2", "FloorDiv": "=1 // 2",
    "Mod": "pd % {'a': 1}", "Pow": "=2 ** 3", "Compare": "d.items() == d2.items()",
    **{f"Compare {x}": f"ls {x} ls2" for x in ("==", "!=", "<", "<=", ">", ">=")}, "Compare in text": "w in t", "Compare in dict": "u in d",
    "Compare in range": "1.5 in r", "Add text": "t + o", "Add safe text": "sf + t", "Getitem key": "{}[u]", "Getitem slice": "l[1:]",
    "Getitem slice of text": "o[1:]", "Call loop.changed": "{% for x in [1, 2] %}{% set y = loop.changed(ls) %}{% endfor %}",
}  # fmt: skip
GLOBALS = {
    "range": "=range(9)", "dict": "dict(d)", "namespace": "namespace(d)", "joiner": "joiner(t)", "cycler": "cycler(*l)",
    "raise_exception": "", "strftime_now": "strftime_now(pt)",
}  # fmt: skip
STATEMENTS = {
    "Output": "{{ t }}", "If": "", "For": "{% for x in o %}{% endfor %}", "Assign": "=l", "AssignBlock": "{% set x %}{{ t }}{% endset %}", "With": "",
    "Macro": "{% for x in i %}{% macro f() %}" + "{{ a.b.c }}" * 50 + "{% endmacro %}{% endfor %}", "FilterBlock": "{% filter upper %}{{ t }}{% endfilter %}",
    "CallBlock": "{% macro f() %}{{ caller() }}{% endmacro %}{% for x in i %}{% call f() %}a{% endcall %}{% endfor %}",
    "Scope": "{% generation %}{{ t }}{% endgeneration %}", "Break": "", "Continue": "",
}  # fmt: skip
TABLES = {
    "filter": FILTERS,
    "test": TESTS,
    "method": METHODS,
    "expression": EXPRESSIONS,
    "function": GLOBALS,
    "statement": STATEMENTS,
}
SIZE = 250
MOST_LINES = 16
"""Lines of Python that one operation of the budget may stand for."""


@cache
def variables(n: int) -> dict[str, Any]:
    """Operands of this size: text of a user and of the template, formats, lists, dicts and their copies."""
    words = [f"{'a' * 20}{i:06}" for i in range(n)]
    ends = "".join(chr(1000 + i) for i in range(n))
    data: dict[str, Any] = {
        "t": "ab \n" * (n // 2), "t2": "ab \n" * n, "o": TemplateText("xy \n" * (n // 2)), "e": ends, "w": "ab" * 50, "many": ("abc" * 30,) * n,
        "p": TemplateText("%5d" + " " * n), "pd": TemplateText("%(a)99d" * n), "pb": TemplateText("{a:99}" * n), "pt": TemplateText("%Y" * n),
        "tabs": TemplateText("\t" * n), "one": "1" * n, "sf": evaluation.texts.mark_safe(TemplateText("&" * n)), "i": list(range(n)), "r": range(n),
        "l": words, "l2": list(words), "ls": [["a"] for _ in range(n)], "ls2": [["a"] for _ in range(n)], "u": tuple(words), "d": dict.fromkeys(words, 1),
        "d2": dict.fromkeys(words, 1), "ds": [{"a": x} for x in words], "ns": Namespace({"a": words}),
    }  # fmt: skip
    data["t2"] = data["t"][:1] + data["t"][1:]  # equal, and another object
    return data


def evaluate(template: str, n: int, operations: int = 1 << 30) -> Budget:
    budget = Budget(Limits(operations=operations), 0)
    run = evaluation.Evaluator(budget, variables(n), datetime(2026, 1, 1))
    tree = parse_template(template)
    try:
        run.render(tree)
    except (BudgetExceeded, ValueError) as error:
        if not re.search("bits|digits", str(error)):  # a text of so many digits is no number
            raise
    return budget


def cost(template: str, n: int) -> tuple[int, int]:
    """The operations that are charged, and the lines of the evaluator that are executed."""
    lines = 0

    def count(frame: Any, event: str, _: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return (
            count
            if "/jinja/" in frame.f_code.co_filename and "jinja2" not in frame.f_code.co_filename
            else None
        )

    parse_template(template)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        budget = evaluate(template, n)
    finally:
        sys.settrace(before)
    return budget.total - budget.left, lines


def peak_of_refusal(template: str, n: int) -> int:
    """The most bytes in use until a small budget is exceeded."""
    variables(n)
    parse_template(template)
    tracemalloc.start()
    try:
        evaluate(template, n, operations=400)
    except BudgetExceeded as error:
        assert "operations" in str(error)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    raise AssertionError("expected that the budget is exceeded")


def test_tables_have_every_operation() -> None:
    run = evaluation.Evaluator(Budget(Limits(), 0), {}, datetime(2026, 1, 1))
    assert FILTERS.keys() == _FILTERS.keys()
    assert TESTS.keys() == {x for x in _TESTS if x.isidentifier()}
    methods = {f"{kind.__name__}.{x}" for kind, names in CONTAINER_METHODS.items() for x in names}
    assert METHODS.keys() == _CHANGES_CASE | _QUESTIONS | _METHODS.keys() | methods
    assert {x for x in EXPRESSIONS if " " not in x} == {x.__name__ for x in evaluation._EXPRESSIONS}
    assert GLOBALS.keys() == run._globals().keys()
    assert STATEMENTS.keys() == {x.__name__ for x in evaluation._STATEMENTS}


@pytest.mark.slow
def test_work_is_charged_in_proportion_and_before_it_is_done() -> None:
    wrong = []
    for kind, table in TABLES.items():
        for name, text in table.items():
            if not text:
                continue
            template = (
                text if text.startswith(("{%", "{{")) else f"{{% set y = {text.lstrip('=')} %}}"
            )
            (charged, lines), (more_charged, more_lines) = (
                cost(template, SIZE),
                cost(template, 2 * SIZE),
            )
            what = f"{kind} {name}: {charged} → {more_charged} operations, {lines} → {more_lines} lines"
            if text.startswith("="):
                wrong += [what] if (charged, lines) != (more_charged, more_lines) else []
                continue
            grows = (
                SIZE / 10 < more_charged - charged < 1.6 * charged
                and more_lines - lines < MOST_LINES * (more_charged - charged)
            )
            peak = peak_of_refusal(template, 100 * SIZE)
            wrong += [] if grows and peak < 1 << 14 else [f"{what}, {peak:,} bytes"]
    assert not wrong, "\n".join(wrong)
