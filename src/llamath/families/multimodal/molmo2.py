"""Molmo 2: the features of two layers of SigLIP, attention of windows of them, and a gated MLP."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr, product
from ..counted_towers import Modules, counted_part, each, stack
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side, vit_sizes

_WORDS = {"q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo"}
_LAYER = {"layers.": "transformer.resblocks.", "layer_norm1": "attention_norm", "layer_norm2": "ffn_norm", "self_attn": "attention"}
_TOWER = _LAYER | _WORDS | {"mlp.fc1": "feed_forward.w1", "mlp.fc2": "feed_forward.w2"}
_PROJECTOR = _WORDS | {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_MODULES = {
    "embed.weight": "model.language_model.embed_tokens.weight",
    "embed.extra": "model.language_model.embed_tokens.weight",
    "norm": "model.language_model.norm",
    "layers.{l}.attn_norm": "input_layernorm",
    "layers.{l}.mlp_norm": "post_attention_layernorm",
    **{f"layers.{{l}}.attn.{x}": f"self_attn.{x}_proj" for x in "qkvo"},
    **{f"layers.{{l}}.mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
}


@multimodal(forms={"hf-modules": {"model.transformer.blocks.": "model.language_model.layers."}}, modules=_MODULES)
def molmo2(c: Config, text: Decoder) -> Assembly:
    v, a = part_config(c, "vision_config", {}), part_config(c, "adapter_config", {})
    d, F, L, H = vit_sizes(v, 1152, 4304, 25, 16)
    h, K, p = v.dim("h_v", "head_dim", default=72), v.dim("K_v", "num_key_value_heads", default=16), side(v, "p_v", "patch_size", 14)
    places, channels = v.dim("N_v", "num_position_embeddings", default=729), v.dim("C_v", "num_channels", default=Expr.const(3))
    norm, bias = layer_norm(d, 1e-6), v.get("attention_bias", True)
    layer: Modules = {
        **each("", "layer_norm1 layer_norm2", norm),
        "self_attn.q_proj": linear(H * h, d, bias),
        **each("self_attn.", "k_proj v_proj", linear(K * h, d, bias)),
        "self_attn.o_proj": linear(d, H * h, bias=True),
        "mlp.fc1": linear(F, d, bias=True),
        "mlp.fc2": linear(d, F, bias=True),
    }
    tower: Modules = {
        "positional_embedding": weight(places, d, role="lookup"),
        "patch_embedding": linear(d, product((channels, p, p)), bias=True),
        "layers": stack(L, layer),
    }
    into = product((len(a.get("vision_feature_layer", [24, 18])), d))
    e, Fa = a.dim("d_p", "hidden_size", default=1152), a.dim("F_p", "intermediate_size", default=18_944)
    Ha, Ka, ha = (
        a.dim(x, y, default=n)
        for x, y, n in (("H_p", "num_attention_heads", 16), ("K_p", "num_key_value_heads", 16), ("h_p", "head_dim", 72))
    )
    out, bias = a.dim("d_t", "text_hidden_size", default=3584), a.get("attention_bias", True)
    projector: Modules = {
        "image_pooling_2d.q_proj": linear(Ha * ha, into, bias),
        **each("image_pooling_2d.", "k_proj v_proj", linear(Ka * ha, into, bias)),
        "image_pooling_2d.o_proj": linear(e, Ha * ha, bias=True),
        **each("image_projector.", "gate_proj up_proj", linear(Fa, e, a.get("mlp_bias", False))),
        "image_projector.down_proj": linear(out, Fa, a.get("mlp_bias", False)),
    }
    return assemble(
        text,
        vision=("model.vision_backbone.image_vit.", counted_part(tower, _TOWER, "model.vision_tower.")),
        projector=("model.vision_backbone.", counted_part(projector, _PROJECTOR, "model.multi_modal_projector.")),
    )
