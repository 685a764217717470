"""Readers of Gemma 4's towers, for images and for sound, and of the linear layers after them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import MLP, Decoder, Layer, Linear, Norm, RMSNorm, apply_optional
from ..core.config import Config
from ..core.constructors import layer_norm, linear, rms, weight
from ..core.expr import Expr
from ..core.image_sizes import ScaledImage
from ..core.machine import Machine, X
from ..core.positions import SplitAxialRope
from ..core.sound import (
    ConformerConvolution,
    ConformerFeedForward,
    ConformerLayer,
    ConformerTower,
    RelativeAttention,
    SubsampleConvolution,
)
from ..core.towers import EncoderAttention, LinearProjector, PatchEmbedding, VisionTower
from ..core.tree import Stack, Weight, repeat
from .multimodal_registry import Names, Part, Tower


class ClippedLinear(Linear):
    """A linear layer whose inputs and outputs are clamped to stored numbers (Gemma 4)."""

    is_linear_layer: ClassVar[bool] = False
    input_min: Weight
    input_max: Weight
    output_min: Weight
    output_max: Weight

    def forward(self, m: Machine[X], x: X) -> X:
        return m.clip(
            Linear.forward(self, m, m.clip(x, self.input_min, self.input_max)),
            self.output_min,
            self.output_max,
        )


class PooledVisionTower(VisionTower):
    """A vision transformer with positions by column and row, whose result are averages of pool ×
    pool features (Gemma 4).
    """

    axial_positions: Weight  # [2, places, d_v]
    std_bias: Weight | None = None
    std_scale: Weight | None = None
    pool: int
    factor: float  # of the averages

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = m.add_positions(self.patches(m, pixels), self.axial_positions, "axial")
        x = m.scale(m.pool_patches(m.layers(self.layers, x), self.pool), self.factor)
        if self.std_bias is None or self.std_scale is None:
            return x
        return m.standardize(x, self.std_bias, self.std_scale)


class PatchEmbedder(VisionTower):
    """Normalized pixels of large patches, projected, with positions by column and row; there are
    no layers (Gemma 4 12B).
    """

    pixel_norm: Norm
    axial_positions: Weight  # [places, 2, d_v]

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = apply_optional(self.norm_before, m, self.patches(m, self.pixel_norm(m, pixels)))
        return apply_optional(
            self.norm_after, m, m.add_positions(x, self.axial_positions, "axial_last")
        )


_LIMITS = ("input_min", "input_max", "output_min", "output_max")


def _clipped(path: str, name: str) -> Names:
    """Return the names of a linear layer, which stands in a module with its limits."""
    return {
        f"{path}.weight": f"{name}.linear.weight",
        **{f"{path}.{x}": f"{name}.{x}" for x in _LIMITS},
    }


_LAYER = "encoder.layers.{l}."
_VISION_NAMES: Names = {
    "patches": "patch_embedder.input_proj",
    "axial_positions": "patch_embedder.position_embedding_table",
    "std_bias": "std_bias",
    "std_scale": "std_scale",
    "layers.{l}.attn_norm": f"{_LAYER}input_layernorm",
    "layers.{l}.attn_out_norm": f"{_LAYER}post_attention_layernorm",
    "layers.{l}.mlp_norm": f"{_LAYER}pre_feedforward_layernorm",
    "layers.{l}.mlp_out_norm": f"{_LAYER}post_feedforward_layernorm",
    **{f"layers.{{l}}.attn.{x}_norm": f"{_LAYER}self_attn.{x}_norm" for x in "qk"},
    **{
        path: name
        for x in "qkvo"
        for path, name in _clipped(f"layers.{{l}}.attn.{x}", f"{_LAYER}self_attn.{x}_proj").items()
    },
    **{
        path: name
        for x in ("gate", "up", "down")
        for path, name in _clipped(f"layers.{{l}}.mlp.{x}", f"{_LAYER}mlp.{x}_proj").items()
    },
}
_FEED_FORWARDS = {"feed_forward": "feed_forward1", "last_feed_forward": "feed_forward2"}
_AUDIO_NAMES: Names = {
    **{
        path: f"subsample_conv_projection.{layer}.{name}"
        for block, layer in (("first", "layer0"), ("second", "layer1"))
        for path, name in ((f"{block}.conv", "conv.weight"), (f"{block}.norm", "norm"))
    },
    "embed": "subsample_conv_projection.input_proj_linear",
    **{
        f"layers.{{l}}.{ours}.norm": f"layers.{{l}}.{theirs}.pre_layer_norm"
        for ours, theirs in _FEED_FORWARDS.items()
    },
    **{
        f"layers.{{l}}.{ours}.out_norm": f"layers.{{l}}.{theirs}.post_layer_norm"
        for ours, theirs in _FEED_FORWARDS.items()
    },
    **{
        path: name
        for ours, theirs in _FEED_FORWARDS.items()
        for x, module in (("up", "ffw_layer_1"), ("down", "ffw_layer_2"))
        for path, name in _clipped(
            f"layers.{{l}}.{ours}.{x}", f"layers.{{l}}.{theirs}.{module}"
        ).items()
    },
    "layers.{l}.attn_norm": "layers.{l}.norm_pre_attn",
    **{
        path: name
        for x in "qkv"
        for path, name in _clipped(
            f"layers.{{l}}.attn.{x}", f"layers.{{l}}.self_attn.{x}_proj"
        ).items()
    },
    **_clipped("layers.{l}.attn.o", "layers.{l}.self_attn.post"),
    "layers.{l}.attn.relative_k": "layers.{l}.self_attn.relative_k_proj",
    "layers.{l}.attn.scale": "layers.{l}.self_attn.per_dim_scale",
    "layers.{l}.attn_out_norm": "layers.{l}.norm_post_attn",
    "layers.{l}.convolution.norm": "layers.{l}.lconv1d.pre_layer_norm",
    **_clipped("layers.{l}.convolution.start", "layers.{l}.lconv1d.linear_start"),
    "layers.{l}.convolution.conv": "layers.{l}.lconv1d.depthwise_conv1d.weight",
    "layers.{l}.convolution.conv_norm": "layers.{l}.lconv1d.conv_norm",
    **_clipped("layers.{l}.convolution.end", "layers.{l}.lconv1d.linear_end"),
    "layers.{l}.norm": "layers.{l}.norm_out",
    "out": "output_proj",
}


def _linear(out: int, into: int, clipped: bool) -> Linear:
    if not clipped:
        return linear(out, into)
    limit = Weight(shape=(), role="scale", buffer=True)
    return linear(out, into).extended(ClippedLinear, **dict.fromkeys(_LIMITS, limit))


def gemma4_vision_tower(c: Config, max_tokens: int) -> Tower:
    """Read the vision tower: sandwiched norms, positions by column and row, averages of squares
    of features.
    """
    c.ignore(
        "global_head_dim",
        "max_position_embeddings",
        "default_output_length",
        "image_seq_length",
        "video_seq_length",
    )
    d, F = c.dim("d_v", "hidden_size", default=768), c.dim("F_v", "intermediate_size", default=3072)
    L, H = (
        c.dim("L_v", "num_hidden_layers", default=16),
        c.dim("H_v", "num_attention_heads", default=12),
    )
    K, h = c.dim("K_v", "num_key_value_heads", default=12), c.dim("h_v", "head_dim", default=64)
    p, k, places = (
        c.dim("p_v", "patch_size", default=16),
        c.dim("k_v", "pooling_kernel_size", default=3),
        10 * 1024,
    )
    if c.get("attention_bias", False):
        raise c.error("attention_bias", "asks for biases, which this tower does not have")
    if H % K:
        raise c.error(
            "num_key_value_heads", f"is {K}, which does not divide the {H} heads of the tower"
        )
    eps, clipped = c.get("rms_norm_eps", 1e-6), c.get("use_clipped_linears", False)
    rope = c.sub("rope_parameters")
    rope.ignore("rope_type")
    norm, head_norm = rms(d, eps), rms(h, eps)
    attention = EncoderAttention(
        q=_linear(H * h, d, clipped),
        k=_linear(K * h, d, clipped),
        v=_linear(K * h, d, clipped),
        o=_linear(d, H * h, clipped),
        q_norm=head_norm,
        k_norm=head_norm,
        v_norm=RMSNorm(eps=eps),
        heads=H,
        kv_heads=K,
        head_dim=h,
        rope=SplitAxialRope(theta=rope.get("rope_theta", c.get("rope_theta", 100.0)), dim=h),
        window=AttentionWindow(causal=False),
        score_transform=ScoreTransform(scale=1.0),
    )
    up = _linear(F, d, clipped)
    feed_forward = MLP(
        gate=up,
        up=up,
        down=_linear(d, F, clipped),
        activation=c.activation("hidden_activation", "gelu_pytorch_tanh"),
    )
    layer = Layer(
        attn_norm=norm,
        attn=attention,
        attn_out_norm=norm,
        mlp_norm=norm,
        mlp=feed_forward,
        mlp_out_norm=norm,
    )
    standard = (
        Weight(shape=(d,), role="scale", buffer=True) if c.get("standardize", False) else None
    )
    tower = PooledVisionTower(
        patches=PatchEmbedding(weight=weight(d, Expr.const(3) * p * p)),
        layers=repeat(layer, L),
        patch_size=p,
        image_sizes=ScaledImage(patch=p, multiple=p * k, max_patches=max_tokens * k * k),
        axial_positions=weight(
            2, c.dim("N_v", "position_embedding_size", default=places), d, role="lookup"
        ),
        std_bias=standard,
        std_scale=standard,
        pool=k,
        factor=d**0.5,
    )
    return Tower(tower, _VISION_NAMES)


def gemma4_audio_tower(c: Config) -> Part:
    """Read the audio tower."""
    c.ignore(
        "attention_chunk_size",
        "attention_context_left",
        "attention_context_right",
        "attention_logit_cap",
        "residual_weight",
    )
    c.ignore("attention_invalid_logits_value", "gradient_clipping")
    d, L = c.dim("d_a", "hidden_size", default=1024), c.dim("L_a", "num_hidden_layers", default=12)
    H, taps = (
        c.dim("H_a", "num_attention_heads", default=8),
        c.dim("taps_a", "conv_kernel_size", default=5),
    )
    if d % H:
        raise c.error(
            "num_attention_heads", f"is {H}, which does not divide the width {d} of the tower"
        )
    h, eps, clipped = (
        Expr("h_a", d // H),
        c.get("rms_norm_eps", 1e-6),
        c.get("use_clipped_linears", True),
    )
    c.activation("hidden_act", "silu")
    channels: Any = c.get("subsampling_conv_channels", None) or [128, 32]
    if (
        not isinstance(channels, (list, tuple))
        or len(channels) != 2
        or not all(type(x) is int and x > 3 for x in channels)
    ):
        raise c.error(
            "subsampling_conv_channels", "should be two numbers of channels, like [128, 32]"
        )
    one, two = (Expr(f"C{i}_a", x) for i, x in enumerate(channels))
    norm, projection = rms(d, eps), _linear(d, d, clipped)
    heads = _linear(H * h, d, clipped)
    half = ConformerFeedForward(
        norm=norm, up=_linear(4 * d, d, clipped), down=_linear(d, 4 * d, clipped), out_norm=norm
    )
    attention = RelativeAttention(
        q=heads,
        k=heads,
        v=heads,
        o=projection,
        relative_k=linear(H * h, d),
        scale=weight(h, role="scale"),
        heads=H,
        head_dim=h,
    )
    convolution = ConformerConvolution(
        norm=norm,
        start=_linear(2 * d, d, clipped),
        conv=weight(d, 1, taps),
        conv_norm=norm,
        end=projection,
    )
    layer = ConformerLayer(
        feed_forward=half,
        attn_norm=norm,
        attn=attention,
        attn_out_norm=norm,
        convolution=convolution,
        last_feed_forward=half,
        norm=norm,
    )
    tower = ConformerTower(
        first=SubsampleConvolution(
            conv=weight(one, 1, 3, 3), norm=layer_norm(one, eps, bias=False)
        ),
        second=SubsampleConvolution(
            conv=weight(two, one, 3, 3), norm=layer_norm(two, eps, bias=False)
        ),
        embed=linear(d, Expr.const(one // 4) * two),
        layers=repeat(layer, L),
        out=linear(c.dim("out_a", "output_proj_dims", default=1536), d, True),
    )
    return Part(tower, _AUDIO_NAMES)


def gemma4_patch_embedder(c: Config, max_tokens: int) -> Tower:
    """Read the layers that take the place of a tower for images: norms, a projection of large
    patches, positions.
    """
    c.ignore("model_patch_size", "num_soft_tokens", "rms_norm_eps")
    p, k, d = (
        c.dim("p_v", "patch_size", default=16),
        c.dim("k_v", "pooling_kernel_size", default=3),
        c.dim("d_v", "mm_embed_dim", default=3840),
    )
    pixels, places = Expr.const(3) * p * k * p * k, c.dim("N_v", "mm_posemb_size", default=1120)
    norm = layer_norm(d, 1e-5)
    embedder = PatchEmbedder(
        pixel_norm=layer_norm(pixels, 1e-5),
        patches=PatchEmbedding(weight=weight(d, pixels), bias=weight(d, role="bias")),
        norm_before=norm,
        axial_positions=weight(places, 2, d, role="lookup"),
        layers=Stack(),
        norm_after=norm,
        patch_size=p * k,
        image_sizes=ScaledImage(patch=int(p * k), multiple=int(p * k), max_patches=max_tokens),
    )
    names = {
        "pixel_norm": "patch_ln1",
        "patches": "patch_dense",
        "norm_before": "patch_ln2",
        "axial_positions": "pos_embedding",
        "norm_after": "pos_norm",
    }
    return Tower(embedder, names)


def gemma4_projector(width: Expr, eps: float, text: Decoder) -> Part:
    """A linear layer on normalized features."""
    block = LinearProjector(norm=RMSNorm(eps=eps), linear=linear(text.embed.weight.shape[1], width))
    return Part(block, {"linear": "embedding_projection"})


def gemma4_sees_later(c: Config) -> str:
    """Return "image" for models in which tokens of an image attend to all of it."""
    text = c.data.get("text_config")
    return (
        "image"
        if isinstance(text, Mapping) and text.get("use_bidirectional_attention") == "vision"
        else ""
    )
