"""`Operation` and `GraphBuilder`: a forward pass as a list of steps, each with its symbolic shape, its weights and its FLOPs.

Weights and FLOPs are those of `fold` and `list_matmuls`; a graph is finished only when every weight and every product belongs to a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from ...core.blocks import Linear, ProjectedLinear
from ...core.expr import Expr, product, total
from ...core.forward_pass import AttentionBase, ForwardPass, Mixer
from ...core.record_type import Record
from ...core.tree import Block, Folded, Weight, fold
from .old_counts import list_matmuls

Shape = tuple[Expr, ...]


class UsedWeight(Record):
    """A weight that a step uses, with its number of copies and of active (live) copies per token."""

    json_fields: ClassVar[tuple[str, ...]] = ("path", "dims", "shape=weight.shape", "copies", "live", "group", "tied", "parameters")

    path: str  # inside its layer, with {e} for the expert
    weight: Weight
    group: str
    copies: int
    live: int

    @property
    def parameters(self) -> int:
        """The parameters of all copies; 0 for a tied weight."""
        return int(self.weight.parameters) * int(self.copies)

    @property
    def dims(self) -> tuple[str, ...]:
        """The shape in letters."""
        return tuple(x.symbol for x in self.weight.shape)

    @property
    def tied(self) -> str | None:
        """The path of the weight that it is tied to."""
        return self.weight.tied or None


class Operation(Record):
    """One step of a forward pass."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *("name", "kind", "does=description", "takes=inputs", "dims", "shape", "weights", "parameters", "flops", "formula=flops.symbol"),
        "kept=cached",
    )

    name: str
    kind: str  # lookup linear norm rope view cache scores softmax mix act multiply add choice sum conv state ids probabilities
    description: str
    inputs: tuple[str, ...]  # names of the steps whose outputs it reads
    shape: Shape
    weights: tuple[UsedWeight, ...] = ()
    flops: Expr = Expr.const(0)
    cached: Expr = Expr.const(0)  # elements written to the cache, of all sequences
    hook_point: str = ""  # where the tensor is observed: `path>` a module's output, `>path` its input, `path:what` inside it

    @property
    def parameters(self) -> int:
        """The parameters of the weights that the step uses."""
        return sum(x.parameters for x in self.weights)

    @property
    def dims(self) -> tuple[str, ...]:
        """The shape in letters."""
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
            tuple(x.symbol for x in self.shape),
            uses,
            int(self.flops),
            int(self.cached),
        )


class GraphBuilder:
    """Builds the steps through one part of a model."""

    def __init__(self, part: Block, at: ForwardPass, batch: int, width: int) -> None:
        self.at, self.steps = at, list[Operation]()
        self.B, self.T, self.d = Expr("B", batch), Expr("T", at.tokens), Expr.const(width)
        self._batch = Expr.const(1) if batch == 1 else self.B
        self._leaves, self._matmuls = fold(part), list(list_matmuls(part, at, batch))

    def add_step(
        self,
        name: str,
        kind: str,
        shape: Sequence[int],
        inputs: Iterable[str],
        *,
        description: str,
        weights: Sequence[str] = (),
        flops: Expr | None = None,
        cached: Expr | None = None,
        hook_point: str = "",
    ) -> str:
        """Add one step and return its name; `weights` are paths of weights, or of the blocks that own them."""
        used = [x for path in weights for x in self._claim_weights(path)]
        self.steps.append(
            Operation(
                name=name,
                kind=kind,
                shape=tuple(map(Expr.const, shape)),
                inputs=tuple(inputs),
                description=description,
                weights=tuple(used),
                flops=total((flops if flops is not None else Expr.const(0), *self._claim_matmuls(tuple(weights)))),
                cached=Expr.const(0) if cached is None else cached,
                hook_point=hook_point,
            )
        )
        return name

    def keys(self, span: int | None = None) -> Expr:
        """The number of keys of this pass: those of the prompt, or those in the cache (limited by a sliding window)."""
        prompt = span is None or self.at.tokens == self.at.context
        return Expr("M", self.at.context if prompt or span is None else min(self.at.context, int(span)))

    def linear(
        self, path: str, block: Linear, x: str, rows: Sequence[int] = (), *, description: str = "", hook_point: str | None = None
    ) -> str:
        """Add W x + b at each position; a `ProjectedLinear` gets its projection first."""
        rows = rows or (self.B, self.T)
        inner = block.projection if isinstance(block, ProjectedLinear) else None
        x = x if inner is None else self.linear(f"{path}.projection", inner, x, rows)
        return self.add_step(
            path,
            "linear",
            (*rows, block.weight.shape[0]),
            (x,),
            weights=(f"{path}.weight", f"{path}.bias"),
            description=description or ("W x + b at each position" if block.bias else "W x at each position"),
            hook_point=f"{path}>" if hook_point is None else hook_point,
        )

    def norm(self, path: str, block: Block | None, x: str, shape: Sequence[int] = (), *, hook_point: str | None = None) -> str:
        """Add a norm over the last dimension; without a block, return x."""
        if block is None:
            return x
        return self.add_step(
            path,
            "norm",
            shape or (self.B, self.T, self.d),
            (x,),
            weights=(path,),
            description=type(block).__name__,
            hook_point=f"{path}>" if hook_point is None else hook_point,
        )

    def add_residual(self, name: str, x: str, y: str, description: str = "added to the residual stream", hook_point: str = "") -> str:
        """Add a residual connection."""
        return self.add_step(name, "add", (self.B, self.T, self.d), (x, y), description=description, hook_point=hook_point)

    def mixing(self, path: str, block: Mixer) -> tuple[Expr, Expr]:
        """Claim the mixing FLOPs of a mixer: of the attention scores, and of everything else."""
        found = [x for x in self._matmuls if x.mixing and x.pattern == path]
        self._matmuls = [x for x in self._matmuls if x not in found]
        scores = product((self._batch, block.score_flops(self.at))) if isinstance(block, AttentionBase) else Expr.const(0)
        return scores, total(x.flops for x in found) - scores

    def finish(self) -> tuple[Operation, ...]:
        """Return all steps; an assertion fails if a weight or product has no step."""
        left = [x.pattern for x in self._leaves] + [x.pattern for x in self._matmuls]
        assert not left, f"no step uses {left}"
        return tuple(self.steps)

    def _claim_weights(self, path: str) -> list[UsedWeight]:
        found = [x for x in self._leaves if _is_under(x.pattern, path)]
        self._leaves = [x for x in self._leaves if not _is_under(x.pattern, path)]
        return [_used(x) for x in found]

    def _claim_matmuls(self, paths: tuple[str, ...]) -> list[Expr]:
        found = [x for x in self._matmuls if not x.mixing and any(_is_under(x.pattern, path) for path in paths)]
        self._matmuls = [x for x in self._matmuls if x not in found]
        return [x.flops for x in found]


def _used(x: Folded) -> UsedWeight:
    return UsedWeight(path=x.pattern.replace("{l}", "{e}"), weight=x.weight, group=x.group, copies=x.copies, live=x.active)


def _is_under(pattern: str, path: str) -> bool:
    return pattern == path or pattern.startswith(f"{path}.")
