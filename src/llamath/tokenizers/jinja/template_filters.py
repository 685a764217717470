"""The filters and tests of Jinja, with transformers' `tojson`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from . import template_text as texts
from .template_methods import format_percent, join_texts, lines_of, replace_text, strip_text
from .template_text import derived
from .template_values import Function, Group, Loop, TemplateError, Undefined

if TYPE_CHECKING:
    from .evaluate_template import Evaluator

Filter = Callable[..., Any]
_WORDS = re.compile(r"\w+")
_WORD_BEGINNINGS = re.compile(r"([-\s({\[<]+)")


def _tojson(
    run: Evaluator,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    if not isinstance(indent, int | str | None):
        raise TemplateError(f"tojson: expected an indentation, found {type(indent).__name__}")
    width = 0 if indent is None else len(indent) if isinstance(indent, str) else max(0, indent)
    run.budget.check_padding(width)
    parts = _separators(separators)
    before = run.budget.left
    run.budget.charge_value(value, indent=width, separators=sum(map(len, parts or ())))
    if sort_keys:
        _charge_comparisons(
            run, before, len(value) if isinstance(value, Mapping) else before - run.budget.left
        )
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=parts, sort_keys=sort_keys
    )
    run.budget.charge_text(len(text))
    return derived(text, value) if isinstance(value, str) else text


def _separators(value: Any) -> tuple[str, str] | None:
    if value is None:
        return None
    item, key = value
    if not isinstance(item, str) or not isinstance(key, str):
        raise TemplateError("tojson: expected two separators, texts")
    return item, key


def _default(_: Evaluator, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _length(run: Evaluator, value: Any) -> int:
    if not hasattr(value, "__len__"):
        raise TemplateError(
            f"length: expected text, a list or a dict, found {type(value).__name__}"
        )
    run.budget.charge(1)
    return len(value)


def _trim(run: Evaluator, value: Any, chars: str | None = None) -> str:
    return strip_text(run.budget, run.to_text(value), chars)


def _case(name: str) -> Filter:
    def change(run: Evaluator, value: Any) -> str:
        text = run.to_text(value)
        return texts.change_case(text, getattr(str, name)(text))

    return change


def _join(run: Evaluator, value: Any, d: Any = "", attribute: Any = None) -> str:
    items = run.iterate(value)
    if attribute is not None:
        items = [run.attribute_path(x, attribute) for x in items]
    return join_texts(run.budget, run.to_text(d), map(run.to_text, items))


def _replace(run: Evaluator, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    return replace_text(
        run.budget,
        run.to_text(value),
        run.to_text(old),
        run.to_text(new),
        -1 if count is None else count,
    )


def _indent(
    run: Evaluator, value: Any, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    run.budget.check_padding(width if isinstance(width, int) else len(width))
    if not isinstance(value, str):
        raise TemplateError(f"indent: expected text, found {type(value).__name__}")
    text = value
    prefix = texts.TemplateText(" " * width) if isinstance(width, int) else width
    run.budget.charge_text(len(text))
    newline = texts.TemplateText("\n")
    lines = lines_of(run.budget, texts.concat([text, newline]))
    run.budget.charge_text(len(text) + len(lines) * (len(prefix) + 1))
    if blank:
        joined = texts.join(texts.concat([newline, prefix]), lines)
    else:
        rest = [texts.concat([prefix, x]) if x else x for x in lines[1:]]
        joined = texts.join(newline, [lines[0], *rest])
    return texts.concat([prefix, joined]) if first else joined


def _first(run: Evaluator, value: Any) -> Any:
    if isinstance(value, str):
        return texts.cut(value, 0) if value else Undefined("the first item of an empty text")
    return next(iter(run.iterable(value)), Undefined("the first item of an empty list"))


def _last(run: Evaluator, value: Any) -> Any:
    if isinstance(value, str):
        return texts.cut(value, -1) if value else Undefined("the last item of an empty text")
    run.budget.charge(1)
    return next(iter(reversed(value)), Undefined("the last item of an empty list"))


def _reverse(run: Evaluator, value: Any) -> Any:
    if isinstance(value, str):
        run.budget.charge_text(len(value))
        return texts.with_origins(value[::-1], texts.origins_of(value)[::-1])
    return iter(run.iterate(value)[::-1])


def _map(run: Evaluator, value: Any, *args: Any, **kwargs: Any) -> Any:
    if not args and "attribute" in kwargs:
        unknown = set(kwargs) - {"attribute", "default"}
        if unknown:
            raise TemplateError(f"map: unexpected argument {min(unknown)!r}")
        default = kwargs.get("default")
        found = [run.attribute_path(x, kwargs["attribute"]) for x in _items_of(run, value)]
        return iter(
            [default if isinstance(x, Undefined) and default is not None else x for x in found]
        )
    if not args:
        raise TemplateError("map requires a filter argument")
    return iter([run.filter(args[0], x, args[1:], kwargs) for x in _items_of(run, value)])


def _items_of(run: Evaluator, value: Any) -> list[Any]:
    """Return the items of a value; of None and the like, there are none."""
    return run.iterate(value) if value else []


def _title(run: Evaluator, value: Any) -> str:
    text = run.to_text(value)
    return texts.change_case(
        text, "".join(x[:1].upper() + x[1:].lower() for x in _WORD_BEGINNINGS.split(text))
    )


def _select(keep: bool, by_attribute: bool) -> Filter:
    def select(run: Evaluator, value: Any, *args: Any, **kwargs: Any) -> Any:
        name, rest = (args[0], args[1:]) if by_attribute and args else (None, args)
        if by_attribute and name is None:
            raise TemplateError("Missing parameter for attribute name")
        chosen = []
        for item in _items_of(run, value):
            subject = run.attribute_path(item, name) if by_attribute else item
            holds = run.test(rest[0], subject, rest[1:], kwargs) if rest else bool(subject)
            if holds == keep:
                chosen.append(item)
        return iter(chosen)

    return select


def _sort_key(run: Evaluator, attribute: Any, case_sensitive: bool) -> Callable[[Any], Any]:
    paths: list[Any] = [attribute]
    if isinstance(attribute, str):
        run.budget.charge(1 + len(attribute))
        paths = attribute.split(",")

    def lowered(value: Any) -> Any:
        run.budget.charge_value(value)
        return value.lower() if isinstance(value, str) and not case_sensitive else value

    def key(item: Any) -> Any:
        keys = [lowered(item if path is None else run.attribute_path(item, path)) for path in paths]
        return keys if len(keys) > 1 else keys[0]

    return key


def _charge_sorting(run: Evaluator, items: list[Any]) -> None:
    """Take the comparisons of a sort off the budget: as many of each item as the number of items
    has bits.
    """
    before = run.budget.left
    run.budget.charge_value(items)
    _charge_comparisons(run, before, len(items))


def _charge_comparisons(run: Evaluator, before: int, number: int) -> None:
    run.budget.charge((before - run.budget.left) * number.bit_length())


def _sort(
    run: Evaluator,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:
    items = run.iterate(value)
    _charge_sorting(run, items)
    return sorted(items, key=_sort_key(run, attribute, case_sensitive), reverse=reverse)


def _dictsort(
    run: Evaluator, value: Any, case_sensitive: bool = False, by: str = "key", reverse: bool = False
) -> list[tuple[Any, Any]]:
    if by not in ("key", "value"):
        raise TemplateError('dictsort: expected by="key" or by="value"')
    if isinstance(value, Undefined):
        raise value.error()
    items = run.iterate(_mapping(value).items())
    _charge_sorting(run, items)
    key = _sort_key(run, None, case_sensitive)
    return sorted(items, key=lambda item: key(item[by == "value"]), reverse=reverse)


def _mapping(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, Undefined):
        return {}
    if not isinstance(value, Mapping):
        raise TemplateError(f"expected a dict, found {type(value).__name__}")
    return value


def _items(run: Evaluator, value: Any) -> Any:
    run.budget.charge(1 + len(_mapping(value)))
    return iter(list(_mapping(value).items()))


def _unique(run: Evaluator, value: Any, case_sensitive: bool = False, attribute: Any = None) -> Any:
    key, seen, kept = _sort_key(run, attribute, case_sensitive), set(), []
    for item in run.iterate(value):
        if (k := key(item)) not in seen:
            seen.add(k)
            kept.append(item)
    return iter(kept)


def _groupby(
    run: Evaluator, value: Any, attribute: Any, default: Any = None, case_sensitive: bool = False
) -> list[Any]:
    def found(item: Any) -> Any:
        x = run.attribute_path(item, attribute)
        return default if isinstance(x, Undefined) and default is not None else x

    def key(item: Any) -> Any:
        x = found(item)
        run.budget.charge_value(x)
        return x.lower() if isinstance(x, str) and not case_sensitive else x

    items = run.iterate(value)
    _charge_sorting(run, items)
    groups = [list(group) for _, group in groupby(sorted(items, key=key), key)]
    return [Group((found(x[0]), x)) for x in groups]


def _batch(run: Evaluator, value: Any, linecount: int, fill_with: Any = None) -> Any:
    items = run.iterate(value)
    run.budget.check_padding(linecount)
    run.budget.charge(abs(linecount))
    rows = [items[i : i + linecount] for i in range(0, len(items), linecount)]
    if fill_with is not None and rows:
        rows[-1] = rows[-1] + [fill_with] * (linecount - len(rows[-1]))
    return iter(rows)


def _slice(run: Evaluator, value: Any, slices: int, fill_with: Any = None) -> Any:
    run.budget.check_padding(slices)
    run.budget.charge(abs(slices))
    items = run.iterate(value)
    each, longer = divmod(len(items), slices)
    rows, at = [], 0
    for i in range(slices):
        size = each + (i < longer)
        rows.append(
            items[at : at + size] + ([fill_with] if fill_with is not None and i >= longer else [])
        )
        at += size
    return iter(rows)


def _extreme(choose: Callable[..., Any], name: str) -> Filter:
    def find(
        run: Evaluator, value: Any, case_sensitive: bool = False, attribute: Any = None
    ) -> Any:
        items = run.iterate(value)
        return (
            choose(items, key=_sort_key(run, attribute, case_sensitive))
            if items
            else Undefined(f"the {name} of an empty list")
        )

    return find


def _sum(run: Evaluator, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    total = start
    for item in run.iterate(value):
        total = run.add(total, item if attribute is None else run.attribute_path(item, attribute))
    return total


def _int(run: Evaluator, value: Any, default: Any = 0, base: int = 10) -> Any:
    _charge_if_text(run, value)
    try:
        return run.budget.check_number(int(value, base) if isinstance(value, str) else int(value))
    except (TypeError, ValueError):
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default


def _charge_if_text(run: Evaluator, value: Any) -> None:
    if isinstance(value, str):
        run.budget.charge_text(len(value))


def _float(run: Evaluator, value: Any, default: Any = 0.0) -> Any:
    _charge_if_text(run, value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def _round(run: Evaluator, value: Any, precision: int = 0, method: str = "common") -> Any:
    if method not in ("common", "ceil", "floor"):
        raise TemplateError("round: expected the method common, ceil or floor")
    run.budget.check_padding(precision)
    if method == "common":
        return round(value, precision)
    return float((ceil if method == "ceil" else floor)(value * 10**precision) / 10**precision)


def _abs(run: Evaluator, value: Any) -> Any:
    return run.budget.check_number(abs(value))


def _format(run: Evaluator, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TemplateError("format: expected arguments either by position or by name, found both")
    return format_percent(run.budget, run.to_text(value), kwargs or args)


def _list(run: Evaluator, value: Any) -> list[Any]:
    return run.iterate(value)


def _center(run: Evaluator, value: Any, width: int = 80) -> str:
    text = run.to_text(value)
    run.budget.check_padding(width)
    return derived(text.center(width), text)


def _wordcount(run: Evaluator, value: Any) -> int:
    return sum(1 for _ in _WORDS.finditer(run.to_text(value)))


def _attr(run: Evaluator, value: Any, name: str) -> Any:
    return run.attribute(value, name, keys=False)


_FILTERS: dict[str, Filter] = {
    "abs": _abs,
    "attr": _attr,
    "batch": _batch,
    "capitalize": _case("capitalize"),
    "center": _center,
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "first": _first,
    "float": _float,
    "format": _format,
    "groupby": _groupby,
    "indent": _indent,
    "int": _int,
    "items": _items,
    "join": _join,
    "last": _last,
    "length": _length,
    "list": _list,
    "lower": _case("lower"),
    "map": _map,
    "max": _extreme(max, "largest item"),
    "min": _extreme(min, "smallest item"),
    "reject": _select(False, False),
    "rejectattr": _select(False, True),
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": lambda run, value: texts.mark_safe(run.to_text(value)),
    "select": _select(True, False),
    "selectattr": _select(True, True),
    "slice": _slice,
    "sort": _sort,
    "string": lambda run, value: run.to_text(value),
    "sum": _sum,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
    "unique": _unique,
    "upper": _case("upper"),
    "wordcount": _wordcount,
}

_OTHERS = frozenset(
    "e escape filesizeformat forceescape pprint random striptags truncate "
    "urlencode urlize wordwrap xmlattr".split()
)
"""Filters of Jinja for HTML and for people; no published chat template needs them."""


_KEEP_MARKUP = frozenset("count d default length safe string tojson".split())


def find_filter(name: str, value: object) -> Filter:
    """Return the filter with this name for a value."""
    if isinstance(value, texts.MarkupText) and name not in _KEEP_MARKUP:
        raise TemplateError(f"the filter {name[:60]!r} is not supported after the filter 'safe'")
    if name in _FILTERS:
        return _FILTERS[name]
    raise TemplateError(
        f"the filter {name!r} is not supported"
        if name in _OTHERS
        else f"there is no filter {name[:60]!r}"
    )


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable | Undefined) and not isinstance(value, Loop)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, str | list | tuple | Mapping | Undefined | range)


def _rest_is(rest: int) -> Callable[..., bool]:
    return lambda run, x, number=2: bool(run.modulo(x, number) == rest)


def _is_same(run: Evaluator, x: Any, y: Any) -> bool:
    return x is y or (isinstance(x, str) and isinstance(y, str) and run.compare("eq", x, y))


_TESTS: dict[str, Callable[..., Any]] = {
    "boolean": lambda _, x: isinstance(x, bool),
    "callable": lambda _, x: callable(x) or isinstance(x, Function | Undefined),
    "defined": lambda _, x: not isinstance(x, Undefined),
    "divisibleby": lambda run, x, y: _rest_is(0)(run, x, y),
    "even": lambda run, x: _rest_is(0)(run, x),
    "false": lambda _, x: x is False,
    "float": lambda _, x: isinstance(x, float),
    "in": lambda run, x, y: run.contains(y, x),
    "integer": lambda _, x: isinstance(x, int) and not isinstance(x, bool),
    "iterable": lambda _, x: _is_iterable(x),
    "lower": lambda run, x: run.to_text(x).islower(),
    "mapping": lambda _, x: isinstance(x, Mapping),
    "none": lambda _, x: x is None,
    "number": lambda _, x: isinstance(x, int | float),
    "odd": lambda run, x: _rest_is(1)(run, x),
    "sameas": _is_same,
    "sequence": lambda _, x: _is_sequence(x),
    "string": lambda _, x: isinstance(x, str),
    "true": lambda _, x: x is True,
    "undefined": lambda _, x: isinstance(x, Undefined),
    "upper": lambda run, x: run.to_text(x).isupper(),
}
for _names, _operator in {
    "eq equalto ==": "eq", "ne !=": "ne", "lt lessthan <": "lt", "le <=": "lteq", "gt "
        "greaterthan >": "gt", "ge >=": "gteq",
}.items():  # fmt: skip
    for _name in _names.split():
        _TESTS[_name] = lambda run, x, y, operator=_operator: run.compare(operator, x, y)


def find_test(name: str) -> Callable[..., Any]:
    """Return the test with this name."""
    if name in _TESTS:
        return _TESTS[name]
    raise TemplateError(f"there is no test {name[:60]!r}")
