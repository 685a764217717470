"""`StopFormulas`: the formulas of stops, written from the operations of the recorded pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ....core.blocks import MoE
from ....core.expr import Power, written_factor
from ...graph.node import Node
from .stop_places import Placed


class Written(NamedTuple):
    """A formula."""

    text: str
    is_product: bool = False  # of a matrix, and has brackets beside another factor
    is_sum: bool = False  # and has brackets as a factor


class StopFormulas:
    """Writes what the steps of one layer at a stop compute: a matrix W_name and its bias b_name, a
    head that is the embedding E, and x, or another of `inputs` by the kind of step, what they read.
    """

    def __init__(self, placed: Sequence[Placed], inputs: Mapping[str, str] | None = None) -> None:
        first = placed[0].stage if placed else None
        self._nodes = [x.step.node for x in placed if x.stage is first and x.step.node is not None]
        self._own = {id(x) for x in self._nodes}
        self._inputs = inputs or {}
        self._apart: dict[str, str] = {}

    def of(self, *ops: str) -> str:
        """Return the formula of the last step with one of these operations, and what it says of
        its factors; empty if there is none.
        """
        node = next((x for x in reversed(self._nodes) if x.op.name in ops), None)
        if node is None:
            return ""
        return self._with_parts(node)

    def read_by(self, leaf: str) -> str:
        """Return the formula of what a matrix reads."""
        node = next(x for x in self._nodes if x.op.name == "linear" and _leaf(x) == leaf)
        return self._with_parts(node.inputs[0])

    def _with_parts(self, node: Node) -> str:
        self._apart = {}
        text = self._write(node).text
        return ",  ".join((text, *(f"{name} = {x}" for name, x in self._apart.items())))

    def linear(self, leaf: str, x: str) -> str:
        """Return the product with a matrix, `W_o y + b_o`."""
        found = (y for y in self._nodes if y.op.name == "linear" and _leaf(y) == leaf)
        node = next(found, None)
        return f"W_{leaf} {x}" if node is None else _linear(node, x).text

    def _write(self, node: Node) -> Written:
        while (node.is_view or node.op.is_cast) and node.inputs and id(node) not in self._own:
            node = node.inputs[0]
        if id(node) not in self._own:
            return Written(self._inputs.get(node.op.kind, "x"))
        name, given = node.op.name, node.attributes
        if name == "linear":
            return _linear(node, self._write(node.inputs[0]).text)
        if name == "lookup":
            return Written("E[id]")
        if name == "clamped_gated":
            return self._clamped_gated(node)
        parts = [self._write(x) for x in node.inputs]
        if name == "act":
            return Written(f"{given['activation']}({parts[0].text})")
        if name == "gated":
            return Written(f"{given['activation']}({parts[0].text}) · {_factor(parts[1])}")
        if name == "multiply":
            return Written(" · ".join(map(_factor, parts)))
        if name == "add":
            return Written(" + ".join(x.text for x in parts), is_sum=True)
        if name == "clamp":
            return Written(f"clamp({parts[0].text}, ±{given['limit']:g})")
        if name == "scale":
            return Written(f"{written_scale(node)} · {_in_brackets(parts[0], parts[0].is_sum)}")
        if name == "softcap":
            cap = f"{given['cap']:g}"
            return Written(f"{cap} · tanh({_in_brackets(parts[0], parts[0].is_sum)} / {cap})")
        return parts[0] if node.is_view else Written(self._inputs.get(node.op.kind, "x"))

    def _clamped_gated(self, node: Node) -> Written:
        gate, up = (self._write(x).text for x in node.inputs)
        limit, alpha = (f"{float(node.attributes[x]):g}" for x in ("limit", "alpha"))
        self._apart["g"] = f"min({gate}, {limit})"
        self._apart["u"] = f"clamp({up}, ±{limit})"
        return Written(f"(u + 1) · g · sigmoid({alpha} · g)")


def written_scale(node: Node) -> str:
    """Return a factor: √d if the family says that it is the root of the width."""
    factor = node.attributes["factor"]
    is_root = isinstance(factor, Power) and (factor.exponent, factor.factor) == (0.5, 1)
    return "√d" if is_root and factor.base == node.shape[-1] else written_factor(factor, 4)


def written_router(moe: MoE, logits: str) -> str:
    """Return how the logits of a router become weights of experts."""
    if moe.routing not in ("", "input"):
        return f"p = router({logits}),  keep the top k"
    ranked = " of p + b" if moe.correction is not None and not moe.choice_by_logits else ""
    normed = moe.norm_topk_prob and not moe.routing
    factor = f"{moe.routed_scaling_factor:g} · " if moe.routed_scaling_factor != 1 else ""
    after = f",  p_e ← {factor}p_e{' / Σ p' if normed else ''}" if factor or normed else ""
    return f"p = {moe.scoring}({logits}),  keep the top k{ranked}{after}"


def _linear(node: Node, x: str) -> Written:
    leaf, letter = _leaf(node), "A" if ".adapters." in node.weights[0].path else "W"
    has_bias = any(y.path.endswith(".bias") for y in node.weights)
    matrix = (
        "E" if any(y.weight.tied.startswith("embed") for y in node.weights) else f"{letter}_{leaf}"
    )
    bias = f" + b_{leaf}" if has_bias else ""
    return Written(f"{matrix} {x}{bias}", is_product=True, is_sum=has_bias)


def _factor(x: Written) -> str:
    return _in_brackets(x, x.is_product or x.is_sum)


def _in_brackets(x: Written, needs_brackets: bool) -> str:
    return f"({x.text})" if needs_brackets else x.text


def _leaf(node: Node) -> str:
    return node.weights[0].path.split(".")[-2] if node.weights else ""
