"""`Step` and `list_steps`: the steps of a recorded graph as the trace and the block
diagrams show them.

A step is an operation of the graph, with a name from the path of its block. Views and casts have no
step: the steps that read them are shown with their inputs. Attention is shown as scores, softmax
and mix, a recurrence as its states and the output read from them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar

from ...core.expr import Expr, as_number, floor_div, product
from ...core.tree import LETTERS, Folded, Weight
from ...utils.record_type import Record
from .node import Node, UsedWeight
from .operations.expert_operations import routing_weights
from .operations.operation import ENCODER_STATES, CachedTensor, StepPart, cached_tokens
from .operations.shape_operations import embeddings, layers, merge_heads
from .recorder import Graph


class WeightUse(Record):
    """A weight that a step uses, with its number of copies and of active (live) copies per
    token.
    """

    json_fields: ClassVar[tuple[str, ...]] = (
        "path",
        "dims",
        "shape=weight.shape",
        "copies",
        "live",
        "group",
        "tied",
        "parameters",
    )

    path: str  # inside its layer, with {e} for the expert
    weight: Weight
    group: str
    copies: int
    live: int

    @property
    def parameters(self) -> int:
        """The parameters of all copies; 0 for a tied weight."""
        return as_number(self.weight.parameters) * as_number(self.copies)

    @property
    def dims(self) -> tuple[str, ...]:
        """The shape in letters."""
        return tuple(x.symbol for x in self.weight.shape)

    @property
    def tied(self) -> str | None:
        """The path of the weight that it is tied to."""
        return self.weight.tied or None


class Step(Record):
    """One step of a forward pass."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "name",
            "kind",
            "does=description",
            "takes=inputs",
            "dims",
            "shape",
            "weights",
            "parameters",
            "flops",
            "formula=flops.symbol",
        ),
        "kept=cached",
    )

    name: str
    # lookup linear norm rope view cache scores softmax mix act multiply add choice sum conv state
    # ids probabilities
    kind: str
    description: str
    inputs: tuple[str, ...]  # names of the steps whose outputs it reads
    shape: tuple[Expr, ...]
    weights: tuple[WeightUse, ...] = ()
    flops: Expr = Expr.const(0)
    cached: Expr = Expr.const(0)  # elements in the cache after the pass, of all sequences
    node: Node | None = None  # the operation of the graph whose result it is

    @property
    def parameters(self) -> int:
        """The parameters of the weights that the step uses."""
        return sum(x.parameters for x in self.weights)

    @property
    def dims(self) -> tuple[str, ...]:
        """The shape in letters; M is the number of keys that queries attend to."""
        return tuple(x.symbol for x in self.shape)

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that identical layers have in common at this step."""
        uses = tuple((x.path, x.weight, x.copies) for x in self.weights)
        return (
            self.name,
            self.description,
            self.inputs,
            self.shape,
            self.dims,
            uses,
            int(self.flops),
            int(self.cached),
        )


def list_steps(
    graph: Graph,
    nodes: Iterable[Node],
    leaves: Iterable[Folded],
    stack: str = "layers",
    given: Mapping[Node, str] = MappingProxyType({}),
) -> tuple[Step, ...]:
    """Return the steps of nodes in execution order.

    `leaves` are the folded weights of their block, a layer of the stack at this path (empty: of no
    stack). `given` names the inputs that come from elsewhere.
    """
    listed = tuple(nodes)
    uses = Counter(x.path for node in listed for x in node.weights)
    return tuple(_Steps(graph, leaves, uses, stack, given).walk(listed))


def name_results(nodes: Iterable[Node]) -> dict[Node, tuple[str, ...]]:
    """Return the names of the steps of each node of an unrolled graph, the last for its result."""
    names: dict[Node, tuple[str, ...]] = {}
    used: set[str] = set()
    for node in nodes:
        if node.op.steps is not None:
            parts = node.op.steps(node, True)
            found = tuple(".".join(filter(None, (node.path, x.name))) for x in parts)
        elif node.op.stands_for or not node.op.kind:
            continue
        else:
            found = (_step_name(node, ""),)
        names[node] = tuple(_unique(x, used) for x in found)
    return names


class _Steps:
    """Turns nodes into steps."""

    def __init__(
        self,
        graph: Graph,
        leaves: Iterable[Folded],
        uses: Counter[str],
        stack: str,
        given: Mapping[Node, str],
    ) -> None:
        self._stack = stack
        self._counted: set[str] = set()  # a weight counts where it is used first
        self._uses = uses  # how many nodes use a weight: those of a stack are used one by one
        self._tokens = graph.past_tokens + graph.new_tokens
        self._encoder_tokens = graph.encoder_length
        self._batch = graph.batch
        self._past = graph.past_tokens if int(graph.past_tokens) else Expr.const(0)
        listed = list(leaves)
        self._leaves: dict[str, list[Folded]] = {}
        self._copies = Counter[str]()  # of a pattern, in all kinds of layers that have it
        for leaf in listed:
            self._leaves.setdefault(leaf.pattern, []).append(leaf)
            self._copies[leaf.pattern] += as_number(leaf.copies)
        self._given = given
        self._read: dict[Node, tuple[str, ...]] = {
            node: (name,) for node, name in given.items()
        }  # node -> the steps whose outputs it stands for
        self._names: set[str] = set()

    def walk(self, nodes: Iterable[Node]) -> Iterator[Step]:
        """Yield the steps of nodes."""
        for node in nodes:
            row = node.op
            if node in self._given:
                continue
            if row.steps is not None:
                last: tuple[str, ...] = ()
                for part in row.steps(node, True):
                    yield (step := self._step(node, part, (*last, *self._inputs(part.inputs))))
                    last = (step.name,)
                self._read[node] = last
            elif row is embeddings and node.inputs[0].op is layers:
                self._read[node] = (ENCODER_STATES,)
            elif row.stands_for:
                self._read[node] = (row.stands_for,)
            elif not row.kind or (row is merge_heads and node.inputs[0].is_view):
                self._read[node] = self._inputs(
                    node.inputs[1:] if row is routing_weights else node.inputs
                )
            else:
                flops = None if row.flops is None else row.flops(node, True)
                name = _step_name(node, self._stack)
                part = StepPart(
                    name=name,
                    kind="sum" if row.kind == "add" and "." in name else row.kind,
                    description=row.description
                    if isinstance(row.description, str)
                    else row.description(node),
                    shape=node.shape,
                    weights=node.weights,
                    flops=Expr.const(0) if flops is None else flops,
                    cached=None if row.cached is None else row.cached(node),
                )
                yield (step := self._step(node, part, self._inputs(node.inputs), name))
                self._read[node] = (step.name,)

    def _step(self, node: Node, part: StepPart, inputs: tuple[str, ...], name: str = "") -> Step:
        inside = (_inside_layer(node.path, self._stack), part.name)
        name = _unique(name or ".".join(filter(None, inside)), self._names)
        return Step(
            name=name,
            kind=part.kind,
            description=part.description,
            inputs=inputs,
            shape=tuple(
                (x.alias("M") if "P" in x.variables else x).at(P=self._past) for x in part.shape
            ),
            weights=tuple(use for x in part.weights for use in self._use(x)),
            flops=part.flops.at(P=self._past),
            cached=self._cached(part.cached),
            node=node,
        )

    def _inputs(self, nodes: Iterable[Node]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for x in nodes for name in self._read.get(x, ())))

    def _use(self, x: UsedWeight) -> Iterator[WeightUse]:
        """Yield the use of a weight; of a table in parts, one for each size of its parts."""
        path = _inside_layer(x.path, self._stack)
        first, *others = self._leaves[path]
        one_by_one, counted = self._uses[x.path] == self._copies[path] > 1, x.path in self._counted
        self._counted.add(x.path)
        copies, live = (1, 1) if one_by_one else (0, 0) if counted else (first.copies, first.active)
        yield WeightUse(path=path, weight=x.weight, group=x.group, copies=copies, live=live)
        for leaf in others if not (one_by_one or counted) else ():
            yield WeightUse(
                path=path, weight=leaf.weight, group=x.group, copies=leaf.copies, live=leaf.active
            )

    def _cached(self, x: CachedTensor | None) -> Expr:
        """Return the elements that all sequences have in the cache after the pass."""
        if x is None:
            return Expr.const(0)
        tokens = (
            cached_tokens(
                self._encoder_tokens if x.of_encoder else self._tokens, x.window.max_lookback
            )
            if x.kind == "row"
            else 1
        )
        tokens = floor_div(tokens, x.every) if x.every > 1 else tokens
        return product((self._batch, tokens, x.size)).at(P=self._past)


def _unique(name: str, used: set[str]) -> str:
    """Return a name, with a number if it is used already."""
    found = next(
        x for i in range(1, len(used) + 2) if (x := name if i == 1 else f"{name}_{i}") not in used
    )
    used.add(found)
    return found


def _step_name(node: Node, stack: str) -> str:
    """Return the name of the step of an operation: the path of its block, and in a block of
    several operations the operation.
    """
    word = node.op.step
    if not word:
        return _inside_layer(_place(node), stack).removesuffix(f".{LETTERS[1]}")
    if word.startswith("{"):
        source = _source(node) if "{source}" in word else ""
        word = word.format(source=source, **node.attributes).removeprefix("_")
    return ".".join(filter(None, (_inside_layer(node.path, stack), word)))


def _inside_layer(path: str, stack: str) -> str:
    """Return a path relative to its layer of a stack; outside of layers, without a stack, it is
    the whole path.
    """
    _, layer, inside = path.partition(f"{stack}.{LETTERS[0]}") if stack else (path, "", "")
    return inside.removeprefix(".") if layer else path


def _place(node: Node) -> str:
    """Return the path of the block that an operation is part of, or of the weight that it uses."""
    return node.weights[0].path.removesuffix(".weight") if node.weights else node.path


def _source(node: Node) -> str:
    """Return the part of a block whose result an operation reads: `q` for the rotary embedding
    of `q_norm`'s output.
    """
    prefix, x = f"{node.path}." if node.path else "", node.inputs[-1]
    while x.inputs and (_place(x) == node.path or not _place(x).startswith(prefix)):
        x = x.inputs[0]
    name = _place(x).removeprefix(prefix).partition(".")[0] if x.inputs else ""
    return re.sub(r"(^|_)(out_norm|norm|up|down)$|(?<=^k)v_down$", "", name)
