"""`parse`, `fill`, `Rewriter` and `unparse`: the syntax trees of written code.

Trees share their parts and never change: who changes a node makes a new one. Names, attributes and
the calls that templates make are one tree wherever they occur, so that their text is written once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from keyword import iskeyword
from operator import is_not, itemgetter
from typing import Any, TypeVar

N = TypeVar("N", bound=ast.AST)
_TEXT, OUTLINE = "_text", "_outline"
"""Attributes of a node with its text, and with what is said of it, which it keeps."""


@lru_cache(maxsize=512)
def parse(text: str) -> ast.expr:
    """Return the tree of an expression."""
    if text.isidentifier() and not iskeyword(text):
        return named(text)
    return ast.parse(text, mode="eval").body


named = lru_cache(maxsize=1024)(ast.Name)
"""Return the tree of a name."""


@lru_cache(maxsize=512)
def part_of(owner: str, path: str) -> ast.expr:
    """Return the tree of an attribute of an attribute: `self.experts[0].up` for `experts.0.up`."""
    found: ast.expr = named(owner)
    for name in path.split(".") if path else ():
        if name.isdigit():
            found = ast.Subscript(found, ast.Constant(int(name)))
        else:
            found = ast.Attribute(found, name)
    return found


def changed(node: N, **fields: Any) -> N:
    """Return a copy of a node with other fields."""
    made = type(node).__new__(type(node))
    into = vars(made)
    into.update(vars(node), **fields)
    into.pop(_TEXT, None)
    into.pop(OUTLINE, None)
    return made


def with_argument(call: ast.Call, i: int, value: ast.expr) -> ast.Call:
    """Return a call with another argument i, counted through those that are given by name."""
    at = i - len(call.args)
    if at < 0:
        return changed(call, args=[*call.args[:i], value, *call.args[i + 1 :]])
    before, given, after = call.keywords[:at], call.keywords[at], call.keywords[at + 1 :]
    return changed(call, keywords=[*before, changed(given, value=value), *after])


def _inner_fields(node: Any) -> tuple[str, ...]:
    """Return the fields of a node that hold others."""
    kind = type(node)
    if kind not in _INNER:
        _INNER[kind] = tuple([x for x in kind._fields if x not in _PLAIN])
    return _INNER[kind]


_INNER: dict[type[ast.AST], tuple[str, ...]] = {}
_PLAIN = frozenset({"ctx", "op", "ops", "id", "attr", "arg", "kind"})
"""Fields with a name, or with a node that has no fields."""


def _map_inside(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a node with each node inside of it changed; the same one if that changes nothing."""
    new = {}
    for name in _inner_fields(node):
        value = getattr(node, name, None)
        if type(value) is list:
            made: Any = [change(x) for x in value]
            if made and any(map(is_not, made, value)):
                new[name] = made
        elif isinstance(value, ast.AST):
            made = change(value)
            if made is not value:
                new[name] = made
    return changed(node, **new) if new else node


def fill(template: str, values: Mapping[str, ast.expr]) -> ast.expr:
    """Return the tree of an expression with values in the place of names, without arguments at the
    end of a call that are None.
    """
    absent = {k for k, v in values.items() if isinstance(v, ast.Constant) and v.value is None}
    names = frozenset(values)
    if absent:
        fill_tree = _filler(_without_absent(parse(template), absent), names)
    else:
        fill_tree = _filler_of(template, names)
    found: ast.expr = fill_tree(values)
    return found


def _without_absent(tree: ast.expr, absent: Collection[str]) -> ast.expr:
    """Return a tree without the arguments at the ends of calls that are these names."""

    def is_absent(given: list[ast.expr]) -> bool:
        return bool(given) and isinstance(x := given[-1], ast.Name) and x.id in absent

    def visit(x: Any) -> Any:
        if type(x) is ast.Call and is_absent(x.args):
            kept = x.args
            while is_absent(kept):
                kept = kept[:-1]
            x = changed(x, args=kept)
        return _map_inside(x, visit)

    found: ast.expr = visit(tree)
    return found


_Filler = Callable[[Mapping[str, Any]], Any]


@lru_cache(maxsize=512)
def _filler_of(template: str, names: frozenset[str]) -> _Filler:
    return _filler(parse(template), names)


