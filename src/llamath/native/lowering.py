"""`lower`: the recorded operations of a model as a `Program`.

Views cost nothing where a kernel reads them in place and are copied elsewhere. Matrix products with
the same input become one operation, so that queries, keys and values, or gate and up, are computed
together. Buffers are reused after their last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf, prod
from typing import NamedTuple

from ..analysis.graph.node import Node, UsedWeight
from ..analysis.graph.operations import attention_operations as attention
from ..analysis.graph.operations import elementwise_operations as elementwise
from ..analysis.graph.operations import expert_operations as routing
from ..analysis.graph.operations import projection_operations as projections
from ..analysis.graph.operations import recurrent_operations as recurrences
from ..analysis.graph.operations import shape_operations as shapes
from ..analysis.graph.operations.operation import Operation
from ..analysis.graph.steps import name_results
from ..analysis.graph.unrolled import record_unrolled
from ..core.blocks import Decoder, MoE
from ..core.config import ACTIVATIONS
from ..core.positions import LogNScaling, LogTuning, Rope, TemperatureTuning
from ..core.tree import LOOPED, fill_tied
from ..utils.errors import ImpossibleModel, LlamathError
from . import native_operations as ops
from .native_operations import CacheNumber, Op, Product, RopeNumber, StateNumber, View, WeightNumber
from .program import Buffer, CacheRows, Program, ProgramWeight, Result, State

_FUNCTIONS = "silu gelu gelu_tanh quick_gelu relu relu2 sigmoid softplus tanh".split()
"""Activation functions in the order of `kernels.h`, which begins with none."""
_SCORINGS = {"softmax": 0, "sigmoid": 1, "sqrtsoftplus": 2}
_LARGEST = 3.4e38
"""Infinity, as a number in float32."""


class NotExpressible(LlamathError):
    """A model with an operation that the native engine does not have."""


class _Cached(NamedTuple):
    """A part of the cached vectors of a mixer."""

    cache: CacheNumber
    start: int
    dim: int


Value = View | _Cached
Handler = Callable[["_Lowering", Node], Value]


def lower(tree: Decoder, keep: bool = False) -> Program:
    """Return the program of a model; raise `NotExpressible` where an operation is missing. With
    `keep` its buffers are not shared, so that a pass leaves the result of every operation.
    """
    nodes, output = record_unrolled(tree)
    lowering = _Lowering(nodes)
    for node in nodes:
        lowering.add(node)
    return lowering.program(output, keep)


class _Lowering:
    """A program while it is made. Every operation writes a buffer of its own; `program` assigns
    them to few.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = tuple(nodes)
        self.ops: list[Op] = []
        self.buffers: list[Buffer] = []
        self.weights: dict[tuple[str, str], tuple[WeightNumber, ProgramWeight]] = {}
        self.num_weights = 0
        self.caches: list[CacheRows] = []
        self.states: list[State] = []
        self.ropes: list[Rope] = []
        self.values: dict[Node, Value] = {}
        self.rows: dict[Node, int] = {}  # rows for each token
        self._products: dict[View, int] = {}  # input -> the operation with its products
        self._routed: dict[Node, View] = {}  # choice of experts -> routing weights

    def add(self, node: Node) -> None:
        """Lower one operation."""
        handler = HANDLERS.get(node.op)
        if handler is None:
            raise NotExpressible(f"the native engine has no operation {node.op.name} ({node.path})")
        check_shapes(node)
        self.rows[node] = next((self.rows[x] for x in node.inputs), 1)
        self.values[node] = handler(self, node)

    # Inputs

    def view(self, node: Node) -> View:
        """Return the result of an operation."""
        value = self.values[node]
        if not isinstance(value, View):
            raise NotExpressible(
                f"the native engine reads the cache in attention only ({node.path})"
            )
        return value

    def joined(self, node: Node) -> View:
        """Return a result whose heads have no gaps; it is copied if they have."""
        x = self.view(node)
        return x if x.has_joined_heads else self.copy(node, x)

    def whole(self, node: Node) -> View:
        """Return a result that is all of a buffer; a part is copied."""
        x = self.view(node)
        return x if x.is_whole else self.copy(node, x)

    def copy(self, node: Node, x: View) -> View:
        """Copy a part of a buffer into one of its own."""
        out = self.buffer(x.size, self.rows[node])._replace(
            heads=x.heads, head_stride=x.dim, dim=x.dim
        )
        return self.emit(ops.Copy(path=node.path, out=out, x=x))

    # Outputs

    def buffer(self, width: int, rows: int) -> View:
        """Return a new buffer."""
        self.buffers.append(Buffer(width, rows))
        return View(len(self.buffers) - 1, 0, width, 1, width, width)

    def out(self, node: Node) -> View:
        """Return a new buffer for the result of an operation."""
        *_, dim = map(int, node.shape)
        heads = int(node.shape[-2]) if len(node.shape) > 3 else 1
        return self.buffer(heads * dim, self.rows[node])._replace(
            heads=heads, head_stride=dim, dim=dim
        )

    def emit(self, op: ops.Computed) -> View:
        """Append an operation; return its result."""
        self.ops.append(op)
        return op.out

    def add_product(self, key: View, op: ops.Linear | ops.ExpertLinear) -> View:
        """Add a matrix product to the operation with this key, or else append its own; return its
        result.
        """
        found = self.ops[self._products[key]] if key in self._products else None
        if isinstance(found, type(op)) and len(found.products) < ops.MAX_PRODUCTS:
            joined = found.replace(products=(*found.products, *op.products))
            self.ops[self._products[key]] = joined
        else:
            self._products[key] = len(self.ops)
            self.ops.append(op)
        return op.products[0].out

    # Weights and states

    def weight(self, used: UsedWeight, kind: str, experts: int = 0) -> WeightNumber:
        """Return the number of a weight."""
        path = _path_of_values(used)
        if (path, kind) not in self.weights:
            shape = tuple(map(int, used.weight.shape))
            weight = ProgramWeight(path, kind, shape, experts)
            self.weights[path, kind] = WeightNumber(self.num_weights), weight
            self.num_weights += max(1, experts)
        return self.weights[path, kind][0]

    def matrix(self, used: UsedWeight) -> WeightNumber:
        """Return the number of a weight in its stored type."""
        return self.weight(used, "matrix")

    def vector(self, used: UsedWeight) -> WeightNumber:
        """Return the number of a weight in float32."""
        return self.weight(used, "vector")

    def optional_vector(self, weights: Sequence[UsedWeight]) -> WeightNumber | None:
        """Return the number of the first weight in float32, if there is one."""
        return self.vector(weights[0]) if weights else None

    def state(self, path: str, size: int) -> StateNumber:
        """Return the number of a new state."""
        self.states.append(State(path, size))
        return StateNumber(len(self.states) - 1)

    def results(self) -> Iterator[Result]:
        """Yield the views of all results, under the names of their steps in the trace."""
        for node, names in name_results(self.nodes).items():
            view = self.values[node]
            if not isinstance(view, View) or view.buffer < 0:
                continue  # tokens, and what is read from the cache
            op = next((i for i, x in enumerate(self.ops) if view in x.outs), -1)
            is_attention = op >= 0 and isinstance(self.ops[op], ops.Attention)
            yield (
                Result(names[-1], view, names[-2], op) if is_attention else Result(names[-1], view)
            )

    def program(self, output: Node, keep: bool = False) -> Program:
        """Return the finished program."""
        logits = self.view(output)
        for op in self.ops:
            _check_views(op, self.buffers)
        results = tuple(self.results()) if keep else ()
        program_ops, buffers, logits = (
            (tuple(self.ops), tuple(self.buffers), logits)
            if keep
            else _share_buffers(self.ops, self.buffers, logits)
        )
        return Program(
            ops=program_ops,
            buffers=buffers,
            weights=tuple(x for _, x in self.weights.values()),
            num_weights=self.num_weights,
            caches=tuple(self.caches),
            states=tuple(self.states),
            ropes=tuple(self.ropes),
            logits=logits,
            results=results,
        )


