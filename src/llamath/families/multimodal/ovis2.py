"""Ovis 2: a tower whose head chooses among visual tokens, as a distribution over the rows of an
embedding of their own.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, swiglu, weight
from ...core.expr import Expr, product
from ...core.image_sizes import CoveringTiles, FixedImage
from ...core.towers import VisionTower
from ...core.tree import repeat
from ...utils.errors import safe
from ..counted_towers import Modules, counted, counted_tower
from ..multimodal_registry import (
    LANGUAGE_MODEL,
    Assembly,
    Part,
    Tower,
    Wrapper,
    assemble,
    multimodal,
)
from ..tower_parts import (
    encoder_attention,
    part_config,
    patch_embedding,
    side,
    vit_layer,
    vit_sizes,
    with_crops,
)

_LAYER = "transformer.encoder.layers.{l}."
_NAMES = {
    "patches": "transformer.embeddings.patch_embedding",
    "positions": "transformer.embeddings.position_embedding.weight",
    "patch_norm": "transformer.embeddings.rms_norm",
    "layers.{l}.attn_norm": f"{_LAYER}rms_norm1",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER}attention.{x}_proj" for x in "qkv"},
    "layers.{l}.attn.o": f"{_LAYER}attention.out_proj",
    "layers.{l}.mlp_norm": f"{_LAYER}rms_norm2",
    **{f"layers.{{l}}.mlp.{x}": f"{_LAYER}ffn.{x}_proj" for x in ("gate", "up", "down")},
    "norm_after": "transformer.rms_norm",
}
_PROJECTOR = {
    "linear": "vision_tower.head_linear",
    "norm": "vision_tower.head_norm",
    "table": "visual_embeddings_table.weight",
}
_CHOICES = ("softmax", "st_argmax", "gumbel_argmax")


@multimodal(Wrapper(types="ovis2", text_type="qwen2", prefix=LANGUAGE_MODEL, tied=True))
def ovis2(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    v.ignore("attention_dropout", "initializer_range")
    d, F, L, H = vit_sizes(v, width=1024, mlp_width=2816, layers=24, heads=8)
    p, s = side(v, "p_v", "patch_size", 14), side(v, "s_v", "image_size", 224)
    k, V = v.dim("k_v", "hidden_stride", default=1), v.dim("V_v", "vocab_size", default=16_384)
    logits, norm = (
        Expr.const(V - v.get("num_visual_indicator_tokens", 5)),
        rms(d, v.get("rms_norm_eps", 1e-5)),
    )
    attention = encoder_attention(v, d, H, v.get("qkv_bias", False))
    feed_forward = swiglu(d, F, v.activation("hidden_act", "silu"), bias=v.get("mlp_bias", False))
    tower = VisionTower(
        patches=patch_embedding(v, d, p, bias=True),
        positions=weight(Expr("N_v", (s // p) ** 2), d, role="lookup"),
        patch_norm=norm,
        layers=repeat(vit_layer(norm, attention, feed_forward), L),
        norm_after=norm,
        patch_size=p,
        image_sizes=FixedImage(patch=int(p), size=int(s)),
    )
    if (choice := v.get("tokenize_function", "softmax")) not in _CHOICES:
        raise v.error(
            "tokenize_function", f"is {safe(repr(choice), 40)}", f"known: {', '.join(_CHOICES)}"
        )
    vision = with_crops(Tower(tower, _NAMES), CoveringTiles)
    e = c.dim("d_e", "hidden_size", default=1536)
    c.ignore("visual_indicator_token_ids", "vocab_size")
    if text.head is not None and not text.head.weight.tied:
        text = text.replace(head=linear(c.dim("V_o", "vocab_size", default=151_643), e))
    projector: Modules = {
        "linear": linear(logits, product((k, k, d))),
        "norm": layer_norm(logits, 1e-5),
        "table": weight(V, e, role="lookup"),
    }
    return assemble(
        text,
        vision=("model.vision_tower.", counted_tower(vision, merge=int(k))),
        projector=("model.", Part(counted(projector), _PROJECTOR)),
    )
