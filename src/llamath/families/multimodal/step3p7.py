"""Step 3.7: a tower with factors for the channels of each branch, two convolutions that halve each side, one linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr
from ..counted_towers import Modules, conv, counted_part, each, stack, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side

_PUBLISHED = {
    "embeddings.patch_embedding": "conv1",
    "embeddings.position_embedding.weight": "positional_embedding",
    "pre_layernorm": "ln_pre",
    "layers.": "transformer.resblocks.",
    "downsampler": "vit_downsampler",
    "lambda_1": "ls_1.gamma",
    "lambda_2": "ls_2.gamma",
    "self_attn.q_proj.": "attn.in_proj_",
    "self_attn.k_proj.": "attn.in_proj_",
    "self_attn.v_proj.": "attn.in_proj_",
    "self_attn": "attn",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "layernorm_before": "ln_1",
    "layernorm_after": "ln_2",
}
_MODULES = {
    "layers.{l}.mlp.router": "mlp.gate",
    "layers.{l}.mlp.correction": "mlp.gate.e_score_correction_bias",
    **{f"layers.{{l}}.mlp.experts.{{e}}.{x}.weight": "mlp.experts.gate_up_proj" for x in ("gate", "up")},
    "layers.{l}.mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
    **{f"layers.{{l}}.mlp.shared.{x}": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
}


@multimodal(modules=_MODULES, forms={"hf-modules": {"model.": "model.language_model."}})
def step3p7(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    d, L = v.dim("d_v", "hidden_size|width", default=1536), v.dim("L_v", "num_hidden_layers|layers", default=47)
    F, p = Expr("F_v", int(d * v.get("mlp_ratio", 8960 / 1536))), side(v, "p_v", "patch_size", 14)
    channels, s = v.dim("C_v", "num_channels", default=Expr.const(3)), side(v, "s_v", "image_size", 728)
    places = Expr("N_v", (s // p) ** 2)
    v.ignore("max_position_embeddings")
    norm, square = layer_norm(d, 1e-5), linear(d, d, bias=True)
    layer: Modules = {
        **each("self_attn.", "q_proj k_proj v_proj out_proj", square),
        "mlp.fc1": linear(F, d, bias=True),
        "mlp.fc2": linear(d, F, bias=True),
        **each("", "layernorm_before layernorm_after", norm),
        **each("", "lambda_1 lambda_2", weight(d, role="scale")),
    }
    tower: Modules = {
        "embeddings.patch_embedding": conv(d, channels, p, p, bias=False),
        "embeddings.position_embedding": table(places, d),
        "pre_layernorm": norm,
        "layers": stack(L, layer),
        "downsampler1": conv(2 * d, d, 3, 3),
        "downsampler2": conv(4 * d, 2 * d, 3, 3),
    }
    projector: Modules = {"multi_modal_projector": linear(text.width, 4 * d, c.get("projector_bias", False))}
    return assemble(
        text,
        vision=("vision_model.", counted_part(tower, _PUBLISHED, "model.vision_model.")),
        projector=("", counted_part(projector, {"multi_modal_projector": "vit_large_projector"}, "model.")),
    )