_ROUTERS = (routing.route, routing.route_by_token)
_ELEMENTWISE = frozenset(
    (
        elementwise.act,
        attention.add_sinusoids,
        recurrences.bounded_decay,
        shapes.to_float32,
        shapes.to_model_dtype,
        elementwise.clamp,
        elementwise.clamped_gated,
        elementwise.dropout,
        elementwise.gated,
        projections.l2_norm,
        elementwise.normalize_sum,
        elementwise.offset,
        elementwise.scale,
        attention.scale_by_position,
        elementwise.sinkhorn,
        elementwise.softcap,
    )
)
"""Operations whose inputs all have the size of the result."""


def check_shapes(node: Node) -> None:
    """Refuse an operation whose inputs and weights do not fit together; the kernels read and write
    what their shapes say.

    The blocks of a tree refuse such a model when they are made. This check does not rely on them.
    """
    inputs = [tuple(map(int, x.shape)) for x in node.inputs]
    weights = [tuple(map(int, x.shape)) for x in node.weights]
    last = inputs[0][-1] if inputs and inputs[0] else 0

    def expect(holds: bool, found: object = None) -> None:
        if not holds:
            raise ImpossibleModel(
                f"{node.path or 'the model'}: {node.op.name} of "
                f"{inputs if found is None else found} "
                f"with weights {weights} is not possible",
                hint="the sizes of the model's parts contradict each other",
            )

    expect(all(n > 0 for shape in (*inputs, *weights) for n in shape))
    if node.op in _ELEMENTWISE:
        expect(len({prod(x) for x in inputs}) == 1)
    elif node.op is projections.linear:
        expect(prod(weights[0][1:]) == last and all(x == weights[0][:1] for x in weights[1:]))
    elif node.op is projections.per_head_linear:
        size, transposed = int(node.attributes["size"]), node.attributes["transposed"]
        expect(
            weights[0][0] == inputs[0][-2] * size
            and last == (size if transposed else weights[0][1])
        )
    elif node.op in (projections.rms_norm, projections.layer_norm):
        expect(all(x[-1] == last or prod(x) == prod(inputs[0][2:]) for x in weights))
    elif node.op in (elementwise.add, elementwise.multiply):
        expect(
            all(
                a in (b, 1) or b == 1
                for a, b in zip(reversed(inputs[0]), reversed(inputs[1]), strict=False)
            )
        )
    elif node.op in (
        elementwise.scale_by_weight,
        recurrences.softplus,
        recurrences.decay,
    ):
        # inputs[0][2]: one for each head, or channel
        expect(prod(weights[0]) in (1, last, inputs[0][2], prod(inputs[0][2:])))
    elif node.op is shapes.split:
        start, size = int(node.attributes["start"]), int(node.shape[-1])
        expect(
            start >= 0 and size > 0 and start + size <= last,
            f"[{start}, {start + size}) of {last} channels",
        )
    elif node.op is shapes.split_heads:
        expect(
            int(node.shape[-1]) * int(node.shape[-2]) == last,
            f"{last} channels in heads of {int(node.shape[-1])}",
        )
    elif node.op is attention.rope:
        pairs = node.attributes["rope"].num_pairs
        expect(0 < 2 * pairs <= last, f"{pairs} pairs of {last} channels")
    elif node.op is attention.attention:
        (*_, heads, dim), (*_, kv_heads, key_dim), (*_, value_heads, _size) = inputs[:3]
        expect(heads % kv_heads == 0 and kv_heads == value_heads and dim == key_dim)
        expect(all(prod(x) == heads for x in weights))
    elif node.op is recurrences.causal_conv:
        expect(
            weights[0][0] == last
            and len(weights[0]) == 2
            and all(x == weights[0][:1] for x in weights[1:])
        )
    elif node.op is recurrences.gated_delta_rule:
        (*_, heads, dim), (*_, key_heads, key_dim), (*_, value_heads, _size) = inputs[:3]
        expect(dim == key_dim and heads == key_heads and value_heads % heads == 0)
        expect(
            inputs[3][2] == value_heads
            and prod(inputs[4][2:]) == value_heads
            and (len(inputs[3]) < 4 or inputs[3][3] == dim)
        )
    elif node.op is recurrences.ssm_scan:
        (*_, heads, _size), b, c, dt = inputs
        expect(b == c and heads % b[-2] == 0 and dt[-1] == heads and prod(weights[0]) == heads)
    elif node.op is recurrences.selective_scan:
        x, b, c, dt = inputs
        expect(b == c and x == dt and weights[0] == (last, b[-1]) and prod(weights[1]) == last)
    elif node.op in _ROUTERS:
        moe, by_token = node.attributes["moe"], node.op is routing.route_by_token
        expect(
            int(node.shape[-1]) <= last and (not weights or by_token or prod(weights[0]) == last)
        )
        expect(last == moe.experts.n + moe.zero_experts, "another number of experts")


