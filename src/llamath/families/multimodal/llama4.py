"""Llama 4: a tower whose class token comes last, squares of patches joined and projected in
three steps.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr, product
from ...core.image_sizes import CanvasImage
from ...core.towers import AdapterProjector, PatchEmbedding, VisionTower
from ...core.tree import repeat
from ..counted_towers import counted_tower
from ..multimodal_registry import WHOLE, Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer, vit_sizes

_NAMES = {
    "class_token": "class_embedding",
    "patches": "patch_embedding.linear",
    "positions": "positional_embedding_vlm",
    "norm_before": "layernorm_pre",
    "layers.{l}.attn_norm": "model.layers.{l}.input_layernorm",
    **{f"layers.{{l}}.attn.{x}": f"model.layers.{{l}}.self_attn.{x}_proj" for x in "qkvo"},
    "layers.{l}.mlp_norm": "model.layers.{l}.post_attention_layernorm",
    "layers.{l}.mlp.up": "model.layers.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "model.layers.{l}.mlp.fc2",
    "norm_after": "layernorm_post",
}
_ADAPTER = {
    "linear_1": "vision_model.vision_adapter.mlp.fc1",
    "linear_2": "vision_model.vision_adapter.mlp.fc2",
    "linear": "multi_modal_projector.linear_1",
}


@multimodal(Wrapper(types="llama4", text_type="llama4_text", prefix=WHOLE, tied_by="text"))
def llama4(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    vision.ignore(
        "norm_eps",
        "hidden_act",
        "vision_feature_layer",
        "multi_modal_projector_bias",
        "projector_dropout",
        "attention_dropout",
    )
    vision.ignore("vision_feature_select_strategy", "rope_theta")
    d, F, L, H = vit_sizes(vision, width=768, mlp_width=5632, layers=34, heads=16)
    p, s = side(vision, "p_v", "patch_size", 14), side(vision, "s_v", "image_size", 448)
    patches = int(s // p) ** 2
    norm, channels = layer_norm(d, 1e-5), vision.dim("C_v", "num_channels", default=Expr.const(3))
    vision.sub("rope_parameters").ignore("rope_type", "rope_theta")
    layer = vit_layer(
        norm, encoder_attention(vision, d, H, bias=True), mlp(d, F, "gelu", bias=True)
    )
    tower = VisionTower(
        class_token=weight(d, role="scale"),
        patches=PatchEmbedding(weight=weight(d, product((channels, p, p)))),
        positions=weight(Expr("N_v", patches + 1), d, role="lookup"),
        norm_before=norm,
        layers=repeat(layer, L),
        norm_after=norm,
        patch_size=p,
        image_sizes=CanvasImage(patch=p, size=s, most=16, adds_whole=True),
    )
    into, out = (
        vision.dim("d_p", "projector_input_dim", default=4096),
        vision.dim("d_o", "projector_output_dim", default=4096),
    )
    k = round(1 / vision.get("pixel_shuffle_ratio", 0.5))
    projector = AdapterProjector(
        linear_1=linear(into, F),
        linear_2=linear(out, out),
        linear=linear(
            text.embed.weight.shape[1], vision.dim("d_f", "vision_output_dim", default=7680)
        ),
        activation="gelu",
        merge=k,
    )
    return assemble(
        text,
        vision=("vision_model.", counted_tower(Tower(tower, _NAMES), merge=k)),
        projector=("", Part(projector, _ADAPTER)),
    )
