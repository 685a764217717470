"""LFM3-VL: convolutions over the grid of patches in most layers, attention in the others, and an MLP on squares of patches."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms
from ...core.expr import Expr, product
from ...core.tree import sequence
from ..counted_towers import Modules, conv, counted, counted_part
from ..multimodal_registry import Assembly, assemble, multimodal
from ..shared import layer_kinds
from ..towers import part_config, side

_MODULES = {
    "layers.{l}.attn.gate": "self_attn.g_proj",
    "vision.patchifier.weight": "model.vision_tower.patch_embed.weight",
    **{f"vision.layers.{{l}}.self_attn.{x}_layernorm.weight": f"model.vision_tower.layers.{{l}}.self_attn.{x}_norm.weight" for x in "qk"},
}


@multimodal(modules=_MODULES)
def lfm3_vl(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    v.ignore("initializer_range", "norm_eps", "rope_parameters")
    d, F, L = (
        v.dim("d_v", "hidden_size", default=1024),
        v.dim("F_v", "intermediate_size", default=2560),
        v.dim("L_v", "num_hidden_layers", default=14),
    )
    H, K, k = (
        v.dim("H_v", "num_attention_heads", default=16),
        v.dim("K_v", "num_key_value_heads", default=8),
        v.get("spatial_merge_size", 2),
    )
    p, channels, times = (
        side(v, "p_v", "patch_size", 16),
        v.dim("C_v", "in_channels", default=Expr.const(3)),
        v.dim("t_v", "temporal_patch_size", default=Expr.const(2)),
    )
    h, taps = Expr("h_v", d // H), v.dim("k_v", "conv_kernel_size", default=3)
    rest = {
        "feed_forward.w1": linear(F, d),
        "feed_forward.w3": linear(F, d),
        "feed_forward.w2": linear(d, F),
        "operator_norm": rms(d, 1e-5),
        "ffn_norm": rms(d, 1e-5),
    }
    kinds = {
        "conv": counted(
            {
                "conv.in_proj": linear(3 * d, d),
                "conv.spatial_conv": conv(d, 1, taps, taps, bias=False),
                "conv.out_proj": linear(d, d),
                **rest,
            }
        ),
        "full_attention": counted(
            {
                "self_attn.q_proj": linear(H * h, d),
                "self_attn.k_proj": linear(K * h, d),
                "self_attn.v_proj": linear(K * h, d),
                "self_attn.out_proj": linear(d, H * h),
                "self_attn.q_layernorm": rms(h, 1e-5),
                "self_attn.k_layernorm": rms(h, 1e-5),
                **rest,
            }
        ),
    }
    order = layer_kinds(v, L, kinds, lambda i: "conv" if i < 2 or i % 2 else "full_attention")
    tower: Modules = {
        "patchifier": linear(d, product((channels, times, p, p))),
        "embedding_norm": rms(d, 1e-5),
        "layers": sequence((kinds[x] for x in order), L),
    }
    inner, bias, joined = c.dim("F_p", "projector_hidden_size", default=4096), c.get("projector_bias", True), product((k, k, d))
    c.ignore("projector_hidden_act")
    projector = {
        "layer_norm": layer_norm(d, 1e-6),
        "linear_1": linear(inner, joined, bias),
        "linear_2": linear(text.width, inner, bias),
    }
    return assemble(
        text, vision=("model.vision_tower.", counted_part(tower)), projector=("model.multi_modal_projector.", counted_part(projector))
    )