def _check_views(op: Op, buffers: list[Buffer]) -> None:
    """Refuse an operation that reads or writes beyond a row of a buffer."""
    for x in (*op.inputs, *op.outs):
        if x.buffer < 0:
            continue
        end = x.offset + (x.heads - 1) * x.head_stride + x.dim
        if (
            min(x.offset, x.heads - 1, x.dim - 1) < 0
            or not end <= x.stride == buffers[x.buffer].width
        ):
            raise ImpossibleModel(
                f"{op.path or 'the model'}: {op.name} uses {end} numbers of a row of "
                f"{buffers[x.buffer].width}",
                hint="the sizes of the model's parts contradict each other",
            )


def _path_of_values(used: UsedWeight) -> str:
    """Return the path of a weight, or of that whose values it shares, whose last numbers are
    those of its own path.
    """
    if not used.weight.tied:
        return used.path
    tied, own = used.weight.tied.split("."), used.path.split(".")
    return ".".join(
        y if x == "{e}" else fill_tied(x, (int(y),)) if x.startswith(LOOPED) else x
        for x, y in zip(tied, own[-len(tied) :], strict=True)
    )


def _share_buffers(
    program_ops: list[Op], buffers: list[Buffer], logits: View
) -> tuple[tuple[Op, ...], tuple[Buffer, ...], View]:
    """Assign the buffers of all operations to as few as possible: one is free after the
    operation that reads it last.
    """
    last: dict[int, int] = {}
    for i, op in enumerate(program_ops):
        for x in (*op.inputs, *op.outs):
            last[x.buffer] = i
    last[logits.buffer] = len(program_ops)
    ends: dict[int, list[int]] = {}
    for buffer, i in last.items():
        ends.setdefault(i, []).append(buffer)
    shared: list[Buffer] = []
    free: list[int] = []
    place: dict[int, int] = {}

    def put(x: View) -> View:
        if x.buffer < 0:
            return x
        if x.buffer not in place:
            wanted = buffers[x.buffer]
            fitting = [i for i in free if shared[i].rows_per_token == wanted.rows_per_token]
            enough = [i for i in fitting if shared[i].width >= wanted.width]
            found = (
                min(enough, key=lambda i: shared[i].width) if enough else max(fitting, default=None)
            )
            if found is not None:
                free.remove(found)
                shared[found] = shared[found]._replace(width=max(shared[found].width, wanted.width))
                place[x.buffer] = found
            else:
                place[x.buffer] = len(shared)
                shared.append(wanted)
        return x._replace(buffer=place[x.buffer])

    result = []
    for i, op in enumerate(program_ops):
        result.append(op.with_views(put))
        free += [place[x] for x in ends.get(i, ())]
    return tuple(result), tuple(shared), put(logits)


