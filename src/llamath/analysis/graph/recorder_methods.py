"""`make_method`: the method of the recorder for an operation, from its row and the method of the
`Machine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from ...core.expr import Expr
from .node import Node
from .operations.operation import Operation

if TYPE_CHECKING:
    from .recorder import GraphRecorder


def make_method(row: Operation, method: FunctionType) -> Callable[..., Node]:
    """Return the method that appends a node of this operation.

    The annotations of the machine's method say what its arguments are: `X` is an input, `Weight` a
    weight, a block is asked by the row, and everything else is an attribute.
    """
    names = method.__code__.co_varnames[: method.__code__.co_argcount]
    defaults, count = method.__defaults__ or (), len(names)
    required = count - len(defaults)
    kinds = {x: str(y) for x, y in method.__annotations__.items() if x != "return"}
    places = dict(zip(("m", *names[1:]), range(len(names)), strict=True))
    inputs_of, weights_of = (
        _pick([places[x] for x, y in kinds.items() if y.partition(" ")[0] == kind])
        for kind in ("X", "Weight")
    )
    others = [x for x, y in kinds.items() if y.split(" ")[0] not in ("X", "Weight", "Block")]
    facts = [(x, places[x]) for x in others]
    shape_of, facts_of, is_identity = (
        _apply(rule, places) for rule in (row.shape, row.facts, row.is_identity)
    )

    def complete(given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        values = dict(zip(reversed(names), reversed(defaults), strict=False))
        values |= dict(zip(names, given, strict=False)) | named
        if len(given) > count or values.keys() != set(names):
            raise TypeError(f"{row.name} takes {', '.join(names[1:])}")
        return tuple([values[x] for x in names])

    def record_node(*given: Any, **named: Any) -> Node:
        if named or not required <= len(given) <= count:
            given = complete(given, named)
        elif len(given) < count:
            given += defaults[len(given) - count :]
        m: GraphRecorder = given[0]
        inputs = inputs_of(given)
        if is_identity is not None and is_identity(given):
            return cast(Node, inputs[0])
        attributes = {x: given[i] for x, i in facts} if facts else {}
        if facts_of is not None:
            attributes |= facts_of(given)
        sizes = inputs[0].shape if shape_of is None else as_exprs(shape_of(given))
        return m.append(row, inputs, sizes, weights_of(given), attributes)

    return record_node


def _pick(places: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that picks the arguments at these places, but None."""
    if not places:
        return lambda _: ()
    if len(places) == 1:
        (i,) = places
        return lambda given: () if given[i] is None else (given[i],)
    return lambda given: tuple([x for i in places if (x := given[i]) is not None])


def _apply(
    rule: Callable[..., Any] | None, places: Mapping[str, int]
) -> Callable[[tuple[Any, ...]], Any] | None:
    """Return a function of all arguments for one that names those that it reads."""
    if rule is None:
        return None
    code = cast(FunctionType, rule).__code__
    read = [places[x] for x in code.co_varnames[: code.co_argcount]]
    if len(read) == 1:
        (i,) = read
        return lambda given: rule(given[i])
    pick = itemgetter(*read)
    return lambda given: rule(*pick(given))


def as_exprs(shape: Iterable[int]) -> tuple[Expr, ...]:
    """Return a shape whose numbers are expressions."""
    return tuple([x if isinstance(x, Expr) else Expr.const(x) for x in shape])
