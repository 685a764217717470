"""DeepSeek-V4.1: a tower with rotary positions, RMS norms and gated MLPs, then two linear layers
on squares of 3 × 3 patches.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms, swiglu, weight
from ...core.expr import Expr, product
from ...core.image_sizes import RowBudget
from ...core.positions import AxialRope
from ...core.towers import PatchEmbedding, VisionTower
from ...core.tree import repeat
from ..counted_towers import Modules, counted, counted_tower, each
from ..multimodal_registry import Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer

_NAMES = {
    "patches": "patch_embed",
    "layers.{l}.attn_norm": "blocks.{l}.norm1",
    **{f"layers.{{l}}.attn.{x}": "blocks.{l}.attn.wqkv" for x in "qkv"},
    "layers.{l}.attn.o": "blocks.{l}.attn.wo",
    "layers.{l}.mlp_norm": "blocks.{l}.norm2",
    **dict.fromkeys(("layers.{l}.mlp.gate", "layers.{l}.mlp.up"), "blocks.{l}.mlp.w1"),
    "layers.{l}.mlp.down": "blocks.{l}.mlp.w2",
    "norm_after": "norm",
}


@multimodal(Wrapper(types="deepseek_v41", text_type="deepseek_v41_text"))
def deepseek_v41(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    if v.get("max_wh_ratio", None) is not None:
        raise v.error("max_wh_ratio", "is set; only images of any shape are known")
    d, F = (
        v.dim("d_v", "hidden_size", default=1024),
        v.dim("F_v", "intermediate_size", default=2816),
    )
    L, H = (
        v.dim("L_v", "num_hidden_layers", default=32),
        v.dim("H_v", "num_attention_heads", default=16),
    )
    p, k = side(v, "p_v", "patch_size", 14), v.dim("k_v", "downsample_ratio", default=3)
    norm, rope = rms(d, 1e-6), AxialRope(theta=v.get("rope_theta", 1e4), dim=d // H, by_halves=True)
    tower = VisionTower(
        patches=PatchEmbedding(
            weight=weight(d, product((Expr("C_v", 3), p, p))), bias=weight(d, role="bias")
        ),
        layers=repeat(
            vit_layer(norm, encoder_attention(v, d, H, bias=True, rope=rope), swiglu(d, F, "silu")),
            L,
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=RowBudget(
            patch=int(p),
            side=int(k),
            fewest=v.get("min_pixels", 295_936),
            most=v.get("max_image_tokens", 1024),
        ),
    )
    width, token = text.width, weight(text.width, role="scale")
    projector: Modules = {
        "linear_1": linear(width, product((k, k, d)), True),
        "linear_2": linear(width, width, True),
        **each("", "begin end row_end", token),
    }
    names = {
        "linear_1": "aligner.w1",
        "linear_2": "aligner.w2",
        "begin": "image_start",
        "end": "image_end",
        "row_end": "image_newline",
    }
    return assemble(
        text,
        vision=("vision.", counted_tower(Tower(tower, _NAMES))),
        projector=("", Part(counted(projector), names)),
    )