# Each token alone


def _ids(m: _Lowering, node: Node) -> View:  # noqa: ARG001
    return View()


def _lookup(m: _Lowering, node: Node) -> View:
    return m.emit(
        ops.Lookup(
            path=node.path,
            out=m.out(node),
            table=m.matrix(node.weights[0]),
            by_position=node.inputs[0].op is shapes.token_positions,
            offset=int(node.attributes["offset"]),
        )
    )


def _linear(m: _Lowering, node: Node) -> View:
    x = m.joined(node.inputs[0])
    weight, *bias = node.weights
    if node.in_expert:
        return _expert_linear(m, node, x)
    out = m.out(node)
    product = Product(m.matrix(weight), m.optional_vector(bias), out)
    return m.add_product(x, ops.Linear(path=node.path, x=x, products=(product,)))


def _expert_linear(m: _Lowering, node: Node, x: View) -> View:
    dispatch = node.inputs[0]
    while dispatch.op is not routing.dispatch:
        dispatch = dispatch.inputs[0]
    moe: MoE = dispatch.attributes["moe"]
    chosen = m.whole(dispatch.inputs[1])
    weight, *bias = node.weights
    experts = len(moe.experts)
    bias_number = m.weight(bias[0], "vector", experts) if bias else None
    product = Product(m.weight(weight, "matrix", experts), bias_number, m.out(node))
    # rows of tokens, read without a copy for each expert
    direct = node.inputs[0] is dispatch and moe.routing != "input"
    source = m.joined(dispatch.inputs[0]) if direct else x
    return m.add_product(
        source._replace(heads=-1) if direct else x,
        ops.ExpertLinear(
            path=node.path,
            x=source,
            chosen=chosen,
            products=(product,),
            top_k=m.rows[node],
            rows_per_x=int(moe.top_k) if direct else 1,
            num_experts=experts,
        ),
    )


def _per_head(m: _Lowering, node: Node) -> View:
    return m.emit(
        ops.PerHead(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            matrix=m.matrix(node.weights[0]),
            size=int(node.attributes["size"]),
            transposed=bool(node.attributes["transposed"]),
        )
    )


def _num_norm_rows(used: UsedWeight) -> int:
    return int(used.weight.shape[0]) if len(used.weight.shape) > 1 else 1


def _norm_weights(
    m: _Lowering, node: Node, heads: int
) -> tuple[WeightNumber | None, WeightNumber | None, int]:
    """Return the numbers of a norm's weight and bias, and how many rows they have."""
    if not node.weights:
        return None, None, 1
    if "{e}" in node.weights[0].path and not node.in_expert:  # one norm for each head
        numbers, rows = [m.weight(x, "per_head", 0) for x in node.weights], heads
    else:
        numbers, rows = [m.vector(x) for x in node.weights], _num_norm_rows(node.weights[0])
    return numbers[0], numbers[1] if len(numbers) > 1 else None, rows


