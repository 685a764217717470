"""Kimi K3: MoonViT with RMS norms and without biases, wider inside its attention, then an MLP on
squares of patches and a norm.
"""

from __future__ import annotations

from ...core.attention_facts import AttentionWindow
from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, mlp, rms, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PatchBudget
from ...core.positions import AxialRope
from ...core.towers import EncoderAttention, MLPProjector, PatchEmbedding, VisionTower
from ...core.tree import repeat
from ...utils.errors import safe
from ..multimodal_registry import WHOLE, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config, side, vit_layer
from .kimi_k25 import TOWER_NAMES

_FIXED = {
    "attn_bias": False,
    "linear_bias": False,
    "patch_embed_proj_bias": False,
    "norm_type": "rmsnorm",
    "mlp_type": "mlp2",
    "merge_type": "sd2_tpool",
    "mm_projector_type": "patchmergerv2",
    "pos_emb_type": "divided_fixed",
    "pos_emb_interpolation_mode": "bilinear",
}
"""Keys of the published configuration, each of which has one known value."""
_PATCHES, _LONGEST = 65_536, 512
"""Patches of an image, and on its longer side, in the published configuration of its processor."""
_EPS = 2.0**-23
"""Of norms without an epsilon: that of float32."""
_PROJECTOR = {"linear_1": "proj.0", "linear_2": "proj.2", "out_norm": "post_norm"}


@multimodal(Wrapper(types="kimi_k3", text_type="kimi_k3_text", overrides_type=True, prefix=WHOLE))
def kimi_k3(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    for key, known in _FIXED.items():
        if (found := v.get(key, known)) != known:
            raise v.error(key, f"should be {known}, not {safe(repr(found), 40)}")
    d, F = v.dim("d_v", "vt_hidden_size"), v.dim("F_v", "vt_intermediate_size")
    inner, L = v.dim("q_v", "qkv_hidden_size"), v.dim("L_v", "vt_num_hidden_layers")
    H, p = v.dim("H_v", "vt_num_attention_heads", default=12), side(v, "p_v", "patch_size", 14)
    rows, columns = (
        v.dim("N_v", "init_pos_emb_height", default=64),
        v.dim("N_v", "init_pos_emb_width", default=64),
    )
    k, norm = int(side(v, "k_v", "merge_kernel_size", 2)), rms(d, _EPS)
    if v.get("mm_hidden_size", int(d)) != d:
        raise v.error("mm_hidden_size", f"is not the width {d} of the tower")
    if rows != columns:
        raise v.error(
            "init_pos_emb_width",
            f"is {columns}, unlike the height {rows}",
            "only square grids of positions are known",
        )
    if inner % H:
        raise v.error(
            "vt_num_attention_heads",
            f"is {H}, which does not divide the width {inner} of the attention",
        )
    into, h = linear(inner, d), Expr("h_v", inner // H)
    attention = EncoderAttention(
        q=into,
        k=into,
        v=into,
        o=linear(d, inner),
        heads=H,
        kv_heads=H,
        head_dim=h,
        window=AttentionWindow(causal=False),
        rope=AxialRope(theta=1e4, dim=h, alternating=True, columns_first=True),
    )
    tower = VisionTower(
        patches=PatchEmbedding(weight=weight(d, Expr("C_v", 3), p, p)),
        positions=weight(rows, columns, d, role="lookup"),
        resizing="centers",
        layers=repeat(
            vit_layer(
                norm, attention, mlp(d, F, v.activation("activation_func", "gelu_pytorch_tanh"))
            ),
            L,
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=PatchBudget(patch=p, multiple=p * k, most=_PATCHES, longest=_LONGEST),
    )
    v.ignore("init_pos_emb_time", "text_hidden_size")
    joined = product((k, k, d))
    projector = MLPProjector(
        linear_1=linear(joined, joined),
        linear_2=linear(text.width, joined),
        out_norm=rms(text.width, v.get("projector_ln_eps", 1e-5)),
        activation=v.activation("projector_hidden_act", "gelu"),
        merge=k,
    )
    rotary = {f"layers.{{l}}.attn.{x}": "rotary" for x in "qk"}
    vision, after = Part(tower, TOWER_NAMES, rotary), Part(projector, _PROJECTOR)
    return assemble(text, vision=("vision_tower.", vision), projector=("mm_projector.", after))
