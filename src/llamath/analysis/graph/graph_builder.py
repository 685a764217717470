"""`Operation` and `Trail`: a forward pass laid out step by step, each with its shape in letters, the weights that it uses, its FLOPs.

Weights and FLOPs are those of `fold` and `works`; a trail is closed only when every weight and every product has its step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...core.blocks import Linear, ProjectedLinear
from ...core.expr import Dim, product, total
from ...core.forward_pass import AttentionBase, ForwardPass, Mixer
from ...core.record_type import Record
from ...core.tree import Block, Folded, Weight, fold
from ..flops.flop_count import works

Shape = tuple[Dim, ...]


class Used(Record):
    """A weight that a step uses: `copies` there are of it, `live` a token meets."""

    path: str  # inside its layer; {e} stands for the expert
    weight: Weight
    group: str
    copies: int
    live: int

    @property
    def parameters(self) -> int:
        """All copies together; none of a weight that is another's."""
        return int(self.weight.parameters) * int(self.copies)


class Operation(Record):
    """One step: what it makes of which others."""

    name: str
    kind: str  # lookup linear norm rope view cache scores softmax mix act multiply add choice sum conv state ids probabilities
    does: str
    takes: tuple[str, ...]  # the steps whose results it reads
    shape: Shape
    uses: tuple[Used, ...] = ()
    flops: Dim = Dim.const(0)
    keeps: Dim = Dim.const(0)  # numbers that are remembered from here on, of all sequences
    seen: str = ""  # where a tensor of this shape is met: `path>` a module's output, `>path` its input, `path:what` inside it

    @property
    def parameters(self) -> int:
        """Those of the weights that it uses."""
        return sum(x.parameters for x in self.uses)

    @property
    def alike(self) -> tuple[object, ...]:
        """What it shares with the same step of a layer that is no different."""
        uses = tuple((x.path, x.weight, x.copies) for x in self.uses)
        return self.name, self.does, self.takes, self.shape, tuple(x.symbol for x in self.shape), uses, int(self.flops), int(self.keeps)


class Trail:
    """The steps through one part of a model, as they are laid."""

    def __init__(self, part: Block, at: ForwardPass, batch: int, width: int) -> None:
        self.at, self.steps = at, list[Operation]()
        self.B, self.T, self.d = Dim("B", batch), Dim("T", at.tokens), Dim.const(width)
        self._batch = Dim.const(1) if batch == 1 else self.B
        self._leaves, self._works = fold(part), list(works(part, at, batch))

    def lay(self, name: str, kind: str, shape: Sequence[int], takes: Iterable[str], **facts: Any) -> str:
        """One step; `uses` are the paths of its weights, or of what holds them."""
        paths = facts.pop("uses", ())
        found = [x for path in paths for x in self._claimed(path)]
        flops = total((facts.pop("flops", 0), *self._products(tuple(paths))))
        dims = tuple(map(Dim.const, shape))
        self.steps.append(Operation(name=name, kind=kind, shape=dims, takes=tuple(takes), uses=tuple(found), flops=flops, **facts))
        return name

    def keys(self, span: int | None = None) -> Dim:
        """How many keys a query of this pass may meet: those of a prompt, or those remembered, in a window no more than it holds."""
        prompt = span is None or self.at.tokens == self.at.context
        return Dim("M", self.at.context if prompt or span is None else min(self.at.context, int(span)))

    def linear(self, path: str, block: Linear, x: str, rows: Sequence[int] = (), **facts: Any) -> str:
        """W x + b for each row alone; a narrow one has its projection first."""
        rows = rows or (self.B, self.T)
        inner = block.projection if isinstance(block, ProjectedLinear) else None
        x = x if inner is None else self.linear(f"{path}.projection", inner, x, rows)
        does = "W x + b, each position alone" if block.bias else "W x, each position alone"
        said = {"does": does, "seen": f"{path}>"} | facts
        return self.lay(path, "linear", (*rows, block.weight.shape[0]), (x,), uses=(f"{path}.weight", f"{path}.bias"), **said)

    def norm(self, path: str, block: Block | None, x: str, shape: Sequence[int] = (), **facts: Any) -> str:
        """A norm of the last dimension, if there is one."""
        if block is None:
            return x
        said = {"does": type(block).__name__, "seen": f"{path}>", "uses": (path,)} | facts
        return self.lay(path, "norm", shape or (self.B, self.T, self.d), (x,), **said)

    def add(self, name: str, x: str, y: str, does: str = "added to the stream", seen: str = "") -> str:
        """The residual connection."""
        return self.lay(name, "add", (self.B, self.T, self.d), (x, y), does=does, seen=seen)

    def mixing(self, path: str, block: Mixer) -> tuple[Dim, Dim]:
        """The FLOPs that no weight accounts for: of the scores, and of what comes after."""
        found = [x for x in self._works if x.mixing and x.pattern == path]
        self._works = [x for x in self._works if x not in found]
        scores = product((self._batch, block.score_flops(self.at))) if isinstance(block, AttentionBase) else Dim.const(0)
        return scores, total(x.flops for x in found) - scores

    def closed(self) -> tuple[Operation, ...]:
        """All steps, once nothing is left over."""
        left = [x.pattern for x in self._leaves] + [x.pattern for x in self._works]
        assert not left, f"no step uses {left}"
        return tuple(self.steps)

    def _claimed(self, path: str) -> list[Used]:
        found = [x for x in self._leaves if _within(x.pattern, path)]
        self._leaves = [x for x in self._leaves if not _within(x.pattern, path)]
        return [_used(x) for x in found]

    def _products(self, paths: tuple[str, ...]) -> list[Dim]:
        found = [x for x in self._works if not x.mixing and any(_within(x.pattern, path) for path in paths)]
        self._works = [x for x in self._works if x not in found]
        return [x.flops for x in found]


def _used(x: Folded) -> Used:
    return Used(path=x.pattern.replace("{l}", "{e}"), weight=x.weight, group=x.group, copies=x.copies, live=x.active)


def _within(pattern: str, path: str) -> bool:
    return pattern == path or pattern.startswith(f"{path}.")
