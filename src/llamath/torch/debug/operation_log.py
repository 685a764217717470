"""`OperationLog`: a torch machine that logs the shape of every operation's result;
`match_operations` compares the log with a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from ...analysis.graph.node import Node
from ...analysis.graph.operations import (
    attention_operations,
    expert_operations,
    shape_operations,
    tower_operations,
)
from ...analysis.graph.operations.operation import Operation
from ...analysis.graph.operations.operation_list import OPERATIONS
from ..attention import ScoreParams, attention_probs
from ..forward_context import MaskBlock
from ..kv_cache import Cache
from ..torch_machine import TorchMachine

Shape = tuple[int, ...]


class LoggedOperation(NamedTuple):
    """An operation that was executed."""

    op: Operation  # as in the graph
    shapes: tuple[Shape, ...]  # of its result, or of each step in which the trace shows it
    width: int  # bytes of an element of the result
    is_view: bool  # whether the result shares the storage of the first input
    layer: int | None  # index of its layer
    in_encoder: bool = False  # whether it is a layer of the encoder

    @property
    def shape(self) -> Shape:
        """The shape of the result."""
        return self.shapes[-1]


class OperationLog(TorchMachine):
    """The machine of one pass, with a log of its operations in execution order.

    The operations of all experts are logged as one: the rows of their inputs and outputs are added
    up.
    """

    def __init__(self, ids: Tensor, cache: Cache, last_only: bool = False) -> None:
        super().__init__(ids, cache, last_only)
        self.log: list[LoggedOperation] = []
        self._layer: int | None = None
        self._in_encoder = False
        self._add(shape_operations.ids, ids)

    def norm_heads(self, norm: nn.Module, x: Tensor) -> Tensor:
        outer, self.log = self.log, []
        y = super().norm_heads(norm, x)
        inner, self.log = self.log, outer
        self._add(inner[0].op, y)
        return y

    def attention(
        self,
        mixer: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        head_dim: int,
        sinks: Tensor | None = None,
        selected: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        y = super().attention(mixer, q, k, v, head_dim, sinks, selected, bias)
        if selected is not None and selected.dim() == 3 and q.shape[1] == 1:
            k = k[:, : selected.shape[2]]
        queries, keys = (x.to("meta").transpose(1, 2) for x in (q, k))
        probs = tuple(attention_probs(queries, keys, MaskBlock(), ScoreParams(1.0)).shape)
        self._add(attention_operations.attention, y, shapes=(probs, probs))
        return y

    def encoder_tokens(self) -> tuple[Tensor, Tensor] | None:
        if (tokens := super().encoder_tokens()) is not None:
            self._in_encoder = True
            for op, x in zip(
                (tower_operations.encoder_tokens, shape_operations.token_positions),
                tokens,
                strict=True,
            ):
                self._add(op, x)
        return tokens

    def encoder_attention(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, window: int | None = None
    ) -> Tensor:
        y = super().encoder_attention(q, k, v, scale, window)
        probs = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        self._add(tower_operations.encoder_attention, y, shapes=(probs, probs))
        return y

    def experts(
        self, moe: Any, experts: nn.ModuleList, x: Tensor, chosen: Tensor, weights: Tensor
    ) -> Tensor:
        outer = self.log
        inputs: list[Shape] = []
        logs: list[list[LoggedOperation]] = []

        def start(expert: nn.Module) -> Callable[..., Tensor]:
            def run(machine: OperationLog, rows: Tensor) -> Tensor:
                self.log = []
                inputs.append(tuple(rows.shape))
                logs.append(self.log)
                y: Tensor = expert(machine, rows)
                return y

            return run

        y = super().experts(moe, [start(expert) for expert in experts], x, chosen, weights)  # type: ignore[arg-type]
        self.log = outer
        # rows for experts without weights, which return their input
        idle = 0 if x.is_meta else int((chosen >= len(experts)).sum())
        outer.append(
            LoggedOperation(
                expert_operations.dispatch,
                (_total_rows(inputs, idle),),
                x.element_size(),
                False,
                self._layer,
            )
        )
        for same in zip(*logs, strict=True):
            outer.append(same[0]._replace(shapes=(_total_rows((x.shape for x in same), idle),)))
        self._add(expert_operations.combine, y)
        return y

    def layers(self, layers: nn.ModuleList, x: Tensor, *extra: Tensor) -> Tensor:
        rows = [
            shape_operations.select_layer if e.dim() == 4 else shape_operations.embeddings
            for e in extra
        ]

        def start(i: int, layer: nn.Module) -> Callable[..., Tensor]:
            def run(machine: OperationLog, x: Tensor, *slices: Tensor) -> Tensor:
                self._layer = i
                self._add(shape_operations.hidden_states, x)
                for e, op in zip(slices, rows, strict=True):
                    self._add(op, e, is_view=True)
                y: Tensor = layer(machine, x, *slices)
                return y

            return run

        y = super().layers([start(i, layer) for i, layer in enumerate(layers)], x, *extra)  # type: ignore[arg-type]
        self._layer, self._in_encoder = None, False
        self._add(shape_operations.layers, y)
        return y

    def _add(
        self, op: Operation, y: Tensor, is_view: bool = False, shapes: tuple[Shape, ...] = ()
    ) -> None:
        self.log.append(
            LoggedOperation(
                op,
                (*shapes, tuple(y.shape)),
                y.element_size(),
                is_view,
                self._layer,
                self._in_encoder,
            )
        )


def _total_rows(shapes: Iterable[Shape], idle: int) -> Shape:
    """Return the shape of all rows of the experts together, `idle` ones for experts without
    weights included.
    """
    rows = list(shapes)
    return idle + sum(_num_rows(x) for x in rows), rows[0][-1]


def _num_rows(shape: Shape) -> int:
    n = 1
    for x in shape[:-1]:
        n *= x
    return n


def _log_results(row: Operation) -> Callable[..., Any]:
    """Return an operation that logs its results; an operation that returns its input has done
    nothing.
    """
    operation = getattr(TorchMachine, row.name)

    def run(machine: OperationLog, *inputs: Any, **options: Any) -> Any:
        outer, machine.log = machine.log, []
        result = operation(machine, *inputs, **options)
        machine.log = outer
        sources = [x for x in inputs if isinstance(x, Tensor)]
        state: tuple[Shape, ...] = ()
        if row.has_state:
            kept = machine._state(inputs[0]).recurrent_state
            assert kept is not None
            state = (tuple(kept.shape),)
        for i, y in enumerate(result if isinstance(result, (list, tuple)) else [result]):
            if all(y is not x for x in sources):
                op = row if i == 0 else row.second_result or row
                machine._add(op, y, any(_shares_storage(x, y) for x in sources), state)
        return result

    return run


for _name, _row in OPERATIONS.items():
    if hasattr(TorchMachine, _name) and _name not in vars(OperationLog):
        setattr(OperationLog, _name, _log_results(_row))


def _shares_storage(x: Tensor, y: Tensor) -> bool:
    return x.untyped_storage()._cdata == y.untyped_storage()._cdata


def match_operations(
    nodes: Sequence[Node], log: Sequence[LoggedOperation]
) -> Iterator[tuple[Node, LoggedOperation]]:
    """Pair the nodes of a graph with the operations that were executed; casts depend on the
    dtype and are left out.
    """
    expected = [x for x in nodes if not x.op.is_cast]
    found = [x for x in log if not x.op.is_cast]
    assert [x.op for x in expected] == [x.op for x in found], (
        f"recorded {[x.op for x in expected]}, executed {[x.op for x in found]}"
    )
    return zip(expected, found, strict=True)
