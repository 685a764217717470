"""Evaluates a parsed template: each node of its tree by a method of its own, with nothing of
Python in reach.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2 import nodes

from . import template_text as texts
from .template_filters import find_filter, find_test
from .template_methods import container_method, format_percent, text_method
from .template_text import TemplateText, derived
from .template_values import (
    CONTAINERS,
    Budget,
    BudgetExceeded,
    Cycler,
    Function,
    Group,
    Joiner,
    Loop,
    Namespace,
    TemplateError,
    Undefined,
    check_attribute_name,
)

_DIRECTIVES = re.compile(r"(?:[^%]|%[-_0^#]?[A-Za-z%])*")
_MAX_EXPONENT = 1 << 12


class _Break(Exception):
    """Leave a loop."""


class _Continue(Exception):
    """Go on with the next item of a loop."""


class _Scope:
    """The variables of a block, and the scope that the block is in."""

    __slots__ = ("outer", "variables")

    def __init__(self, outer: _Scope | None, variables: dict[str, Any]) -> None:
        self.outer, self.variables = outer, variables


class _Macro:
    """A macro, or the body of a call block."""

    def __init__(
        self, run: Evaluator, node: nodes.Macro | nodes.CallBlock, scope: _Scope, name: str
    ) -> None:
        self.run, self.node, self.scope, self.name = run, node, scope, name
        self.parameters = [x.name for x in node.args]
        self.takes = run.special_names(node)

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        scope = _Scope(self.scope, {})
        values = dict(zip(self.parameters, args, strict=False))
        extra = args[len(self.parameters) :]
        caller = kwargs.pop("caller", None) if "caller" not in self.parameters else None
        for name in self.parameters:
            if name in kwargs:
                if name in values:
                    raise TemplateError(f"macro {self.name!r} got two values for {name!r}")
                values[name] = kwargs.pop(name)
        if caller is not None and "caller" not in self.takes:
            raise TemplateError(f"macro {self.name!r} was called with a call block, and takes none")
        if extra and "varargs" not in self.takes:
            raise TemplateError(
                f"macro {self.name!r} takes not more than {len(self.parameters)} argument(s)"
            )
        if kwargs and "kwargs" not in self.takes:
            raise TemplateError(
                f"macro {self.name!r} takes no keyword argument {next(iter(kwargs))!r}"
            )
        with self.run.nested():
            defaults = dict(
                zip(
                    self.parameters[len(self.parameters) - len(self.node.defaults) :],
                    self.node.defaults,
                    strict=True,
                )
            )
            for name in self.parameters:
                if name in values:
                    scope.variables[name] = values[name]
                elif name in defaults:
                    scope.variables[name] = self.run.expression(defaults[name], scope)
                else:
                    scope.variables[name] = Undefined(f"parameter {name!r} was not provided: it")
            if "varargs" in self.takes:
                scope.variables["varargs"] = extra
            if "kwargs" in self.takes:
                scope.variables["kwargs"] = kwargs
            if "caller" in self.takes and "caller" not in self.parameters:
                scope.variables["caller"] = (
                    Undefined("no caller defined: it") if caller is None else caller
                )
            return self.run.capture(self.node.body, scope)


class Evaluator:
    """One rendering of a template."""

    def __init__(self, budget: Budget, variables: Mapping[str, Any], now: datetime) -> None:
        self.budget, self.now, self.line = budget, now, 0
        self._depth = 0
        self._output: list[str] = []
        self._special_names: dict[int, frozenset[str]] = {}
        self._root = _Scope(_Scope(None, self._globals()), dict(variables))

    def render(self, tree: nodes.Template) -> str:
        """Return the text of the template."""
        return self.capture(tree.body, _Scope(self._root, {}))

    # statements

    def capture(self, body: Iterable[nodes.Node], scope: _Scope) -> str:
        """Return the text that statements write."""
        before, self._output = self._output, []
        try:
            self._run_body(body, scope)
            self.budget.charge(len(self._output))
            return texts.concat(self._output)
        finally:
            self._output = before

    def _run_body(self, body: Iterable[nodes.Node], scope: _Scope) -> None:
        for node in body:
            self.budget.charge(1)
            self.line = node.lineno or self.line
            statement = _STATEMENTS.get(type(node))
            if statement is None:
                raise TemplateError(f"the statement {type(node).__name__} is not supported")
            statement(self, node, scope)

    def _write(self, text: str) -> None:
        if text:
            self.budget.charge_text(len(text))
            self._output.append(text)

    def _output_node(self, node: nodes.Output, scope: _Scope) -> None:
        for part in node.nodes:
            self._write(
                TemplateText(part.data)
                if isinstance(part, nodes.TemplateData)
                else self.to_text(self.expression(part, scope))
            )

    def _if(self, node: nodes.If, scope: _Scope) -> None:
        for branch in (node, *node.elif_):
            if self.expression(branch.test, scope):
                return self._run_body(branch.body, scope)
        return self._run_body(node.else_, scope)

    def _for(self, node: nodes.For, scope: _Scope) -> None:
        self._loop(node, scope, self.expression(node.iter, scope), 1)

    def _loop(self, node: nodes.For, scope: _Scope, value: Any, depth: int) -> None:
        items = self.iterate(value)
        if node.test is not None:
            items = [
                x for x in items if self.expression(node.test, self._bind_item(node, scope, x))
            ]

        def recurse(inner: Any, inner_depth: int) -> str:
            with self.nested():
                before, self._output = self._output, []
                try:
                    self._loop(node, scope, inner, inner_depth)
                    return texts.concat(self._output)
                finally:
                    self._output = before

        loop = Loop(items, depth, recurse if node.recursive else None, self.budget)
        for at, item in enumerate(items):
            loop.at = at
            inner = self._bind_item(node, scope, item)
            inner.variables["loop"] = loop
            self.budget.charge(1)
            try:
                self._run_body(node.body, inner)
            except _Continue:
                continue
            except _Break:
                break
        if not items:
            self._run_body(node.else_, _Scope(scope, {}))

    def _bind_item(self, node: nodes.For, scope: _Scope, item: Any) -> _Scope:
        inner = _Scope(scope, {})
        self._assign(node.target, item, inner)
        return inner

    def _set(self, node: nodes.Assign, scope: _Scope) -> None:
        self._assign(node.target, self.expression(node.node, scope), scope)

    def _set_block(self, node: nodes.AssignBlock, scope: _Scope) -> None:
        text: Any = self.capture(node.body, _Scope(scope, {}))
        if node.filter is not None:
            text = self._filter_text(node.filter, scope, text)
        self._assign(node.target, text, scope)

    def _assign(self, target: nodes.Node, value: Any, scope: _Scope) -> None:
        if isinstance(target, nodes.Name):
            scope.variables[target.name] = value
        elif isinstance(target, nodes.NSRef):
            space = self._lookup(target.name, scope)
            if not isinstance(space, Namespace):
                raise TemplateError("cannot assign attribute on non-namespace object")
            check_attribute_name(target.attr)
            space.variables[target.attr] = value
        elif isinstance(target, nodes.Tuple):
            values = self.iterate(value)
            if len(values) != len(target.items):
                raise TemplateError(
                    f"expected {len(target.items)} values to unpack, found {len(values)}"
                )
            for part, x in zip(target.items, values, strict=True):
                self._assign(part, x, scope)
        else:
            raise TemplateError(f"cannot assign to {type(target).__name__}")

    def _define_macro(self, node: nodes.Macro, scope: _Scope) -> None:
        scope.variables[node.name] = Function(node.name, _Macro(self, node, scope, node.name))

    def special_names(self, macro: nodes.Macro | nodes.CallBlock) -> frozenset[str]:
        """Return which names with a meaning the body of a macro mentions; it is searched once,
        not at every definition.
        """
        if id(macro) not in self._special_names:
            rest, found = list(macro.body), set()
            while rest:
                self.budget.charge(1)
                node = rest.pop()
                if isinstance(node, nodes.Name):
                    found.add(node.name)
                rest += node.iter_child_nodes()
            self._special_names[id(macro)] = frozenset(found & {"varargs", "kwargs", "caller"})
        return self._special_names[id(macro)]

    def _call_block(self, node: nodes.CallBlock, scope: _Scope) -> None:
        caller = Function("caller", _Macro(self, node, scope, "caller"))
        self._write(self.to_text(self._call(node.call, scope, {"caller": caller})))

    def _filter_block(self, node: nodes.FilterBlock, scope: _Scope) -> None:
        self._write(
            self.to_text(
                self._filter_text(node.filter, scope, self.capture(node.body, _Scope(scope, {})))
            )
        )

    def _with(self, node: nodes.With, scope: _Scope) -> None:
        inner = _Scope(scope, {})
        values = [self.expression(x, scope) for x in node.values]
        for target, value in zip(node.targets, values, strict=True):
            self._assign(target, value, inner)
        self._run_body(node.body, inner)

    def _scoped(self, node: nodes.Scope, scope: _Scope) -> None:
        self._run_body(node.body, _Scope(scope, {}))

    def _break(self, _node: nodes.Node, _scope: _Scope) -> None:
        raise _Break

    def _continue(self, _node: nodes.Node, _scope: _Scope) -> None:
        raise _Continue

    # expressions

    def expression(self, node: nodes.Node, scope: _Scope) -> Any:
        """Return the value of an expression."""
        self.budget.charge(1)
        evaluate = _EXPRESSIONS.get(type(node))
        if evaluate is None:
            raise TemplateError(f"the expression {type(node).__name__} is not supported")
        return evaluate(self, node, scope)

    def _constant(self, node: nodes.Const, _scope: _Scope) -> Any:
        return (
            TemplateText(node.value)
            if isinstance(node.value, str)
            else self.budget.check_number(node.value)
        )

    def _template_data(self, node: nodes.TemplateData, _scope: _Scope) -> Any:
        return TemplateText(node.data)

    def _name(self, node: nodes.Name, scope: _Scope) -> Any:
        return self._lookup(node.name, scope)

    def _lookup(self, name: str, scope: _Scope | None) -> Any:
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return Undefined(repr(name[:60]))

    def _list(self, node: nodes.List, scope: _Scope) -> list[Any]:
        return [self.expression(x, scope) for x in node.items]

    def _tuple(self, node: nodes.Tuple, scope: _Scope) -> tuple[Any, ...]:
        return tuple(self.expression(x, scope) for x in node.items)

    def _dict(self, node: nodes.Dict, scope: _Scope) -> dict[Any, Any]:
        return {
            self._key(self.expression(x.key, scope)): self.expression(x.value, scope)
            for x in node.items
        }

    def _key(self, value: Any) -> Any:
        self.budget.charge_value(value)  # hashing a tuple visits all of it
        return value

    def _choice(self, node: nodes.CondExpr, scope: _Scope) -> Any:
        if self.expression(node.test, scope):
            return self.expression(node.expr1, scope)
        if node.expr2 is None:
            return Undefined("the inline if-expression evaluated to false and has no else: it")
        return self.expression(node.expr2, scope)

    def _and(self, node: nodes.And, scope: _Scope) -> Any:
        return self.expression(node.left, scope) and self.expression(node.right, scope)

    def _or(self, node: nodes.Or, scope: _Scope) -> Any:
        return self.expression(node.left, scope) or self.expression(node.right, scope)

    def _not(self, node: nodes.Not, scope: _Scope) -> bool:
        return not self.expression(node.node, scope)

    def _negative(self, node: nodes.Neg, scope: _Scope) -> Any:
        return -self._number(self.expression(node.node, scope), "-")

    def _positive(self, node: nodes.Pos, scope: _Scope) -> Any:
        return +self._number(self.expression(node.node, scope), "+")

    def _number(self, value: Any, sign: str) -> Any:
        if isinstance(value, Undefined):
            raise value.error()
        if not isinstance(value, int | float):
            raise TemplateError(f"{sign}: expected a number, found {type(value).__name__}")
        return value

    def _concat(self, node: nodes.Concat, scope: _Scope) -> str:
        parts = [self.to_text(self.expression(x, scope)) for x in node.nodes]
        self.budget.charge_text(sum(map(len, parts)))
        return texts.concat(parts)

    def _compare(self, node: nodes.Compare, scope: _Scope) -> Any:
        left, result = self.expression(node.expr, scope), True
        for operand in node.ops:
            right = self.expression(operand.expr, scope)
            result = self.compare(operand.op, left, right)
            if not result:
                return result
            left = right
        return result

    def compare(self, operator: str, left: Any, right: Any) -> bool:
        """Return whether a comparison holds."""
        if operator in ("in", "notin"):
            return self.contains(right, left) == (operator == "in")
        if isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS):
            self.budget.charge_value(left)
            self.budget.charge_value(right)
        elif isinstance(left, str) and isinstance(right, str):
            self.budget.charge_text(min(len(left), len(right)))
        if operator in ("eq", "ne"):
            return bool(left == right) == (operator == "eq")
        for x in (left, right):
            if isinstance(x, Undefined):
                raise x.error()
        if operator == "lt":
            return bool(left < right)
        if operator == "lteq":
            return bool(left <= right)
        return bool(left > right) if operator == "gt" else bool(left >= right)

    def contains(self, container: Any, item: Any) -> bool:
        """Return whether an item is in a container."""
        if isinstance(container, str):
            if not isinstance(item, str):
                raise TemplateError(f"in: expected text in text, found {type(item).__name__}")
            self.budget.charge_search(container, item)
            return item in container
        if isinstance(container, Mapping):
            self._key(item)
            return item in container
        if isinstance(container, range) and isinstance(item, int):
            return item in container
        items = container if isinstance(container, list | tuple) else self.iterate(container)
        self.budget.charge_value(items)
        return item in items

    def _binary(self, node: nodes.BinExpr, scope: _Scope) -> Any:
        left, right = self.expression(node.left, scope), self.expression(node.right, scope)
        for x in (left, right):
            if isinstance(x, Undefined) and not (node.operator == "%" and isinstance(left, str)):
                raise x.error()
        return self.budget.check_number(_OPERATORS[node.operator](self, left, right))

    def add(self, left: Any, right: Any) -> Any:
        """Return the sum of numbers, or texts or lists one after the other."""
        if isinstance(left, str) and isinstance(right, str):
            self.budget.charge_text(len(left) + len(right))
            if isinstance(left, texts.MarkupText) or isinstance(right, texts.MarkupText):
                self.budget.charge(len(left) + len(right))
            return texts.add(left, right)
        if isinstance(left, list | tuple) and isinstance(right, list | tuple):
            self.budget.charge(len(left) + len(right))
        self._check_operands("+", left, right, (list, tuple))
        return left + right

    def _check_operands(
        self, operator: str, left: Any, right: Any, others: tuple[type, ...] = ()
    ) -> None:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers and not any(
            isinstance(left, kind) and isinstance(right, kind) for kind in others
        ):
            raise TemplateError(
                f"unsupported operands for {operator}: {type(left).__name__} and "
                f"{type(right).__name__}"
            )

    def _refuse_markup(self, operator: str, *operands: Any) -> None:
        if any(isinstance(x, texts.MarkupText) for x in operands):
            raise TemplateError(f"the operator {operator} is not supported after the filter 'safe'")

    def _subtract(self, left: Any, right: Any) -> Any:
        self._check_operands("-", left, right)
        return left - right

    def _multiply(self, left: Any, right: Any) -> Any:
        self._refuse_markup("*", left, right)
        if isinstance(left, int) and isinstance(right, str | list | tuple):
            left, right = right, left
        if isinstance(left, str | list | tuple) and isinstance(right, int):
            length = len(left) * max(0, right)
            if isinstance(left, str):
                self.budget.charge_text(length)
                return texts.with_origins(str(left) * right, texts.origins_of(left) * right)
            self.budget.charge(1 + length)
            return left * right
        self._check_operands("*", left, right)
        return left * right

    def _divide(self, left: Any, right: Any) -> Any:
        self._check_operands("/", left, right)
        return left / right

    def _floor_divide(self, left: Any, right: Any) -> Any:
        self._check_operands("//", left, right)
        return left // right

    def modulo(self, left: Any, right: Any) -> Any:
        """Return the remainder of a division, or a text with its fields filled in."""
        if isinstance(left, str):
            self._refuse_markup("%", left)
            return format_percent(self.budget, left, right)
        self._check_operands("%", left, right)
        return left % right

    def _power(self, left: Any, right: Any) -> Any:
        self._check_operands("**", left, right)
        if isinstance(left, int) and isinstance(right, int) and abs(right) > _MAX_EXPONENT:
            raise BudgetExceeded(
                f"expected an exponent of at most {_MAX_EXPONENT:,}, found {right:,}"
            )
        return left**right

    def _attribute_node(self, node: nodes.Getattr, scope: _Scope) -> Any:
        return self.attribute(self.expression(node.node, scope), node.attr)

    def attribute(self, value: Any, name: str, *, keys: bool = True) -> Any:
        """Return `value.name`: a method, or else what is stored under this key."""
        if isinstance(value, Namespace) and name in value.variables:
            return value.variables[name]
        if isinstance(value, Loop) and name in value.attributes:
            return value.attributes[name](value)
        if isinstance(value, Group) and name in value.names:
            return value[value.names.index(name)]
        method = self._method(value, name)
        if method is not None:
            return method
        if keys and isinstance(value, Mapping) and name in value:
            return value[name]
        return Undefined(f"{_kind(value)!r} has no attribute {name[:60]!r}: it")

    def _method(self, value: Any, name: str) -> Any:
        """Return a method of a value; None if there is none."""
        if isinstance(value, Undefined):
            raise value.error()
        if name.startswith("__") and not (isinstance(value, Mapping) and name in value):
            check_attribute_name(name)
        if isinstance(value, str):
            return text_method(value, name, self.budget)
        if isinstance(value, Mapping | list | tuple):
            return container_method(value, name, self.budget)
        if isinstance(value, Cycler) and name in ("current", "next", "reset"):
            return (
                value.current
                if name == "current"
                else Function(f"cycler.{name}", getattr(value, name))
            )
        if isinstance(value, Function) and isinstance(value.call, _Macro) and name == "name":
            return TemplateText(value.name)
        if isinstance(value, int | float) and hasattr(value, name):
            raise TemplateError(f"the attribute {name} of numbers is not supported")
        return None

    def _item_node(self, node: nodes.Getitem, scope: _Scope) -> Any:
        value = self.expression(node.node, scope)
        if isinstance(node.arg, nodes.Slice):
            return self._slice(
                value,
                *(
                    x and self.expression(x, scope)
                    for x in (node.arg.start, node.arg.stop, node.arg.step)
                ),
            )
        return self.item(value, self.expression(node.arg, scope))

    def _slice(self, value: Any, *bounds: Any) -> Any:
        if isinstance(value, Undefined):
            raise value.error()
        if not isinstance(value, str | list | tuple | range) or not all(
            x is None or isinstance(x, int) for x in bounds
        ):
            raise TemplateError(f"{_kind(value)!r} cannot be sliced so")
        key = slice(*bounds)
        if isinstance(value, str):
            self.budget.charge_text(len(value))
            return texts.cut(value, key)
        self.budget.charge(len(range(len(value))[key]))
        return value[key]

    def item(self, value: Any, key: Any) -> Any:
        """Return `value[key]`: what is stored there, or else a method of this name."""
        if isinstance(value, Undefined):
            raise value.error()
        if isinstance(value, Mapping):
            self._key(key)
            try:
                return value[key]
            except (KeyError, TypeError):
                pass
        elif isinstance(value, str | list | tuple | range) and isinstance(key, int):
            try:
                return (
                    texts.cut(value, range(len(value))[key])
                    if isinstance(value, str)
                    else value[key]
                )
            except IndexError:
                return Undefined(f"{_kind(value)!r} has no item {key}: it")
        method = self._method(value, key) if isinstance(key, str) else None
        return (
            Undefined(f"{_kind(value)!r} has no item {_short(key)}: it")
            if method is None
            else method
        )

    def attribute_path(self, value: Any, path: Any) -> Any:
        """Return the attribute of a filter's argument: a name, an index, or several joined by
        dots.
        """
        if isinstance(path, str):
            self.budget.charge(len(path))
        parts = (
            [int(x) if x.isdigit() else x for x in path.split(".")]
            if isinstance(path, str)
            else [path]
        )
        for part in parts:
            self.budget.charge(1)
            value = self.item(value, part)
        return value

    def _call_node(self, node: nodes.Call, scope: _Scope) -> Any:
        return self._call(node, scope, {})

    def _call(self, node: nodes.Call, scope: _Scope, extra: dict[str, Any]) -> Any:
        function = self.expression(node.node, scope)
        args, kwargs = self._arguments(node, scope)
        if isinstance(function, Undefined):
            raise function.error()
        if isinstance(function, Joiner):
            return TemplateText(function())
        if isinstance(function, Loop):
            return function(*args, **kwargs)
        if not isinstance(function, Function):
            raise TemplateError(f"{_kind(function)!r} cannot be called")
        return self.budget.check_number(function.call(*args, **kwargs, **extra))

    def _arguments(
        self, node: nodes.Call | nodes.Filter | nodes.Test, scope: _Scope
    ) -> tuple[list[Any], dict[str, Any]]:
        args = [self.expression(x, scope) for x in node.args or ()]
        kwargs: dict[str, Any] = {
            str(x.key): self.expression(x.value, scope) for x in node.kwargs or ()
        }
        if node.dyn_args is not None:
            args += self.iterate(self.expression(node.dyn_args, scope))
        if node.dyn_kwargs is not None:
            more = self.expression(node.dyn_kwargs, scope)
            if not isinstance(more, Mapping) or not all(isinstance(x, str) for x in more):
                raise TemplateError("argument after ** must be a dict of names")
            self.budget.charge(len(more))
            kwargs |= {str(name): x for name, x in more.items()}
        return args, kwargs

    def _apply_filter(self, node: nodes.Filter, scope: _Scope) -> Any:
        value = (
            self.expression(node.node, scope)
            if node.node is not None
            else Undefined("the value of the filter")
        )
        args, kwargs = self._arguments(node, scope)
        return self.filter(node.name, value, args, kwargs)

    def _filter_text(self, node: nodes.Filter, scope: _Scope, text: Any) -> Any:
        """Apply the filters of a block to its text."""
        value = (
            self._filter_text(node.node, scope, text)
            if isinstance(node.node, nodes.Filter)
            else text
        )
        args, kwargs = self._arguments(node, scope)
        return self.filter(node.name, value, args, kwargs)

    def filter(self, name: Any, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the value after a filter."""
        self.budget.charge(1)
        return self.budget.check_number(find_filter(str(name), value)(self, value, *args, **kwargs))

    def _apply_test(self, node: nodes.Test, scope: _Scope) -> bool:
        args, kwargs = self._arguments(node, scope)
        return self.test(node.name, self.expression(node.node, scope), args, kwargs)

    def test(self, name: Any, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a test holds."""
        self.budget.charge(1)
        return bool(find_test(str(name))(self, value, *args, **kwargs))

    # conversions

    def to_text(self, value: Any) -> str:
        """Return a value as `{{ value }}` writes it."""
        if isinstance(value, str):
            self.budget.charge_text(len(value))
            return value
        if value is None or isinstance(value, int | float | range):
            return TemplateText(str(value))
        if isinstance(value, Undefined):
            return ""
        if isinstance(value, CONTAINERS):
            self.budget.charge_value(value)
            text = str(value)
            self.budget.charge_text(len(text))
            return text
        raise TemplateError(f"{_kind(value)!r} cannot be written as text")

    def iterable(self, value: Any) -> Iterable[Any]:
        """Return what a loop over a value visits."""
        if isinstance(value, str):
            return texts.characters(value)
        if not isinstance(value, Iterable):
            raise TemplateError(f"{_kind(value)!r} is not iterable")
        return value

    def iterate(self, value: Any) -> list[Any]:
        """Return the items that a loop over a value visits."""
        if isinstance(value, str):
            self.budget.charge(len(value))
            return list(texts.characters(value))
        return self.budget.items(self.iterable(value))

    def nested(self) -> _Nested:
        """Count a call inside a call."""
        return _Nested(self)

    # globals

    def _globals(self) -> dict[str, Any]:
        functions: dict[str, Callable[..., Any]] = {
            "range": self._range,
            "dict": lambda *args, **kwargs: self._new_dict(*args, **kwargs),
            "namespace": lambda *args, **kwargs: Namespace(self._new_dict(*args, **kwargs)),
            "joiner": lambda sep=TemplateText(", "): Joiner(self.to_text(sep)),  # noqa: B008
            "cycler": lambda *items: Cycler(items),
            "raise_exception": self._raise,
            "strftime_now": self._strftime,
        }
        return {name: Function(name, call) for name, call in functions.items()}

    def _range(self, *bounds: Any) -> range:
        numbers = range(*bounds)
        if len(numbers) > self.budget.limits.range_length:
            raise BudgetExceeded(
                "expected a range of at most "
                f"{self.budget.limits.range_length:,} numbers, found {len(numbers):,}"
            )
        return numbers

    def _new_dict(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for x in args[:1]:
            pairs = x.items() if isinstance(x, Mapping) else map(self.iterate, self.iterate(x))
            made |= {self._key(key): value for key, value in pairs}
        self.budget.charge(len(made) + len(kwargs))
        return made | kwargs

    def _raise(self, message: Any = "") -> None:
        raise TemplateError(f"the template refuses the conversation: {self.to_text(message)}")

    def _strftime(self, pattern: Any) -> str:
        if isinstance(pattern, str):
            self.budget.charge_text(64 * len(pattern))
        if not isinstance(pattern, str) or not _DIRECTIVES.fullmatch(pattern):
            raise TemplateError("strftime_now: expected a format of directives such as %Y-%m-%d")
        return derived(self.now.strftime(str(pattern)), pattern)


class _Nested:
    """The depth of calls inside calls, which is limited."""

    def __init__(self, run: Evaluator) -> None:
        self.run = run

    def __enter__(self) -> None:
        self.run._depth += 1
        if self.run._depth > self.run.budget.limits.macro_depth:
            raise BudgetExceeded(
                f"expected calls at most {self.run.budget.limits.macro_depth} deep, found more"
            )

    def __exit__(self, *_: object) -> None:
        self.run._depth -= 1


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__.removeprefix("TemplateT").lower()


def _short(key: object) -> str:
    return (
        repr(key[:60])
        if isinstance(key, str)
        else repr(key)[:60]
        if isinstance(key, int | float)
        else type(key).__name__
    )


_STATEMENTS: dict[type[nodes.Node], Callable[[Evaluator, Any, _Scope], None]] = {
    nodes.Output: Evaluator._output_node,
    nodes.If: Evaluator._if,
    nodes.For: Evaluator._for,
    nodes.Assign: Evaluator._set,
    nodes.AssignBlock: Evaluator._set_block,
    nodes.Macro: Evaluator._define_macro,
    nodes.CallBlock: Evaluator._call_block,
    nodes.FilterBlock: Evaluator._filter_block,
    nodes.With: Evaluator._with,
    nodes.Scope: Evaluator._scoped,
    nodes.Break: Evaluator._break,
    nodes.Continue: Evaluator._continue,
}
_EXPRESSIONS: dict[type[nodes.Node], Callable[[Evaluator, Any, _Scope], Any]] = {
    nodes.Const: Evaluator._constant,
    nodes.TemplateData: Evaluator._template_data,
    nodes.Name: Evaluator._name,
    nodes.List: Evaluator._list,
    nodes.Tuple: Evaluator._tuple,
    nodes.Dict: Evaluator._dict,
    nodes.CondExpr: Evaluator._choice,
    nodes.And: Evaluator._and,
    nodes.Or: Evaluator._or,
    nodes.Not: Evaluator._not,
    nodes.Neg: Evaluator._negative,
    nodes.Pos: Evaluator._positive,
    nodes.Concat: Evaluator._concat,
    nodes.Compare: Evaluator._compare,
    nodes.Getattr: Evaluator._attribute_node,
    nodes.Getitem: Evaluator._item_node,
    nodes.Call: Evaluator._call_node,
    nodes.Filter: Evaluator._apply_filter,
    nodes.Test: Evaluator._apply_test,
    **dict.fromkeys(
        (nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod, nodes.Pow),
        Evaluator._binary,
    ),
}
_OPERATORS: dict[str, Callable[[Evaluator, Any, Any], Any]] = {
    "+": Evaluator.add,
    "-": Evaluator._subtract,
    "*": Evaluator._multiply,
    "/": Evaluator._divide,
    "//": Evaluator._floor_divide,
    "%": Evaluator.modulo,
    "**": Evaluator._power,
}
