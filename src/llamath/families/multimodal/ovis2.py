"""Ovis 2: a tower whose head chooses among visual tokens, as a distribution over the rows of an embedding of their own."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, weight
from ...core.expr import Expr, product
from ...core.tree import repeat
from ..counted_towers import Modules, conv, counted, counted_part, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side, vit_sizes


@multimodal()
def ovis2(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    v.ignore("attention_dropout", "hidden_act", "initializer_range", "tokenize_function", "rms_norm_eps")
    d, F, L, _ = vit_sizes(v, width=1024, mlp_width=2816, layers=24, heads=8)
    p, s, channels = (
        side(v, "p_v", "patch_size", 14),
        side(v, "s_v", "image_size", 224),
        v.dim("C_v", "num_channels", default=Expr.const(3)),
    )
    k, V = v.dim("k_v", "hidden_stride", default=1), v.dim("V_v", "vocab_size", default=16_384)
    logits = Expr.const(V - v.get("num_visual_indicator_tokens", 5))
    norm, bias, mlp_bias = rms(d, 1e-5), v.get("qkv_bias", False), v.get("mlp_bias", False)
    layer = counted(
        {
            **{f"attention.{x}_proj": linear(d, d, bias) for x in ("k", "v", "q", "out")},
            "ffn.gate_proj": linear(F, d, mlp_bias),
            "ffn.up_proj": linear(F, d, mlp_bias),
            "ffn.down_proj": linear(d, F, mlp_bias),
            "rms_norm1": norm,
            "rms_norm2": norm,
        }
    )
    tower: Modules = {
        "transformer.embeddings.patch_embedding": conv(d, channels, p, p),
        "transformer.embeddings.position_embedding": table(Expr("N_v", (s // p) ** 2), d),
        "transformer.embeddings.rms_norm": norm,
        "transformer.encoder.layers": repeat(layer, L),
        "transformer.rms_norm": norm,
        "head_linear": linear(logits, product((k, k, d))),
        "head_norm": layer_norm(logits, 1e-5),
    }
    e = c.dim("d_e", "hidden_size", default=1536)
    c.ignore("visual_indicator_token_ids", "vocab_size")
    if text.head is not None and not text.head.weight.tied:
        text = text.replace(head=linear(c.dim("V_o", "vocab_size", default=151_643), e))
    visual = counted_part({"weight": weight(V, e, role="lookup")})
    return assemble(text, vision=("model.vision_tower.", counted_part(tower)), projector=("model.visual_embeddings_table.", visual))
