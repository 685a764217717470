"""Loading weights into a module: from a scheme's stored names and layouts to canonical paths,
and from there to Parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from ...checkpoint.naming.scheme import Scheme
from ...checkpoint.naming.stored_layouts import (
    LayoutParams,
    group_by_stored_name,
    layout_params_at,
    split_tensor,
    stack_experts,
    undo_layout,
)
from ...core.tree import Block, Leaf
from ..debug.nan_check import forget_check
from ..module import Module, set_weight, tie_weights


def canonical_weights(
    tree: Block, scheme: Scheme, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight of the tree by canonical path from the stored tensors of a scheme; tied
    copies are left out.
    """
    for name, leaves in group_by_stored_name(tree, scheme).items():
        stacked: dict[tuple[int, ...], list[Leaf]] = {}
        for leaf in leaves:
            stacked.setdefault(leaf.indices[1:], []).append(leaf)
        tensor = stack_experts(tensors[name], scheme.layout_of(leaves[0].pattern), len(stacked))
        is_layer_tensor = (
            "{e}" in scheme.stored_name(leaves[0].pattern) or len(leaves[0].indices) < 2
        )
        for expert, parts in stacked.items():
            yield from _split_tensor(
                tensor if is_layer_tensor else tensor[expert[0]],
                parts,
                scheme,
                layout_params_at(tree, leaves[0]),
            )


def _split_tensor(
    x: Tensor, leaves: list[Leaf], scheme: Scheme, params: LayoutParams
) -> Iterator[tuple[str, Tensor]]:
    shapes = [tuple(map(int, leaf.shape)) for leaf in leaves]
    tensors = split_tensor(x, shapes, scheme.layout_of(leaves[0].pattern), params)
    for leaf, shape, part in zip(leaves, shapes, tensors, strict=True):
        module = leaf.path.split(".", 3)[-1]
        yield (
            leaf.path,
            undo_layout(part, scheme.layout_of(leaf.pattern), params, module, torch).reshape(shape),
        )


@torch.no_grad()
def load_weights(module: Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Set a module's weights by path; a weight that already has the module's dtype is not
    copied.
    """
    for path, x in weights:
        owner, _, name = path.rpartition(".")
        old = getattr(module.get_submodule(owner), name)
        x = x.to(old.dtype)
        set_weight(
            module, path, nn.Parameter(x, old.requires_grad) if isinstance(old, nn.Parameter) else x
        )
    tie_weights(module, module.spec)
    forget_check(module)
