"""Step 3.7: a tower with factors for the channels of each branch, two convolutions that halve
each side, one linear layer.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr
from ...core.image_sizes import WindowedImage
from ...core.positions import AxialRope
from ...core.towers import LayerScale, VisionTower
from ...core.tree import repeat
from ..counted_towers import Modules, conv, counted, counted_tower
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, patch_embedding, side, vit_layer

_BLOCK, _LAYER = "transformer.resblocks.{l}.", "model.vision_model.layers.{l}."
_PUBLISHED = {
    "patches": "conv1",
    "positions": "positional_embedding",
    "norm_before": "ln_pre",
    "layers.{l}.attn_norm": f"{_BLOCK}ln_1",
    **{
        f"layers.{{l}}.attn.{x}.{kind}": f"{_BLOCK}attn.in_proj_{kind}"
        for x in "qkv"
        for kind in ("weight", "bias")
    },
    "layers.{l}.attn.o": f"{_BLOCK}attn.out_proj",
    "layers.{l}.attn_out_norm.weight": f"{_BLOCK}ls_1.gamma",
    "layers.{l}.mlp_norm": f"{_BLOCK}ln_2",
    "layers.{l}.mlp.up": f"{_BLOCK}mlp.c_fc",
    "layers.{l}.mlp.down": f"{_BLOCK}mlp.c_proj",
    "layers.{l}.mlp_out_norm.weight": f"{_BLOCK}ls_2.gamma",
}
_LAYOUTS = {f"layers.{{l}}.attn.{x}.{kind}": "rotary" for x in "qk" for kind in ("weight", "bias")}
_IN_MEMORY = {
    "patches": "model.vision_model.embeddings.patch_embedding",
    "positions": "model.vision_model.embeddings.position_embedding.weight",
    "norm_before": "model.vision_model.pre_layernorm",
    "layers.{l}.attn_norm": f"{_LAYER}layernorm_before",
    **{
        f"layers.{{l}}.attn.{x}.{kind}": f"{_LAYER}self_attn.{x}_proj.{kind}"
        for x in "qkv"
        for kind in ("weight", "bias")
    },
    "layers.{l}.attn.o": f"{_LAYER}self_attn.out_proj",
    "layers.{l}.attn_out_norm.weight": f"{_LAYER}lambda_1",
    "layers.{l}.mlp_norm": f"{_LAYER}layernorm_after",
    "layers.{l}.mlp.up": f"{_LAYER}mlp.fc1",
    "layers.{l}.mlp.down": f"{_LAYER}mlp.fc2",
    "layers.{l}.mlp_out_norm.weight": f"{_LAYER}lambda_2",
}
_PROJECTOR = {
    "first": "vision_model.vit_downsampler1",
    "second": "vision_model.vit_downsampler2",
    "linear": "vit_large_projector",
}
_PROJECTOR_IN_MEMORY = {
    "first": "model.vision_model.downsampler1",
    "second": "model.vision_model.downsampler2",
    "linear": "model.multi_modal_projector",
}
_MODULES = {
    "layers.{l}.mlp.router": "mlp.gate",
    "layers.{l}.mlp.correction": "mlp.gate.e_score_correction_bias",
    **{
        f"layers.{{l}}.mlp.experts.{{e}}.{x}.weight": "mlp.experts.gate_up_proj"
        for x in ("gate", "up")
    },
    "layers.{l}.mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
    **{
        f"layers.{{l}}.mlp.shared.{x}": f"mlp.shared_experts.{x}_proj"
        for x in ("gate", "up", "down")
    },
}
_TILE, _LONGEST = 504, 3024
"""Sides of windows, and of the largest image, in the processor of transformers."""


@multimodal(
    Wrapper(types="step3p7", text_type="step3p5"),
    modules=_MODULES,
    forms={"hf-modules": {"model.": "model.language_model."}},
)
def step3p7(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    d, L = (
        v.dim("d_v", "hidden_size|width", default=1536),
        v.dim("L_v", "num_hidden_layers|layers", default=47),
    )
    H, F = (
        v.dim("H_v", "num_attention_heads|heads", default=16),
        Expr("F_v", int(d * v.get("mlp_ratio", 8960 / 1536))),
    )
    p, s = side(v, "p_v", "patch_size", 14), side(v, "s_v", "image_size", 728)
    v.ignore(
        "max_position_embeddings",
        "layer_scale_init_value",
        "ls_init_value",
        "intermediate_size",
        "attention_dropout",
    )
    v.sub("rope_parameters").ignore("rope_type")
    theta = v.sub("rope_parameters").get("rope_theta", 1e4)
    rope = AxialRope(theta=theta, dim=d // H, by_halves=True, columns_first=True)
    norm, scaled = (
        layer_norm(d, v.get("layer_norm_eps", 1e-5)),
        LayerScale(weight=weight(d, role="scale")),
    )
    feed_forward = mlp(d, F, v.activation("hidden_act", "quick_gelu"), bias=True)
    layer = vit_layer(norm, encoder_attention(v, d, H, bias=True, rope=rope), feed_forward)
    tower = VisionTower(
        patches=patch_embedding(v, d, p, bias=False),
        positions=weight(Expr("N_v", (s // p) ** 2), d, role="lookup"),
        norm_before=norm,
        layers=repeat(layer.replace(attn_out_norm=scaled, mlp_out_norm=scaled), L),
        patch_size=p,
        image_sizes=WindowedImage(patch=int(p), size=int(s), tile=_TILE, longest=_LONGEST),
    )
    projector: Modules = {
        "first": conv(2 * d, d, 3, 3),
        "second": conv(4 * d, 2 * d, 3, 3),
        "linear": linear(text.width, 4 * d, c.get("projector_bias", False)),
    }
    vision = counted_tower(Part(tower, _PUBLISHED, _LAYOUTS, _IN_MEMORY), merge=4)
    return assemble(
        text,
        vision=("vision_model.", vision),
        projector=("", Part(counted(projector), _PROJECTOR, in_memory=_PROJECTOR_IN_MEMORY)),
    )
