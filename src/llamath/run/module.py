"""`Module`: the torch module of a block. Its parameters, their shapes and names come from the tree; subclasses add `forward`.

Letters in shapes: B rows of a batch, T tokens of this pass, S keys that they attend to, d the hidden size, H heads, K key/value heads,
h the head dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from ..core.expr import Expr
from ..core.tree import Block, Stack, Weight, walk


class TensorOptions(NamedTuple):
    """The dtype and device of a module's parameters."""

    dtype: torch.dtype
    device: torch.device


class _FusedModule(Protocol):
    """A faster implementation of a module's forward pass, installed by `optimize_for_cpu`."""

    def usable(self) -> bool: ...

    def __call__(self, *args: Any) -> Tensor: ...


class Module(nn.Module):
    """A Parameter for each Weight of a block, a Module for each Block, a ModuleList for each Stack, all named as the block's fields.

    A child that the block does not have is None. Plain values of the block are at `self.spec`, as in `self.spec.heads`.
    """

    spec: Any
    fused: _FusedModule | None = None  # what `forward` runs instead where it is usable

    def __init__(self, spec: Block, options: TensorOptions) -> None:
        super().__init__()
        sizes = {name: int(x) for name in spec.fields if isinstance(x := getattr(spec, name), Expr)}
        self.spec = spec.replace(**sizes) if sizes else spec
        for name in spec.fields:
            field = getattr(spec, name)
            if name in spec.excluded or field is None:
                setattr(self, name, None)
            elif isinstance(field, Weight):
                self._add_weight(name, field, options)
            elif isinstance(field, Block):
                setattr(self, name, make_module(field, options))
            elif isinstance(field, Stack):
                setattr(self, name, nn.ModuleList(make_module(x, options) for x in field))

    def _add_weight(self, name: str, weight: Weight, options: TensorOptions) -> None:
        """Allocate a weight. Tied weights are set by `tie_weights`; buffers, which break near-ties, stay in float32."""
        if weight.tied:
            self.register_parameter(name, None)
        elif weight.buffer:
            self.register_buffer(name, torch.empty(weight.shape, dtype=torch.float32, device=options.device))
        else:
            self.register_parameter(name, nn.Parameter(torch.empty(weight.shape, dtype=options.dtype, device=options.device)))

    def extra_repr(self) -> str:
        fields = ((name, getattr(self.spec, name)) for name, _ in self.spec.children)
        return ", ".join(f"{name} {_format_shape(x)}" for name, x in fields if isinstance(x, Weight))

    if TYPE_CHECKING:

        def __call__(self, *args: Any) -> Tensor: ...


def _format_shape(weight: Weight) -> str:
    """A shape as symbols and numbers, `(V, d) = (32000, 4096)`; for a tied weight, the weight it is tied to."""
    if weight.tied:
        return f"is {weight.tied}"
    letters, numbers = ", ".join(x.symbol for x in weight.shape), ", ".join(map(str, weight.shape))
    return f"({letters}) = ({numbers})" if letters != numbers else f"({numbers})"


M = TypeVar("M", bound=type[Module])
_MODULE_TYPES: dict[type[Block], type[Module]] = {}


def module_for(kind: type[Block]) -> Callable[[M], M]:
    """Register the module class of this block type and of its subtypes that register none."""

    def register(module_type: M) -> M:
        _MODULE_TYPES[kind] = module_type
        return module_type

    return register


def make_module(spec: Block, options: TensorOptions) -> Module:
    """Return the module of a block, chosen by the block's type."""
    return next(_MODULE_TYPES[kind] for kind in type(spec).__mro__ if kind in _MODULE_TYPES)(spec, options)


def local_tensor(x: Tensor) -> Tensor:
    """Return this rank's shard of a weight; the whole weight unless `parallelize` has sharded it."""
    return x.to_local() if hasattr(x, "to_local") else x


def local_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield this rank's shard of every parameter and buffer by path, tied weights once."""
    yield from ((path, local_tensor(x)) for path, x in (*module.named_parameters(), *module.named_buffers()))


def tie_weights(module: Module, spec: Block) -> None:
    """Make every tied weight the same Parameter as the one it is tied to."""
    for leaf in walk(spec):
        if leaf.weight.tied:
            set_weight(module, leaf.path, module.get_parameter(leaf.weight.tied))


def set_weight(module: nn.Module, path: str, x: Tensor | nn.Parameter) -> None:
    """Replace the weight at this path."""
    owner, _, name = path.rpartition(".")
    setattr(module.get_submodule(owner), name, x)
