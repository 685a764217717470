"""The module tree of a model on a terminal, in the style of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...core.expr import Expr
from ...core.parameter_count import num_parameters
from ...core.tree import Block, Stack, Weight
from ...model import DescribedModel, TensorModel
from ...utils.record_type import Record
from ..table import bold, wrap, wrap_hanging


def tree_text(model: DescribedModel | TensorModel) -> str:
    """Return the module tree in the style of PyTorch's `print(model)`, equal layers folded, with
    the parameters of each branch.
    """
    claim = f", {model.claim}" if isinstance(model, TensorModel) else ""
    head = wrap(f"{model.name}: {model.parameters.total:,} parameters{claim}", "")
    return "\n".join([*map(bold, head), *_block_lines("", model.tree, "")])


def _block_lines(name: str, block: Block, indent: str, times: str = "") -> Iterator[str]:
    label = f"({name}): " if name else ""
    kind = type(block).__name__
    children = [(x, child) for x, child in block.children if not isinstance(child, Weight)]
    weights = [
        f"{x} [{', '.join(map(_format_dim, w.shape))}]{' tied to ' + w.tied if w.tied else ''}"
        for x, w in _own_weights(block)
    ]
    facts = [
        f"{x}={_format_setting(value)}"
        for x in block.fields
        if _is_setting(value := getattr(block, x)) and value != getattr(type(block), x, None)
    ]
    inside = ", ".join([*weights, *facts])
    first = f"{label}{times}{kind}({inside}{')' if not children else ''}" + (
        f"  # {num_parameters(block):,}" if children else ""
    )
    yield from wrap_hanging(first, indent, indent + "    ")
    for x, child in children:
        yield from (
            _stack_lines(x, child, indent + "  ")
            if isinstance(child, Stack)
            else _block_lines(x, child, indent + "  ")
        )
    if children:
        yield f"{indent})"


def _stack_lines(name: str, stack: Stack, indent: str) -> Iterator[str]:
    if len(kinds := stack.distinct()) == 1:
        yield from _block_lines(name, kinds[0][0], indent, f"{int(kinds[0][1]):,} × ")
        return
    yield f"{indent}({name}): {int(stack.n):,} of {len(kinds)} kinds("
    for x, n in kinds:
        yield from _block_lines("", x, indent + "  ", f"{int(n):,} × ")
    yield f"{indent})"


def _format_dim(dim: Expr) -> str:
    return f"{dim.symbol}={int(dim)}" if dim.atoms else f"{int(dim)}"


def _own_weights(block: Block) -> list[tuple[str, Weight]]:
    return [(name, child) for name, child in block.children if isinstance(child, Weight)]


def _is_setting(value: object) -> bool:
    return value is not None and not isinstance(value, (Weight, Block, Stack, Mapping))


def _format_setting(value: object) -> str:
    if isinstance(value, Record):
        facts = (
            f"{x}={_format_setting(y)}"
            for x in value.fields
            if (y := getattr(value, x)) != getattr(type(value), x, None)
        )
        return f"{type(value).__name__}({', '.join(facts)})"
    return str(value)
