"""The modules of conformers for sound, which are counted: that of Gemma 3n, and that of Phi-4
with learned distances.
"""

from __future__ import annotations

from math import log2

from ..core.config import Config
from ..core.constructors import layer_norm, linear, rms, weight
from ..core.expr import Expr, product
from ..core.multimodal import CountedBlock
from ..core.tree import repeat
from ..utils.errors import safe
from .counted_towers import Modules, conv, counted, each, table


def gemma3n_conformer(a: Config, d: int) -> Modules:
    """Read the tower for sound: two convolutions over time and frequency, a linear layer, and
    the layers.
    """
    H, L, taps = (
        a.dim(x, f"conf_{y}", default=n)
        for x, y, n in (
            ("H_a", "num_attention_heads", 8),
            ("L_a", "num_hidden_layers", 12),
            ("taps", "conv_kernel_size", 5),
        )
    )
    a.ignore(
        "gradient_clipping",
        "conf_attention_chunk_size",
        "conf_attention_context_left",
        "conf_attention_context_right",
    )
    a.ignore(
        "conf_attention_logit_cap",
        "conf_reduction_factor",
        "conf_residual_weight",
        "initializer_range",
        "model_type",
    )
    a.ignore("sscp_conv_group_norm_eps", "sscp_conv_eps")
    if d % H:
        raise a.error("conf_num_attention_heads", f"is {H}, which does not divide the width {d}")
    (one, two), sides = (
        _pair(a, "sscp_conv_channel_size", [128, 32]),
        a.get("sscp_conv_kernel_size", [[3, 3], [3, 3]]),
    )
    strides, bands = (
        a.get("sscp_conv_stride_size", [[2, 2], [2, 2]]),
        int(a.dim("m_a", "input_feat_size", default=128)),
    )
    if not all(
        len(x) == 2 and all(len(y) == 2 and all(type(z) is int and z > 0 for z in y) for y in x)
        for x in (sides, strides)
    ):
        raise a.error(
            "sscp_conv_kernel_size",
            "should give two sides of each of two convolutions, like sscp_conv_stride_size",
        )
    for (_, side), (_, stride) in zip(sides, strides, strict=True):
        bands = (bands + 2 - side) // stride + 1
    norm = rms(d, 1e-6)
    half = counted(
        {
            "pre_layer_norm": norm,
            "ffw_layer_1": linear(4 * d, d),
            "ffw_layer_2": linear(d, 4 * d),
            "post_layer_norm": norm,
        }
    )
    layer = counted(
        {
            "ffw_layer_start": half,
            "attention.pre_attn_norm": norm,
            "attention.attn.per_dim_scale": weight(d // H, role="scale"),
            "attention.attn.relative_position_embedding.pos_proj": linear(d, d),
            **each("attention.attn.", "q_proj k_proj v_proj", linear(d, d)),
            "attention.post": linear(d, d),
            "attention.post_norm": norm,
            "lconv1d.pre_layer_norm": norm,
            "lconv1d.linear_start": linear(2 * d, d),
            "lconv1d.depthwise_conv1d": conv(d, 1, taps, bias=False),
            "lconv1d.conv_norm": norm,
            "lconv1d.linear_end": linear(d, d),
            "ffw_layer_end": half,
            "norm": norm,
        }
    )
    first, second = (f"subsample_conv_projection.conv_{i}." for i in range(2))
    return {
        f"{first}conv": conv(one, 1, *sides[0], bias=False),
        f"{first}norm": rms(one, 1e-3),
        f"{second}conv": conv(two, one, *sides[1], bias=False),
        f"{second}norm": rms(two, 1e-3),
        "subsample_conv_projection.input_proj_linear": linear(d, two * bands),
        "conformer": repeat(layer, L),
    }


def _pair(c: Config, key: str, default: list[int]) -> list[int]:
    found = c.get(key, default)
    if len(found) != 2 or not all(type(x) is int and x > 0 for x in found):
        raise c.error(key, f"should be two positive integers, not {safe(repr(found), 40)}")
    return list(found)


def phi4_conformer(a: Config, d: Expr) -> Modules:
    a.ignore(
        "activation",
        "audio_token_id",
        "chunk_size",
        "conv_activation",
        "conv_glu_type",
        "downsample_rate",
        "dropout_rate",
    )
    a.ignore(
        "feature_layer",
        "initializer_range",
        "left_chunk",
        "nemo_activation",
        "nemo_final_size",
        "model_type",
    )
    H, L, bins = (
        a.dim("H_a", "num_attention_heads", default=16),
        a.dim("L_a", "num_blocks", default=24),
        a.get("input_size", 80),
    )
    C, distance = a.get("nemo_conv_channels", 1024), a.get("bias_max_distance", 1000)
    steps, left, scale = (
        int(log2(max(a.get("time_reduction", 8), 1))),
        bins,
        weight(bins, role="scale").replace(buffer=True),
    )
    for _ in range(steps):
        left = (left - 1) // 2 + 1
    convolutions: dict[str, CountedBlock] = {}
    for i in range(steps - 1):
        convolutions[f"embed.conv.{3 * i + 2}"] = counted(
            {"weight": weight(C, 1, 3, 3), "bias": weight(C, role="bias")}
        )
        convolutions[f"embed.conv.{3 * i + 3}"] = counted(
            {"weight": weight(C, C, 1, 1), "bias": weight(C, role="bias")}
        )
    return {
        "encoder_embedding.global_mean": scale,
        "encoder_embedding.global_invstd": scale,
        "embed.conv.0": conv(C, 1, 3, 3),
        **convolutions,
        "embed.out": linear(d, product((C, left)), True),
        "relative_attention_bias_layer.bias_values": table(
            distance if a.get("bias_symmetric", False) else 2 * distance, H
        ),
        "encoders": repeat(_phi4_layer(a, d), L),
    }


def _phi4_layer(a: Config, d: Expr) -> CountedBlock:
    F, out, kernel = (
        a.dim("F_a", "intermediate_size", default=1536),
        a.get("ext_pw_out_channel", 1024),
        a.get("kernel_size", 3),
    )
    wide, narrow = (
        product((d, a.get("depthwise_multiplier", 1))),
        a.get("depthwise_separable_out_channel", 1024),
    )
    norm, factors = layer_norm(d, 1e-5), weight(1, out, 1, role="scale")
    return counted(
        {
            **{f"feed_forward_in.{name}": x for name, x in _feed_forward(d, F).items()},
            **{f"self_attn.{x}_proj": linear(d, d, True) for x in "qkvo"},
            "conv.layer_norm": norm,
            "conv.glu.ext_pw_conv_1d": conv(2 * out, d, 1),
            "conv.glu.b1": factors,
            "conv.glu.b2": factors,
            "conv.dw_sep_conv_1d.dw_conv": conv(wide, 1, kernel),
            "conv.dw_sep_conv_1d.pw_conv": conv(narrow, wide, 1),
            "conv.ext_pw_conv_1d": conv(out, d, 1),
            **{f"feed_forward_out.{name}": x for name, x in _feed_forward(d, F).items()},
            "layer_norm_att": norm,
            "layer_norm": norm,
        }
    )


def _feed_forward(d: Expr, F: Expr) -> Modules:
    return {
        "layer_norm": layer_norm(d, 1e-5),
        "gate_up_proj": linear(2 * F, d, True),
        "down_proj": linear(d, F, True),
    }
