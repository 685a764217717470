"""The blocks that read images: towers and the projectors of their outputs.

Letters: d_v width, L_v layers, H_v heads, h_v head size, F_v MLP width, N_v positions of a vision
tower (d_a, L_a, … of an audio tower); C_v channels and p_v side of a patch; N patches of an image.
"""

from __future__ import annotations

from typing import ClassVar

from .blocks import (
    Attention,
    Linear,
    Norm,
    apply_optional,
    norm_and_rotate,
    norm_heads_of,
    project_heads,
)
from .expr import Expr, product
from .image_sizes import ImageSizes
from .machine import Machine, X
from .tree import Block, Stack, Weight


class PatchEmbedding(Linear):
    """A convolution whose stride is its kernel, which is a linear layer on the pixels of a
    patch: W `[d_v, C_v, p_v, p_v]`.
    """

    is_linear_layer: ClassVar[bool] = False


class EncoderAttention(Attention):
    """Attention of every token to all tokens of its image or sound, or of its window; nothing is
    kept for later passes.
    """

    window_side: int | None = None  # patches on a side of the windows that an image is cut into

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.k is not None and self.v is not None
        q = norm_and_rotate(self, m, self.q_norm, project_heads(self, m, self.q, x))  # (B, N, H, h)
        k = norm_and_rotate(self, m, self.k_norm, project_heads(self, m, self.k, x))
        v = norm_heads_of(self, m, self.v_norm, project_heads(self, m, self.v, x))
        return self.o(
            m,
            m.merge_heads(
                m.encoder_attention(q, k, v, self.score_transform.scale, self.window_side)
            ),
        )


class VisionTower(Block):
    """A vision transformer: embedded patches, positions, layers; the result is the features of
    the patches.
    """

    group: ClassVar[str] = "vision"
    excluded: ClassVar[frozenset[str]] = frozenset()
    class_token: Weight | None = None  # a learned token before the patches
    patches: PatchEmbedding
    # a row for each place of a square image, of the class token first
    positions: Weight | None = None
    norm_before: Norm | None = None
    layers: Stack
    norm_after: Norm | None = None
    pooling: Block | None = None  # stored, but never read for the features of patches
    unread: Block | None = None  # the same of other modules
    patch_size: int
    image_sizes: ImageSizes
    # numbers of the hidden states that are the features, joined; empty: the last, after norm_after
    feature_layers: tuple[int, ...] = ()
    drops_class_token: bool = False  # from the features
    # how the positions are interpolated to the shape of an image; empty: they are not
    resizing: str = ""
    patch_norm: Norm | None = None  # before the positions are added

    @property
    def numbers(self) -> Expr:
        """The numbers that the tower reads of each patch."""
        return product(self.patches.weight.shape[1:])

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = apply_optional(self.patch_norm, m, self.patches(m, pixels))  # (B, N, d_v)
        if self.class_token is not None:
            x = m.prepend(x, self.class_token)
        if self.positions is not None:
            x = m.add_positions(x, self.positions, self.resizing)
        x = apply_optional(self.norm_before, m, x)
        if self.feature_layers:
            x = m.layer_outputs(self.layers, x, self.feature_layers)
        else:
            x = apply_optional(self.norm_after, m, m.layers(self.layers, x))
        return m.drop_tokens(x, 1) if self.drops_class_token else x


class LayerScale(Norm):
    """w · x, one factor for each channel of a branch (InternViT)."""

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.weight is not None
        return m.scale_by_weight(x, self.weight)


class LinearProjector(Block):
    """A linear layer on the features of each patch, or of side × side patches joined."""

    group: ClassVar[str] = "projector"
    norm: Norm | None = None
    linear: Linear
    out_norm: Norm | None = None
    # a learned token after each row of an image that is cut into tiles
    newline: Weight | None = None
    separator: Weight | None = None  # and one after all of them
    unread: Block | None = None
    merge: int = 1

    def forward(self, m: Machine[X], x: X) -> X:
        if self.merge > 1:
            x = m.merge_patches(x, self.merge)
        return apply_optional(self.out_norm, m, self.linear(m, apply_optional(self.norm, m, x)))


class MLPProjector(Block):
    """linear_2(act(linear_1 x)), or linear_2(linear_1 x · act(gate x)), on the features of each
    patch, or of side × side patches joined.
    """

    group: ClassVar[str] = "projector"
    patch_norm: Norm | None = None  # before patches are joined
    merger: Linear | None = None  # W `[d_v, side² d_v]`, on the joined features
    norm: Norm | None = None
    linear_1: Linear
    gate: Linear | None = None
    linear_2: Linear
    out_norm: Norm | None = None
    # a learned token after each row of an image that is cut into tiles
    newline: Weight | None = None
    separator: Weight | None = None  # and one between the whole image and its tiles
    activation: str
    merge: int = 1  # patches on a side of the square that becomes one token
    by_channel: bool = False  # the joined features are ordered by channel, then by patch
    # with zeros, where squares are not full; otherwise what is left over is left out
    padded: bool = False

    def forward(self, m: Machine[X], x: X) -> X:
        x = apply_optional(self.patch_norm, m, x)
        if self.merge > 1:
            x = m.merge_patches(x, self.merge, by_channel=self.by_channel, padded=self.padded)
        x = apply_optional(self.norm, m, apply_optional(self.merger, m, x))
        y = self.linear_1(m, x)
        y = (
            m.act(y, self.activation)
            if self.gate is None
            else m.gated(self.gate(m, x), y, self.activation)
        )
        return apply_optional(self.out_norm, m, self.linear_2(m, y))


class AdapterProjector(Block):
    """linear(act(linear_2(act(linear_1 x)))) on the features of side × side patches joined, and
    perhaps a norm (Llama 4, Muse Glimmer).
    """

    group: ClassVar[str] = "projector"
    linear_1: Linear
    linear_2: Linear
    linear: Linear
    norm: Norm | None = None
    activation: str
    merge: int
    by_channel: bool = False  # the joined features are ordered by channel, then by patch

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.act(
            self.linear_1(m, m.merge_patches(x, self.merge, by_channel=self.by_channel)),
            self.activation,
        )
        return apply_optional(
            self.norm, m, self.linear(m, m.act(self.linear_2(m, x), self.activation))
        )


class PooledProjector(Block):
    """A linear layer on the averages of k × k features, normalized (Gemma 3)."""

    group: ClassVar[str] = "projector"
    linear: Linear
    norm: Norm
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear(m, self.norm(m, m.pool_patches(x, self.merge)))
