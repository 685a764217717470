"""`StopText`: what a stop of the tour says, and `TourFacts`, what its words are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ....core.expr import Expr, as_number
from ....utils.number_marks import text_if_equal
from ..study import ModelStudy
from .stop_formulas import StopFormulas
from .stop_places import Placed


class StopText(NamedTuple):
    """The words of a stop."""

    title: str
    what: str
    why: str
    formula: str


class TourFacts(NamedTuple):
    """What the words of stops are made of."""

    study: ModelStudy
    placed: Mapping[str, Sequence[Placed]]  # by stop
    layers: Expr
    apart: Sequence[str] = ()  # parts of the model that a text does not pass

    def has(self, stop: str) -> bool:
        """Whether the model has a stop."""
        return bool(self.placed.get(stop))

    def layers_with(self, stop: str, chosen: Callable[[Placed], bool] | None = None) -> int:
        """Return the number of layers that have steps of a stop, or the chosen ones."""
        stages = {
            id(x.stage): as_number(x.stage.times)
            for x in self.placed.get(stop, ())
            if x.stage.name == "layers" and (chosen is None or chosen(x))
        }
        return sum(stages.values())

    def in_layers(self, n: int) -> str:
        """Return `in each layer`, or in how many."""
        is_each = n == self.layers
        return "in each layer" if is_each else f"in {n:,} of {self.layers:,} layers"

    @property
    def times(self) -> str:
        """How often the next layer begins, after a colon; empty for one layer."""
        n = self.layers
        return text_if_equal(n, 1, "", f": {n:,} times, each with weights of its own")

    def names(self, stop: str, kind: str = "") -> list[str]:
        """Return the short names of the steps of a stop, each once."""
        found = (x.step for x in self.placed.get(stop, ()))
        return list(dict.fromkeys(x.name.rpartition(".")[2] for x in found if kind in ("", x.kind)))

    def first(self, stop: str, kind: str = "") -> Placed | None:
        """Return the first step of a stop."""
        return next(
            (x for x in self.placed.get(stop, ()) if kind in ("", x.step.kind)),
            None,
        )

    def attribute(self, stop: str, name: str, kind: str = "") -> object:
        """Return an attribute of the operation of the first step of a stop."""
        found = self.first(stop, kind)
        node = None if found is None else found.step.node
        return None if node is None else node.attributes.get(name)

    @property
    def reach(self) -> str:
        """The limit on the keys of a query: a window, or a chunk."""
        found = self.attribute("window", "window", "softmax")
        return "window" if getattr(found, "chunk", None) is None else "chunk"

    @property
    def has_scaled_inputs(self) -> bool:
        """Whether experts read x times their weights (Llama 4)."""
        moe = self.study.moe
        return moe is not None and moe.routing == "input"

    def formulas(self, stop: str, inputs: Mapping[str, str] | None = None) -> StopFormulas:
        """Return what writes the formulas of a stop."""
        return StopFormulas(self.placed.get(stop, ()), inputs)


BOUNDED = "The cap keeps a few large numbers from deciding alone, in training above all."


def written_cap(what: str, cap: float) -> str:
    """Return what a cap does to a score or a logit."""
    return (
        f"A {what} s is capped: {cap:g} · tanh(s / {cap:g}) is nearly s where s is small, and "
        f"always between −{cap:g} and {cap:g}."
    )


StopTexts = Mapping[str, StopText | Callable[[TourFacts], StopText]]
"""The words of stops by their names, or the functions that write them."""
