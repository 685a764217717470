"""Phi-4 Multimodal: SigLIP for images, a Conformer with learned distances for sound, and two linear layers for each."""

from __future__ import annotations

from math import log2

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr, product
from ...core.image_sizes import FixedImage
from ...core.multimodal import CountedBlock
from ...core.tree import repeat
from ..counted_towers import Modules, conv, counted, counted_part, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import SIGLIP_NAMES, part_config, siglip_tower

_SIGLIP = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 14, "image_size": 448,
}  # fmt: skip
_IMAGES, _SOUND = "model.embed_tokens_extend.image_embed.", "model.embed_tokens_extend.audio_embed."


@multimodal()
def phi4_multimodal(c: Config, text: Decoder) -> Assembly:
    v, a, d = part_config(c, "vision_config", {}), part_config(c, "audio_config", {}), text.width
    v.ignore("crop_size", "feature_layer", "image_token_id", "attention_dropout", "initializer_range", "model_type")
    given = Config({**_SIGLIP, **{key: x for key, x in v.data.items() if x is not None}}, c.source, "vision_config.")
    v.ignore(*_SIGLIP, "num_channels", "layer_norm_eps", "hidden_act")
    tower = siglip_tower(given)
    width = tower.block.patches.weight.shape[0]
    assert isinstance(tower.block.image_sizes, FixedImage)
    images: Modules = {
        "img_projection_up": linear(d, width, True),
        "img_projection_down": linear(d, d, True),
        "global_img_feature_extensor": weight(1, 1, width, role="scale"),
        "sub_img_feature_extensor": weight(1, 1, 1, width, role="scale"),
    }
    sound = a.dim("d_a", "hidden_size", default=1024)
    names = {path: name.removeprefix("vision_model.") for path, name in SIGLIP_NAMES.items()}
    return assemble(
        text,
        vision=(f"{_IMAGES}img_processor.", tower._replace(names=names)),
        projector=(_IMAGES, counted_part(images)),
        audio=(f"{_SOUND}encoder.", counted_part(_conformer(a, sound))),
        audio_projector=(
            _SOUND,
            counted_part(
                {
                    **{f"up_proj_for_{x}": linear(d, sound, True) for x in ("speech", "vision_speech")},
                    **{f"down_proj_for_{x}": linear(d, d, True) for x in ("speech", "vision_speech")},
                }
            ),
        ),
    )


def _conformer(a: Config, d: Expr) -> Modules:
    a.ignore("activation", "audio_token_id", "chunk_size", "conv_activation", "conv_glu_type", "downsample_rate", "dropout_rate")
    a.ignore("feature_layer", "initializer_range", "left_chunk", "nemo_activation", "nemo_final_size", "model_type")
    H, L, bins = a.dim("H_a", "num_attention_heads", default=16), a.dim("L_a", "num_blocks", default=24), a.get("input_size", 80)
    C, distance = a.get("nemo_conv_channels", 1024), a.get("bias_max_distance", 1000)
    steps, left, scale = int(log2(max(a.get("time_reduction", 8), 1))), bins, weight(bins, role="scale").replace(buffer=True)
    for _ in range(steps):
        left = (left - 1) // 2 + 1
    convolutions: dict[str, CountedBlock] = {}
    for i in range(steps - 1):
        convolutions[f"embed.conv.{3 * i + 2}"] = counted({"weight": weight(C, 1, 3, 3), "bias": weight(C, role="bias")})
        convolutions[f"embed.conv.{3 * i + 3}"] = counted({"weight": weight(C, C, 1, 1), "bias": weight(C, role="bias")})
    return {
        "encoder_embedding.global_mean": scale,
        "encoder_embedding.global_invstd": scale,
        "embed.conv.0": conv(C, 1, 3, 3),
        **convolutions,
        "embed.out": linear(d, product((C, left)), True),
        "relative_attention_bias_layer.bias_values": table(distance if a.get("bias_symmetric", False) else 2 * distance, H),
        "encoders": repeat(_conformer_layer(a, d), L),
    }


def _conformer_layer(a: Config, d: Expr) -> CountedBlock:
    F, out, kernel = a.dim("F_a", "intermediate_size", default=1536), a.get("ext_pw_out_channel", 1024), a.get("kernel_size", 3)
    wide, narrow = product((d, a.get("depthwise_multiplier", 1))), a.get("depthwise_separable_out_channel", 1024)
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
    return {"layer_norm": layer_norm(d, 1e-5), "gate_up_proj": linear(2 * F, d, True), "down_proj": linear(d, F, True)}
