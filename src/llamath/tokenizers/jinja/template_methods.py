"""The methods of text, lists and dicts that a template may call: those of Python that change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from . import template_text as texts
from .template_text import derived
from .template_values import Budget, BudgetExceeded, Function, TemplateError, Undefined

MUTATING = {
    dict: frozenset({"clear", "pop", "popitem", "setdefault", "update"}),
    list: frozenset({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}),
}
"""Methods that change a value; Jinja's sandbox forbids them."""
_FIELD = re.compile(r"%(?:\((?P<key>[^()]*)\))?(?P<flags>[-+ #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<kind>.?)", re.DOTALL)
_MAX_WIDTH_DIGITS = 3


def text_method(text: str, name: str, budget: Budget) -> Function | None:
    """Return a method of `str`; None if `str` has none of that name."""
    if isinstance(text, texts.MarkupText) and name not in _PREDICATES and hasattr(str, name):
        raise TemplateError(f"the method {name} is not supported after the filter 'safe'")
    if name in _CHANGES_CASE:

        def change() -> str:
            budget.charge_text(len(text))
            return texts.change_case(text, getattr(str, name)(text))

        return Function(name, change)
    if name in _PREDICATES:
        return Function(name, _charged(budget, text, getattr(str, name), text))
    if name in _METHODS:
        method = _METHODS[name]
        return Function(name, lambda *args, **kwargs: method(_Call(text, budget), *args, **kwargs))
    if hasattr(str, name):
        raise TemplateError(f"the method {name} of text is not supported")
    return None


def container_method(value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], name: str, budget: Budget) -> Function | None:
    """Return a method of a dict, list or tuple; None if it has none of that name."""
    kind = dict if isinstance(value, Mapping) else list if isinstance(value, list) else tuple
    if not hasattr(kind, name) or name.startswith("__"):
        return None
    if name in MUTATING.get(kind, ()):
        raise TemplateError(f"the method {name} would change a {kind.__name__}, which a template may not do")

    def call(*args: Any, **kwargs: Any) -> Any:
        budget.charge(1 + len(value) if name != "get" else 1)
        budget.charge_value(list(args))
        if name in ("index", "count"):
            budget.charge_value(value)
        return getattr(value, name)(*args, **kwargs)

    return Function(name, call)


class _Call:
    """A text whose method is called."""

    def __init__(self, text: str, budget: Budget) -> None:
        self.text, self.budget = text, budget
        budget.charge_text(len(text))

    def padded(self, method: Callable[..., str], width: Any, *fill: str) -> str:
        """Return the text padded to a width."""
        self.budget.check_padding(width)
        return derived(method(self.text, width, *fill), self.text, *fill)


def _charged(budget: Budget, text: str, function: Callable[..., Any], *bound: Any) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        budget.charge_text(len(text))
        return function(*bound, *args)

    return call


