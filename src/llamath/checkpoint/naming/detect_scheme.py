"""`detect_scheme`: find the naming scheme of a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...core.tree import Block
from .scheme import Scheme, StoredTensor, UnnamedWeight

Shape = tuple[int, ...]


class SchemeMatch(NamedTuple):
    """A scheme, the tensors that it expects for a model, and their shapes in the checkpoint."""

    scheme: Scheme
    names: Sequence[str]
    tensors: Sequence[StoredTensor]
    found: Sequence[Shape | None]  # the shapes in the checkpoint

    @property
    def overlap(self) -> int:
        """The number of expected tensors that the checkpoint has."""
        return len(self.found) - self.found.count(None)

    @property
    def fits(self) -> bool:
        """Whether the checkpoint has every expected tensor in its shape."""
        return self.found == [x.shape for x in self.tensors]


def detect_scheme(tree: Block, schemes: Iterable[Scheme], shapes: Mapping[str, Shape]) -> SchemeMatch:
    """Return the scheme under which most tensors of the model are among the `shapes` of the checkpoint; on a tie, the first."""
    best: SchemeMatch | None = None
    for scheme in schemes:
        try:
            names, tensors = scheme.flat_tensors(tree)
        except UnnamedWeight:
            continue
        match = SchemeMatch(scheme, names, tensors, list(map(shapes.get, names)))
        if best is None or match.overlap > best.overlap:
            best = match
        if match.overlap == len(names):
            break
    assert best is not None, "every family has a scheme that names all its weights"
    return best
