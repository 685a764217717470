"""The methods of text, lists and dicts that a template may call: those of Python that change
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from . import template_text as texts
from .template_text import derived
from .template_values import Budget, BudgetExceeded, Function, TemplateError, Undefined

CONTAINER_METHODS = {
    dict: frozenset({"copy", "fromkeys", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}
"""Those that change nothing; Jinja's sandbox forbids the others."""
_FIELD = re.compile(
    r"%(?:\((?P<key>[^()]*)\))?(?P<flags>[-+ #0]*)(?P<width>\*"
    r"|\d*)(?:\.(?P<precision>\*|\d*))?(?P<kind>.?)",
    re.DOTALL,
)
_MAX_WIDTH_DIGITS = 3
_WIDTH = 10**_MAX_WIDTH_DIGITS


def text_method(text: str, name: str, budget: Budget) -> Function | None:
    """Return a method of `str`; None if `str` has none of that name."""
    if isinstance(text, texts.MarkupText) and name not in _PREDICATES and hasattr(str, name):
        raise TemplateError(f"the method {name} is not supported after the filter 'safe'")
    if name in _CHANGES_CASE:

        def change() -> str:
            budget.charge_text(len(text))
            return texts.change_case(text, getattr(str, name)(text))

        return Function(name, change)
    if name in _QUESTIONS:

        def ask() -> bool:
            budget.charge_text(len(text))
            return bool(getattr(str, name)(text))

        return Function(name, ask)
    if name in _METHODS:
        method = _METHODS[name]
        return Function(name, lambda *args, **kwargs: method(_Call(text, budget), *args, **kwargs))
    if hasattr(str, name):
        raise TemplateError(f"the method {name} of text is not supported")
    return None


def container_method(
    value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], name: str, budget: Budget
) -> Function | None:
    """Return a method of a dict, list or tuple; None if it has none of that name."""
    kind = dict if isinstance(value, Mapping) else list if isinstance(value, list) else tuple
    if not hasattr(kind, name) or name.startswith("__"):
        return None
    if name not in CONTAINER_METHODS[kind]:
        raise TemplateError(
            f"the method {name} would change a {kind.__name__}, which a template may not do"
        )

    def call(*args: Any) -> Any:
        if name == "fromkeys":
            args = (budget.items(args[0]), *args[1:])
        budget.charge(1 + len(value) if name == "copy" else 1)
        budget.charge_value(list(args))
        if name in ("index", "count"):
            budget.charge_value(value)
        return getattr(value, name)(*args)

    return Function(name, call)


class _Call:
    """A text whose method is called."""

    def __init__(self, text: str, budget: Budget) -> None:
        self.text, self.budget = text, budget
        budget.charge_text(len(text))

    def padded(self, method: Callable[..., str], width: Any, *fill: str) -> str:
        """Return the text padded to a width."""
        self.budget.check_padding(width)
        self.budget.charge_value(list(fill))
        return derived(method(self.text, width, *fill), self.text, *fill)


def _found(name: str) -> Callable[..., Any]:
    """Return `str.find` and the like; those that search from the end take linear time here, not
    in Python.
    """

    def find(call: _Call, part: Any, *bounds: Any) -> int:
        call.budget.charge_search(call.text, _text(part))
        if not name.startswith("r") or not part or len(bounds) > 2:
            return int(getattr(str, name)(call.text, part, *bounds))
        start, stop, _ = slice(*(bounds if len(bounds) > 1 else (*bounds, None))).indices(
            len(call.text)
        )
        at = call.text[start:stop][::-1].find(part[::-1])
        if at < 0 and name == "rindex":
            raise ValueError("substring not found")
        return -1 if at < 0 else stop - at - len(part)

    return find


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TemplateError(f"expected text, found {type(value).__name__}")
    return value


def _affix(name: str) -> Callable[..., bool]:
    def has(call: _Call, affix: Any, *bounds: Any) -> bool:
        call.budget.charge_value(affix)  # a tuple of texts, too
        return bool(getattr(str, name)(call.text, affix, *bounds))

    return has


def _without(name: str) -> Callable[..., str]:
    def remove(call: _Call, affix: Any) -> str:
        call.budget.charge_text(len(_text(affix)))
        removed = len(call.text) - len(getattr(str, name)(call.text, affix))
        return texts.cut(
            call.text,
            slice(removed, None) if name == "removeprefix" else slice(0, len(call.text) - removed),
        )

    return remove


