"""Molmo 2: the features of two layers of SigLIP, attention of squares of four of them, and a
gated MLP.
"""

from __future__ import annotations

from ...core.attention_facts import AttentionWindow
from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, swiglu, weight
from ...core.expr import Expr, product
from ...core.image_sizes import LeastScaledTiles, UnsupportedImage
from ...core.multimodal import CountedBlock
from ...core.towers import EncoderAttention, PatchEmbedding, VisionTower
from ...core.tree import repeat
from ..counted_towers import counted_tower
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config, side, vit_layer, vit_sizes

_LAYER, _LAYER_IN_MEMORY = "transformer.resblocks.{l}.", "model.vision_tower.layers.{l}."
_TOWER = {
    "patches": "patch_embedding",
    "positions": "positional_embedding",
    "layers.{l}.attn_norm": f"{_LAYER}attention_norm",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER}attention.w{x}" for x in "qkvo"},
    "layers.{l}.mlp_norm": f"{_LAYER}ffn_norm",
    "layers.{l}.mlp.up": f"{_LAYER}feed_forward.w1",
    "layers.{l}.mlp.down": f"{_LAYER}feed_forward.w2",
}
_TOWER_IN_MEMORY = {
    "patches": "model.vision_tower.patch_embedding",
    "positions": "model.vision_tower.positional_embedding",
    "layers.{l}.attn_norm": f"{_LAYER_IN_MEMORY}layer_norm1",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER_IN_MEMORY}self_attn.{x}_proj" for x in "qkvo"},
    "layers.{l}.mlp_norm": f"{_LAYER_IN_MEMORY}layer_norm2",
    "layers.{l}.mlp.up": f"{_LAYER_IN_MEMORY}mlp.fc1",
    "layers.{l}.mlp.down": f"{_LAYER_IN_MEMORY}mlp.fc2",
}
_PROJECTOR = {
    **{x: f"image_pooling_2d.w{x}" for x in "qkvo"},
    **{
        f"mlp.{x}": f"image_projector.{name}"
        for x, name in (("gate", "w1"), ("down", "w2"), ("up", "w3"))
    },
}
_PROJECTOR_IN_MEMORY = {
    **{x: f"model.multi_modal_projector.image_pooling_2d.{x}_proj" for x in "qkvo"},
    **{
        f"mlp.{x}": f"model.multi_modal_projector.image_projector.{x}_proj"
        for x in ("gate", "down", "up")
    },
}
_MODULES = {
    "embed.weight": "model.language_model.embed_tokens.weight",
    "embed.extra": "model.language_model.embed_tokens.weight",
    "norm": "model.language_model.norm",
    "layers.{l}.attn_norm": "input_layernorm",
    "layers.{l}.mlp_norm": "post_attention_layernorm",
    **{f"layers.{{l}}.attn.{x}": f"self_attn.{x}_proj" for x in "qkvo"},
    **{f"layers.{{l}}.mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
}
_MARGIN, _TILES, _SQUARE = 4, 8, 2
"""In its processor: patches on each side of a tile that its neighbor has, too; tiles of an
image; patches on a side of a square."""


@multimodal(
    Wrapper(types="molmo2", text_type="molmo2_text"),
    forms={"hf-modules": {"model.transformer.blocks.": "model.language_model.layers."}},
    modules=_MODULES,
)
def molmo2(c: Config, text: Decoder) -> Assembly:
    published = "vit_config" in c
    v, a = (
        part_config(c, "vit_config" if published else "vision_config", {}),
        part_config(c, "adapter_config", {}),
    )
    (d, F, L, H), p = (
        vit_sizes(v, 1152, 4304, 25, 16),
        side(v, "p_v", "image_patch_size" if published else "patch_size", 14),
    )
    h, K = v.dim("h_v", "head_dim", default=72), v.dim("K_v", "num_key_value_heads", default=16)
    size = side(v, "s_v", "image_default_input_size" if published else "image_size", 378)
    channels = v.dim("C_v", "num_channels", default=Expr.const(3))
    places = v.dim(
        "N_v", "num_position_embeddings|image_num_pos", default=Expr.const((size // p) ** 2)
    )
    numbers = a.get("vision_feature_layer|vit_layers", [24, 18])
    if not numbers or not all(type(i) is int and -L <= i < L for i in numbers):
        raise a.error(
            "vision_feature_layer", f"should list layers of a tower with {L}, not {numbers!r:.60}"
        )
    if published:  # layers after those that are read are not stored
        numbers = [i % L for i in numbers]
        L = Expr("L_v", max(numbers) + 1)
    norm, bias = layer_norm(d, v.get("layer_norm_eps", 1e-6)), v.get("attention_bias", True)
    layer = vit_layer(
        norm,
        _attention(d, d, (H, K, h), bias),
        mlp(d, F, v.activation("hidden_act", "gelu_pytorch_tanh"), bias=True),
    )
    vision = VisionTower(
        patches=PatchEmbedding(
            weight=weight(d, product((channels, p, p))), bias=weight(d, role="bias")
        ),
        positions=weight(places, d, role="lookup"),
        layers=repeat(layer, L),
        patch_size=p,
        image_sizes=LeastScaledTiles(
            patch=int(p), size=int(size), margin=_MARGIN, most=_TILES, side=_SQUARE
        ),
    )
    if size // p <= 2 * _MARGIN:
        reason = (
            f"tiles of {size} pixels have no more patches than the {2 * _MARGIN} that they "
            "have in common with their neighbors"
        )
        vision = vision.replace(image_sizes=UnsupportedImage(patch=int(p), reason=reason))
    tower = counted_tower(Part(vision, _TOWER, in_memory=_TOWER_IN_MEMORY), merge=_SQUARE)
    e, Fa = (
        a.dim("d_p", "hidden_size", default=1152),
        a.dim("F_p", "intermediate_size", default=18_944),
    )
    Ha, Ka = (
        a.dim("H_p", "num_attention_heads", default=16),
        a.dim("K_p", "num_key_value_heads", default=16),
    )
    ha, into = a.dim("h_p", "head_dim", default=72), product((len(numbers), d))
    pooling = _attention(e, into, (Ha, Ka, ha), a.get("attention_bias", True))
    out = a.dim("d_t", "text_hidden_size", default=3584)
    gate = linear(Fa, e, a.get("mlp_bias", False))
    feed_forward = swiglu(e, Fa, a.activation("hidden_act", "silu")).replace(
        gate=gate, up=gate, down=linear(out, Fa)
    )
    projector = CountedBlock(parts={**dict(pooling.children), "mlp": feed_forward})
    return assemble(
        text,
        vision=("model.vision_backbone.image_vit.", tower),
        projector=(
            "model.vision_backbone.",
            Part(projector, _PROJECTOR, in_memory=_PROJECTOR_IN_MEMORY),
        ),
    ).seeing_later("images")


def _attention(
    out: Expr, into: Expr, heads: tuple[Expr, Expr, Expr], bias: bool
) -> EncoderAttention:
    H, K, h = heads
    kv, window = linear(K * h, into, bias), AttentionWindow(causal=False)
    return EncoderAttention(
        q=linear(H * h, into, bias),
        k=kv,
        v=kv,
        o=linear(out, H * h, bias),
        heads=H,
        kv_heads=K,
        head_dim=h,
        window=window,
    )
