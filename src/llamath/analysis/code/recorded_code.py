"""`record_code`: what each block of a model computes, recorded by running its `forward` on a
machine that keeps every operation with its arguments.

Python itself decides all options, loops and helpers of a `forward`, so that what a model does not
use is not recorded. Results have the names of the variables in the source, read from the frames
while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import cache
from types import FrameType, FunctionType
from typing import Any, cast

from ...core.attention_facts import AttentionWindow
from ...core.blocks import Embedding, LayerNorm, Linear, Norm, RMSNorm
from ...core.expr import Expr, Power
from ...core.machine import Machine
from ...core.tree import LETTERS, Block, Stack, Weight
from ..graph.node import INT64, Node, UsedWeight
from ..graph.operations import shape_operations
from ..graph.recorder import GraphRecorder, Region

_MODULES = frozenset((Linear, RMSNorm, LayerNorm, Embedding))
"""Types of blocks that are one module of torch, or a small one of the written file."""


def is_module(block: object) -> bool:
    """Whether a block is one module of torch, whose forward is not written."""
    if type(block) not in _MODULES or (isinstance(block, LayerNorm) and block.offset):
        return False
    return not (
        isinstance(block, Norm) and block.weight is not None and len(block.weight.shape) > 1
    )


class NamedFloat(float):
    """A number of a block with the name of its field."""

    tag: str

    def __new__(cls, value: float, tag: str) -> NamedFloat:
        self = float.__new__(cls, value)
        self.tag = tag
        return self


class NamedInt(int):
    """An integer of a block with the name of its field."""

    tag: str

    def __new__(cls, value: int, tag: str) -> NamedInt:
        self = int.__new__(cls, value)
        self.tag = tag
        return self


FieldsRead = dict[int, set[str]]
"""Block, by its identity -> the fields that its forward has read."""


class Placed:
    """A block at its place, which notes the fields that are read of it."""

    def __init__(self, block: Block, path: str, reads: FieldsRead) -> None:
        self.block = block
        self.path = path
        self.group = ""
        self._reads = reads
        self._own_reads = reads.setdefault(id(block), set())

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.block, name)
        self._own_reads.add(name)
        if isinstance(value, Weight):
            value = UsedWeight(path=self._inside(name), weight=value)
        elif isinstance(value, Block):
            value = Placed(value, self._inside(name), self._reads)
        elif type(value) is Stack:
            value = PlacedStack(value, self._inside(name), self._reads)
        elif isinstance(value, float) and not isinstance(value, Power):
            value = NamedFloat(value, name)
        elif type(value) is int:
            value = NamedInt(value, name)
        self.__dict__[name] = value
        return value

    def _inside(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def __call__(self, m: CodeRecorder, *inputs: Node) -> Any:
        return m.call(self, inputs)


class PlacedStack:
    """A stack at its place."""

    def __init__(self, stack: Stack, path: str, reads: FieldsRead) -> None:
        self.stack = stack
        self.path = path
        self._reads = reads
        self._placed: dict[int, Placed] = {}

    def __iter__(self) -> Iterator[Placed]:
        places = enumerate(self.stack)
        return iter([Placed(x, f"{self.path}.{i}", self._reads) for i, x in places])

    def bind(self, block: Block, letter: str) -> Placed:
        """Return a block of the stack, with a letter for its number."""
        placed = Placed(block, f"{self.path}.{letter}", self._reads)
        return self._placed.setdefault(id(block), placed)


class RecordedCall:
    """One operation with its arguments, or the use of another block (`op` is empty)."""

    def __init__(
        self,
        op: str,
        arguments: dict[str, Any],
        results: tuple[Node, ...],
        block: Placed | None = None,
        remark: str = "",
    ) -> None:
        self.op = op
        self.arguments = arguments
        self.results = results
        self.block = block
        self.remark = remark  # what the source says of its line in a comment, unless it is a shape
        self.inputs = _nodes_in(arguments.values())  # those in sequences included

    @property
    def numbers(self) -> list[float]:
        """The numbers among its arguments that have the names of fields."""
        return [x for x in self.arguments.values() if isinstance(x, (NamedInt, NamedFloat))]


class Body:
    """The operations of the forward pass of one block."""

    def __init__(self, block: Block, path: str, inputs: tuple[Node, ...]) -> None:
        self.block = block
        self.path = path
        self.inputs = inputs
        self.calls: list[RecordedCall] = []
        self.outputs: tuple[Node, ...] = ()
        self.has_one_output = True  # and not several in a tuple
        # of nodes: how far from the frame of the block's own forward, and the variable's name
        self.names: dict[int, tuple[int, str]] = {}


_VARARGS = 0x04
"""The flag of a function that takes any number of values, `inspect.CO_VARARGS`."""
_OPERATIONS = [
    name for name, x in vars(Machine).items() if isinstance(x, FunctionType) and name[0] != "_"
]


@cache
def _parameters(operation: str) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of an operation with their defaults, or with None, and the name of the
    one that takes all further values, if there is one.
    """
    method = vars(Machine)[operation]
    code, defaults = method.__code__, method.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    known = zip(names[len(names) - len(defaults) :], defaults, strict=True)
    rest = code.co_varnames[code.co_argcount :][: bool(code.co_flags & _VARARGS)]
    return dict.fromkeys(names) | dict(known), list(rest)


