"""`detect_scheme`: find the naming scheme of a checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...core.tree import Block
from ...utils.named_tuple import NamedTuple
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


def detect_scheme(
    tree: Block, schemes: Iterable[Scheme], shapes: Mapping[str, Shape]
) -> SchemeMatch:
    """Return the scheme under which most tensors of the model are among the `shapes` of the
    checkpoint.

    On a tie it is the first, unless the shapes fit another one whose layouts differ.
    """
    best: SchemeMatch | None = None
    for scheme in schemes:
        if (
            best is not None
            and best.overlap == len(best.names)
            and (best.fits or scheme.layouts == best.scheme.layouts)
        ):
            continue
        try:
            names, tensors = scheme.flat_tensors(tree)
        except UnnamedWeight:
            continue
        match = SchemeMatch(scheme, names, tensors, list(map(shapes.get, names)))
        if (
            best is None
            or match.overlap > best.overlap
            or (match.overlap == best.overlap and match.fits and not best.fits)
        ):
            best = match
    assert best is not None, "every family has a scheme that names all its weights"
    return best
