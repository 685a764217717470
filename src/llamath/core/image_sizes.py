"""The sizes of images inside a model: how an image is resized, cut into tiles, and divided into patches."""

from __future__ import annotations

from math import floor
from typing import NamedTuple

from ..utils.record_type import Record


class PatchGrid(NamedTuple):
    """An image as a tower reads it: `tiles` images of rows × columns patches."""

    tiles: int
    rows: int
    columns: int

    @property
    def patches(self) -> int:
        """The patches of one tile."""
        return self.rows * self.columns


class ImageSizes(Record):
    """Base of the ways to bring an image to the size that a tower reads."""

    patch: int  # pixels on a side of a patch

    def grid(self, width: int, height: int) -> PatchGrid:
        """Return the tiles and patches of an image of this size."""
        raise NotImplementedError

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        """Return the tokens of an image in the text, where the projector makes `per_tile` of each tile."""
        return self.grid(width, height).tiles * per_tile


class FixedImage(ImageSizes):
    """Every image is resized to the same square (CLIP, SigLIP)."""

    size: int

    def grid(self, width: int, height: int) -> PatchGrid:  # noqa: ARG002
        side = self.size // self.patch
        return PatchGrid(1, side, side)


class NativeImage(ImageSizes):
    """An image keeps its shape: it is shrunk to a longest side, then each side is rounded up to a multiple (Pixtral)."""

    multiple: int  # pixels: of a patch, or of the patches that become one token
    longest: int

    def grid(self, width: int, height: int) -> PatchGrid:
        ratio = max(width / self.longest, height / self.longest, 1.0)
        sides = (max(1, floor(x / ratio)) if ratio > 1 else x for x in (height, width))
        rows, columns = (-(-x // self.multiple) * self.multiple // self.patch for x in sides)
        return PatchGrid(1, rows, columns)