def replace_text(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    """Return the text with `new` in place of `old`, after its length is paid for."""
    for x in (text, old, new):
        if not isinstance(x, str):
            raise TemplateError(f"replace: expected text, found {type(x).__name__}")
    found = len(text) + 1 if not old else text.count(old)
    budget.charge_text(len(text) + (found if count < 0 else min(found, count)) * (len(new) + 1))
    return texts.replace(text, old, new, count)


def join_texts(budget: Budget, separator: str, items: Any) -> str:
    """Return texts with a separator between them, after their length is paid for."""
    parts = list(items)
    for x in parts:
        if isinstance(x, Undefined):
            raise x.error()
        if not isinstance(x, str):
            raise TemplateError(f"join: expected text, found {type(x).__name__}")
    budget.charge_text(sum(map(len, parts)) + len(separator) * len(parts) + 8 * len(parts))
    return texts.join(separator, parts)


def _split(call: _Call, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    parts = call.text.split(sep, maxsplit)
    call.budget.charge(len(parts))
    return texts.split(call.text, parts, sep)


def _rsplit(call: _Call, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    parts = call.text.rsplit(sep, maxsplit)
    call.budget.charge(len(parts))
    return texts.split(call.text, parts, sep)


def _splitlines(call: _Call, keepends: bool = False) -> list[str]:
    lines = texts.split_lines(call.text, bool(keepends))
    call.budget.charge(len(lines))
    return lines


def _expandtabs(call: _Call, tabsize: int = 8) -> str:
    call.budget.check_padding(tabsize)
    call.budget.charge_text(call.text.count("\t") * max(0, tabsize))
    return derived(call.text.expandtabs(tabsize), call.text)


def format_percent(budget: Budget, template: str, values: Any) -> str:
    """Return `template % values`."""
    parts: list[str] = []
    at, position = 0, 0
    is_mapping = isinstance(values, Mapping)
    arguments = values if isinstance(values, tuple) else (values,)

    def next_argument() -> Any:
        nonlocal position
        if position >= len(arguments):
            raise TemplateError("not enough arguments for format string")
        position += 1
        return arguments[position - 1]

    for field in _FIELD.finditer(template):
        parts.append(texts.cut(template, slice(at, field.start())))
        at = field.end()
        kind, width, precision = field["kind"], field["width"] or "", field["precision"] or ""
        if kind == "%":
            parts.append(texts.cut(template, slice(field.end() - 1, field.end())))
            continue
        if len(width) > _MAX_WIDTH_DIGITS or len(precision) > _MAX_WIDTH_DIGITS or "*" in width + precision:
            raise BudgetExceeded(f"expected a field width of at most {_MAX_WIDTH_DIGITS} digits, found {field[0][:40]!r}")
        if field["key"] is not None:
            if not is_mapping:
                raise TemplateError("format requires a mapping")
            value = values[field["key"]]
        else:
            value = next_argument()
        if isinstance(value, Undefined) and kind not in "sr":
            raise value.error()
        budget.charge_value(value)
        if kind == "s" and isinstance(value, str) and field[0] in ("%s", f"%({field['key']})s"):
            parts.append(value)
            continue
        conversion = field[0].replace(f"({field['key']})", "", 1) if field["key"] is not None else field[0]
        result = conversion % (value,)
        parts.append(derived(result, template, *([value] if isinstance(value, str) else [])) if is_scalar(value) else result)
    parts.append(texts.cut(template, slice(at, None)))
    if position < len(arguments) and not is_mapping:
        raise TemplateError("not all arguments converted during string formatting")
    budget.charge_text(sum(map(len, parts)))
    return texts.concat(parts)


def is_scalar(value: object) -> bool:
    """Return whether a value is a text, a number, a truth value or None."""
    return value is None or isinstance(value, str | int | float | Undefined)


def format_braces(call: _Call, *args: Any, **kwargs: Any) -> str:
    """Return `text.format(…)`, without attributes and elements of the arguments."""
    parts: list[str] = []
    automatic = 0
    for literal, name, spec, conversion in Formatter().parse(call.text):
        parts.append(derived(literal, call.text))
        if name is None:
            continue
        if not name:
            name, automatic = str(automatic), automatic + 1
        if not re.fullmatch(r"\d{1,3}|[A-Za-z_]\w*", name) or re.search(r"[{}]|\d{4}", spec or ""):
            raise TemplateError(f"the field {name[:40]!r} of format(…) is not supported")
        try:
            value = args[int(name)] if name.isdigit() else kwargs[name]
        except (IndexError, KeyError):
            raise TemplateError(f"format: there is no argument {name!r}") from None
        if conversion not in (None, "s", "r"):
            raise TemplateError(f"the conversion !{conversion} of format(…) is not supported")
        call.budget.charge_value(value)
        if isinstance(value, str) and not spec and conversion != "r":
            parts.append(value)
            continue
        result = format(repr(value) if conversion == "r" else str(value) if conversion == "s" or not spec else value, spec or "")
        parts.append(derived(result, call.text, *([value] if isinstance(value, str) else [])) if is_scalar(value) else result)
    call.budget.charge_text(sum(map(len, parts)))
    return texts.concat(parts)


_CHANGES_CASE = frozenset({"capitalize", "casefold", "lower", "swapcase", "title", "upper"})
_PREDICATES = frozenset(
    {
        "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
        "isnumeric", "isprintable", "isspace", "istitle", "isupper", "rfind", "rindex", "startswith",
    }
)  # fmt: skip
_METHODS: dict[str, Callable[..., Any]] = {
    "center": lambda call, width, *fill: call.padded(str.center, width, *fill),
    "ljust": lambda call, width, *fill: call.padded(str.ljust, width, *fill),
    "rjust": lambda call, width, *fill: call.padded(str.rjust, width, *fill),
    "zfill": lambda call, width: call.padded(str.zfill, width),
    "expandtabs": _expandtabs,
    "format": format_braces,
    "join": lambda call, items: join_texts(call.budget, call.text, items),
    "strip": lambda call, chars=None: texts.strip(call.text, chars, True, True),
    "lstrip": lambda call, chars=None: texts.strip(call.text, chars, True, False),
    "rstrip": lambda call, chars=None: texts.strip(call.text, chars, False, True),
    "split": _split,
    "rsplit": _rsplit,
    "splitlines": _splitlines,
    "partition": lambda call, sep: texts.partition(call.text, call.text.partition(sep)),
    "rpartition": lambda call, sep: texts.partition(call.text, call.text.rpartition(sep)),
    "removeprefix": lambda call, x: texts.cut(call.text, slice(len(x), None)) if call.text.startswith(x) else call.text,
    "removesuffix": lambda call, x: texts.cut(call.text, slice(0, len(call.text) - len(x))) if call.text.endswith(x) else call.text,
    "replace": lambda call, old, new, count=-1: replace_text(call.budget, call.text, old, new, count),
}
