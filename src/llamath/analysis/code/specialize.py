"""`specialize`: a function of `support/` without the options that a model does not use.

The source is edited in place, so that its lines and comments stay as they were written: decided
`if`s leave one branch, parameters with one value become that value, annotations go.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterator, Mapping
from functools import cache, cached_property
from math import inf
from typing import Any

from .syntax.line_breaks import WIDTH, break_line
from .syntax.trees import inner_nodes, unparse

_UNKNOWN = object()
_Function = ast.FunctionDef | ast.ClassDef


class Source:
    """A function or class of `support/`, and the text that it stands in."""

    def __init__(self, text: str, module: str) -> None:
        self.lines = text.split("\n")
        self.module = module

    @cached_property
    def node(self) -> _Function:
        """Its tree, parsed when it is needed."""
        node = ast.parse("\n".join(self.lines)).body[0]
        assert isinstance(node, _Function)
        return node

    @cached_property
    def options(self) -> dict[str, ast.expr]:
        """The parameters with a default, and these."""
        assert isinstance(self.node, ast.FunctionDef)
        given = self.node.args
        pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
        return {x.arg: y for x, y in pairs if y is not None}


@cache
def support_sources() -> Mapping[str, Source]:
    """Return the functions and classes of `support/` by name."""
    found: dict[str, Source] = {}
    folder = os.path.join(os.path.dirname(__file__), "support")
    for name in sorted(x for x in os.listdir(folder) if x.endswith(".py")):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        for part in text.rstrip().split("\n\n\n"):
            kind, _, rest = part.partition(" ")
            if kind in ("def", "class"):
                own = rest.partition("(")[0].partition(":")[0]
                found[own] = Source(part, name.removesuffix(".py"))
    return found


class Specialization:
    """One copy of a function, with what the calls in a file say of its options.

    `fixed` options have this value in every call, and are no parameters; of a class these are names
    of methods that no call needs. `given` ones are never None; all `optional` ones stay parameters
    with a default.
    """

    def __init__(
        self,
        source: Source,
        name: str,
        fixed: Mapping[str, Any],
        given: Collection[str],
        optional: Collection[str],
    ) -> None:
        self._source = source
        self._name = name
        self._given = given
        self._optional = optional
        self._literals = {k: _literal(v) for k, v in fixed.items()}
        self._known: dict[str, Any] = dict(fixed)
        if isinstance(source.node, ast.FunctionDef):
            kept = {*given, *optional, *fixed}
            for option, default in source.options.items():
                if option not in kept:
                    self._literals[option] = unparse(default)
                    self._known[option] = _value(default)
        self._aliases: dict[str, str] = {}

    def text(self) -> list[str]:
        """Return its lines."""
        node = self._source.node
        if isinstance(node, ast.ClassDef):
            return [x for _, x in self._class(node)]
        head = self._signature(node, self._name)
        lines = [x for _, x in self._block(node.body, 4)]
        *_, made, end = lines
        if made.startswith("    y = ") and end == "    return y" and len(made) + 3 <= WIDTH:
            lines[-2:] = [f"    return {made.removeprefix('    y = ')}"]
        return [*break_line(head), *lines]

    def _class(self, node: ast.ClassDef) -> Iterator[tuple[int, str]]:
        bases = f"({', '.join(unparse(x).partition('[')[0] for x in node.bases)})"
        yield 0, f"class {self._name}{bases if node.bases else ''}:"
        has_field = False
        for x in node.body:
            if isinstance(x, ast.FunctionDef):
                if x.name in self._known:
                    continue
                yield 0, ""
                yield 4, f"    {self._signature(x, x.name)}"
                yield from self._block(x.body, 8)
            elif isinstance(x, ast.AnnAssign):
                if unparse(x.target) not in self._known:
                    assert x.value is not None
                    if not has_field:
                        yield 0, ""
                    has_field = True
                    yield 4, f"    {unparse(x.target)} = {unparse(x.value)}"
            else:
                yield from self._statement(x, 4)

    def _signature(self, node: ast.FunctionDef, name: str) -> str:
        given = node.args
        names = [x.arg for x in given.args]
        for x in given.kwonlyargs:
            if x.arg not in self._literals:
                default = unparse(self._source.options[x.arg])
                names.append(f"{x.arg}={default}" if x.arg in self._optional else x.arg)
        if given.vararg:
            names.append(f"*{given.vararg.arg}")
        names.sort(key=lambda x: "=" in x)
        return f"def {name}({', '.join(names)}):"

    def _block(self, body: list[ast.stmt], indent: int) -> Iterator[tuple[int, str]]:
        for x in body:
            if not isinstance(x, ast.If):
                yield from self._statement(x, indent)
                if isinstance(x, ast.Return):
                    return
                continue
            decided = self._decide(x.test)
            if decided is _UNKNOWN:
                yield from self._conditional(x, indent)
                continue
            kept = x.body if decided else x.orelse
            lines = list(self._block(kept, indent))
            remark = self._remark(x) if decided else ""
            if lines and remark and "  # " not in lines[0][1]:
                first = f"{lines[0][1]}{remark}"
                lines[0] = (indent, first) if len(first) <= WIDTH else lines[0]
            yield from lines
            if kept and isinstance(kept[-1], ast.Return):
                return

    def _conditional(self, x: ast.If, indent: int, word: str = "if") -> Iterator[tuple[int, str]]:
        remark = self._remark(x)
        yield indent, f"{' ' * indent}{word} {self._edited(x.test)}:{remark}"
        aliases = dict(self._aliases)
        yield from self._block(x.body, indent + 4)
        self._aliases = dict(aliases)
        if len(x.orelse) == 1 and isinstance(y := x.orelse[0], ast.If):
            decided = self._decide(y.test)
            if decided is _UNKNOWN:
                yield from self._conditional(y, indent, "elif")
                return
            rest = y.body if decided else y.orelse
        else:
            rest = x.orelse
        if rest:
            yield indent, f"{' ' * indent}else:"
            yield from self._block(rest, indent + 4)
            self._aliases = dict(aliases)

    def _remark(self, x: ast.If) -> str:
        """Return the comment after a condition."""
        code, mark, remark = self._source.lines[(x.test.end_lineno or x.lineno) - 1].partition(
            "  # "
        )
        return mark + remark if mark and code.rstrip().endswith(":") else ""

    def _statement(self, x: ast.stmt, indent: int) -> Iterator[tuple[int, str]]:
        if isinstance(x, ast.For):
            head = self._edited_lines(x, x.lineno, x.body[0].lineno - 1, indent)
            yield from ((indent, y) for y in head)
            yield from self._block(x.body, indent + 4)
            return
        end = x.end_lineno or x.lineno
        lines = self._edited_lines(x, x.lineno, end, indent)
        target = x.targets[0] if isinstance(x, ast.Assign) else None
        if isinstance(x, ast.Assign) and isinstance(target, ast.Name):
            name, _, alias = lines[0].partition("  # ")[0].partition(" = ")
            self._aliases.pop(target.id, None)
            self._literals.pop(target.id, None)
            self._known.pop(target.id, None)
            is_alias = name.strip() == target.id and alias.isidentifier()
            if is_alias and len(lines) == 1:
                if alias != target.id:
                    self._aliases[target.id] = alias
                return
        for y in lines:
            yield indent, y

    def _edited_lines(self, x: ast.AST, first: int, last: int, indent: int) -> list[str]:
        """Return lines of the source, edited and moved to an indentation."""
        lines = self._source.lines[first - 1 : last]
        shift = len(lines[0]) - len(lines[0].lstrip()) - indent
        edits = list(self._edits(x, last))
        for (row, column), (end_row, end_column), new in sorted(edits, reverse=True):
            start, stop = row - first, end_row - first
            before, after = _cut(lines[start], column, True), _cut(lines[stop], end_column, False)
            lines[start : stop + 1] = [before + new + after]
        return [y[shift:] if y.strip() else y for y in lines]

    def _edited(self, x: ast.expr) -> str:
        """Return the text of an expression on one line."""
        line = self._source.lines[x.lineno - 1]
        end = _cut(line, x.end_col_offset or 0, False)
        text = self._edited_lines(x, x.lineno, x.lineno, 0)[0].strip()
        text = text.removesuffix(end) if end else text
        return text.split(" ", 1)[1] if text.startswith(("if ", "elif ")) else text

    def _edits(self, x: ast.AST, last: int) -> Iterator[tuple[Any, Any, str]]:
        """Yield the places that change, (row, column) twice, with their new text."""
        if getattr(x, "lineno", last) > last:
            return
        if isinstance(x, ast.IfExp) and (decided := self._decide(x.test)) is not _UNKNOWN:
            kept = x.body if decided else x.orelse
            yield _start(x), _start(kept), ""
            yield from self._edits(kept, last)
            yield _end(kept), _end(x), ""
            return
        if isinstance(x, ast.BoolOp):
            open_ = [y for y in x.values if self._decide(y) is _UNKNOWN]
            if len(open_) < len(x.values) and open_:
                word = " and " if isinstance(x.op, ast.And) else " or "
                yield _start(x), _end(x), word.join(map(unparse, open_))
                return
        if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Load):
            new = self._literals.get(x.id) or self._aliases.get(x.id)
            if new is not None:
                yield _start(x), _end(x), new
            return
        if isinstance(x, ast.Call):
            before: ast.AST | None = x.args[-1] if x.args else None
            for y in x.keywords:
                gone = isinstance(y.value, ast.Name) and self._literals.get(y.value.id) == "None"
                if gone and before is not None:
                    yield _end(before), _end(y), ""
                else:
                    yield from self._edits(y.value, last)
                before = y if not gone else before
            for z in (x.func, *x.args):
                yield from self._edits(z, last)
            return
        for child in inner_nodes(x):
            yield from self._edits(child, last)

    def _decide(self, x: ast.expr) -> Any:
        """Return what a condition is, if the options decide it."""
        if isinstance(x, ast.Name):
            return bool(self._known[x.id]) if x.id in self._known else _UNKNOWN
        if isinstance(x, ast.UnaryOp) and isinstance(x.op, ast.Not):
            inner = self._decide(x.operand)
            return inner if inner is _UNKNOWN else not inner
        if isinstance(x, ast.BoolOp):
            values = [self._decide(y) for y in x.values]
            stops = isinstance(x.op, ast.Or)
            if any(y is stops for y in values):
                return stops
            return _UNKNOWN if _UNKNOWN in values else not stops
        if not isinstance(x, ast.Compare) or not isinstance(x.left, ast.Name):
            return _UNKNOWN
        op, other = x.ops[0], x.comparators[0]
        if isinstance(op, ast.Is | ast.IsNot):
            if x.left.id in self._known:
                return (self._known[x.left.id] is None) == isinstance(op, ast.Is)
            return isinstance(op, ast.IsNot) if x.left.id in self._given else _UNKNOWN
        if x.left.id in self._known and isinstance(other, ast.Constant):
            return (self._known[x.left.id] == other.value) == isinstance(op, ast.Eq)
        return _UNKNOWN


def _start(x: Any) -> tuple[int, int]:
    return x.lineno, x.col_offset


def _end(x: Any) -> tuple[int, int]:
    return x.end_lineno, x.end_col_offset


def _cut(line: str, column: int, first: bool) -> str:
    """Return the part of a line before or after a column, which counts bytes."""
    data = line.encode()
    return (data[:column] if first else data[column:]).decode()


def _value(default: ast.expr) -> Any:
    try:
        return ast.literal_eval(default)
    except ValueError:
        return _UNKNOWN


def _literal(value: Any) -> str:
    if isinstance(value, float) and abs(value) == inf:
        return "torch.inf" if value > 0 else "-torch.inf"
    return f'"{value}"' if isinstance(value, str) else repr(value)
