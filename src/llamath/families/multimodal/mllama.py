"""Llama 3.2 Vision: all tiles of an image in one tower, whose features the cross-attention
layers of the text model read.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr, product
from ...core.image_sizes import CanvasImage
from ...core.towers import LinearProjector, PatchEmbedding, VisionTower
from ...core.tree import repeat
from ..counted_towers import Modules, counted_tower, stack
from ..multimodal_registry import WHOLE, Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer


def _layer_names(stack: str, name: str) -> dict[str, str]:
    return {
        f"{stack}.{{l}}.attn_norm": f"{name}.layers.{{l}}.input_layernorm",
        **{f"{stack}.{{l}}.attn.{x}": f"{name}.layers.{{l}}.self_attn.{x}_proj" for x in "qkvo"},
        f"{stack}.{{l}}.mlp_norm": f"{name}.layers.{{l}}.post_attention_layernorm",
        f"{stack}.{{l}}.mlp.up": f"{name}.layers.{{l}}.mlp.fc1",
        f"{stack}.{{l}}.mlp.down": f"{name}.layers.{{l}}.mlp.fc2",
    }


_NAMES = {
    "class_token": "class_embedding",
    "patches": "patch_embedding",
    "positions": "gated_positional_embedding.embedding",
    "position_gate": "gated_positional_embedding.gate",
    "position_rows": "gated_positional_embedding.tile_embedding.weight",
    "rows_before": "pre_tile_positional_embedding.embedding.weight",
    "gate_before": "pre_tile_positional_embedding.gate",
    "rows_after": "post_tile_positional_embedding.embedding.weight",
    "gate_after": "post_tile_positional_embedding.gate",
    "norm_before": "layernorm_pre",
    "norm_after": "layernorm_post",
    **_layer_names("layers", "transformer"),
    **_layer_names("global_layers", "global_transformer"),
    "global_layers.{l}.attn_gate": "global_transformer.layers.{l}.gate_attn",
    "global_layers.{l}.mlp_gate": "global_transformer.layers.{l}.gate_ffn",
}
_FORMS = {
    "hf-modules": {
        "language_model.model.": "model.language_model.",
        "language_model.lm_head": "lm_head",
        "vision_model.": "model.vision_model.",
        "multi_modal_projector": "model.multi_modal_projector",
    }
}


@multimodal(Wrapper(types="mllama", text_type="mllama_text_model", prefix=WHOLE), forms=_FORMS)
def mllama(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    d, F = (
        v.dim("d_v", "hidden_size", default=1280),
        v.dim("F_v", "intermediate_size", default=5120),
    )
    L, G = (
        v.dim("L_v", "num_hidden_layers", default=32),
        v.dim("G_v", "num_global_layers", default=8),
    )
    H, tiles = (
        v.dim("H_v", "attention_heads|num_attention_heads", default=16),
        v.dim("t_v", "max_num_tiles", default=4),
    )
    p, s = side(v, "p_v", "patch_size", 14), side(v, "s_v", "image_size", 448)
    arrangements = len(v.get("supported_aspect_ratios", [[1, 1]] * 8)) + 1
    v.ignore("intermediate_layers_indices")
    eps, activation = v.get("norm_eps", 1e-5), v.activation("hidden_act", "gelu")
    N, gate = Expr("N_v", int(s // p) ** 2 + 1), weight(1, role="scale")
    attention = encoder_attention(v, d, H, bias=False)
    layer = vit_layer(layer_norm(d, eps), attention, mlp(d, F, activation, bias=True))
    gated: Modules = {**dict(layer.children), "attn_gate": gate, "mlp_gate": gate}
    rows = weight(arrangements, product((tiles, d)), role="lookup")
    tower = VisionTower(
        class_token=weight(d, role="scale"),
        patches=PatchEmbedding(
            weight=weight(d, v.dim("C_v", "num_channels", default=Expr.const(3)), p, p)
        ),
        positions=weight(N, d, role="lookup"),
        norm_before=layer_norm(d, 1e-5),
        layers=repeat(layer, L),
        norm_after=layer_norm(d, 1e-5),
        patch_size=p,
        image_sizes=CanvasImage(patch=p, size=s, most=tiles, reads_all=True),
    )
    more: Modules = {
        "position_gate": gate,
        "position_rows": weight(arrangements, product((tiles, N, d)), role="lookup"),
        "rows_before": rows,
        "gate_before": gate,
        "rows_after": rows,
        "gate_after": gate,
        "global_layers": stack(G, gated),
    }
    projector = LinearProjector(
        linear=linear(text.width, v.dim("d_f", "vision_output_dim", default=7680), bias=True)
    )
    return assemble(
        text,
        vision=("vision_model.", counted_tower(Tower(tower, _NAMES), more)),
        projector=("", Part(projector, {"linear": "multi_modal_projector"})),
    )
