"""The tree of a state dict, for models without a family: names and shapes, without formulas and
forward.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.expr import Expr
from ..core.multimodal import CountedBlock
from ..core.tree import LETTERS, Block, Stack, Weight, sequence
from ..utils.errors import LlamathError, safe
from ..utils.named_tuple import NamedTuple

_MAX_DEPTH = 64
"""Names with more parts between dots are not split any further."""


class StateTensor(NamedTuple):
    """One entry of a state dict."""

    name: str
    dtype: str  # safetensors' name of it
    shape: tuple[int, ...]
    is_buffer: bool = False
    tied: str = ""  # name of the tensor whose values it shares
    packed_bytes: int = 0  # of packed values, which dtype and shape do not tell; 0: not packed


def module_tree(tensors: Iterable[StateTensor]) -> CountedBlock:
    """Return the tree of the tensors of a state dict; modules that are numbered from 0 are a
    Stack.
    """
    nested: dict[str, Any] = {}
    for x in tensors:
        *modules, name = x.name.split(".", _MAX_DEPTH)
        inside = nested
        for part in modules:
            inside = inside.setdefault(part, {})
            if isinstance(inside, Weight):
                raise LlamathError(
                    f"the state dict names both a tensor and a module {part!r} in "
                    f"{safe(x.name, 100)!r}"
                )
        if isinstance(inside.get(name), dict):
            raise LlamathError(
                f"the state dict names both a tensor and a module {safe(x.name, 100)!r}"
            )
        if name in inside:
            raise LlamathError(f"the state dict has two tensors of the name {safe(x.name, 100)!r}")
        inside[name] = _weight(x)
    known: dict[Any, Block] = {}
    return CountedBlock(parts={name: _part(x, 0, known) for name, x in nested.items()})


def _weight(x: StateTensor) -> Weight:
    role = "bias" if x.name.endswith("bias") else "matmul" if len(x.shape) > 1 else "scale"
    return Weight(shape=tuple(map(Expr.const, x.shape)), role=role, tied=x.tied, buffer=x.is_buffer)  # type: ignore[arg-type]


def _part(value: Any, depth: int, known: dict[Any, Block]) -> Weight | Block | Stack:
    """Return the weight, block or stack of a nested mapping of names; equal blocks are one
    object.
    """
    if isinstance(value, Weight):
        return value
    if depth < len(LETTERS) and _is_numbered(value):
        blocks = [_part(value[str(i)], depth + 1, known) for i in range(len(value))]
        return sequence(x for x in blocks if isinstance(x, Block))
    parts = {name: _part(x, depth, known) for name, x in value.items()}
    block = CountedBlock(parts=parts)
    return known.setdefault((depth, *((name, _key(x)) for name, x in parts.items())), block)


def _key(part: Weight | Block | Stack) -> Any:
    """Return what equal parts have in common; blocks inside are one object if they are equal."""
    if isinstance(part, Weight):
        return part.shape, part.role, part.tied, part.buffer
    return (
        tuple((tuple(map(id, pattern)), n) for pattern, n in part.runs)
        if isinstance(part, Stack)
        else id(part)
    )


def _is_numbered(value: Mapping[str, Any]) -> bool:
    """Whether the entries are modules with the numbers from 0; a module whose entries are
    numbered itself is none.
    """
    return all(
        str(i) in value and isinstance(value[str(i)], dict) and not _is_all_numbers(value[str(i)])
        for i in range(len(value))
    )


def _is_all_numbers(value: Mapping[str, Any]) -> bool:
    return all(re.fullmatch(r"\d+", x) for x in value)
