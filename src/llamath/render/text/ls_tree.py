"""The names of a checkpoint as a tree: each branch with the parameters and bytes below it."""

from __future__ import annotations

from collections.abc import Sequence

from ...analysis.verify.listing import TensorRow
from ...core.errors import safe
from ..table import align, terminal_width

DEPTH = 48
"""The tree is no deeper; what a name has beyond that is one part."""

Line = tuple[str, int, int]
"""A label, indented, and the parameters and bytes of all that it stands for."""


class Branch:
    """What names with the same beginning have in common."""

    def __init__(self) -> None:
        self.children: dict[str, Branch] = {}
        self.rows: list[TensorRow] = []

    def lines(self, indent: str) -> tuple[list[Line], int, int]:
        """Everything below, and the sums of it."""
        lines, parameters, size = [], 0, 0
        for label, child in self.children.items():
            label = safe(label, 60)
            while len(child.children) == 1 and not child.rows:
                ((part, child),) = child.children.items()
                label = f"{label}.{safe(part, 60)}"
            for x in child.rows:
                lines.append(
                    (f"{indent}{label}  {x.dtype} {format_shape(x.shape)}{' tied' * x.tied}", x.parameters * x.copies, x.bytes * x.copies)
                )
                parameters, size = parameters + x.parameters * x.copies, size + x.bytes * x.copies
            if child.children:
                below, inside, taken = child.lines(indent + "  ")
                lines += [(indent + label, inside, taken), *below]
                parameters, size = parameters + inside, size + taken
        return lines, parameters, size


def tree_lines(rows: Sequence[TensorRow]) -> list[str]:
    """The tree, line by line."""
    root = Branch()
    for x in rows:
        at = root
        for part in x.parts if len(x.parts) <= DEPTH else (*x.parts[: DEPTH - 1], ".".join(x.parts[DEPTH - 1 :])):
            if part not in at.children:
                at.children[part] = Branch()
            at = at.children[part]
        at.rows.append(x)
    lines, _, _ = root.lines("")
    cells = [("", "parameters", "bytes"), *((label, f"{a:,}", f"{b:,}") for label, a, b in lines)]
    whole = align(cells, right=(1, 2))
    return whole if max(map(len, whole)) <= terminal_width() else align([row[:2] for row in cells], right=(1,))


def format_shape(shape: Sequence[int]) -> str:
    """A shape as people write it."""
    return f"[{', '.join(map(str, shape))}]"