def _stripped(left: bool, right: bool) -> Callable[..., str]:
    return lambda call, chars=None: strip_text(call.budget, call.text, chars, left, right)


def strip_text(budget: Budget, text: str, chars: Any, left: bool = True, right: bool = True) -> str:
    """Return the text without these characters, or without spaces, at its ends."""
    budget.charge_text(len(text) + (0 if chars is None else len(_text(chars))))
    return texts.strip(text, chars, left, right)


def replace_text(budget: Budget, text: str, old: str, new: str, count: int = -1) -> str:
    """Return the text with `new` in place of `old`, after its length is paid for."""
    for x in (text, old, new):
        if not isinstance(x, str):
            raise TemplateError(f"replace: expected text, found {type(x).__name__}")
    budget.charge_search(text, old)
    found = len(text) + 1 if not old else text.count(old)
    found = found if count < 0 else min(found, count)
    budget.charge(found)
    budget.charge_text(len(text) + found * (len(new) + 1))
    return texts.replace(text, old, new, count)


def join_texts(budget: Budget, separator: str, items: Any) -> str:
    """Return texts with a separator between them, after their length is paid for."""
    parts = budget.items(items)
    for x in parts:
        if isinstance(x, Undefined):
            raise x.error()
        if not isinstance(x, str):
            raise TemplateError(f"join: expected text, found {type(x).__name__}")
    budget.charge_text(sum(map(len, parts)) + len(separator) * len(parts) + 8 * len(parts))
    return texts.join(separator, parts)


def _split(from_end: bool) -> Callable[..., list[str]]:
    """Return `str.split` or `str.rsplit`; the number of parts is counted before they are made."""

    def split(call: _Call, sep: Any = None, maxsplit: int = -1) -> list[str]:
        text = call.text
        if sep is None:
            return _split_words(call, maxsplit, from_end)
        call.budget.charge_search(text, _text(sep))
        found = text.count(sep) if sep else 0
        call.budget.charge(1 + (found if maxsplit < 0 else min(found, maxsplit)))
        if not from_end:
            return texts.split(text, text.split(sep, maxsplit), sep)
        # Python's own search from the end takes a time that is the product of both lengths
        parts = text[::-1].split(sep[::-1], maxsplit)
        return texts.split(text, [x[::-1] for x in reversed(parts)], sep)

    return split


def _split_words(call: _Call, most: int, from_end: bool) -> list[str]:
    """Return the words of a text; after so many, the rest is one part."""
    text, found = call.text, []
    for word in texts.words(text):
        call.budget.charge(1)
        found.append(word)
    if 0 <= most < len(found):
        if from_end:
            found[: len(found) - most] = [slice(0, found[-most - 1].stop)]
        else:
            found[most:] = [slice(found[most].start, None)]
    return [texts.cut(text, x) for x in found]


def lines_of(budget: Budget, text: str, keep_ends: bool = False) -> list[str]:
    """Return the lines of a text, each paid for before the next one is made."""
    found = []
    for line in texts.lines(text, keep_ends):
        budget.charge(1)
        found.append(line)
    return found


def _partition(from_end: bool) -> Callable[..., tuple[str, str, str]]:
    def partition(call: _Call, sep: Any) -> tuple[str, str, str]:
        if not _text(sep):
            raise ValueError("empty separator")
        at = _found("rfind" if from_end else "find")(call, sep)
        if at < 0:
            return texts.partition(call.text, 0 if from_end else len(call.text), 0)
        return texts.partition(call.text, at, len(sep))

    return partition


def _expandtabs(call: _Call, tabsize: int = 8) -> str:
    call.budget.check_padding(tabsize)
    call.budget.charge_text(call.text.count("\t") * max(0, tabsize))
    return derived(call.text.expandtabs(tabsize), call.text)