def _rms_norm(m: _Lowering, node: Node) -> View:
    x = m.joined(node.inputs[0])
    out = m.out(node)
    weight, _, rows = _norm_weights(m, node, x.heads)
    if node.attributes["grouped"]:
        groups = _num_norm_rows(node.weights[0])
        dim = x.size // groups
        x = m.whole(node.inputs[0])._replace(heads=groups, dim=dim, head_stride=dim)
    elif x.heads > 1:
        x = m.whole(node.inputs[0])
    m.emit(
        ops.RMSNorm(
            path=node.path,
            out=out._replace(heads=x.heads, dim=x.dim, head_stride=x.dim),
            x=x,
            weight=weight,
            weight_rows=rows,
            eps=node.attributes["eps"],
            offset=node.attributes.get("offset", 0.0),
        )
    )
    return out


def _layer_norm(m: _Lowering, node: Node) -> View:
    x = m.joined(node.inputs[0])
    x = x if x.heads == 1 else m.whole(node.inputs[0])
    weight, bias, rows = _norm_weights(m, node, x.heads)
    return m.emit(
        ops.LayerNorm(
            path=node.path,
            out=m.out(node),
            x=x,
            weight=weight,
            weight_rows=rows,
            eps=node.attributes["eps"],
            offset=node.attributes.get("offset", 0.0),
            bias=bias,
        )
    )


def _l2_norm(m: _Lowering, node: Node) -> View:
    x = m.whole(node.inputs[0])
    return m.emit(ops.L2Norm(path=node.path, out=m.out(node), x=x, eps=node.attributes["eps"]))


def _activation(node: Node) -> int:
    name = node.attributes["activation"]
    if name not in ACTIVATIONS or ACTIVATIONS[name].function not in _FUNCTIONS:
        raise NotExpressible(f"the native engine has no activation function {name} ({node.path})")
    return _FUNCTIONS.index(ACTIVATIONS[name].function) + 1


def _act(m: _Lowering, node: Node) -> View:
    x = m.whole(node.inputs[0])
    return m.emit(ops.Act(path=node.path, out=m.out(node), x=x, function=_activation(node)))


def _gated(m: _Lowering, node: Node) -> View:
    gate, up = (m.joined(x) for x in node.inputs)
    function = _activation(node)
    return m.emit(ops.Gated(path=node.path, out=m.out(node), gate=gate, up=up, function=function))


def _clamped_gated(m: _Lowering, node: Node) -> View:
    gate, up = (m.joined(x) for x in node.inputs)
    return m.emit(
        ops.ClampedGated(
            path=node.path,
            out=m.out(node),
            gate=gate,
            up=up,
            limit=node.attributes["limit"],
            alpha=node.attributes["alpha"],
        )
    )


def _add(m: _Lowering, node: Node) -> View:
    x, y = (m.whole(x) for x in node.inputs)
    return m.emit(ops.Add(path=node.path, out=m.out(node), x=x, y=y))


def _multiply(m: _Lowering, node: Node) -> View:
    x, y = (m.whole(x) for x in node.inputs)
    return m.emit(ops.Multiply(path=node.path, out=m.out(node), x=x, y=y))


def _scale(m: _Lowering, node: Node) -> View:
    return m.emit(
        ops.Scale(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            factor=node.attributes.get("factor", 1.0),
            amount=node.attributes.get("amount", 0.0),
        )
    )


def _scale_by_weight(m: _Lowering, node: Node) -> View:
    x, weight = m.whole(node.inputs[0]), m.vector(node.weights[0])
    return m.emit(ops.ScaleByWeight(path=node.path, out=m.out(node), x=x, weight=weight))


def _scale_by_position(m: _Lowering, node: Node) -> View:
    t = node.attributes["temperature"]
    if isinstance(t, LogTuning):
        kind, scale, floor, offset = 1, t.scale, t.floor, 0.0
    elif isinstance(t, TemperatureTuning):
        kind, scale, floor, offset = 2, t.scale, t.floor, t.offset
    else:
        assert isinstance(t, LogNScaling)
        kind, scale, floor, offset = 3, 0.0, t.original_context, 0.0
    return m.emit(
        ops.ScaleByPosition(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            kind=kind,
            scale=scale,
            floor=floor,
            offset=offset,
        )
    )


def _softcap(m: _Lowering, node: Node) -> View:
    x = m.whole(node.inputs[0])
    return m.emit(ops.Softcap(path=node.path, out=m.out(node), x=x, cap=node.attributes["cap"]))


def _clamp(m: _Lowering, node: Node) -> View:
    x, limit = m.whole(node.inputs[0]), node.attributes["limit"]
    return m.emit(ops.Clamp(path=node.path, out=m.out(node), x=x, limit=limit))


def _mix_streams(m: _Lowering, node: Node) -> View:
    x, weights = (m.whole(x) for x in node.inputs)
    return m.emit(ops.MixStreams(path=node.path, out=m.out(node), x=x, weights=weights))


def _normalize_sum(m: _Lowering, node: Node) -> View:
    x = m.whole(node.inputs[0])
    return m.emit(ops.NormalizeSum(path=node.path, out=m.out(node), x=x))


