"""`signature`: what the statements of a block's forward pass depend on, but for the letters of its
sizes; blocks with the same one have the same statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ...core.expr import Expr, Letter
from ..graph.node import Node, UsedWeight
from .operation_code import USES
from .recorded_code import Body, NamedFloat, NamedInt, Placed, is_module
from .symbols import DIM, SYMBOL
from .syntax.trees import unparse

if TYPE_CHECKING:
    from .forward_code import Line
    from .model_code import ModelWriter

Signature = tuple[Any, ...]
_PLAIN = frozenset({str, bool, int, float, type(None)})


def signature(body: Body, model: ModelWriter) -> tuple[Signature, list[str], list[str]]:
    """Return the signature of a block's forward pass, and what it leaves out: letters, and the
    types of the blocks that it calls.
    """
    reader = _Reader(body, model)
    return reader.read(), list(reader.letters), reader.kinds


def outline(body: Body) -> Signature:
    """Return what is found at once of a signature: blocks that differ in it have different ones."""
    calls = [(c.op, len(c.inputs), *c.numbers) for c in body.calls]
    return (bool(body.path), *calls)


def mentioned(lines: Iterable[Line]) -> set[str]:
    """Return the letters that statements and their comments mention."""
    found = set()
    for x in lines:
        found.update(re.findall(r"\w+", x.comment))
        found.update(y.removeprefix(DIM) for y in SYMBOL.findall(unparse(x.tree)))
    return found


class _Reader:
    """Reads one body: nodes, letters and the sizes of shapes are numbered as they appear."""

    def __init__(self, body: Body, model: ModelWriter) -> None:
        self._body = body
        self._model = model
        self.letters: dict[str, int] = {}
        self.kinds: list[str] = []
        self._sizes: dict[int, int] = {}
        self._known: dict[int, Any] = {}  # of nodes and expressions
        self._count = 0  # of nodes

    def read(self) -> Signature:
        body = self._body
        # templates of these read any field of the block
        own = id(body.block) if any(c.op in USES for c in body.calls) else 0
        found: list[Any] = [type(body.block).__name__, own]
        found.append(self._values(body.inputs))
        for c in body.calls:
            found += (c.op, c.remark, tuple(c.arguments), self._values(c.arguments.values()))
            found += (self._values(c.results), self._block(c.block))
        found.append(self._values(body.outputs))
        return tuple(found)

    def _values(self, values: Iterable[Any]) -> Signature:
        return tuple([self._value(x) for x in values])

    def _value(self, x: Any) -> Any:
        kind = type(x)
        if kind is Node or kind is Expr:
            known = self._known.get(id(x))
            if known is not None:
                return known
        if kind is Node:
            self._count += 1
            self._known[id(x)] = self._count
            return self._body.names.get(id(x)), x.width, self._values(x.shape)
        if kind in _PLAIN:
            return kind, x
        if isinstance(x, Expr):
            known = self._known[id(x)] = self._size(x)
            return known
        if isinstance(x, UsedWeight):
            return self._inside(x.path), self._values(x.shape)
        if isinstance(x, Placed):
            return self._block(x) if is_module(x.block) else (self._inside(x.path), id(x.block))
        if isinstance(x, (NamedFloat, NamedInt)):
            return x.tag, x
        if isinstance(x, (tuple, list)):
            return self._values(x)
        return id(x)

    def _size(self, x: Expr) -> Signature:
        """Return a size: its letters and its value by number, what else is in it as it is."""
        terms = tuple([(k, *map(self._atom, monomial)) for monomial, k in x.terms.items()])
        return self._sizes.setdefault(int(x), len(self._sizes)), int(x) == 1, terms

    def _atom(self, x: Any) -> Any:
        if type(x) is not Letter:
            return x
        return self.letters.setdefault(x.symbol, len(self.letters)), len(x.symbol)

    def _block(self, x: Placed | None) -> Any:
        """Return what the use of a block depends on."""
        if x is None:
            return None
        own = x.block
        if not is_module(own):
            self.kinds.append(type(own).__name__)
            return self._inside(x.path), self._model.reads(own)
        plain = (getattr(own, name, None) for name in ("eps", "offset", "scale"))
        parts = tuple([name for name, _ in own.children])
        path, reads = self._inside(x.path), self._model.reads(own)
        return path, type(own).__name__, parts, self._values(plain), reads

    def _inside(self, path: str) -> tuple[bool, str]:
        """Return a path without that of the block, and whether it begins with it."""
        own = self._body.path
        return path.startswith(own), path.removeprefix(own)
