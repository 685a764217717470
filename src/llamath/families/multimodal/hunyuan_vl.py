"""Hunyuan-VL and HunyuanOCR: a tower for images of any shape, and convolutions that make one token of a square of patches."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, weight
from ...core.expr import Expr, product
from ...core.tree import repeat
from ..counted_towers import Modules, conv, counted, counted_part, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side, vit_sizes

_LAYER = "vit.layers.{l}."
_IN_MEMORY = {
    "vit.perceive.proj.0": "model.vision_tower.patch_merger.proj_conv",
    "vit.perceive.proj.2": "model.vision_tower.patch_merger.proj_out",
    "vit.perceive.": "model.vision_tower.patch_merger.",
    **{
        _LAYER + x: f"model.vision_tower.layers.{{l}}.{y}"
        for x, y in {
            "input_layernorm": "layer_norm1",
            "post_attention_layernorm": "layer_norm2",
            "mlp.dense_h_to_4h": "mlp.fc1",
            "mlp.dense_4h_to_h": "mlp.fc2",
        }.items()
    },
    "vit.": "model.vision_tower.",
    "model.": "model.language_model.",
}


@multimodal(forms={"hf-modules": _IN_MEMORY})
def hunyuan_vl(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    v.ignore("interpolate_mode", "img_max_token_num", "min_image_size", "max_vit_seq_len", "out_hidden_size", "temporal_patch_size")
    v.ignore("attention_dropout", "hidden_act", "rms_norm_eps", "text_hidden_size", "num_key_value_heads")
    d, F, L, _ = vit_sizes(v, width=1152, mlp_width=4304, layers=27, heads=16)
    p, s, channels = (
        side(v, "p_v", "patch_size", 16),
        side(v, "s_v", "max_image_size", 2048),
        v.dim("C_v", "num_channels", default=Expr.const(3)),
    )
    k, out, norm = v.dim("k_v", "spatial_merge_size", default=2), text.width, layer_norm(d, 1e-5)
    layer: Modules = {
        "input_layernorm": norm,
        **{f"self_attn.{x}_proj": linear(d, d, True) for x in "qkvo"},
        "post_attention_layernorm": norm,
        "mlp.dense_h_to_4h": linear(F, d, True),
        "mlp.dense_4h_to_h": linear(d, F, True),
    }
    tower: Modules = {
        "embeddings.patch_embedding": conv(d, channels, p, p),
        "embeddings.position_embedding": table(Expr("N_v", (s // p) ** 2 + 1), d),
        "layers": repeat(counted(layer), L),
    }
    wide = product((4, d))
    projector: Modules = {
        "proj.0": conv(2 * d, d, k, k),
        "proj.2": conv(4 * d, 2 * d, 1, 1),
        "mlp": linear(out, wide, True),
        "image_newline": weight(wide, role="scale"),
        **{f"image_{x}": weight(out, role="scale") for x in ("begin", "end", "sep")},
        "before_rms": rms(d, 1e-5),
        "after_rms": rms(out, 1e-5),
    }
    return assemble(text, vision=("vit.", counted_part(tower)), projector=("vit.perceive.", counted_part(projector)))