def _softplus(m: _Lowering, node: Node) -> View:
    high = node.attributes["maximum"]
    return m.emit(
        ops.Softplus(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            bias=m.vector(node.weights[0]),
            low=node.attributes["minimum"],
            high=_LARGEST if high == inf else high,
        )
    )


def _decay(m: _Lowering, node: Node) -> View:
    x, a_log = m.whole(node.inputs[0]), m.vector(node.weights[0])
    return m.emit(ops.Decay(path=node.path, out=m.out(node), x=x, a_log=a_log))


def _bounded_decay(m: _Lowering, node: Node) -> View:
    a_log, bias = map(m.vector, node.weights)
    return m.emit(
        ops.BoundedDecay(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            a_log=a_log,
            bias=bias,
            bound=node.attributes["bound"],
        )
    )


def _sinkhorn(m: _Lowering, node: Node) -> View:
    return m.emit(
        ops.Sinkhorn(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            iterations=int(node.attributes["iterations"]),
            eps=node.attributes["eps"],
        )
    )


def _add_sinusoids(m: _Lowering, node: Node) -> View:
    return m.emit(
        ops.AddSinusoids(
            path=node.path,
            out=m.out(node),
            x=m.whole(node.inputs[0]),
            offset=int(node.attributes["offset"]),
            steps=int(node.attributes["steps"]),
        )
    )


# Shapes


def _same(m: _Lowering, node: Node) -> Value:
    return m.values[node.inputs[0]]


def _split_heads(m: _Lowering, node: Node) -> View:
    heads, dim = int(node.shape[-2]), int(node.shape[-1])
    x = m.joined(node.inputs[0])
    return x._replace(heads=heads, head_stride=dim, dim=dim)


def _merge_heads(m: _Lowering, node: Node) -> View:
    x = m.joined(node.inputs[0])
    return x._replace(heads=1, head_stride=x.size, dim=x.size)


def _slice(m: _Lowering, node: Node) -> Value:
    start, dim, x = int(node.attributes["start"]), int(node.shape[-1]), m.values[node.inputs[0]]
    if isinstance(x, _Cached):
        return _Cached(x.cache, x.start + start, dim)
    stride = dim if x.heads == 1 else x.head_stride
    return x._replace(offset=x.offset + start, dim=dim, head_stride=stride)


def _select_layer(m: _Lowering, node: Node) -> View:
    x, i = m.view(node.inputs[0]), node.attributes["index"]
    return x._replace(offset=x.offset + i * x.head_stride, heads=1, head_stride=x.dim)


def _concat(m: _Lowering, node: Node) -> View:
    out, at = m.out(node), 0
    for part in node.inputs:
        x = m.view(part)
        target = out._replace(offset=out.offset + at, dim=x.dim)
        m.emit(ops.Copy(path=node.path, out=target, x=x))
        at += x.dim
    return out


def _last_token(m: _Lowering, node: Node) -> View:
    x = m.view(node.inputs[0])
    m.rows[node] = 0
    return m.emit(ops.LastToken(path=node.path, out=m.out(node), x=x))


def _layer_end(m: _Lowering, node: Node) -> View:
    x = m.whole(node.inputs[0])
    m.ops.append(ops.LayerEnd(path=node.path, x=x, layer=int(node.attributes["layer"])))
    return x


# Tokens meet


def _rope(m: _Lowering, node: Node) -> View:
    rope: Rope = node.attributes["rope"]
    number = next((i for i, x in enumerate(m.ropes) if x is rope or x == rope), len(m.ropes))
    if number == len(m.ropes):
        m.ropes.append(rope)
    return m.emit(
        ops.Rope(
            path=node.path,
            out=m.out(node),
            x=m.joined(node.inputs[0]),
            rope=RopeNumber(number),
            interleaved=rope.interleaved,
        )
    )


def _update_cache(m: _Lowering, node: Node) -> _Cached:
    x, window = m.joined(node.inputs[0]), node.attributes["window"]
    if not window.causal:
        raise NotExpressible(f"the native engine computes causal attention only ({node.path})")
    if window.after_prompt is not None:
        raise NotExpressible(
            f"the native engine has no window that begins after the prompt ({node.path})"
        )
    m.caches.append(
        CacheRows(node.path, node.attributes["name"], x.heads, x.dim, window.max_lookback)
    )
    number = CacheNumber(len(m.caches) - 1)
    m.ops.append(ops.Store(path=node.path, x=x, cache=number))
    return _Cached(number, 0, x.dim)


def _read_cache(m: _Lowering, node: Node) -> _Cached:
    prefix, name = f"layers.{node.attributes['layer']}.", node.attributes["name"]
    number = next(i for i, x in enumerate(m.caches) if x.path.startswith(prefix) and x.name == name)
    return _Cached(CacheNumber(number), 0, m.caches[number].dim)


