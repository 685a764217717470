"""`record_unrolled`: the operations of a pass in one list, every layer by itself, as an engine
executes them.
"""

from __future__ import annotations

from typing import Any, cast

from ...core.blocks import Decoder
from ...core.expr import Expr
from .node import FLOAT32, Node
from .operations.shape_operations import ids, layer_end
from .recorder import GraphRecorder, Region, _Bound


class _UnrolledRecorder(GraphRecorder):
    """Records every layer; the paths of blocks and weights have the numbers of layers. Latent
    attention is absorbed.
    """

    @property
    def absorbs(self) -> bool:
        return True

    def layers(self, layers: Any, x: Node, *extra: Node) -> Node:
        for i, layer in enumerate(layers):
            x = layer(cast(Any, self), x, *[self.layer_input(y, i) for y in extra])
            self.add_node(layer_end, (x,), x.shape, layer=i)
        return x


def record_unrolled(tree: Decoder) -> tuple[tuple[Node, ...], Node]:
    """Return the operations of a pass over a token, and the one whose result are the logits of
    the last token.
    """
    one = Expr.const(1)
    recorder = _UnrolledRecorder(  # type: ignore[abstract]
        one, one, Expr.const(0), decode=False, last_only=True, activation_bytes=FLOAT32
    )
    region = Region("", tree, one)
    recorder.regions.append(region)
    recorder._region = region
    read = recorder.add_node(ids, (), (one, one))
    output: Node = _Bound(tree, "", numbered=True)(recorder, read)
    return tuple(region.nodes), output
