"""The blocks that read sound. Their weights are counted; no command takes sound, so that they have
no forward pass.

Letters: d_a width, L_a layers, H_a heads, h_a head size of an audio tower.
"""

from __future__ import annotations

from typing import ClassVar

from .blocks import Linear, Norm
from .tree import Block, Stack, Weight


class SoundBlock(Block):
    """Base of the blocks of an audio tower."""

    group: ClassVar[str] = "audio"


class SubsampleConvolution(SoundBlock):
    """A convolution over time and frequency, W `[out, in, 3, 3]`, that halves both; then a norm."""

    conv: Weight
    norm: Norm


class ConformerFeedForward(SoundBlock):
    """x += ½ · norm(down(act(up(norm x))))."""

    norm: Norm
    up: Linear
    down: Linear
    out_norm: Norm


class RelativeAttention(SoundBlock):
    """Attention in chunks of time, with learned keys for distances and a learned factor for each
    channel of a head.
    """

    q: Linear
    k: Linear
    v: Linear
    o: Linear
    relative_k: Linear
    scale: Weight
    heads: int
    head_dim: int


class ConformerConvolution(SoundBlock):
    """A gated linear layer, a convolution of each channel over time, W `[d_a, 1, taps]`, and a
    linear layer.
    """

    norm: Norm
    start: Linear
    conv: Weight
    conv_norm: Norm
    end: Linear


class ConformerLayer(SoundBlock):
    """Half a feed-forward branch, attention, convolution, the other half (Gulati et al. 2020,
    arXiv:2005.08100).
    """

    feed_forward: ConformerFeedForward
    attn_norm: Norm
    attn: RelativeAttention
    attn_out_norm: Norm
    convolution: ConformerConvolution
    last_feed_forward: ConformerFeedForward
    norm: Norm


class ConformerTower(SoundBlock):
    """A conformer over subsampled frames of a spectrogram (Gemma 4's Universal Speech Model)."""

    first: SubsampleConvolution
    second: SubsampleConvolution
    embed: Linear
    layers: Stack
    out: Linear
