"""Kimi K2.5: MoonViT, whose rotary angles of rows and columns take turns, then a norm and an MLP
on squares of patches.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PatchBudget
from ...core.positions import AxialRope
from ...core.towers import MLPProjector, PatchEmbedding, VisionTower
from ...core.tree import repeat
from ...utils.errors import safe
from ..multimodal_registry import WHOLE, Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer, without_images

TOWER_NAMES = {
    "patches": "patch_embed.proj",
    "positions": "patch_embed.pos_emb.weight",
    "layers.{l}.attn_norm": "encoder.blocks.{l}.norm0",
    **{f"layers.{{l}}.attn.{x}": "encoder.blocks.{l}.wqkv" for x in "qkv"},
    "layers.{l}.attn.o": "encoder.blocks.{l}.wo",
    "layers.{l}.mlp_norm": "encoder.blocks.{l}.norm1",
    "layers.{l}.mlp.up": "encoder.blocks.{l}.mlp.fc0",
    "layers.{l}.mlp.down": "encoder.blocks.{l}.mlp.fc1",
    "norm_after": "encoder.final_layernorm",
}
_PROJECTOR = {"patch_norm": "pre_norm", "linear_1": "proj.0", "linear_2": "proj.2"}
_MODULES = {
    "vision.patches": "model.vision_tower.patch_embed.proj",
    "vision.positions": "model.vision_tower.patch_embed.pos_emb.position_embeddings",
    "vision.layers.{l}.attn_norm": "model.vision_tower.layers.{l}.norm1",
    **{
        f"vision.layers.{{l}}.attn.{x}": f"model.vision_tower.layers.{{l}}.attn.{x}_proj"
        for x in "qkv"
    },
    "vision.layers.{l}.attn.o": "model.vision_tower.layers.{l}.attn.proj",
    "vision.layers.{l}.mlp_norm": "model.vision_tower.layers.{l}.norm2",
    "vision.layers.{l}.mlp.up": "model.vision_tower.layers.{l}.mlp.fc1",
    "vision.layers.{l}.mlp.down": "model.vision_tower.layers.{l}.mlp.fc2",
    "vision.norm_after": "model.vision_tower.final_layernorm",
    "projector.patch_norm": "model.mm_projector.pre_norm",
    "projector.linear_1": "model.mm_projector.in_proj",
    "projector.linear_2": "model.mm_projector.out_proj",
}
_FORMS = {
    "hf-5": {
        "language_model.model.layers.": "language_model.model.blocks.",
        "vision_tower.patch_embed.proj": "vision_tower.encoder.patch_embed.proj",
        "mm_projector.pre_norm": "model.mm_projector.pre_norm",
    }
}
"""What version 5.23 of transformers saves."""
_FIXED = {
    "merge_type": "sd2_tpool",
    "mm_projector_type": "patchmerger",
    "pos_emb_type": "divided_fixed",
    "video_attn_type": "spatial_temporal",
}
"""Keys of published configurations, each of which has one known value."""


@multimodal(
    Wrapper(types="kimi_k25", text_type="deepseek_v3", prefix=WHOLE, tied=True),
    forms=_FORMS,
    modules=_MODULES,
)
def kimi_k25(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    for key, known in _FIXED.items():
        if (found := v.get(key, known)) != known:
            raise v.error(key, f"should be {known}, not {safe(repr(found), 40)}")
    v.ignore("pos_emb_time", "init_pos_emb_time", "text_hidden_size", "projector_hidden_act")
    d, F = (
        v.dim("d_v", "hidden_size|vt_hidden_size", default=1152),
        v.dim("F_v", "intermediate_size|vt_intermediate_size", default=4304),
    )
    L = v.dim("L_v", "num_hidden_layers|vt_num_hidden_layers", default=27)
    H = v.dim("H_v", "num_attention_heads|vt_num_attention_heads", default=16)
    p, k = side(v, "p_v", "patch_size", 14), int(side(v, "k_v", "merge_kernel_size", 2))
    rows, columns = (
        v.dim("N_v", "pos_emb_height|init_pos_emb_height", default=64),
        v.dim("N_v", "pos_emb_width|init_pos_emb_width", default=64),
    )
    if rows != columns:
        raise v.error(
            "pos_emb_width",
            f"is {columns}, unlike the height {rows}",
            "only square grids of positions are known",
        )
    theta = v.sub("rope_parameters").get("rope_theta", 1e4)
    v.sub("rope_parameters").ignore("rope_type")
    norm, rope = (
        layer_norm(d, 1e-5),
        AxialRope(theta=theta, dim=d // H, alternating=True, columns_first=True),
    )
    feed_forward = mlp(d, F, v.activation("hidden_act", "gelu_pytorch_tanh"), bias=True)
    tower = VisionTower(
        patches=PatchEmbedding(weight=weight(d, Expr("C_v", 3), p, p), bias=weight(d, role="bias")),
        positions=weight(rows, columns, d, role="lookup"),
        resizing="bicubic",
        layers=repeat(
            vit_layer(norm, encoder_attention(v, d, H, bias=True, rope=rope), feed_forward), L
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=PatchBudget(patch=p, multiple=p * k, most=16_384, longest=512),
    )
    eps, joined = (
        c.get("projection_layer_norm_eps", v.get("projector_ln_eps", 1e-5)),
        product((k, k, d)),
    )
    width = c.get("projection_hidden_size", v.get("mm_hidden_size", int(d)))
    projector = MLPProjector(
        patch_norm=layer_norm(d if width == d else width, eps),
        linear_1=linear(joined, joined, True),
        linear_2=linear(text.width, joined, True),
        activation="gelu",
        merge=k,
    )
    rotary = {f"layers.{{l}}.attn.{x}": "rotary" for x in "qk"}
    vision = Tower(tower, TOWER_NAMES, rotary)
    if width != d:
        vision = without_images(
            vision, f"projection_hidden_size is {width}, unlike the width {d} of the tower"
        )
    return assemble(
        text,
        vision=("vision_tower.", vision),
        projector=("mm_projector.", Part(projector, _PROJECTOR)),
    )
