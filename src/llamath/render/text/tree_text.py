"""The module tree in the style of PyTorch's `print(model)`, equal layers folded, with the parameters of each branch."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.parameter_count import num_parameters
from ...core.record_type import Record
from ...core.tree import Block, Stack, Weight
from ...model import Model
from ..table import bold


def tree_text(model: Model) -> str:
    """Return the whole tree."""
    return "\n".join([bold(f"{model.name}: {model.parameters.total:,} parameters"), *_block("", model.tree, "")])


def _block(name: str, block: Block, indent: str, times: str = "") -> Iterator[str]:
    label = f"({name}): " if name else ""
    kind = type(block).__name__
    children = [(x, child) for x, child in block.children if not isinstance(child, Weight)]
    weights = [
        f"{x} [{', '.join(f'{d.symbol}={int(d)}' for d in w.shape)}]{' tied to ' + w.tied if w.tied else ''}" for x, w in _weights(block)
    ]
    facts = [f"{x}={_fact(value)}" for x in block.fields if _plain(value := getattr(block, x)) and value != getattr(type(block), x, None)]
    inside = ", ".join([*weights, *facts])
    yield f"{indent}{label}{times}{kind}({inside}{')' if not children else ''}" + (f"  # {num_parameters(block):,}" if children else "")
    for x, child in children:
        yield from _stack(x, child, indent + "  ") if isinstance(child, Stack) else _block(x, child, indent + "  ")
    if children:
        yield f"{indent})"


def _stack(name: str, stack: Stack, indent: str) -> Iterator[str]:
    if len(kinds := stack.distinct()) == 1:
        yield from _block(name, kinds[0][0], indent, f"{int(kinds[0][1]):,} × ")
        return
    yield f"{indent}({name}): {int(stack.n):,} of {len(kinds)} kinds("
    for x, n in kinds:
        yield from _block("", x, indent + "  ", f"{int(n):,} × ")
    yield f"{indent})"


def _weights(block: Block) -> list[tuple[str, Weight]]:
    return [(name, child) for name, child in block.children if isinstance(child, Weight)]


def _plain(value: object) -> bool:
    return value is not None and not isinstance(value, (Weight, Block, Stack))


def _fact(value: object) -> str:
    if isinstance(value, Record):
        facts = (f"{x}={_fact(y)}" for x in value.fields if (y := getattr(value, x)) != getattr(type(value), x, None))
        return f"{type(value).__name__}({', '.join(facts)})"
    return str(value)