def _filler(tree: ast.expr, names: frozenset[str]) -> _Filler:
    """Return what puts values in the place of these names in a tree."""
    return _filler_or_none(tree, names) or (lambda _: tree)


def _filler_or_none(node: Any, names: frozenset[str]) -> _Filler | None:
    """Return what fills a node; None if it has none of the names."""
    if isinstance(node, ast.Name):
        return itemgetter(node.id) if node.id in names else None
    if type(node) is list:
        items = [_filler_or_none(x, names) for x in node]
        if not any(items):
            return None
        pairs = [(x or (lambda _, y=y: y)) for x, y in zip(items, node, strict=True)]
        return lambda values: [x(values) for x in pairs]
    if not isinstance(node, ast.AST):
        return None
    inner = ((x, _filler_or_none(getattr(node, x, None), names)) for x in _inner_fields(node))
    fields = [(name, x) for name, x in inner if x is not None]
    if not fields:
        return None
    kind: type[ast.AST] = type(node)
    own = {k: v for k, v in vars(node).items() if k not in (_TEXT, OUTLINE)}

    def filled(values: Mapping[str, Any]) -> Any:
        made = kind.__new__(kind)
        into = vars(made)
        into.update(own)
        for name, x in fields:
            into[name] = x(values)
        return made

    return filled


class Rewriter:
    """Makes trees of trees; subclasses say what becomes of some nodes."""

    def visit(self, node: Any) -> Any:
        """Return what becomes of a node: here the same, with what becomes of the nodes inside."""
        return _map_inside(node, self.visit)


