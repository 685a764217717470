"""Weights into a module: from the names and layouts of a scheme to canonical paths, and from there to Parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn

from ...checkpoint.naming.scheme import Scheme
from ...core.tree import Block, Leaf, Stack, fill_pattern, walk
from ..module import Module, put, tie
from .stored_layouts import Facts, facts, parted, straight


def from_named(tree: Block, scheme: Scheme, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Every weight of the tree by its canonical path, out of tensors that a file of this scheme has; tied copies are left out."""
    for name, leaves in joined(tree, scheme).items():
        stacked: dict[tuple[int, ...], list[Leaf]] = {}
        for leaf in leaves:
            stacked.setdefault(leaf.indices[1:], []).append(leaf)
        whole = tensors[name]
        alone = "{e}" in scheme.stored(leaves[0].pattern) or len(leaves[0].indices) < 2
        for e, parts in stacked.items():
            yield from _parts(whole if alone else whole[e[0]], parts, scheme, known(tree, leaves[0]))


def _parts(x: Tensor, leaves: list[Leaf], scheme: Scheme, around: Facts) -> Iterator[tuple[str, Tensor]]:
    shapes = [tuple(map(int, leaf.shape)) for leaf in leaves]
    found = parted(x, shapes, scheme.layout(leaves[0].pattern), around)
    for leaf, shape, part in zip(leaves, shapes, found, strict=True):
        module = leaf.path.split(".", 3)[-1]
        yield leaf.path, straight(part, scheme.layout(leaf.pattern), around, module).reshape(shape)


def joined(tree: Block, scheme: Scheme) -> dict[str, list[Leaf]]:
    """Every stored tensor with the weights in it, in tree order."""
    found: dict[str, list[Leaf]] = {}
    for leaf in walk(tree):
        if not leaf.weight.tied:
            found.setdefault(fill_pattern(scheme.stored(leaf.pattern), leaf.indices), []).append(leaf)
    return found


def known(tree: Block, leaf: Leaf) -> Facts:
    """What the blocks around a weight say of how it may lie."""
    block: Block | Stack = tree
    found = Facts()
    for name in leaf.path.split(".")[:-1]:
        block = block[int(name)] if isinstance(block, Stack) else getattr(block, name)
        found = facts(block, found) if isinstance(block, Block) else found
    return found


@torch.no_grad()
def load(module: Module, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Make these the module's weights by path, mapped rather than copied where their type is already the module's."""
    for path, x in weights:
        where, _, name = path.rpartition(".")
        own = getattr(module.get_submodule(where), name)
        x = x.to(own.dtype)
        put(module, path, nn.Parameter(x, own.requires_grad) if isinstance(own, nn.Parameter) else x)
    tie(module, module.spec)
    module.__dict__.pop("flaws", None)