def format_percent(budget: Budget, template: str, values: Any) -> str:
    """Return `template % values`."""
    parts: list[str] = []
    at, position = 0, 0
    is_mapping = isinstance(values, Mapping)
    budget.charge_text(len(template))
    is_own = texts.is_from_template(template)
    arguments = values if isinstance(values, tuple) else (values,)

    def next_argument() -> Any:
        nonlocal position
        if position >= len(arguments):
            raise TemplateError("not enough arguments for format string")
        position += 1
        return arguments[position - 1]

    for field in _FIELD.finditer(template):
        budget.charge(1)
        parts.append(texts.cut(template, slice(at, field.start())))
        at = field.end()
        kind, width, precision = field["kind"], field["width"] or "", field["precision"] or ""
        if kind == "%":
            parts.append(texts.cut(template, slice(field.end() - 1, field.end())))
            continue
        if (
            len(width) > _MAX_WIDTH_DIGITS
            or len(precision) > _MAX_WIDTH_DIGITS
            or "*" in width + precision
        ):
            raise BudgetExceeded(
                f"expected a field width of at most {_MAX_WIDTH_DIGITS} digits, "
                f"found {field[0][:40]!r}"
            )
        if field["key"] is not None:
            if not is_mapping:
                raise TemplateError("format requires a mapping")
            value = values[field["key"]]
        else:
            value = next_argument()
        if isinstance(value, Undefined) and kind not in "sr":
            raise value.error()
        budget.charge_value(value)
        budget.charge_text(sum(min(_WIDTH, int(x)) for x in (width, precision) if x))
        if kind == "s" and isinstance(value, str) and field[0] in ("%s", f"%({field['key']})s"):
            parts.append(value)
            continue
        conversion = (
            field[0].replace(f"({field['key']})", "", 1) if field["key"] is not None else field[0]
        )
        result = conversion % (value,)
        parts.append(_formatted(result, value, is_own))
    parts.append(texts.cut(template, slice(at, None)))
    if position < len(arguments) and not is_mapping:
        raise TemplateError("not all arguments converted during string formatting")
    budget.charge_text(sum(map(len, parts)))
    return texts.concat(parts)


def _formatted(result: str, value: object, is_own: bool) -> str:
    """Return a formatted value; it is the template's if the format is, and the value is a number
    or a text of the template.
    """
    is_scalar = value is None or isinstance(value, str | int | float | Undefined)
    is_own = is_own and is_scalar and (not isinstance(value, str) or texts.is_from_template(value))
    return texts.TemplateText(result) if is_own else result


def format_braces(call: _Call, *args: Any, **kwargs: Any) -> str:
    """Return `text.format(…)`, without attributes and elements of the arguments."""
    parts: list[str] = []
    automatic, is_own = 0, texts.is_from_template(call.text)
    for literal, name, spec, conversion in Formatter().parse(call.text):
        call.budget.charge_text(len(literal))
        parts.append(texts.TemplateText(literal) if is_own else literal)
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
        call.budget.charge_text(sum(map(int, re.findall(r"\d+", spec or ""))))
        if isinstance(value, str) and not spec and conversion != "r":
            parts.append(value)
            continue
        result = format(
            repr(value)
            if conversion == "r"
            else str(value)
            if conversion == "s" or not spec
            else value,
            spec or "",
        )
        parts.append(_formatted(result, value, is_own))
    call.budget.charge_text(sum(map(len, parts)))
    return texts.concat(parts)


_CHANGES_CASE = frozenset({"capitalize", "casefold", "lower", "swapcase", "title", "upper"})
_QUESTIONS = frozenset(
    {
        "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
        "isnumeric", "isprintable", "isspace",
        "istitle", "isupper",
    }
)  # fmt: skip
_PREDICATES = _QUESTIONS | {"count", "endswith", "find", "index", "rfind", "rindex", "startswith"}
_METHODS: dict[str, Callable[..., Any]] = {
    "center": lambda call, width, *fill: call.padded(str.center, width, *fill),
    "ljust": lambda call, width, *fill: call.padded(str.ljust, width, *fill),
    "rjust": lambda call, width, *fill: call.padded(str.rjust, width, *fill),
    "zfill": lambda call, width: call.padded(str.zfill, width),
    "expandtabs": _expandtabs,
    "format": format_braces,
    "join": lambda call, items: join_texts(call.budget, call.text, items),
    "strip": _stripped(True, True),
    "lstrip": _stripped(True, False),
    "rstrip": _stripped(False, True),
    "split": _split(from_end=False),
    "rsplit": _split(from_end=True),
    "splitlines": lambda call, keepends=False: lines_of(call.budget, call.text, bool(keepends)),
    "partition": _partition(from_end=False),
    "rpartition": _partition(from_end=True),
    "removeprefix": _without("removeprefix"),
    "removesuffix": _without("removesuffix"),
    "startswith": _affix("startswith"),
    "endswith": _affix("endswith"),
    **{name: _found(name) for name in ("count", "find", "index", "rfind", "rindex")},
    "replace": lambda call, old, new, count=-1: replace_text(
        call.budget, call.text, old, new, count
    ),
}
