"""`image_pass`: the pass of images through the vision tower and projector of a multimodal model:
patches, tokens, FLOPs, activations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import ClassVar

from ...core.blocks import Decoder
from ...core.expr import Expr, maximum, product, total
from ...core.image_sizes import PatchGrid
from ...core.multimodal import CountedTower, ModelPart, is_computed
from ...core.towers import VisionTower
from ...utils.errors import Argument, ArgumentError, LlamathError, safe
from ...utils.number_format import format_count
from ...utils.record_type import Record
from .flop_count import Flops, forward_flops
from .liveness import peak_elements
from .recorder import Graph, record_part

_MAX_IMAGES, _MAX_SIDE = 10_000, 100_000


class Images(Record):
    """Images of one size in each sequence."""

    count: int
    width: int
    height: int

    def __str__(self) -> str:
        return f"{format_count(self.count, 'image')} of {self.width:,} × {self.height:,} pixels"


def parse_images(text: str) -> Images:
    """Read `2x1024` (two images of 1,024 pixels a side), `2x1024x768` (width and height), or
    `1024` (one image).
    """
    match = re.fullmatch(r"(?:(\d{1,9})[x×])?(\d{1,9})(?:[x×](\d{1,9}))?", text.strip(), re.ASCII)
    if match is None:
        hint = "2x1024 or 2x1024x768: number, width and height in pixels"
        raise ArgumentError(
            "images", f": {safe(repr(text), 40)} is no number with a size", hint=hint
        )
    count, width = int(match[1] or 1), int(match[2])
    height = int(match[3] or width)
    if not 0 < count <= _MAX_IMAGES or not all(0 < x <= _MAX_SIDE for x in (width, height)):
        hint = f"from 1 to {_MAX_IMAGES:,} images of 1 to {_MAX_SIDE:,} pixels a side"
        raise ArgumentError("images", f": {safe(repr(text), 40)} is out of range", hint=hint)
    return Images(count=count, width=width, height=height)


class ImagePass(Record):
    """The images of all sequences in the vision tower and its projector."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "count=images.count",
            "width=images.width",
            "height=images.height",
            "tiles=grid.tiles",
            "patches_per_tile=grid.patches",
        ),
        *("tokens", "flops=flops.total", "groups=flops.by_group"),
    )

    images: Images  # of one sequence
    grid: PatchGrid  # of one image
    tokens: int  # of the images of one sequence, in its context
    patch: int  # pixels on a side of a patch
    graph: Graph
    beside: PatchGrid | None = None  # tiles of another size of one image
    graph_beside: Graph | None = None

    @cached_property
    def graphs(self) -> tuple[Graph, ...]:
        """The passes of all tiles."""
        return (self.graph,) if self.graph_beside is None else (self.graph, self.graph_beside)

    @cached_property
    def flops(self) -> Flops:
        """The FLOPs for the images of all sequences."""
        passes = [forward_flops(x) for x in self.graphs]
        weights, mixing = (_sums([x.weights for x in passes]), _sums([x.mixing for x in passes]))
        return passes[0] if len(passes) == 1 else Flops(weights=weights, mixing=mixing)

    @property
    def summary(self) -> str:
        """What becomes of the images, in words."""
        unit = "pixels" if self.patch == 1 else "patches"
        tiles = f"{self.grid.tiles} tiles of " if self.grid.tiles > 1 else ""
        more = (
            ""
            if (x := self.beside) is None
            else (f" and {format_count(x.tiles, 'tile')} of {x.rows} × {x.columns}")
        )
        return (
            f"{self.images}: {tiles}{self.grid.rows} × {self.grid.columns} {unit} each{more}, "
            f"{format_count(self.tokens, 'token')}"
        )

    def activation_bytes(self, width: int) -> Expr:
        """The bytes of the largest peak of activations, with flash attention."""
        return product((reduce(maximum, map(peak_elements, self.graphs)), width))


def _sums(groups: Sequence[Mapping[str, Expr]]) -> dict[str, Expr]:
    names = dict.fromkeys(name for x in groups for name in x)
    return {name: total(x[name] for x in groups if name in x) for name in names}


def image_tokens(tree: Decoder, images: Images) -> int:
    """Return the tokens of the images of one sequence in the text; those of a tower that is
    counted, too, where they are known.
    """
    if isinstance(tree.vision, CountedTower):
        return tree.vision.tokens(images.count, images.width, images.height)
    return image_pass(tree, images).tokens


def image_pass(tree: Decoder, images: Images, batch: Expr | int = 1) -> ImagePass:
    """Record the pass of these images of each of `batch` sequences."""
    if tree.vision is None:
        raise LlamathError(
            "the model reads no images",
            hint="images are for multimodal models, whose config.json has a vision_config",
        )
    vision = tree.vision
    part = ModelPart(vision=vision, projector=tree.projector)
    if not isinstance(vision, VisionTower) or not is_computed(part):
        known = ""
        if isinstance(vision, CountedTower):
            known = f" ({images}: {format_count(image_tokens(tree, images), 'token')})"
        hint = (
            "`count`, `names`, `memory` and `verify` have its weights; without images, all "
            "other numbers are of the text model"
        )
        raise LlamathError(
            f"the vision tower of this model is counted, not computed{known}", hint=hint
        )
    sizes = vision.image_sizes.of_images(images.count)
    grid = sizes.grid(images.width, images.height)

    def record(tiles: PatchGrid) -> tuple[Graph, int]:
        """Return the pass of such tiles, and the tokens that the projector makes of one."""
        shape = (
            product((batch, images.count * tiles.tiles)),
            Expr.const(tiles.patches),
            vision.numbers,
        )
        graph, output = record_part(part, shape, grid=(tiles.rows, tiles.columns))
        return graph, int(output.shape[1])

    graph, per_tile = record(grid)
    tokens, graph_beside = images.count * sizes.tokens(images.width, images.height, per_tile), None
    if (beside := sizes.beside(images.width, images.height)) is not None:
        graph_beside, per_tile = record(beside)
        tokens += images.count * beside.tiles * per_tile
    return ImagePass(
        images=images,
        grid=grid,
        tokens=tokens,
        patch=sizes.patch,
        graph=graph,
        beside=beside,
        graph_beside=graph_beside,
    )


def check_tokens(images: ImagePass | None, context: int) -> None:
    """Refuse images with more tokens than a sequence has."""
    if images is not None and images.tokens > context:
        message = (
            f"the tokens of {images.images} are {images.tokens:,}, more than the "
            f"{context:,} of the whole sequence"
        )
        raise LlamathError(
            message, hint=f"{Argument('context')} counts the tokens of text and images together"
        )


def mask_notes(tree: Decoder, images: ImagePass) -> list[str]:
    """Return a note on query-key pairs that the mask of images admits beyond the causal one,
    which is what is counted.
    """
    where = tree.sees_later
    if where == "prompt":
        return [
            "counted with a causal mask: tokens of the prompt, text and images, attend to "
            "later ones of it as well"
        ]
    if not where:
        return []
    each = images.tokens // images.images.count if where == "image" else images.tokens
    pairs, per = (
        each * (each - 1) // 2,
        "each image and layer" if where == "image" else ("each layer"),
    )
    whose = "its own image" if where == "image" else "all images"
    return [
        f"not counted: in a prefill, a token of an image attends to later tokens of {whose}, "
        f"too: {pairs:,} more pairs for {per}"
    ]
