"""The sizes of images inside a model: how an image is resized, cut into tiles, and divided into
patches.
"""

from __future__ import annotations

from math import ceil, floor, inf, isqrt, prod, sqrt

from ..utils.errors import Argument, LlamathError
from ..utils.named_tuple import NamedTuple
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

    def of_images(self, count: int) -> ImageSizes:  # noqa: ARG002
        """Return how `count` images of one sequence are brought to size."""
        return self

    def beside(self, width: int, height: int) -> PatchGrid | None:  # noqa: ARG002
        """Return tiles of another size, which are read besides those of `grid`."""
        return None

    def canvas(self, width: int, height: int) -> tuple[int, int]:  # noqa: ARG002
        """Return the rows and columns of tiles that an image is cut into."""
        return 1, 1

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        """Return the tokens of an image in the text, where the projector makes `per_tile` of
        each tile.
        """
        return self.grid(width, height).tiles * per_tile


class UnsupportedImage(ImageSizes):
    """The tower is counted, but no image can be read; `reason` says why."""

    reason: str

    def grid(self, width: int, height: int) -> PatchGrid:  # noqa: ARG002
        raise LlamathError(
            f"images cannot be computed: {self.reason}",
            hint=f"the weights are counted without {Argument('images')}",
        )


class FixedImage(ImageSizes):
    """Every image is resized to the same square (CLIP, SigLIP)."""

    size: int
    # tokens of an image in the text, whose layers read its features otherwise; None: the features
    in_text: int | None = None

    def grid(self, width: int, height: int) -> PatchGrid:  # noqa: ARG002
        side = self.size // self.patch
        return PatchGrid(1, side, side)

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        return super().tokens(width, height, per_tile) if self.in_text is None else self.in_text


