"""The blocks of SAM's image encoder: attention with learned distances, in windows or everywhere, and convolutions over its features."""

from __future__ import annotations

from typing import ClassVar

from .blocks import Layer, Linear, Norm
from .machine import Machine, X
from .towers import VisionTower
from .tree import Block, Weight


class GridConvolution(Linear):
    """A convolution over the patches of a square image: W `[out, in, k, k]`."""

    stride: int = 1

    def forward(self, m: Machine[X], x: X) -> X:
        return m.convolve(x, self.weight, self.bias, self.stride)


class GridAttention(Block):
    """Attention of the patches of a square grid, with learned vectors for the distances between their rows and columns."""

    group: ClassVar[str] = "attention"
    rows: Weight | None = None
    columns: Weight | None = None
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    heads: int
    head_dim: int

    def forward(self, m: Machine[X], x: X) -> X:
        q, k, v = (m.split_heads(y, self.head_dim) for y in (self.q(m, x), self.k(m, x), self.v(m, x)))
        if self.rows is None or self.columns is None:
            return self.o(m, m.merge_heads(m.encoder_attention(q, k, v)))
        return self.o(m, m.merge_heads(m.grid_attention(q, k, v, self.rows, self.columns)))


class WindowedLayer(Layer):
    """A layer whose attention sees windows of `window` × `window` patches, the last ones padded, of a square of so many `patches`."""

    window: int
    patches: int

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn_norm is not None and self.attn is not None and self.mlp_norm is not None and self.mlp is not None
        y = self.attn(m, m.to_windows(self.attn_norm(m, x), self.window))
        x = m.add(x, m.from_windows(y, self.window, self.patches))
        return m.add(x, self.mlp(m, self.mlp_norm(m, x)))


class SamNeck(Block):
    """norm(mix(norm(reduce x))): two convolutions that bring features to fewer channels."""

    reduce: GridConvolution
    reduce_norm: Norm
    mix: GridConvolution
    mix_norm: Norm

    def forward(self, m: Machine[X], x: X) -> X:
        return self.mix_norm(m, self.mix(m, self.reduce_norm(m, self.reduce(m, x))))


class SamTower(VisionTower):
    """SAM's image encoder, whose result are features with few channels."""

    neck: SamNeck

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = self.patches(m, pixels)
        if self.positions is not None:
            x = m.add_positions(x, self.positions)
        return self.neck(m, m.layers(self.layers, x))


class ConvolutionProjector(Block):
    """linear(second(first x)): two convolutions that halve the grid of features, and a linear layer (GOT-OCR 2)."""

    group: ClassVar[str] = "projector"
    first: GridConvolution
    second: GridConvolution
    linear: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear(m, self.second(m, self.first(m, x)))
