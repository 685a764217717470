"""Readers of projectors that several models have."""

from __future__ import annotations

from math import isqrt

from ..core.blocks import Decoder, Norm
from ..core.config import Config
from ..core.constructors import layer_norm, linear, rms, weight
from ..core.expr import Expr, product
from ..core.towers import LinearProjector, MLPProjector, PooledProjector, VisionTower
from .multimodal_registry import Part
from .tower_parts import feature_width


def mlp_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read LLaVA's projector: two linear layers."""
    bias, activation = (
        c.get("multimodal_projector_bias", True),
        c.activation("projector_hidden_act", "gelu"),
    )
    d = text.embed.weight.shape[1]
    first, second = linear(d, feature_width(tower), bias), linear(d, d, bias)
    return Part(
        MLPProjector(linear_1=first, linear_2=second, activation=activation),
        {x: x for x in ("linear_1", "linear_2")},
    )


def shuffled_projector(
    c: Config, tower: VisionTower, text: Decoder, norm: Norm | None = None
) -> Part:
    """Read the projector of Aya Vision and Command A Vision: squares of patches joined, then a
    gated MLP; `norm` is that of one feature.
    """
    k, d = c.dim("k_v", "downsample_factor", default=2), text.embed.weight.shape[1]
    inner = c.dim("F_p", "alignment_intermediate_size", default=d)
    if inner % 2:
        raise c.error(
            "alignment_intermediate_size", f"should be even, not {inner}", "half of it is the gate"
        )
    half, joined = Expr.const(inner // 2), product((k, k, feature_width(tower)))
    up = linear(half, joined, True)
    block = MLPProjector(
        norm=norm, linear_1=up, gate=up, linear_2=linear(d, half, True), activation="silu", merge=k
    )
    return Part(
        block,
        {"norm": "layernorm", "linear_1": "linear_1", "gate": "linear_1", "linear_2": "linear_2"},
    )


def joined_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read Idefics 3's connector: squares of patches joined and one linear layer."""
    k = c.dim("k_v", "scale_factor", default=2)
    joined = linear(text.embed.weight.shape[1], product((k, k, feature_width(tower))))
    return Part(LinearProjector(linear=joined, merge=k), {"linear": "modality_projection.proj"})


def internvl_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read InternVL's projector: squares of patches joined, a norm, two linear layers."""
    ratio = c.get("downsample_ratio", 0.5)
    if not 0 < ratio <= 1 or 1 / ratio != round(1 / ratio):
        raise c.error("downsample_ratio", f"should be 1 over a number of patches, not {ratio:g}")
    side, d = round(1 / ratio), text.embed.weight.shape[1]
    joined = product((side, side, feature_width(tower)))
    block = MLPProjector(
        norm=layer_norm(joined, 1e-5),
        linear_1=linear(d, joined, True),
        linear_2=linear(d, d, True),
        activation=c.activation("projector_hidden_act", "gelu"),
        merge=side,
    )
    return Part(block, {"norm": "layer_norm", "linear_1": "linear_1", "linear_2": "linear_2"})


def linear_projector(bias: bool, d: Expr, tower: VisionTower, name: str = "linear") -> Part:
    """One linear layer on the features of each patch."""
    return Part(LinearProjector(linear=linear(d, feature_width(tower), bias)), {"linear": name})


def with_newlines(projector: Part, prefix: str, text: Decoder) -> Part:
    """Return a projector with the learned token after each row of tiles; its names begin with
    this prefix.
    """
    newline = weight(text.embed.weight.shape[1], role="scale")
    names = {path: prefix + name for path, name in projector.names.items()} | {
        "newline": "image_newline"
    }
    return projector._replace(block=projector.block.replace(newline=newline), names=names)


def merging_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read Mistral 3's projector: a norm, a linear layer on squares of patches, two linear
    layers.
    """
    bias, activation = (
        c.get("multimodal_projector_bias", False),
        c.activation("projector_hidden_act", "gelu"),
    )
    k, d, dv = (
        c.dim("k_v", "spatial_merge_size", default=2),
        text.embed.weight.shape[1],
        tower.patches.weight.shape[0],
    )
    block = MLPProjector(
        patch_norm=rms(dv, text.norm.eps if text.norm else 1e-5),
        merger=linear(dv, product((k, k, dv))),
        linear_1=linear(d, feature_width(tower), bias),
        linear_2=linear(d, d, bias),
        activation=activation,
        merge=k,
        by_channel=True,
    )
    return Part(
        block,
        {x: x for x in ("linear_1", "linear_2")}
        | {"patch_norm": "norm", "merger": "patch_merger.merging_layer"},
    )


def pooled_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read Gemma 3's projector, which makes `mm_tokens_per_image` tokens of an image."""
    if (tokens := c.get("mm_tokens_per_image", 256)) < 1:
        raise c.error("mm_tokens_per_image", f"should be at least 1, not {tokens}")
    patches, wanted = tower.image_sizes.grid(1, 1).rows, isqrt(tokens)
    d, dv, eps = (
        text.embed.weight.shape[1],
        tower.patches.weight.shape[0],
        c.sub("vision_config").get("layer_norm_eps", 1e-6),
    )
    block = PooledProjector(
        linear=linear(d, dv), norm=rms(dv, eps, offset=1.0), merge=patches // wanted
    )
    return Part(
        block,
        {"linear.weight": "mm_input_projection_weight", "norm": "mm_soft_emb_norm"},
        {"linear": "flip"},
    )