class NativeImage(ImageSizes):
    """An image keeps its shape: it is shrunk to a longest side, then each side is rounded up to
    a multiple (Pixtral).
    """

    multiple: int  # pixels: of a patch, or of the patches that become one token
    longest: int

    def grid(self, width: int, height: int) -> PatchGrid:
        ratio = max(width / self.longest, height / self.longest, 1.0)
        sides = (max(1, floor(x / ratio)) if ratio > 1 else x for x in (height, width))
        rows, columns = (-(-x // self.multiple) * self.multiple // self.patch for x in sides)
        return PatchGrid(1, rows, columns)


class BoundedImage(ImageSizes):
    """An image is shrunk to a longest side, then each side stretched to at least `shortest`;
    parts of patches are cut off (Idefics 2).
    """

    shortest: int
    longest: int

    def grid(self, width: int, height: int) -> PatchGrid:
        ratio, most = width / height, self.longest
        if width >= height and width > most:
            width, height = most, int(most / ratio)
        elif height > width and height > most:
            width, height = int(most * ratio), most
        rows, columns = (max(x, self.shortest) // self.patch for x in (height, width))
        return PatchGrid(1, rows, columns)


class LinedImage(ImageSizes):
    """An image keeps its shape: it is shrunk to fit a height and a width; a token of the text
    follows each row of patches (Fuyu).
    """

    height: int
    width: int

    def grid(self, width: int, height: int) -> PatchGrid:
        if width > self.width or height > self.height:
            scale = min(self.height / height, self.width / width)
            width, height = int(width * scale), int(height * scale)
        rows, columns = (max(1, -(-x // self.patch)) for x in (height, width))
        return PatchGrid(1, rows, columns)

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        return per_tile + self.grid(width, height).rows


class PixelBudget(ImageSizes):
    """An image keeps its shape: its sides are rounded to a multiple, within limits on the number
    of pixels (Qwen2-VL).
    """

    multiple: int  # pixels on a side of the square of patches that becomes one token
    fewest: int
    most: int
    # an image with a side shorter than the multiple is enlarged first (PaddleOCR-VL)
    enlarges: bool = False
    enlarges_both: bool = False  # the same, by one factor for both sides (Cosmos 3 Edge)

    def grid(self, width: int, height: int) -> PatchGrid:
        if self.enlarges_both and min(width, height) < self.multiple:
            scale = max(self.multiple / height, self.multiple / width)
            width, height = int(width * scale), int(height * scale)
        if self.enlarges and height < self.multiple:
            width, height = round(width * self.multiple / height), self.multiple
        if self.enlarges and width < self.multiple:
            width, height = self.multiple, round(height * self.multiple / width)
        rows, columns = (self._rounded(x) for x in (height, width))
        if rows * columns > self.most:
            ratio = sqrt(height * width / self.most)
            rows, columns = (
                max(self.multiple, floor(x / ratio / self.multiple) * self.multiple)
                for x in (height, width)
            )
        elif rows * columns < self.fewest:
            ratio = sqrt(self.fewest / (height * width))
            rows, columns = (
                ceil(x * ratio / self.multiple) * self.multiple for x in (height, width)
            )
        return PatchGrid(1, rows // self.patch, columns // self.patch)

    def _rounded(self, length: int) -> int:
        return round(length / self.multiple) * self.multiple


class FramedBudget(PixelBudget):
    """The same, with a learned token after each row of tokens, one before and one after all of
    them (Hunyuan-VL).
    """

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        return per_tile + self.grid(width, height).rows * self.patch // self.multiple + 2


class RowBudget(ImageSizes):
    """An image keeps its shape, in whole patches. It is shrunk to a number of tokens, of which each
    row has one more, and the image two (DeepSeek-V4.1).
    """

    side: int  # patches on a side of the square that becomes one token
    fewest: int  # pixels; a smaller image is enlarged
    most: int  # tokens

    def grid(self, width: int, height: int) -> PatchGrid:
        if width * height < self.fewest:
            ratio = (self.fewest / (width * height)) ** 0.5
            width, height = int(width * ratio), int(height * ratio)
        rows, columns = -(-height // self.patch), -(-width // self.patch)
        if self.tokens_of(rows, columns) > self.most:
            rows, columns = self._shrunk(width, height)
        return PatchGrid(1, rows, columns)

    def tokens(self, width: int, height: int, per_tile: int) -> int:  # noqa: ARG002
        _, rows, columns = self.grid(width, height)
        return self.tokens_of(rows, columns)

    def tokens_of(self, rows: int, columns: int) -> int:
        """Return the tokens of so many patches."""
        return -(-rows // self.side) * (-(-columns // self.side) + 1) + 2

    def _shrunk(self, width: int, height: int) -> tuple[int, int]:
        """Return the rows and columns of patches of the largest image of this shape that has few
        enough tokens.
        """
        columns = sqrt((self.most - 2) / (height / width) + 0.25) - 0.5
        rows, cell = columns * (height / width), self.patch * self.side
        if columns < 1.0:
            return (self.most - 2) // 2 * self.side, self.side
        if rows < 1.0:
            return self.side, (self.most - 3) * self.side
        scale = min(floor(columns) * cell / width, floor(rows) * cell / height)
        return floor(height * scale / self.patch), floor(width * scale / self.patch)


class PatchRange(ImageSizes):
    """An image keeps its shape: it is scaled to `fewest` to `most` patches, its sides to
    multiples of `side` patches (Nemotron 3 Omni).
    """

    side: int  # patches on a side of the square that becomes one token
    fewest: int
    most: int

    def grid(self, width: int, height: int) -> PatchGrid:
        rows, columns = (round(x / self.patch + 0.5) for x in (height, width))
        factor = min(sqrt(self.most / (rows * columns)), 1.0)
        rows, columns = floor(factor * rows), floor(factor * columns)
        if rows * columns < self.fewest < self.most:
            factor = sqrt(self.fewest / (rows * columns))
            rows, columns = ceil(factor * rows), ceil(factor * columns)
        rows = self._whole(rows, columns)
        return PatchGrid(1, rows, self._whole(columns, rows))

    def _whole(self, n: int, other: int) -> int:
        """Round a side up to whole squares, or down where the image would have too many patches."""
        up = -(-n // self.side) * self.side
        return up if up == n or up * other <= self.most else max(self.side, up - self.side)


class ScaledImage(ImageSizes):
    """An image is scaled to as many patches as there may be, its sides rounded down to multiples
    (Gemma 4).
    """

    multiple: int  # pixels
    max_patches: int

    def grid(self, width: int, height: int) -> PatchGrid:
        factor = sqrt(self.max_patches * self.patch**2 / (width * height))
        h, w = (floor(factor * x / self.multiple) for x in (height, width))
        longest = self.max_patches * self.patch**2 // self.multiple**2
        if h == 0:
            h, w = 1, max(1, min(width // height, longest))
        elif w == 0:
            h, w = max(1, min(height // width, longest)), 1
        side = self.multiple // self.patch
        return PatchGrid(1, h * side, w * side)


class CanvasImage(ImageSizes):
    """An image is fitted to the smallest canvas of tiles that shrinks it least, padded, and cut
    into tiles (Llama 3.2 Vision, Llama 4).
    """

    size: int  # side of a tile
    most: int  # tiles of a canvas
    adds_whole: bool = False  # the image as a whole follows more than one tile (Llama 4)
    # the tower reads as many tiles as there may be, empty ones included, and the text has one token
    # (Llama 3.2)
    reads_all: bool = False

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of tiles."""
        canvases = [
            (rows, columns)
            for rows in range(1, self.most + 1)
            for columns in range(1, self.most // rows + 1)
        ]
        # times width · height
        scales = {x: min(x[0] * self.size * width, x[1] * self.size * height) for x in canvases}
        larger = [x for x in scales.values() if x >= width * height]
        chosen = min(larger) if larger else max(scales.values())
        return min((x for x in canvases if scales[x] == chosen), key=lambda x: x[0] * x[1])

    def grid(self, width: int, height: int) -> PatchGrid:
        rows, columns = self.canvas(width, height)
        tiles, side = rows * columns, self.size // self.patch
        return PatchGrid(
            self.most if self.reads_all else tiles + 1 if self.adds_whole and tiles > 1 else tiles,
            side,
            side,
        )

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        return 1 if self.reads_all else super().tokens(width, height, per_tile)


class EnlargedImage(ImageSizes):
    """An image is enlarged to as many tiles as there may be, padded and cut, after the whole; all
    tiles are read, empty ones, too. A learned token follows each row of the whole image and of all
    tiles together, and one stands between them (Phi-3 Vision).
    """

    size: int  # side of a tile
    most: int  # tiles, without the whole image

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        ratio, n = max(width, height) / min(width, height), 1
        while (n + 1) * ceil((n + 1) / ratio) <= self.most:
            n += 1
        m = max(1, ceil(int(n * self.size / ratio) / self.size))
        return (m, n) if width >= height else (n, m)

    def grid(self, width: int, height: int) -> PatchGrid:  # noqa: ARG002
        side = self.size // self.patch
        return PatchGrid(self.most + 1, side, side)

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        side, (rows, columns) = isqrt(per_tile), self.canvas(width, height)
        return side * (side + 1) + 1 + rows * side * (columns * side + 1)


class WindowedImage(FixedImage):
    """An image is resized to a square; windows of a large or a long one are resized to smaller
    squares, and read besides (Step 3.7).
    """

    size: int
    tile: int  # side of a window, and of its square
    longest: int

    def beside(self, width: int, height: int) -> PatchGrid | None:
        if min(width, height) < 32 and max(width / height, height / width) > 4:
            width = height = max(width, height)
        if max(width, height) > self.longest:
            scale = self.longest / max(height, width)
            width, height = int(width * scale), int(height * scale)
        shorter, longer = min(width, height), max(width, height)
        window = self.tile
        if longer <= self.size:
            window = shorter if longer / shorter > 1.5 else 0
        elif longer / shorter > 4:
            window = min(shorter, self.tile)
        if window == 0:
            return None
        columns, rows = (
            max(1, x // window + (x >= window and x % window > 0.2 * window))
            for x in (width, height)
        )
        side = self.tile // self.patch
        return PatchGrid(columns * rows, side, side)


class OverlappingTiles(ImageSizes):
    """An image is cut into tiles that overlap, which stand after the whole; the projector joins
    their features (Moondream).
    """

    size: int  # side of a tile
    margin: int  # patches on each side of a tile that its neighbor has, too
    most: int  # tiles

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        ends, n = 2 * self.margin * self.patch, self.most
        h, w, step = height - ends, width - ends, self.size - ends
        if h <= step or w <= step:
            return 1, 1
        rows, columns = -(-h // step), -(-w // step)
        if rows * columns > n:
            ratio = sqrt(n / (rows * columns))
            return max(1, floor(rows * ratio)), max(1, floor(columns * ratio))
        rows, columns = max(floor(sqrt(n * h / w)), rows), max(floor(sqrt(n * w / h)), columns)
        if rows * columns > n:
            rows, columns = (rows, n // rows) if columns > rows else (n // columns, columns)
        return max(1, rows), max(1, columns)

    def grid(self, width: int, height: int) -> PatchGrid:
        (rows, columns), side = self.canvas(width, height), self.size // self.patch
        return PatchGrid(rows * columns + 1, side, side)

    def tokens(self, width: int, height: int, per_tile: int) -> int:  # noqa: ARG002
        return per_tile


class LeastScaledTiles(OverlappingTiles):
    """The same with the grid of tiles for which the image is enlarged least, or, if none is
    large enough, shrunk least (Molmo 2).
    """

    side: int  # patches on a side of the square that becomes one token

    def canvas(self, width: int, height: int) -> tuple[int, int]:
        ends, n = 2 * self.margin * self.patch, self.most
        step = self.size - ends

        def scale(grid: tuple[int, int]) -> float:
            return min(
                tiles * step / (x - ends) if x != ends else inf
                for tiles, x in zip(grid, (height, width), strict=True)
            )

        grids = sorted(
            ((i, j) for i in range(1, n + 1) for j in range(1, n // i + 1)),
            key=lambda x: (x[0] * x[1], x[0]),
        )
        scales = {x: scale(x) for x in grids}
        enlarged = {x: y for x, y in scales.items() if y >= 1}
        return (
            min(enlarged, key=enlarged.__getitem__)
            if enlarged
            else max(scales, key=scales.__getitem__)
        )

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        patches = self.size // self.patch
        joined = (
            n * (patches - 2 * self.margin) + 2 * self.margin for n in self.canvas(width, height)
        )
        return per_tile + prod(-(-n // self.side) for n in joined)


class SplitImage(ImageSizes):
    """An image is resized to a longest side and cut into tiles, which are followed by the whole
    image (Idefics 3).
    """

    size: int  # side of a tile
    longest: int

    def grid(self, width: int, height: int) -> PatchGrid:
        if width >= height:
            w, h = self.longest, int(self.longest * height / width)
        else:
            w, h = int(self.longest * width / height), self.longest
        w, h = max(w + w % 2, 1), max(h + h % 2, 1)
        if w >= h:  # rounded up to whole tiles, first the longer side
            columns = -(-w // self.size)
            rows = -(-int(columns * self.size * h / w) // self.size)
        else:
            rows = -(-h // self.size)
            columns = -(-int(rows * self.size * w / h) // self.size)
        tiles, side = rows * columns, self.size // self.patch
        return PatchGrid(tiles + 1 if tiles > 1 else 1, side, side)


class TiledImage(ImageSizes):
    """An image is fitted to the best of some resolutions and cut into tiles, before which it stands
    as a whole (LLaVA-NeXT).

    Rows and columns of padding are left out of the text, and each row ends with a learned token.
    """

    size: int  # side of a tile
    resolutions: tuple[tuple[int, int], ...]  # height and width
    max_tiles: int | None = None  # features of more tiles are resized to as many (LLaVA-OneVision)
    only_alone: bool = False  # several images stand as a whole only

    def of_images(self, count: int) -> ImageSizes:
        return self.replace(resolutions=()) if self.only_alone and count > 1 else self

    def grid(self, width: int, height: int) -> PatchGrid:
        rows, columns = self._tiles(width, height)
        side = self.size // self.patch
        return PatchGrid(1 + rows * columns, side, side)

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        side, (rows, columns) = self.size // self.patch, self._tiles(width, height)
        if not rows * columns:
            return per_tile + 1
        h, w = rows * side, columns * side
        if width / height > w / h:
            h -= (h - int(round(height * (w / width), 7))) // 2 * 2
        else:
            w -= (w - int(round(width * (h / height), 7))) // 2 * 2
        if self.max_tiles is not None and (ratio := sqrt(h * w / (self.max_tiles * side**2))) > 1.1:
            h, w = int(h // ratio), int(w // ratio)
        return per_tile + h * (w + 1)

    def _tiles(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of tiles: of the resolution that keeps most pixels, and of those the
        one with the least padding.
        """

        def kept(resolution: tuple[int, int]) -> tuple[int, int]:
            scale = min(resolution[1] / width, resolution[0] / height)
            pixels = min(int(width * scale) * int(height * scale), width * height)
            return pixels, pixels - resolution[0] * resolution[1]

        h, w = max(self.resolutions, key=kept, default=(0, 0))
        return h // self.size, w // self.size


class WholeAndTiles(TiledImage):
    """The same without leaving out padding: rows of the whole image and of all tiles together end
    with a learned token, and one stands between them. More than two images are one tile each
    (DeepSeek-VL2).
    """

    def of_images(self, count: int) -> ImageSizes:
        return self.replace(resolutions=((self.size, self.size),)) if count > 2 else self

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        side, (rows, columns) = isqrt(per_tile), self._tiles(width, height)
        return side * (side + 1) + 1 + rows * side * (columns * side + 1)


class CroppedImage(ImageSizes):
    """An image is cut into the grid of tiles of the closest shape, which the whole image follows
    as one more (InternVL).
    """

    size: int  # side of a tile
    max_tiles: int
    min_tiles: int = 1
    thumbnail: bool = True  # whether the whole image follows

    def grid(self, width: int, height: int) -> PatchGrid:
        columns, rows = self._best(width, height)
        tiles, side = columns * rows, self.size // self.patch
        return PatchGrid(tiles + 1 if tiles > 1 and self.thumbnail else tiles, side, side)

    def _grids(self) -> list[tuple[int, int]]:
        """Columns and rows of the grids of `min_tiles` to `max_tiles` tiles, those of few tiles
        first.
        """
        n = self.max_tiles
        grids = (
            (i, j) for i in range(1, n + 1) for j in range(1, n // i + 1) if i * j >= self.min_tiles
        )
        return sorted(grids, key=lambda x: x[0] * x[1])

    def _best(self, width: int, height: int) -> tuple[int, int]:
        best, least = (1, 1), inf
        for columns, rows in self._grids():
            difference = abs(width / height - columns / rows)
            large = width * height > 0.5 * self.size**2 * columns * rows
            if difference < least or (difference == least and large):
                best, least = (columns, rows), difference
        return best


class WholeAndCrops(FixedImage):
    """An image is padded to a square; if one of its sides is longer than a tile, it is also cut
    into the grid of tiles of the closest shape, which are read besides. A learned token follows
    each row of the whole image and of all tiles together, and one more both (DeepSeek-OCR).
    """

    tile: int  # side of a tile
    max_tiles: int
    min_tiles: int = 2

    def _crops(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tiles."""
        if max(width, height) <= self.tile:
            return 0, 0
        crops = CroppedImage(
            patch=self.patch, size=self.tile, max_tiles=self.max_tiles, min_tiles=self.min_tiles
        )
        return crops._best(width, height)

    def beside(self, width: int, height: int) -> PatchGrid | None:
        columns, rows = self._crops(width, height)
        side = self.tile // self.patch
        return PatchGrid(columns * rows, side, side) if rows else None

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        side, (_, rows) = isqrt(per_tile), self._crops(width, height)
        joined = self.size // self.patch // side  # patches on a side of what becomes one token
        return side * (side + 1) + 1 + rows * -(-(self.tile // self.patch) // joined)


class CoveringTiles(CroppedImage):
    """The same with the fewest tiles that together keep more than `share` of the image's pixels,
    or else most of them (Ovis 2).
    """

    share: float = 0.9

    def _best(self, width: int, height: int) -> tuple[int, int]:
        # columns and rows here
        kept = {
            (x, y): self._pixels(width, height, x, y) / (width * height) for x, y in self._grids()
        }
        enough = [x for x in kept if kept[x] > self.share]
        if enough:
            return min(enough, key=lambda x: (x[0] * x[1], -kept[x]))
        return min(kept, key=lambda x: (-kept[x], x[0] * x[1]))

    def _pixels(self, width: int, height: int, columns: int, rows: int) -> float:
        """The pixels of all tiles after each is shrunk to the side of one; the last ones are
        larger if the sides do not divide.
        """
        widths, heights = _parts(width, columns), _parts(height, rows)
        found = 0.0
        for w in widths:
            for h in heights:
                longer, shorter = max(w, h), min(w, h)
                found += (
                    self.size * (shorter / longer * self.size)
                    if longer > self.size
                    else longer * shorter
                )
        return found


def _parts(length: int, n: int) -> list[int]:
    return [length // n] * (n - 1) + [length - length // n * (n - 1)]


class LeastScaledImage(CroppedImage):
    """The same with the grid for which the image is enlarged least, or, if none is large enough,
    shrunk least (Command A Vision).
    """

    def _best(self, width: int, height: int) -> tuple[int, int]:
        scales = {
            x: min(x[0] * self.size / width, x[1] * self.size / height) for x in self._grids()
        }
        enlarged = {x: scale for x, scale in scales.items() if scale >= 1}
        return (
            min(enlarged, key=enlarged.__getitem__)
            if enlarged
            else max(scales, key=scales.__getitem__)
        )


class PatchBudget(ImageSizes):
    """An image keeps its shape: it is shrunk to a number of patches in all and on a side, then
    padded to multiples (Kimi K2.5).
    """

    multiple: int  # pixels on a side of the square of patches that becomes one token
    most: int  # patches
    longest: int  # patches on a side

    def grid(self, width: int, height: int) -> PatchGrid:
        whole = max(1, height // self.patch) * max(1, width // self.patch)
        side = self.longest * self.patch
        scale = min(1.0, sqrt(self.most / whole), side / height, side / width)
        sides = (min(max(1, int(x * scale)), side) for x in (height, width))
        rows, columns = (-(-x // self.multiple) * self.multiple // self.patch for x in sides)
        return PatchGrid(1, rows, columns)


class ClosestShape(ImageSizes):
    """An image is resized to whole squares of patches, at most so many, whose shape is closest
    to its own (Muse Glimmer).
    """

    multiple: int  # pixels on a side of the square of patches that becomes one token
    most: int  # squares

    def grid(self, width: int, height: int) -> PatchGrid:
        h, w = height / self.multiple, width / self.multiple
        if h * w > self.most:
            h, ratio = sqrt(self.most / (w / h)), w / h
            w = h * ratio
        grids = {(y, x) for y in (floor(h), ceil(h)) for x in (floor(w), ceil(w))}
        # of equally close ones the first in the order of a set
        whole = [x for x in grids if min(x) >= 1 and x[0] * x[1] <= self.most]
        rows, columns = min(
            whole or [(max(1, round(h)), max(1, round(w)))],
            key=lambda x: abs(x[0] / x[1] - height / width),
        )
        side = self.multiple // self.patch
        return PatchGrid(1, rows * side, columns * side)


class SplitBudget(PixelBudget):
    """A small image keeps its shape; a large one is cut into tiles, which the whole image
    follows, padded to a tile (LFM2-VL).
    """

    size: int  # side of a tile
    min_tiles: int
    max_tiles: int
    tolerance: float = 2.0  # an image with this many times `most` pixels is large

    def grid(self, width: int, height: int) -> PatchGrid:
        if not self._is_large(width, height):
            return super().grid(width, height)
        columns, rows = self._tiles(width, height)
        side = self.size // self.patch
        return PatchGrid(columns * rows + 1, side, side)

    def tokens(self, width: int, height: int, per_tile: int) -> int:
        if not self._is_large(width, height):
            return per_tile
        columns, rows = self._tiles(width, height)
        return (
            columns * rows * per_tile
            + super().grid(width, height).patches * self.patch**2 // self.multiple**2
        )

    def _rounded(self, length: int) -> int:
        return max(self.multiple, super()._rounded(length))

    def _is_large(self, width: int, height: int) -> bool:
        h, w = (max(self.patch, round(x / self.multiple) * self.multiple) for x in (height, width))
        return h * w > self.most * self.tolerance

    def _tiles(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of the grid of tiles of the closest shape."""
        crops = CroppedImage(
            patch=self.patch, size=self.size, max_tiles=self.max_tiles, min_tiles=self.min_tiles
        )
        return crops._best(width, height)