def _attention(m: _Lowering, node: Node) -> View:
    if len(node.inputs) > 3:
        raise NotExpressible(f"the native engine has no attention to selected keys ({node.path})")
    q = m.joined(node.inputs[0])
    k, v = (m.values[x] for x in node.inputs[1:])
    assert isinstance(k, _Cached) and isinstance(v, _Cached)
    facts, window = node.attributes, node.attributes["window"]
    transform = facts["transform"]
    alibi = transform.alibi
    if alibi is not None and alibi.bf16_rounded:
        raise NotExpressible(f"the native engine has no ALiBi with rounded biases ({node.path})")
    lookbacks = (m.caches[k.cache].lookback, window.max_lookback)
    if lookbacks[0] is not None and (lookbacks[1] is None or lookbacks[1] > lookbacks[0]):
        raise NotExpressible(
            f"a layer reads more keys than the layer keeps that it shares them with ({node.path})"
        )
    scale = int(facts["head_dim"]) ** -0.5 if transform.scale is None else transform.scale
    return m.emit(
        ops.Attention(
            path=node.path,
            out=m.out(node),
            q=q,
            key_cache=k.cache,
            first_key=k.start,
            key_dim=k.dim,
            value_cache=v.cache,
            first_value=v.start,
            value_dim=v.dim,
            window=window.size or 0,
            chunk=window.chunk or 0,
            sinks=m.optional_vector(node.weights),
            scale=scale,
            softcap=transform.softcap or 0.0,
            has_alibi=alibi is not None,
            alibi_bias=alibi.max_bias if alibi else 0.0,
            alibi_scale=alibi.scale if alibi else 0.0,
        )
    )


def _causal_conv(m: _Lowering, node: Node) -> View:
    weight, *bias = node.weights
    channels, taps = map(int, weight.weight.shape)
    if node.attributes["dilation"] > 1:
        raise NotExpressible(f"the native engine has no dilated convolution ({node.path})")
    return m.emit(
        ops.CausalConv(
            path=node.path,
            out=m.out(node),
            x=m.joined(node.inputs[0]),
            weight=m.vector(weight),
            bias=m.optional_vector(bias),
            state=m.state(node.path, channels * (taps - 1)),
            taps=taps,
        )
    )


def _gated_delta_rule(m: _Lowering, node: Node) -> View:
    q, k, v, g, beta = (m.joined(x) for x in node.inputs)
    return m.emit(
        ops.DeltaRule(
            path=node.path,
            out=m.out(node),
            q=q,
            k=k,
            v=v,
            g=g,
            beta=beta,
            state=m.state(node.path, v.heads * q.dim * v.dim),
            decay_by_row=len(node.inputs[3].shape) > 3,
        )
    )


def _ssm_scan(m: _Lowering, node: Node) -> View:
    x, b, c, dt = (m.joined(y) for y in node.inputs)
    return m.emit(
        ops.SSMScan(
            path=node.path,
            out=m.out(node),
            x=x,
            b=b,
            c=c,
            dt=dt,
            a_log=m.vector(node.weights[0]),
            state=m.state(node.path, x.heads * x.dim * b.dim),
        )
    )


def _selective_scan(m: _Lowering, node: Node) -> View:
    x, b, c, dt = (m.joined(y) for y in node.inputs)
    a_log, skip = map(m.vector, node.weights)
    return m.emit(
        ops.SelectiveScan(
            path=node.path,
            out=m.out(node),
            x=x,
            b=b,
            c=c,
            dt=dt,
            a_log=a_log,
            skip=skip,
            state=m.state(node.path, x.dim * b.dim),
        )
    )


# One of many


def _route(m: _Lowering, node: Node) -> View:
    logits = m.whole(node.inputs[0])
    top_k = int(node.shape[-1])
    chosen, weights = m.buffer(top_k, m.rows[node]), m.buffer(top_k, m.rows[node])
    m._routed[node] = weights
    moe: MoE = node.attributes["moe"]
    scoring = _SCORINGS[moe.scoring]
    if node.op is routing.route_by_token:
        m.ops.append(
            ops.RouteByToken(
                path=node.path,
                chosen=chosen,
                weights=weights,
                logits=logits,
                table=m.vector(node.weights[0]),
                table_rows=int(node.weights[0].weight.shape[0]),
                top_k=top_k,
                scoring=scoring,
                scaling=moe.routed_scaling_factor,
            )
        )
        return chosen
    groups = moe.expert_groups
    counts = (0, 0, 0) if groups is None else groups[:3]
    m.ops.append(
        ops.Route(
            path=node.path,
            chosen=chosen,
            weights=weights,
            logits=logits,
            correction=m.optional_vector(node.weights),
            top_k=top_k,
            scoring=scoring,
            choice_by_logits=moe.choice_by_logits,
            normalize=moe.norm_topk_prob and moe.routing != "input",
            groups=int(counts[0]),
            kept_groups=int(counts[1]),
            best_of_group=int(counts[2]),
            scaling=moe.routed_scaling_factor,
            other=0.0 if groups is None else max(groups.other_score, -_LARGEST),
        )
    )
    return chosen


