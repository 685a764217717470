"""The reader of the vision transformer of BLIP and BLIP-2, whose queries, keys and values are
one matrix.
"""

from __future__ import annotations

from ..core.config import Config
from ..core.constructors import layer_norm, mlp, weight
from ..core.expr import Expr
from ..core.image_sizes import FixedImage
from ..core.towers import VisionTower
from ..core.tree import repeat
from .multimodal_registry import Tower
from .tower_parts import encoder_attention, patch_embedding, side, vit_layer, vit_sizes

_TOWER = {
    "class_token": "embeddings.class_embedding",
    "patches": "embeddings.patch_embedding",
    "positions": "embeddings.position_embedding",
    "layers.{l}.attn_norm": "encoder.layers.{l}.layer_norm1",
    **{f"layers.{{l}}.attn.{x}": "encoder.layers.{l}.self_attn.qkv" for x in "qkv"},
    "layers.{l}.attn.o": "encoder.layers.{l}.self_attn.projection",
    "layers.{l}.mlp_norm": "encoder.layers.{l}.layer_norm2",
    "layers.{l}.mlp.up": "encoder.layers.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "encoder.layers.{l}.mlp.fc2",
    "norm_after": "post_layernorm",
}


def blip_tower(
    v: Config, *sizes: int, patch: int = 14, size: int = 224, eps: float = 1e-6
) -> Tower:
    """Read the tower; the arguments are defaults."""
    d, F, L, H = vit_sizes(v, *sizes)
    p, s, norm = (
        side(v, "p_v", "patch_size", patch),
        side(v, "s_v", "image_size", size),
        layer_norm(d, v.get("layer_norm_eps", eps)),
    )
    attention = encoder_attention(v, d, H, v.get("qkv_bias", True), o_bias=True)
    tower = VisionTower(
        class_token=weight(1, 1, d, role="scale"),
        patches=patch_embedding(v, d, p, bias=True),
        positions=weight(1, Expr("N_v", (s // p) ** 2 + 1), d, role="lookup"),
        layers=repeat(
            vit_layer(norm, attention, mlp(d, F, v.activation("hidden_act", "gelu"), bias=True)), L
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return Tower(tower, _TOWER)
