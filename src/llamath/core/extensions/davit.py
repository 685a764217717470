"""DaViT: layers that alternate attention in windows and among channels, in stages of which each halves the grid (arXiv:2204.03645)."""

from __future__ import annotations

from typing import ClassVar

from ..blocks import MLP, Linear, Norm, apply_optional
from ..expr import Expr
from ..machine import Machine, X
from ..towers import ChannelConvolution, PatchEmbedding, VisionTower
from ..tree import Block, Stack, Weight


class ConvolutionEmbedding(PatchEmbedding):
    """A convolution with a stride, W `[out, in, k, k]`, and a norm of its input or of its result."""

    input_norm: Norm | None = None
    norm: Norm | None = None
    stride: int

    def forward(self, m: Machine[X], x: X) -> X:
        y = m.convolve(apply_optional(self.input_norm, m, x), self.weight, self.bias, self.stride)
        return apply_optional(self.norm, m, y)


class WindowAttention(Block):
    """Attention of the patches of each window of `window` × `window` patches, the last ones padded with zeros."""

    group: ClassVar[str] = "attention"
    qkv: Linear
    proj: Linear
    width: int
    head_dim: int
    window: int

    def forward(self, m: Machine[X], x: X) -> X:
        parts = m.split(self.qkv(m, m.to_windows(x, self.window)), *[self.width] * 3)
        q, k, v = (m.split_heads(y, self.head_dim) for y in parts)
        return m.from_windows(self.proj(m, m.merge_heads(m.encoder_attention(q, k, v))), self.window, x)


class ChannelAttention(Block):
    """Attention among the channels of a group, each of which is a vector of all patches."""

    group: ClassVar[str] = "attention"
    qkv: Linear
    proj: Linear
    width: int
    head_dim: int  # channels of a group

    def forward(self, m: Machine[X], x: X) -> X:
        q, k, v = (m.split_heads(y, self.head_dim) for y in m.split(self.qkv(m, x), *[self.width] * 3))
        return self.proj(m, m.merge_heads(m.channel_attention(q, k, v)))


class DavitHalf(Block):
    """x += conv1 x; x += attn(norm1 x); x += conv2 x; x += mlp(norm2 x)."""

    conv1: ChannelConvolution
    norm1: Norm
    attn: Block
    conv2: ChannelConvolution
    norm2: Norm
    mlp: MLP

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.add(self.conv1(m, x), x)
        x = m.add(x, self.attn(m, self.norm1(m, x)))
        x = m.add(self.conv2(m, x), x)
        return m.add(x, self.mlp(m, self.norm2(m, x)))


class DavitBlock(Block):
    """Attention in windows, then among channels."""

    spatial: DavitHalf
    channel: DavitHalf

    def forward(self, m: Machine[X], x: X) -> X:
        return self.channel(m, self.spatial(m, x))


class DavitStage(Block):
    """A convolution that makes fewer, wider patches, blocks on them, and the stages after this one."""

    patches: ConvolutionEmbedding
    layers: Stack
    later: DavitStage | None = None

    def forward(self, m: Machine[X], x: X) -> X:
        return apply_optional(self.later, m, m.layers(self.layers, self.patches(m, x)))


class DavitTower(VisionTower):
    """All stages; the first one reads pixels."""

    patches: ConvolutionEmbedding
    later: DavitStage | None = None

    @property
    def numbers(self) -> Expr:
        return self.patches.weight.shape[1]

    def forward(self, m: Machine[X], pixels: X) -> X:
        return apply_optional(self.later, m, m.layers(self.layers, self.patches(m, pixels)))


class PositionedProjector(Block):
    """norm(linear [mean of y; y]) with y = x and learned rows for the row and the column of each patch, and for the frame (Florence-2)."""

    group: ClassVar[str] = "projector"
    rows: Weight
    columns: Weight
    frames: Weight  # an image is the first
    linear: Linear
    norm: Norm
    side: int  # patches on a side of the image

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.add_grid_positions(x, self.rows, self.columns, self.frames)
        return self.norm(m, self.linear(m, m.concat_tokens(m.pool_patches(x, self.side), x)))
