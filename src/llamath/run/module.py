"""`Module`: a block of the tree, alive. Parameters, their shapes and their names are the tree's; what is written here is `forward`.

In shapes: B rows of a batch, T tokens of this pass, S keys that they see, d the width, H heads, K key/value heads, h the size of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ..core.expr import Dim
from ..core.tree import Block, Stack, Weight, walk


class TensorOptions(NamedTuple):
    """Where numbers lie, and of what type they are."""

    dtype: torch.dtype
    device: torch.device


class Module(nn.Module):
    """A Parameter for each Weight of a block, a Module for each Block, a ModuleList for each Stack, all under the names of its fields.

    A part that the block does not have is None. Plain facts stay where they are: `self.spec.heads`.
    """

    spec: Any

    def __init__(self, spec: Block, place: TensorOptions) -> None:
        super().__init__()
        numbers = {name: int(x) for name in spec.fields if isinstance(x := getattr(spec, name), Dim)}
        self.spec = spec.replace(**numbers) if numbers else spec
        for name in spec.fields:
            part = getattr(spec, name)
            if name in spec.excluded or part is None:
                setattr(self, name, None)
            elif isinstance(part, Weight):
                self._add_weight(name, part, place)
            elif isinstance(part, Block):
                setattr(self, name, make_module(part, place))
            elif isinstance(part, Stack):
                setattr(self, name, nn.ModuleList(make_module(x, place) for x in part))

    def _add_weight(self, name: str, weight: Weight, place: TensorOptions) -> None:
        """Room for a weight; one that is another's gets it in `tie`, and buffers, which correct what is close, stay in float32."""
        if weight.tied:
            self.register_parameter(name, None)
        elif weight.buffer:
            self.register_buffer(name, torch.empty(weight.shape, dtype=torch.float32, device=place.device))
        else:
            self.register_parameter(name, nn.Parameter(torch.empty(weight.shape, dtype=place.dtype, device=place.device)))

    def extra_repr(self) -> str:
        own = ((name, getattr(self.spec, name)) for name, _ in self.spec.children)
        return ", ".join(f"{name} {_format_shape(x)}" for name, x in own if isinstance(x, Weight))

    if TYPE_CHECKING:

        def __call__(self, *args: Any) -> Tensor: ...


def _format_shape(weight: Weight) -> str:
    """With letters and numbers: `(V, d) = (32000, 4096)`; a tied one says whose it is."""
    if weight.tied:
        return f"is {weight.tied}"
    letters, numbers = ", ".join(x.symbol for x in weight.shape), ", ".join(map(str, weight.shape))
    return f"({letters}) = ({numbers})" if letters != numbers else f"({numbers})"


M = TypeVar("M", bound=type[Module])
MODULE_TYPES: dict[type[Block], type[Module]] = {}


def module_for(kind: type[Block]) -> Callable[[M], M]:
    """Register the class that runs this kind of block, and those derived from it that have none of their own."""

    def register(runner: M) -> M:
        MODULE_TYPES[kind] = runner
        return runner

    return register


def make_module(spec: Block, place: TensorOptions) -> Module:
    """The module of a block, by the block's type."""
    return next(MODULE_TYPES[kind] for kind in type(spec).__mro__ if kind in MODULE_TYPES)(spec, place)


def local_tensor(x: Tensor) -> Tensor:
    """What this process holds of a weight: all of it, unless `parallelize` has cut it."""
    return x.to_local() if hasattr(x, "to_local") else x


def local_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What this process holds of every weight, by its path; a tied one once."""
    yield from ((path, local_tensor(x)) for path, x in (*module.named_parameters(), *module.named_buffers()))


def tie_weights(module: Module, spec: Block) -> None:
    """Let every weight that shares another's numbers be that other's Parameter."""
    for leaf in walk(spec):
        if leaf.weight.tied:
            set_weight(module, leaf.path, module.get_parameter(leaf.weight.tied))


def set_weight(module: nn.Module, path: str, x: Tensor | nn.Parameter) -> None:
    """Make x the weight at this path."""
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, x)
