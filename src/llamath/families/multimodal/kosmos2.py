"""Kosmos-2: CLIP, and learned queries that read its features."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr
from ..counted_towers import Modules, conv, counted_part, each, stack, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side, vit_sizes


@multimodal()
def kosmos2(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    d, F, L, _ = vit_sizes(v, 1024, 4096, 24, 16)
    p, s = side(v, "p_v", "patch_size", 14), side(v, "s_v", "image_size", 224)
    channels = v.dim("C_v", "num_channels", default=Expr.const(3))
    norm = layer_norm(d, 1e-5)
    layer: Modules = {
        **each("self_attn.", "q_proj k_proj v_proj out_proj", linear(d, d, bias=True)),
        **each("", "layer_norm1 layer_norm2", norm),
        "mlp.fc1": linear(F, d, bias=True),
        "mlp.fc2": linear(d, F, bias=True),
    }
    tower: Modules = {
        "embeddings.class_embedding": weight(d, role="scale"),
        "embeddings.patch_embedding": conv(d, channels, p, p, bias=False),
        "embeddings.position_embedding": table(Expr("N_v", (int(s) // int(p)) ** 2 + 1), d),
        **each("", "pre_layrnorm post_layernorm", norm),
        "encoder.layers": stack(L, layer),
    }
    out = text.width
    projector: Modules = {
        "latent_query": weight(c.dim("Q", "latent_query_num", default=64), out, role="scale"),
        "dense": linear(out, d, bias=True),
        **each("x_attn.", "q_proj k_proj v_proj out_proj", linear(out, out, bias=True)),
    }
    return assemble(
        text, vision=("vision_model.model.", counted_part(tower)), projector=("image_to_text_projection.", counted_part(projector))
    )