def _routing_weights(m: _Lowering, node: Node) -> View:
    return m._routed[node.inputs[1]]


def _scale_by_expert(m: _Lowering, node: Node) -> View:
    weights, chosen = (m.whole(x) for x in node.inputs)
    return m.emit(
        ops.ScaleByExpert(
            path=node.path,
            out=m.out(node),
            weights=weights,
            chosen=chosen,
            scale=m.vector(node.weights[0]),
            num_experts=int(node.weights[0].weight.size),
        )
    )


def _dispatch(m: _Lowering, node: Node) -> View:
    moe: MoE = node.attributes["moe"]
    m.rows[node] = int(moe.top_k)
    if moe.routing != "input":  # the experts' first products read the rows of tokens
        return View()
    if node.inputs[1].op not in _ROUTERS:
        raise NotExpressible(
            f"the native engine has no experts that are chosen one by one ({node.path})"
        )
    combine = next(x for x in m.nodes if x.op is routing.combine and x.inputs[1] is node.inputs[1])
    x, weights = m.whole(node.inputs[0]), m.view(combine.inputs[2])
    top_k = int(moe.top_k)
    return m.emit(ops.Dispatch(path=node.path, out=m.out(node), x=x, weights=weights, top_k=top_k))


def _combine(m: _Lowering, node: Node) -> View:
    moe: MoE = node.attributes["moe"]
    y, chosen, weights = (m.whole(x) for x in node.inputs)
    m.rows[node] = 1
    dispatch = next(
        x for x in m.nodes if x.op is routing.dispatch and x.inputs[1] is node.inputs[1]
    )
    return m.emit(
        ops.Combine(
            path=node.path,
            out=m.out(node),
            y=y,
            weights=weights,
            chosen=chosen,
            x=m.whole(dispatch.inputs[0]) if moe.zero_experts else None,
            top_k=int(moe.top_k),
            num_experts=len(moe.experts),
            has_equal_weights=moe.routing == "input",
        )
    )


HANDLERS: dict[Operation, Handler] = {
    **dict.fromkeys((shapes.ids, shapes.token_positions), _ids),
    projections.lookup: _lookup,
    projections.linear: _linear,
    projections.per_head_linear: _per_head,
    projections.rms_norm: _rms_norm,
    projections.layer_norm: _layer_norm,
    projections.l2_norm: _l2_norm,
    elementwise.act: _act,
    elementwise.gated: _gated,
    elementwise.clamped_gated: _clamped_gated,
    elementwise.add: _add,
    elementwise.multiply: _multiply,
    **dict.fromkeys((elementwise.scale, elementwise.offset), _scale),
    elementwise.scale_by_weight: _scale_by_weight,
    attention.scale_by_position: _scale_by_position,
    elementwise.softcap: _softcap,
    elementwise.clamp: _clamp,
    elementwise.mix_streams: _mix_streams,
    elementwise.normalize_sum: _normalize_sum,
    elementwise.sinkhorn: _sinkhorn,
    recurrences.softplus: _softplus,
    recurrences.decay: _decay,
    recurrences.bounded_decay: _bounded_decay,
    attention.add_sinusoids: _add_sinusoids,
    **dict.fromkeys(
        (
            shapes.to_float32,
            shapes.to_model_dtype,
            elementwise.dropout,
        ),
        _same,
    ),
    shapes.split_heads: _split_heads,
    shapes.merge_heads: _merge_heads,
    shapes.split: _slice,
    shapes.embeddings: lambda m, node: m.view(node.inputs[0]),
    shapes.select_layer: _select_layer,
    shapes.concat: _concat,
    shapes.last_token: _last_token,
    shapes.layer_end: _layer_end,
    attention.rope: _rope,
    attention.update_cache: _update_cache,
    attention.read_cache: _read_cache,
    attention.attention: _attention,
    recurrences.causal_conv: _causal_conv,
    recurrences.gated_delta_rule: _gated_delta_rule,
    recurrences.ssm_scan: _ssm_scan,
    recurrences.selective_scan: _selective_scan,
    **dict.fromkeys(_ROUTERS, _route),
    routing.routing_weights: _routing_weights,
    routing.scale_by_expert: _scale_by_expert,
    routing.dispatch: _dispatch,
    routing.combine: _combine,
}
"""How each operation of a graph is lowered."""