class CodeRecorder(GraphRecorder):
    """The recorder of graphs, which gives results their shapes; it keeps each operation with its
    arguments, by block.
    """

    def __init__(self, tokens: str, keys: str) -> None:
        super().__init__(
            Expr.variable("B", 2),
            Expr.variable(tokens, 5),
            Expr.variable(keys, 5),
            decode=False,
            activation_bytes=2,
        )
        self.fields_read: FieldsRead = {}
        self.bodies: dict[int, Body] = {}  # by block, in the order in which they end: inner first
        self._body: Body | None = None
        self._depth = 0  # inside an operation, or a block that is one module

    def visible_keys(self, window: AttentionWindow) -> Expr:  # noqa: ARG002
        """All keys are kept: a letter of their own."""
        return self.past_tokens

    def call(self, block: Any, inputs: tuple[Node, ...]) -> Any:
        outer, depth = self._body, self._depth
        if outer is not None and not depth:
            self._note_names(outer, sys._getframe(2))
        forward = type(block.block).forward
        known = self.bodies.get(id(block.block))
        if is_module(block.block):
            self._depth += 1
            result = forward(block, self, *inputs)
        elif known is not None and _are_alike(known.inputs, inputs):
            result = self._repeated(known, inputs)
        else:
            self._body, self._depth = Body(block.block, block.path, inputs), 0
            result = forward(block, self, *inputs)
            self._body.outputs = _results(result)
            self._body.has_one_output = result is self._body.outputs[0]
            self.bodies.setdefault(id(block.block), self._body)
        self._body, self._depth = outer, depth
        if outer is not None and not depth:
            named = {f"x{i}": x for i, x in enumerate(inputs)}
            outer.calls.append(
                RecordedCall("", named, _results(result), block, _remark(sys._getframe(2)))
            )
        return result

    def _repeated(self, body: Body, inputs: tuple[Node, ...]) -> Any:
        """Return new results of a block that was recorded with inputs of these shapes."""
        places = {id(x): y for x, y in zip(body.inputs, inputs, strict=True)}
        found = [
            places.get(id(x))
            or self.append(x.op, x.inputs, x.shape, x.weights, x.attributes, x.width)
            for x in body.outputs
        ]
        return found[0] if body.has_one_output else tuple(found)

    def _note_names(self, body: Body, frame: FrameType | None) -> None:
        """Note the names of nodes in all frames out to that of the block's forward."""
        frames: list[FrameType] = []
        while frame is not None and frame.f_code is not CodeRecorder.call.__code__:
            frames.append(frame)
            frame = frame.f_back
        names = body.names
        for distance, x in enumerate(reversed(frames)):
            for name, value in x.f_locals.items():
                if type(value) is Node:
                    known = names.get(id(value))
                    if (known is None or known[0] > distance) and name.isidentifier():
                        names[id(value)] = (distance, name)

    def keep(self, name: str, frame: FrameType, given: tuple[Any, ...], named: Any) -> Any:
        """Run an operation, and keep it unless another one asked for it."""
        compute = getattr(GraphRecorder, name)  # the first call of an operation makes its method
        body = self._body
        if self._depth or body is None:
            return compute(self, *given, **named)
        self._note_names(body, frame)
        self._depth += 1
        if name == "norm_heads" and isinstance(given[0], PlacedStack):
            result = given[0].bind(given[0].stack[0], LETTERS[1])(self, *given[1:])
        else:
            result = compute(self, *given, **named)
        self._depth -= 1
        results = _results(result)
        if len(results) == 1 and results[0] in given:
            return result  # nothing to do: a scale of 1, no rope
        defaults, rest = _parameters(name)
        arguments = {**defaults, **dict(zip(defaults, given, strict=False)), **named}
        if rest:
            arguments[rest[0]] = given[len(defaults) :]
        body.calls.append(RecordedCall(name, arguments, results, remark=_remark(frame)))
        return result

    def layers(self, layers: Any, x: Node, *extra: Node) -> Node:
        self._note_names(cast(Body, self._body), sys._getframe(1))
        self._depth += 1
        for block, _ in layers.stack.distinct():
            inputs = [self.layer_input(y) for y in extra]
            layers.bind(block, LETTERS[0])(self, x, *inputs)
        self._depth -= 1
        result = self.add_node(shape_operations.layers, (x,), x.shape)
        arguments = {"layers": layers, "x": x, "extra": extra}
        cast(Body, self._body).calls.append(RecordedCall("layers", arguments, (result,)))
        return result