def inner_nodes(node: ast.AST) -> list[Any]:
    """Return the nodes inside of a node, of those with fields."""
    found = []
    for name in _inner_fields(node):
        value = getattr(node, name, None)
        if type(value) is list:
            found += [x for x in value if isinstance(x, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(tree: Any) -> Iterator[ast.AST]:
    """Yield the nodes with fields of a tree, or of the trees in a list, faster than `ast.walk`."""
    todo = [*tree] if isinstance(tree, list) else [tree]
    for x in todo:
        todo += inner_nodes(x)
        yield x


def is_same(x: Any, y: Any) -> bool:
    """Whether two trees are the same code."""
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if type(x) is list:
        return len(x) == len(y) and all(map(is_same, x, y))
    if not isinstance(x, ast.AST):
        return bool(x == y)
    a, b = vars(x), vars(y)
    return all(is_same(a.get(name), b.get(name)) for name in x._fields if name != "ctx")


# Text, with brackets where an inner operator binds less than the outer one


_TUPLE, _TEST, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(11)
_OPERATORS: Mapping[type, tuple[str, int]] = {
    ast.Add: ("+", _SUM),
    ast.Sub: ("-", _SUM),
    ast.Mult: ("*", _PRODUCT),
    ast.MatMult: ("@", _PRODUCT),
    ast.Div: ("/", _PRODUCT),
    ast.FloorDiv: ("//", _PRODUCT),
    ast.Mod: ("%", _PRODUCT),
}
_COMPARISONS: Mapping[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}


def unparse(tree: ast.AST) -> str:
    """Return the text of a tree, in the style of ruff's formatter; several times faster than
    `ast.unparse`, which writes what only support code has.
    """
    try:
        text = _text(tree)
    except KeyError:
        text = ast.unparse(ast.fix_missing_locations(tree))
    return text.replace("'", '"')


def _text(x: Any, outer: int = _TEST) -> str:
    return _WRITERS[type(x)](x, outer)


def _texts(found: list[Any]) -> list[str]:
    return [x.id if type(x) is ast.Name else _WRITERS[type(x)](x, _TEST) for x in found]


def _bracketed(text: str, level: int, outer: int) -> str:
    return f"({text})" if outer > level else text


def _constant(x: ast.Constant, _: int) -> str:
    text = "..." if x.value is ... else repr(x.value)
    return text.replace("inf", "1e309") if isinstance(x.value, float) else text


def _attribute(x: ast.Attribute, _: int) -> str:
    return f"{_text(x.value, _ATOM)}.{x.attr}"


def _call(x: ast.Call, _: int) -> str:
    kept: str | None = vars(x).get(_TEXT)
    if kept is None:
        given = _texts(x.args)
        for y in x.keywords:
            given.append(f"{y.arg}={_text(y.value)}" if y.arg else f"**{_text(y.value)}")
        kept = vars(x)[_TEXT] = f"{_text(x.func, _ATOM)}({', '.join(given)})"
    return kept


def _tuple(x: ast.Tuple, outer: int) -> str:
    inside = ", ".join(_texts(x.elts)) + "," * (len(x.elts) == 1)
    return _bracketed(inside, _TUPLE, outer) if inside else "()"


def _list(x: ast.List, _: int) -> str:
    return f"[{', '.join(_texts(x.elts))}]"


def _subscript(x: ast.Subscript, _: int) -> str:
    inside = _text(x.slice, _TUPLE) if isinstance(x.slice, ast.Tuple) else _text(x.slice)
    return f"{_text(x.value, _ATOM)}[{inside}]"


def _slice(x: ast.Slice, _: int) -> str:
    first, last = ("" if y is None else _text(y) for y in (x.lower, x.upper))
    return f"{first}:{last}" + (f":{_text(x.step)}" if x.step else "")


def _starred(x: ast.Starred, _: int) -> str:
    return f"*{_text(x.value, _COMPARE + 1)}"


def _sign(x: ast.UnaryOp, outer: int) -> str:
    if isinstance(x.op, ast.Not):
        return _bracketed(f"not {_text(x.operand, _NOT)}", _NOT, outer)
    sign = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(x.op)]
    return _bracketed(f"{sign}{_text(x.operand, _SIGN)}", _SIGN, outer)


def _binary(x: ast.BinOp, outer: int) -> str:
    if isinstance(x.op, ast.Pow):
        exponent = _text(x.right, _POWER)
        if isinstance(x.right, ast.UnaryOp) and isinstance(x.right.operand, ast.Constant):
            exponent = exponent.removeprefix("(").removesuffix(")")
        return _bracketed(f"{_text(x.left, _ATOM)} ** {exponent}", _POWER, outer)
    sign, level = _OPERATORS[type(x.op)]
    return _bracketed(f"{_text(x.left, level)} {sign} {_text(x.right, level + 1)}", level, outer)


def _either(x: ast.BoolOp, outer: int) -> str:
    word, level = ("and", _AND) if isinstance(x.op, ast.And) else ("or", _OR)
    return _bracketed(f" {word} ".join([_text(y, level + 1) for y in x.values]), level, outer)


def _compare(x: ast.Compare, outer: int) -> str:
    text = _text(x.left, _COMPARE + 1)
    for op, y in zip(x.ops, x.comparators, strict=True):
        text += f" {_COMPARISONS[type(op)]} {_text(y, _COMPARE + 1)}"
    return _bracketed(text, _COMPARE, outer)


def _choice(x: ast.IfExp, outer: int) -> str:
    body, test = _text(x.body, _TEST + 1), _text(x.test, _TEST + 1)
    return _bracketed(f"{body} if {test} else {_text(x.orelse)}", _TEST, outer)


def _list_of(x: ast.ListComp, _: int) -> str:
    return f"[{_text(x.elt)}{''.join([_text(y) for y in x.generators])}]"


def _for(x: ast.comprehension, _: int) -> str:
    conditions = "".join(f" if {_text(y, _TEST + 1)}" for y in x.ifs)
    return f" for {_text(x.target, _TUPLE)} in {_text(x.iter, _TEST + 1)}{conditions}"


def _assignment(x: ast.Assign, _: int) -> str:
    (goal,) = x.targets
    several = isinstance(goal, ast.Tuple) and len(goal.elts) > 1
    return f"{_text(goal, _TUPLE if several else _TEST)} = {_text(x.value)}"


def _loop(x: ast.For, _: int) -> str:
    head = f"for {_text(x.target, _TUPLE)} in {_text(x.iter)}:"
    return "\n    ".join([head, *map(_text, x.body)])


_WRITERS: Mapping[type, Callable[[Any, int], str]] = {
    ast.Name: lambda x, _: x.id,
    ast.Constant: _constant,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.Starred: _starred,
    ast.UnaryOp: _sign,
    ast.BinOp: _binary,
    ast.BoolOp: _either,
    ast.Compare: _compare,
    ast.IfExp: _choice,
    ast.ListComp: _list_of,
    ast.comprehension: _for,
    ast.Assign: _assignment,
    ast.Return: lambda x, _: f"return {_text(x.value)}",
    ast.For: _loop,
}
"""Kind of a node -> its text; others have that of `ast.unparse`."""
