"""Kosmos-2.5: Pix2Struct's encoder for images of any shape, whose features learned queries read."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms, weight
from ..counted_towers import Modules, counted_part, each, stack, table
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..tower_parts import part_config, vit_sizes


@multimodal(Wrapper(types="kosmos-2.5", text_type="kosmos_2_5_text_model", tied_by="text"))
def kosmos2_5(c: Config, text: Decoder) -> Assembly:
    v, out = part_config(c, "vision_config", {}), text.width
    d, F, L, H = vit_sizes(v, 1536, 3968, 18, 24)
    v.ignore("dense_act_fn", "dropout_rate", "initializer_factor", "layer_norm_eps")
    heads, norm, places = (
        H * v.dim("h_v", "head_dim", default=64),
        rms(d, 1e-6),
        v.dim("N_v", "max_num_patches", default=4096),
    )
    layer: Modules = {
        **each("attention.", "query key value", linear(heads, d)),
        "attention.output": linear(d, heads),
        **each("mlp.", "wi_0 wi_1", linear(F, d)),
        "mlp.wo": linear(d, F),
        **each("", "pre_mlp_layer_norm pre_attention_layer_norm", norm),
    }
    tower: Modules = {
        "embeddings.patch_projection": linear(
            d, v.dim("p_v", "patch_embed_hidden_size", default=768), bias=True
        ),
        **each("embeddings.", "row_embedder column_embedder", table(places, d)),
        "encoder.layer": stack(L, layer),
        "layernorm": norm,
    }
    projector: Modules = {
        "latent_query": weight(c.dim("Q", "latent_query_num", default=2048), out, role="scale"),
        "dense": linear(out, d, bias=True),
        **each("x_attn.", "q_proj k_proj v_proj out_proj", linear(out, out, bias=True)),
    }
    parts = {
        "vision": ("vision_model.", counted_part(tower)),
        "projector": ("image_to_text_projection.", counted_part(projector)),
    }
    return assemble(text, **parts)
