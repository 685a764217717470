"""Gemma 3n: MobileNet-V5 for images, a conformer for sound, and for each an embedding of its own tokens and a linear layer.

The sizes of MobileNet-V5 are those of its name, `mobilenetv5_300m_enc`; a configuration has no others.
"""

from __future__ import annotations

from itertools import chain

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms, weight
from ...core.multimodal import CountedBlock
from ...core.tree import repeat, sequence
from ...utils.errors import UnknownModel, safe
from ..counted_towers import Modules, conv, counted, counted_part, each, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config

_MOBILENET, _FEATURES = "mobilenetv5_300m_enc", 2048


@multimodal()
def gemma3n(c: Config, text: Decoder) -> Assembly:
    v, a = part_config(c, "vision_config", {}), part_config(c, "audio_config", {})
    if (name := v.get("architecture", _MOBILENET)) != _MOBILENET or v.get("model_args", {}):
        raise UnknownModel(
            f"{c.source}: vision_config.architecture is {safe(repr(name), 60)}", hint=f"known: {_MOBILENET} without model_args"
        )
    v.ignore("do_pooling", "initializer_range", "label_names", "model_type", "num_classes", "pretrained_cfg")
    if (width := v.dim("d_v", "hidden_size", default=_FEATURES)) != _FEATURES:
        raise v.error("hidden_size", f"is {width}, but the features of {_MOBILENET} have {_FEATURES} channels")
    sound = a.dim("d_a", "hidden_size", default=1536)
    return assemble(
        text,
        vision=("model.vision_tower.timm_model.", counted_part(_mobilenet())),
        projector=("model.embed_vision.", counted_part(_embedder(v, width, text))),
        audio=("model.audio_tower.", counted_part(_conformer(a, sound))),
        audio_projector=("model.embed_audio.", counted_part(_embedder(a, sound, text))),
    )


def _embedder(c: Config, d: int, text: Decoder) -> Modules:
    """Read the embedding of the tokens that stand for images or sound, and the linear layer on features."""
    c.ignore("vocab_offset", "rms_norm_eps")
    norm = rms(d, 1e-6)
    rows = table(c.dim("V_m", "vocab_size", default=128), d)
    return {"embedding": rows, **each("", "hard_embedding_norm soft_embedding_norm", norm), "embedding_projection": linear(text.width, d)}


def _mobilenet() -> Modules:
    """The convolutions of three stages, attention and MLPs by turns in the last two, and an MLP on the features of both."""
    pairs = [_attention(640, 768, 64, reduced=True), _inverted(640, 640, 1280)], [_attention(1280, 1536, 96), _inverted(1280, 1280, 2560)]
    stages = (
        [_edge(64, 128, 256), *[_edge(128, 128, 512)] * 2],
        [_inverted(128, 256, 768, 3, 5), *(_inverted(256, 256, 1024, side) for side in (5, 3, 5, 3))],
        [_inverted(256, 640, 1536, 5, 5), *[_inverted(640, 640, 2560, 5)] * 7, _inverted(640, 640, 640), *chain(*[pairs[0]] * 14)],
        [_inverted(640, 1280, 3840, 5, 5), *chain(*[pairs[1]] * 19)],
    )
    return {
        "conv_stem.conv": conv(64, 3, 3, 3),
        "conv_stem.bn": rms(64, 1e-6),
        **{f"blocks.{i}": sequence(blocks) for i, blocks in enumerate(stages)},
        "msfa.ffn": _inverted(640 + 1280, _FEATURES, 3840, scaled=False),
        "msfa.norm": rms(_FEATURES, 1e-6),
    }


def _edge(into: int, out: int, inner: int) -> CountedBlock:
    convolutions = {"conv_exp": conv(inner, into, 3, 3, bias=False), "conv_pwl": conv(out, inner, 1, 1, bias=False)}
    return counted({**convolutions, "bn1": rms(inner, 1e-6), "bn2": rms(out, 1e-6)})


def _inverted(into: int, out: int, inner: int, start: int = 0, middle: int = 0, scaled: bool = True) -> CountedBlock:
    """A universal inverted bottleneck: convolutions of single channels with sides `start` and `middle`, 0 for none (arXiv:2404.10518)."""
    parts = {
        "dw_start": (into, 1, start),
        "pw_exp": (inner, into, 1),
        "dw_mid": (inner, 1, middle),
        "pw_proj": (out, inner, 1),
    }
    modules = {
        f"{name}.{part}": module
        for name, (rows, columns, side) in parts.items()
        if side
        for part, module in (("conv", conv(rows, columns, side, side, bias=False)), ("bn", rms(rows, 1e-6)))
    }
    return counted({**modules, "layer_scale.gamma": weight(out, role="scale") if scaled else None})


def _attention(d: int, heads: int, head_dim: int, reduced: bool = False) -> CountedBlock:
    """Attention with one key and value for all heads; `reduced`: of a grid whose sides a convolution has halved."""
    keys: Modules = {
        "down_conv": conv(d, 1, 3, 3, bias=False) if reduced else None,
        "norm": rms(d, 1e-6) if reduced else None,
        "proj": conv(head_dim, d, 1, 1, bias=False),
    }
    return counted(
        {
            "norm": rms(d, 1e-6),
            "attn.query.proj": conv(heads, d, 1, 1, bias=False),
            **{f"attn.{x}.{name}": module for x in ("key", "value") for name, module in keys.items()},
            "attn.output.proj": conv(d, heads, 1, 1, bias=False),
            "layer_scale.gamma": weight(d, role="scale"),
        }
    )


def _conformer(a: Config, d: int) -> Modules:
    """Read the tower for sound: two convolutions over time and frequency, a linear layer, and the layers."""
    H, L, taps = (
        a.dim(x, f"conf_{y}", default=n)
        for x, y, n in (("H_a", "num_attention_heads", 8), ("L_a", "num_hidden_layers", 12), ("taps", "conv_kernel_size", 5))
    )
    a.ignore("gradient_clipping", "conf_attention_chunk_size", "conf_attention_context_left", "conf_attention_context_right")
    a.ignore("conf_attention_logit_cap", "conf_reduction_factor", "conf_residual_weight", "initializer_range", "model_type")
    a.ignore("sscp_conv_group_norm_eps", "sscp_conv_eps")
    if d % H:
        raise a.error("conf_num_attention_heads", f"is {H}, which does not divide the width {d}")
    (one, two), sides = _pair(a, "sscp_conv_channel_size", [128, 32]), a.get("sscp_conv_kernel_size", [[3, 3], [3, 3]])
    strides, bands = a.get("sscp_conv_stride_size", [[2, 2], [2, 2]]), int(a.dim("m_a", "input_feat_size", default=128))
    if not all(len(x) == 2 and all(len(y) == 2 and all(type(z) is int and z > 0 for z in y) for y in x) for x in (sides, strides)):
        raise a.error("sscp_conv_kernel_size", "should give two sides of each of two convolutions, like sscp_conv_stride_size")
    for (_, side), (_, stride) in zip(sides, strides, strict=True):
        bands = (bands + 2 - side) // stride + 1
    norm = rms(d, 1e-6)
    half = counted({"pre_layer_norm": norm, "ffw_layer_1": linear(4 * d, d), "ffw_layer_2": linear(d, 4 * d), "post_layer_norm": norm})
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
