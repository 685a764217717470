"""Hunyuan-VL and HunyuanOCR: a tower for images of any shape, and convolutions that make one
token of a square of patches.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, rms, weight
from ...core.expr import Expr, product
from ...core.image_sizes import FramedBudget
from ...core.towers import VisionTower
from ...core.tree import repeat
from ..counted_towers import Modules, conv, counted, counted_tower, each
from ..multimodal_registry import Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import (
    encoder_attention,
    part_config,
    patch_embedding,
    side,
    vit_layer,
    vit_sizes,
)

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


_TOWER = {
    "patches": "embeddings.patch_embedding",
    "positions": "embeddings.position_embedding.weight",
    "layers.{l}.attn_norm": "layers.{l}.input_layernorm",
    **{f"layers.{{l}}.attn.{x}": f"layers.{{l}}.self_attn.{x}_proj" for x in "qkvo"},
    "layers.{l}.mlp_norm": "layers.{l}.post_attention_layernorm",
    "layers.{l}.mlp.up": "layers.{l}.mlp.dense_h_to_4h",
    "layers.{l}.mlp.down": "layers.{l}.mlp.dense_4h_to_h",
}
_PROJECTOR = {
    "downsample": "proj.0",
    "expand": "proj.2",
    "linear": "mlp",
    "newline": "image_newline",
    "begin": "image_begin",
    "end": "image_end",
    "separator": "image_sep",
    "norm": "before_rms",
    "out_norm": "after_rms",
}


@multimodal(
    Wrapper(
        types="hunyuan_vl", text_type="hunyuan_vl_text", tied=True, tied_by="either", flat=True
    ),
    forms={"hf-modules": _IN_MEMORY},
)
def hunyuan_vl(c: Config, text: Decoder) -> Assembly:
    v, out = part_config(c, "vision_config", {}), text.width
    v.ignore(
        "img_max_token_num",
        "min_image_size",
        "max_vit_seq_len",
        "out_hidden_size",
        "temporal_patch_size",
    )
    v.ignore("attention_dropout", "text_hidden_size", "num_key_value_heads")
    d, F, L, H = vit_sizes(v, width=1152, mlp_width=4304, layers=27, heads=16)
    p, s, k = (
        side(v, "p_v", "patch_size", 16),
        side(v, "s_v", "max_image_size", 2048),
        v.dim("k_v", "spatial_merge_size", default=2),
    )
    eps, activation = v.get("rms_norm_eps", 1e-5), v.activation("hidden_act", "gelu")
    if (mode := v.get("interpolate_mode", "bilinear")) not in ("bilinear", "bicubic"):
        raise v.error("interpolate_mode", f"should be bilinear or bicubic, not {mode!r:.40}")
    norm = layer_norm(d, eps)
    tower = VisionTower(
        patches=patch_embedding(v, d, p, bias=True),
        positions=weight(Expr("N_v", (s // p) ** 2 + 1), d, role="lookup"),
        layers=repeat(
            vit_layer(
                norm, encoder_attention(v, d, H, bias=True), mlp(d, F, activation, bias=True)
            ),
            L,
        ),
        patch_size=p,
        image_sizes=FramedBudget(patch=p, multiple=p * k, fewest=512**2, most=2048**2),
    )
    wide, token = product((4, d)), weight(out, role="scale")
    projector: Modules = {
        "downsample": conv(2 * d, d, k, k),
        "expand": conv(wide, 2 * d, 1, 1),
        "linear": linear(out, wide, True),
        "newline": weight(wide, role="scale"),
        **each("", "begin end separator", token),
        "norm": rms(d, eps),
        "out_norm": rms(out, eps),
    }
    vision, after = (
        counted_tower(Tower(tower, _TOWER), merge=int(k)),
        Part(counted(projector), _PROJECTOR),
    )
    return assemble(text, vision=("vit.", vision), projector=("vit.perceive.", after))
