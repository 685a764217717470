"""The parts of a multimodal model, modules that are counted only, and layers that attend to
images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, ClassVar, NoReturn

from ..utils.errors import LlamathError
from .blocks import TOWER_FIELDS, Decoder, Linear, Norm, PostNormLayer, apply_optional
from .machine import Machine, X
from .tree import Block, Cut, Stack, Weight

if TYPE_CHECKING:
    from .image_sizes import ImageSizes


class CountedBlock(Block):
    """A module that is counted but not computed: its weights and modules, by their names in
    files.
    """

    parts: Mapping[str, Weight | Block | Stack]
    kind: str = ""  # the group of its weights

    @property
    def group(self) -> str:  # type: ignore[override]  # of each block, not of the class
        return self.kind

    def forward(self, *_: object) -> NoReturn:
        hint = "`count`, `names`, `verify`, `ls` and `diff` have its weights"
        raise LlamathError("this model has modules that are counted, not computed", hint=hint)

    @property
    def children(self) -> Sequence[tuple[str, Weight | Block | Stack]]:
        return tuple(self.parts.items())

    def child(self, name: str) -> Weight | Block | Stack:
        return self.parts[name]


class CountedTower(CountedBlock):
    """A vision tower that is counted but not computed, of whose images the tokens are known."""

    patch_size: int
    image_sizes: ImageSizes
    per_tile: int = 0  # tokens that the projector makes of a tile; 0: one of each square of patches
    merge: int = 1  # patches on a side of this square

    def tokens(self, count: int, width: int, height: int) -> int:
        """Return the tokens in the text of `count` images of this size."""
        sizes = self.image_sizes.of_images(count)
        tiles = [sizes.grid(width, height), sizes.beside(width, height)]
        first, *others = (
            self.per_tile or ceil(x.rows / self.merge) * ceil(x.columns / self.merge)
            for x in tiles
            if x is not None
        )
        beside = 0 if tiles[1] is None else tiles[1].tiles * others[0]
        return count * (sizes.tokens(width, height, first) + beside)


class UnreadBlock(CountedBlock):
    """Modules that are stored with a tower or a projector, but not used to read an image, as
    those that make images.
    """


def is_computed(block: Block | Stack) -> bool:
    """Return whether what a block computes is known: all but the modules that it does not use
    have a forward pass.
    """
    if isinstance(block, Stack):
        return all(is_computed(x) for x, _ in block.distinct())
    if isinstance(block, CountedBlock):
        return isinstance(block, UnreadBlock)
    if hasattr(type(block).forward, "counted_only"):
        return False
    return all(is_computed(x) for _, x in block.children if not isinstance(x, Weight))


class ModelPart(Block):
    """The vision or audio part of a multimodal model: a tower and its projector."""

    groups: ClassVar[dict[str, str]] = Decoder.groups
    vision: Block | None = None
    projector: Block | None = None
    audio: Block | None = None
    audio_projector: Block | None = None

    def forward(self, m: Machine[X], x: X) -> X:
        y = apply_optional(self.vision, m, apply_optional(self.audio, m, x))
        return apply_optional(self.projector, m, apply_optional(self.audio_projector, m, y))


def parts_of(tree: Block) -> dict[str, Block]:
    """Return the parts of a model by name, the text model first; together they have all of its
    weights once.
    """
    if not isinstance(tree, Decoder) or not tree.is_multimodal:
        return {"text": tree}
    parts: dict[str, Block] = {"text": tree.text}
    if tree.vision is not None or tree.projector is not None:
        parts["vision"] = ModelPart(vision=tree.vision, projector=tree.projector)
    if tree.audio is not None or tree.audio_projector is not None:
        parts["audio"] = ModelPart(audio=tree.audio, audio_projector=tree.audio_projector)
    return parts


def with_text(tree: Decoder, text: Decoder) -> Decoder:
    """Return a model with another text model."""
    return text.replace(
        **{name: getattr(tree, name) for name in TOWER_FIELDS}, sees_later=tree.sees_later
    )


class CrossAttention(Block):
    """Softmax attention of text to what an encoder has read; its keys and values are computed in
    the first pass, and kept for later ones.

    Layers that attend to images have one, too, whose weights are counted.
    """

    short_name: ClassVar[str] = "cross-attention"
    group: ClassVar[str] = "attention"
    cuts: ClassVar[dict[str, Cut]] = {
        "q": Cut(0, "heads"),
        **dict.fromkeys(("k", "v"), Cut(0, "kv_heads", "copy")),
        "o": Cut(1, "heads"),
    }
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    heads: int
    kv_heads: int
    head_dim: int

    def forward(self, m: Machine[X], x: X, *states: X) -> X:
        q = _heads_of(self, m, self.q, self.q_norm, x)  # (B, T, H, h)
        if states:
            # (B, E, K, h)
            k, v = (
                _heads_of(self, m, self.k, self.k_norm, *states),
                _heads_of(self, m, self.v, None, *states),
            )
            k, v = m.keep_encoded(self, k, v)
        else:
            k, v = m.read_encoded(self)
        return self.o(m, m.merge_heads(m.encoder_attention(q, k, v)))


def _heads_of(
    attn: CrossAttention, m: Machine[X], projection: Linear, norm: Norm | None, x: X
) -> X:
    y = m.split_heads(projection(m, x), attn.head_dim)
    return y if norm is None else m.norm_heads(norm, y)


class CaptionLayer(PostNormLayer):
    """A layer that attends to an image as well, after itself (BLIP): without an image, which is
    counted alone, it does not.
    """

    cross_attn: CrossAttention
    cross_norm: Norm