def _are_alike(some: tuple[Node, ...], others: tuple[Node, ...]) -> bool:
    """Whether nodes have the same shapes, in letters, and dtypes."""
    pairs = zip(some, others, strict=True)
    return len(some) == len(others) and all(
        x.width == y.width
        and (x.shape is y.shape or [n.terms for n in x.shape] == [n.terms for n in y.shape])
        for x, y in pairs
    )


def _nodes_in(values: Iterable[Any]) -> list[Node]:
    found: list[Node] = []
    for x in values:
        if type(x) is Node:
            found.append(x)
        elif isinstance(x, (tuple, list)):
            found += _nodes_in(x)
    return found


def _results(result: Any) -> tuple[Node, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@cache
def _source_lines(path: str) -> list[str]:
    """Return the lines of a module; those of one that is in no file are not known."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []


def _remark(frame: FrameType) -> str:
    return _remark_at(frame.f_code.co_filename, frame.f_lineno)


@cache
def _remark_at(path: str, number: int) -> str:
    """Return what the source says in a comment after a line, unless it is a shape."""
    _, _, remark = "".join(_source_lines(path)[number - 1 : number]).partition("  # ")
    return "" if remark.startswith(("(", "noqa", "type:")) else remark.strip()


def _kept(name: str) -> Any:
    def operation(self: CodeRecorder, *given: Any, **named: Any) -> Any:
        return self.keep(name, sys._getframe(1), given, named)

    return operation


for _name in _OPERATIONS:
    if _name not in vars(CodeRecorder):
        setattr(CodeRecorder, _name, _kept(_name))


def record_code(tree: Block, letters: set[str]) -> CodeRecorder:
    """Record the forward pass of a whole model; letters of dimensions stand for nothing else."""
    tokens = next(x for x in ("T", "N", "Tn") if x not in letters)
    keys = next(x for x in ("S", "M", "Sk") if x not in letters)
    m = CodeRecorder(tokens, keys)  # type: ignore[abstract]
    m._open(Region("", tree, Expr.const(1)))
    ids = m.add_node(shape_operations.ids, (), (m.batch, m.new_tokens), width=INT64)
    Placed(tree, "", m.fields_read)(m, ids)
    return m
