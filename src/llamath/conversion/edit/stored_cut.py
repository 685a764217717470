"""`StoredCut`: the part of a stored tensor that one rank has."""

from __future__ import annotations

from typing import NamedTuple

from .edited_tensor import Ranges


class StoredCut(NamedTuple):
    """The part of a stored tensor on one rank."""

    axis: int
    ranges: Ranges
    size: int  # of the whole axis
    appended: int = 0
    is_output: bool = True  # the outputs of a matrix are cut, not its inputs
    view: tuple[int, ...] = ()  # the shape as which a flat tensor is cut
