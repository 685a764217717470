"""Under which naming a checkpoint is what a tree has: the one that most of its names agree with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...checkpoint.naming.scheme import Scheme, StoredTensor, UnnamedWeight
from .diagnose import Expectation, Shape


class NamingMatch(NamedTuple):
    """A naming, and what the tree has under it."""

    scheme: Scheme
    names: Sequence[str]
    tensors: Sequence[StoredTensor]
    found: Sequence[Shape | None]  # the shapes in the file

    @property
    def overlap(self) -> int:
        """How many of them are there."""
        return len(self.found) - self.found.count(None)

    @property
    def fits(self) -> bool:
        """Whether all of them are, each in its shape."""
        return self.found == [x.shape for x in self.tensors]


def match_naming(claim: Expectation, found: Mapping[str, Shape]) -> NamingMatch:
    """The naming under which most of the file is what the tree has."""
    best: NamingMatch | None = None
    for scheme in claim.schemes:
        try:
            names, tensors = scheme.flat_tensors(claim.tree)
        except UnnamedWeight:
            continue
        made = NamingMatch(scheme, names, tensors, list(map(found.get, names)))
        if best is None or made.overlap > best.overlap:
            best = made
        if made.overlap == len(names):
            break
    assert best is not None, "every family has a scheme that names all its weights"
    return best
