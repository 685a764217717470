"""Kimi K3: MoonViT with RMS norms and without biases, wider inside its attention, then an MLP on squares of patches and a norm."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms, weight
from ...core.expr import Expr, product
from ...utils.errors import safe
from ..counted_towers import Modules, conv, counted_part, each, stack
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side

_FIXED = {
    "attn_bias": False,
    "linear_bias": False,
    "patch_embed_proj_bias": False,
    "norm_type": "rmsnorm",
    "mlp_type": "mlp2",
    "merge_type": "sd2_tpool",
    "mm_projector_type": "patchmergerv2",
    "pos_emb_type": "divided_fixed",
}
"""Keys of the published configuration, each of which has one known value."""


@multimodal()
def kimi_k3(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    for key, known in _FIXED.items():
        if (found := v.get(key, known)) != known:
            raise v.error(key, f"should be {known}, not {safe(repr(found), 40)}")
    d, F = v.dim("d_v", "vt_hidden_size"), v.dim("F_v", "vt_intermediate_size")
    inner, L, p = v.dim("q_v", "qkv_hidden_size"), v.dim("L_v", "vt_num_hidden_layers"), side(v, "p_v", "patch_size", 14)
    rows, columns = v.dim("N_v", "init_pos_emb_height", default=64), v.dim("N_v", "init_pos_emb_width", default=64)
    k, norm = side(v, "k_v", "merge_kernel_size", 2), rms(d, 1e-5)
    if v.get("mm_hidden_size", int(d)) != d:
        raise v.error("mm_hidden_size", f"is not the width {d} of the tower")
    block: Modules = {
        "wqkv": linear(3 * inner, d),
        "wo": linear(d, inner),
        "mlp.fc0": linear(F, d),
        "mlp.fc1": linear(d, F),
        **each("", "norm0 norm1", norm),
    }
    tower: Modules = {
        "patch_embed.proj": conv(d, Expr("C_v", 3), p, p, bias=False),
        "patch_embed.pos_emb.weight": weight(rows, columns, d, role="lookup"),
        "encoder.blocks": stack(L, block),
        "encoder.final_layernorm": norm,
    }
    v.ignore("vt_num_attention_heads", "init_pos_emb_time", "pos_emb_interpolation_mode", "projector_hidden_act", "projector_ln_eps")
    v.ignore("activation_func", "text_hidden_size")
    joined = product((k, k, d))
    projector: Modules = {"proj.0": linear(joined, joined), "proj.2": linear(text.width, joined), "post_norm": rms(text.width, 1e-5)}
    return assemble(text, vision=("vision_tower.", counted_part(tower)), projector=("mm_projector.", counted_part(projector)))
