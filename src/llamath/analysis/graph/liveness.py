"""The peak of activations in a forward pass without gradients: every storage lives from its
operation to its last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...core.expr import Expr, Number, total
from ...utils.number_marks import is_marking
from .node import Node
from .operations.saved_tensors import elements_per_token
from .recorder import Graph, Region


class Peak(NamedTuple):
    """The elements per token that live at once, and the operation that runs then."""

    elements: Expr
    node: Node


def peak_of_layers(graph: Graph) -> Peak | None:
    """Return the largest peak in any layer; None without layers.

    As in Python, the arguments of a block and the queries, keys and values of a mixer live until it
    returns; the argument of the layer lives in its caller as well.
    """
    return max(map(_peak_of_region, graph.layers), key=lambda x: int(x.elements), default=None)


def peak_elements(graph: Graph) -> Expr:
    """Return the most elements that live at once in any region of the pass of a tower, for all
    of its tokens.
    """
    return max((_peak_of_region(x, lambda size: size).elements for x in graph.regions), key=int)


def most_elements(graph: Graph) -> int:
    """Return the elements per token at the largest peak, which with marks may move to another
    operation.
    """
    sizes = [total(y) for x in graph.layers for y in live_elements(x)]
    found = max(map(int, sizes), default=0)
    return Number(found, "max", *sizes) if is_marking() and sizes else found


def live_elements(
    region: Region, measure: Callable[[Expr], Expr] = elements_per_token
) -> Iterator[list[Expr]]:
    """Yield the elements that live at each operation, with those of the argument once more."""
    ends = _last_uses(region)
    live: dict[Node, Expr] = {}
    for i, node in enumerate(region.nodes):
        if not node.is_view and not node.op.cache:
            live[node] = measure(node.size)
        values = list(live.values())
        yield [*values[:1], *values]
        live = {x: elements for x, elements in live.items() if ends[x] > i}


def _peak_of_region(region: Region, measure: Callable[[Expr], Expr] = elements_per_token) -> Peak:
    ends = _last_uses(region)
    live: dict[Node, Expr] = {}
    most, at_peak, peak_node = -1, list[Expr](), region.nodes[0]
    for i, node in enumerate(region.nodes):
        if not node.is_view and not node.op.cache:
            live[node] = measure(node.size)
        if (size := sum(map(int, live.values()))) > most:
            most, at_peak, peak_node = size, list(live.values()), node
        live = {x: elements for x, elements in live.items() if ends[x] > i}
    return Peak(total((at_peak[0], *at_peak)), peak_node)


def _last_uses(region: Region) -> dict[Node, int]:
    """Return the index of the last operation that reads each storage, or during which a variable
    or an argument of a block holds it.
    """
    ends: dict[Node, int] = {}
    held = list(region.call_ends)
    for i, node in enumerate(region.nodes):
        ends |= dict.fromkeys((x.storage for x in (*node.inputs, node)), i)
        if node.op.mixing or node.op.cache == "kept":
            mixer_end = max(j for j, x in enumerate(region.nodes) if x.path.startswith(node.path))
            held += [(x.storage, mixer_end) for x in node.inputs]
    for storage, i in held:
        ends[storage] = max(ends[storage], i)
    if region.output is not None:
        ends[region.output.storage] = len(region.nodes)
    return ends
