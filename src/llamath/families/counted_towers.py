"""Constructors of towers and projectors that are counted but not computed, from the names and
shapes of their weights in files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

from ..core.blocks import Linear
from ..core.constructors import weight
from ..core.multimodal import CountedBlock, CountedTower, UnreadBlock
from ..core.towers import VisionTower
from ..core.tree import Block, Stack, Weight, fold, repeat
from .multimodal_registry import Names, Part, Tower

Named = TypeVar("Named", Part, Tower)
Modules = Mapping[str, Weight | Block | Stack | None]
"""Name in files → weight, block or stack; None for what a configuration leaves out."""


def counted(modules: Modules) -> CountedBlock:
    """Return the block of these modules; a dotted name is that of a module inside others."""
    nested: dict[str, dict[str, Weight | Block | Stack | None]] = {}
    for name, module in modules.items():
        first, _, rest = name.partition(".")
        nested.setdefault(first, {})[rest] = module
    parts = {name: x[""] if "" in x else counted(x) for name, x in nested.items()}
    return CountedBlock(parts={name: x for name, x in parts.items() if x is not None})


def counted_part(
    modules: Modules, renames: Names = MappingProxyType({}), in_memory: str = ""
) -> Part:
    """Return a tower or projector of these modules. Their paths are their names in files, in which
    `renames` replaces words; those of the modules in transformers, if they differ, begin with
    `in_memory`.
    """
    block = counted(modules)
    names = {x.pattern: x.pattern for x in fold(block)}
    for old, new in renames.items():
        names = {path: name.replace(old, new) for path, name in names.items()}
    return Part(
        block, names, in_memory={path: in_memory + path for path in names} if in_memory else {}
    )


def count_tower(
    tower: VisionTower, more: Modules = MappingProxyType({}), *, per_tile: int = 0, merge: int = 1
) -> CountedTower:
    """Return a tower with the weights of another, and `more`, that is counted: its projector makes
    `per_tile` tokens of a tile, or one of each square of `merge` × `merge` patches.
    """
    parts = {**dict(tower.children), **counted(more).parts}
    return CountedTower(
        parts=parts,
        patch_size=tower.patch_size,
        image_sizes=tower.image_sizes,
        per_tile=per_tile,
        merge=merge,
    )


def counted_tower(
    tower: Tower | Part, more: Modules = MappingProxyType({}), *, per_tile: int = 0, merge: int = 1
) -> Part:
    """Return the same of a tower with its names."""
    assert isinstance(tower.block, VisionTower)
    block = count_tower(tower.block, more, per_tile=per_tile, merge=merge)
    return Part(
        block, tower.names, tower.layouts, tower.in_memory if isinstance(tower, Part) else {}
    )


def with_unread(part: Named, modules: Modules) -> Named:
    """Return a tower or projector with modules that reading an image does not use; their paths
    inside `unread` are their names in files.
    """
    unread = UnreadBlock(parts=counted(modules).parts)
    names = {f"unread.{x.pattern}": x.pattern for x in fold(unread)}
    return part._replace(block=part.block.replace(unread=unread), names={**part.names, **names})


def conv(out: int, *kernel: int, bias: bool = True) -> Linear:
    """A convolution W `[out, in, …]`."""
    return Linear(weight=weight(out, *kernel), bias=weight(out, role="bias") if bias else None)


def table(rows: int, d: int) -> CountedBlock:
    """An embedding module `[rows, d]`."""
    return CountedBlock(parts={"weight": weight(rows, d, role="lookup")})


def each(
    prefix: str, names: str, module: Weight | Block | Stack | None
) -> dict[str, Weight | Block | Stack | None]:
    """Return a module under each of these names: `each("attn.", "q k v", linear(d, d))`."""
    return dict.fromkeys((prefix + x for x in names.split()), module)


def stack(n: int, modules: Modules) -> Stack:
    """Return n modules of the same kind, numbered from 0."""
    return repeat(counted(modules), n)
