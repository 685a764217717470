"""Readers of towers that several models have: from their configuration to the block and the names
of its tensors in files.

`read_tower` finds the reader of a `vision_config` by its `model_type`, as transformers does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any

from ..core.attention_facts import QKPreprocess
from ..core.config import Config
from ..core.constructors import layer_norm, mlp, rms, swiglu, weight
from ..core.expr import Expr, product
from ..core.image_sizes import FixedImage, NativeImage, SplitImage
from ..core.multimodal import UnreadBlock
from ..core.positions import AxialRope
from ..core.towers import LayerScale, PatchEmbedding, VisionTower
from ..core.tree import repeat
from ..utils.errors import UnknownModel, safe
from .counted_towers import Modules, counted
from .multimodal_registry import Tower
from .tower_parts import encoder_attention, part_config, patch_embedding, side, vit_layer, vit_sizes

CLIP_LARGE = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 336,
}  # fmt: skip
"""LLaVA's tower where a configuration has no `vision_config`."""
PIXTRAL_LARGE = {
    "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 1540,
}  # fmt: skip
"""The same of Mistral 3."""

SIGLIP_LARGE = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
    "patch_size": 14, "image_size": 384,
    "num_hidden_layers": 26, "num_attention_heads": 16, "vision_use_head": False,
}  # fmt: skip
"""The same of LLaVA-OneVision."""
AYA_TOWER = SIGLIP_LARGE | {"num_attention_heads": 14}
"""The same of Aya Vision."""
PALIGEMMA_TOWER = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4096,
    "patch_size": 14, "image_size": 224,
    "num_hidden_layers": 27, "num_attention_heads": 16, "vision_use_head": False,
}  # fmt: skip
"""The same of PaliGemma."""
COMMAND_A_TOWER = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 3072,
    "image_size": 512, "num_hidden_layers": 27,
    "num_attention_heads": 12,
}  # fmt: skip
"""The same of Command A Vision."""

_ENCODER_NAMES = {
    "layers.{l}.attn_norm": "vision_model.encoder.layers.{l}.layer_norm1",
    **{
        f"layers.{{l}}.attn.{x}": f"vision_model.encoder.layers.{{l}}.self_attn.{x}_proj"
        for x in "qkv"
    },
    "layers.{l}.attn.o": "vision_model.encoder.layers.{l}.self_attn.out_proj",
    "layers.{l}.mlp_norm": "vision_model.encoder.layers.{l}.layer_norm2",
    "layers.{l}.mlp.up": "vision_model.encoder.layers.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "vision_model.encoder.layers.{l}.mlp.fc2",
    "patches": "vision_model.embeddings.patch_embedding",
    "positions": "vision_model.embeddings.position_embedding.weight",
    "norm_after": "vision_model.post_layernorm",
}
CLIP_NAMES = _ENCODER_NAMES | {
    "class_token": "vision_model.embeddings.class_embedding",
    "norm_before": "vision_model.pre_layrnorm",
}
SIGLIP_NAMES = _ENCODER_NAMES | {
    "pooling.probe": "vision_model.head.probe",
    **{f"pooling.{x}.weight": "vision_model.head.attention.in_proj_weight" for x in "qkv"},
    **{f"pooling.{x}.bias": "vision_model.head.attention.in_proj_bias" for x in "qkv"},
    "pooling.o": "vision_model.head.attention.out_proj",
    "pooling.norm": "vision_model.head.layernorm",
    "pooling.mlp.up": "vision_model.head.mlp.fc1",
    "pooling.mlp.down": "vision_model.head.mlp.fc2",
}
INTERNVIT_NAMES = {
    "class_token": "embeddings.cls_token",
    "patches": "embeddings.patch_embeddings.projection",
    "positions": "embeddings.position_embeddings",
    "layers.{l}.attn_norm": "encoder.layer.{l}.layernorm_before",
    **{f"layers.{{l}}.attn.{x}": f"encoder.layer.{{l}}.attention.{x}_proj" for x in "qkv"},
    **{f"layers.{{l}}.attn.{x}_norm": f"encoder.layer.{{l}}.attention.{x}_norm" for x in "qk"},
    "layers.{l}.attn.o": "encoder.layer.{l}.attention.projection_layer",
    "layers.{l}.attn_out_norm.weight": "encoder.layer.{l}.lambda_1",
    "layers.{l}.mlp_norm": "encoder.layer.{l}.layernorm_after",
    "layers.{l}.mlp.up": "encoder.layer.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "encoder.layer.{l}.mlp.fc2",
    "layers.{l}.mlp_out_norm.weight": "encoder.layer.{l}.lambda_2",
    "norm_after": "layernorm",
}
PIXTRAL_NAMES = {
    "patches": "patch_conv",
    "norm_before": "ln_pre",
    "layers.{l}.attn_norm": "transformer.layers.{l}.attention_norm",
    **{f"layers.{{l}}.attn.{x}": f"transformer.layers.{{l}}.attention.{x}_proj" for x in "qkvo"},
    "layers.{l}.mlp_norm": "transformer.layers.{l}.ffn_norm",
    **{
        f"layers.{{l}}.mlp.{x}": f"transformer.layers.{{l}}.feed_forward.{x}_proj"
        for x in ("gate", "up", "down")
    },
}


def read_tower(c: Config, default_type: str, default: Mapping[str, Any] | None = None) -> Tower:
    """Read `vision_config` of a whole configuration; without one it is `default`, and without a
    `model_type` in it `default_type`.
    """
    vision = part_config(c, "vision_config", default)
    kind = vision.get("model_type", default_type)
    if kind not in TOWERS:
        known = ", ".join(sorted(TOWERS))
        raise UnknownModel(
            f"{c.source}: vision_config has the unknown model_type {safe(repr(kind), 60)}",
            hint=f"known: {known}",
        )
    return TOWERS[kind](vision)


def siglip_tower(c: Config) -> Tower:
    """Read SigLIP: positions of a fixed square, a norm after the layers."""
    c.ignore("projection_dim", "vocab_size", "num_image_tokens", "projector_hidden_act")
    return _siglip(c, vit_sizes(c), 16, c.get("vision_use_head", True))


def idefics3_tower(c: Config) -> Tower:
    """Read Idefics 3's SigLIP, of images cut into tiles, whose names have no `vision_model`."""
    c.ignore("size", "max_image_size", "vocab_size")
    tower = plain_siglip_tower(c, width=1152, heads=16)
    sizes = tower.block.image_sizes
    assert isinstance(sizes, FixedImage)
    # as its processor does unless told otherwise
    tiles = SplitImage(patch=sizes.patch, size=sizes.size, longest=4 * sizes.size)
    return tower._replace(block=tower.block.replace(image_sizes=tiles))


def plain_siglip_tower(c: Config, width: int = 768, heads: int = 12, patch: int = 32) -> Tower:
    """Read SigLIP without a head, whose names have no `vision_model`; the arguments are
    defaults.
    """
    c.ignore("attention_dropout", "initializer_range")
    tower = _siglip(c, vit_sizes(c, width=width, heads=heads), patch, head=False)
    return tower._replace(
        names={path: name.removeprefix("vision_model.") for path, name in tower.names.items()}
    )


def paddleocr_tower(c: Config) -> Tower:
    """Read PaddleOCR-VL's SigLIP."""
    return _siglip(
        c, vit_sizes(c, 1152, 4304, 27, 16), 14, head=False, size=side(c, "s_v", "image_size", 384)
    )


def granite_docling_tower(c: Config) -> Tower:
    """Read Granite Docling's SigLIP, whose names have no `vision_model`."""
    tower = _siglip(c, vit_sizes(c), 16, head=False, size=side(c, "s_v", "image_size", 512))
    return tower._replace(
        names={path: name.removeprefix("vision_model.") for path, name in tower.names.items()}
    )


def _siglip(
    c: Config,
    sizes: tuple[Expr, Expr, Expr, Expr],
    patch: int,
    head: bool,
    size: Expr | None = None,
) -> Tower:
    d, F, L, H = sizes
    p, s = side(c, "p_v", "patch_size", patch), size or side(c, "s_v", "image_size", 224)
    eps, activation = c.get("layer_norm_eps", 1e-6), c.activation("hidden_act", "gelu_pytorch_tanh")
    norm, attention, feed_forward = (
        layer_norm(d, eps),
        encoder_attention(c, d, H, bias=True),
        mlp(d, F, activation, bias=True),
    )
    pooling = None
    if head:
        weights: Modules = {
            "probe": weight(1, 1, d, role="scale"),
            **dict.fromkeys("qkv", attention.q),
            "o": attention.o,
        }
        pooling = UnreadBlock(parts=counted({**weights, "norm": norm, "mlp": feed_forward}).parts)
    tower = VisionTower(
        patches=patch_embedding(c, d, p, bias=True),
        positions=weight(Expr("N_v", (s // p) ** 2), d, role="lookup"),
        layers=repeat(vit_layer(norm, attention, feed_forward), L),
        norm_after=norm,
        pooling=pooling,
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return Tower(tower, SIGLIP_NAMES)


def siglip2_tower(c: Config) -> Tower:
    """Read SigLIP 2 for images of any shape, whose positions are resized to them."""
    return _siglip2(c, vit_sizes(c), c.get("vision_use_head", True))


def cosmos3_edge_tower(c: Config) -> Tower:
    """Read Cosmos 3 Edge's SigLIP 2."""
    return _siglip2(c, vit_sizes(c, 1152, 4304, 27, 16), head=False)


def _siglip2(c: Config, sizes: tuple[Expr, Expr, Expr, Expr], head: bool) -> Tower:
    side_of_grid = isqrt(patches := c.get("num_patches", 256))
    if side_of_grid**2 != patches:
        raise c.error("num_patches", f"should be a square number, not {patches}")
    size = Expr("s_v", side_of_grid * int(side(c, "p_v", "patch_size", 16)))
    tower = _siglip(c, sizes, 16, head, size)
    d, *pixels = tower.block.patches.weight.shape
    flat = PatchEmbedding(weight=weight(d, product(pixels)), bias=tower.block.patches.bias)
    return tower._replace(block=tower.block.replace(patches=flat, resizing="antialias"))


def clip_tower(c: Config, *sizes: int, patch: int = 32, activation: str = "quick_gelu") -> Tower:
    """Read CLIP: a class token before the patches, norms before and after the layers; the
    arguments are defaults.
    """
    c.ignore("projection_dim", "vocab_size")
    d, F, L, H = vit_sizes(c, *sizes)
    p, s = side(c, "p_v", "patch_size", patch), side(c, "s_v", "image_size", 224)
    norm, activation = (
        layer_norm(d, c.get("layer_norm_eps", 1e-5)),
        c.activation("hidden_act", activation),
    )
    tower = VisionTower(
        class_token=weight(d, role="scale"),
        patches=patch_embedding(c, d, p, bias=False),
        positions=weight(Expr("N_v", (s // p) ** 2 + 1), d, role="lookup"),
        norm_before=norm,
        layers=repeat(
            vit_layer(
                norm, encoder_attention(c, d, H, bias=True), mlp(d, F, activation, bias=True)
            ),
            L,
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return Tower(tower, CLIP_NAMES)


def pixtral_tower(c: Config) -> Tower:
    """Read Pixtral: rotary positions in two dimensions, images of any shape."""
    c.ignore("head_dim", "vocab_size", "is_composition")
    d, F, L, H = vit_sizes(c, width=1024, mlp_width=4096, layers=24, heads=16)
    p, s = side(c, "p_v", "patch_size", 16), side(c, "s_v", "image_size", 1024)
    theta = c.sub("rope_parameters").get("rope_theta", c.get("rope_theta", 1e4))
    c.sub("rope_parameters").ignore("rope_type")
    norm, rope = rms(d, 1e-5), AxialRope(theta=theta, dim=d // H)
    attention, feed_forward = (
        encoder_attention(c, d, H, bias=False, rope=rope),
        swiglu(d, F, c.activation("hidden_act", "gelu")),
    )
    tower = VisionTower(
        patches=patch_embedding(c, d, p, bias=False),
        norm_before=norm,
        layers=repeat(vit_layer(norm, attention, feed_forward), L),
        patch_size=p,
        image_sizes=NativeImage(patch=p, multiple=p, longest=s),
    )
    return Tower(tower, PIXTRAL_NAMES)


def internvit_tower(c: Config, biased: bool = False) -> Tower:
    """Read InternViT: a class token, factors for the channels of each branch, and norms of one
    kind or the other; `biased` is a default.
    """
    d, F, L, H = vit_sizes(c, width=1024, mlp_width=4096, layers=24, heads=16)
    p, s = side(c, "p_v", "patch_size", 14), side(c, "s_v", "image_size", 448)
    eps, bias = c.get("layer_norm_eps", 1e-6), c.get("attention_bias|qkv_bias", biased)
    kinds = {"layer_norm": layer_norm(d, eps), "rms_norm": rms(d, eps)}
    if (kind := c.get("norm_type", "layer_norm")) not in kinds:
        raise c.error(
            "norm_type", f"is the unknown kind {safe(repr(kind), 40)}", f"known: {', '.join(kinds)}"
        )
    if c.get("use_mask_token", False):
        raise c.error("use_mask_token", "asks for a mask token, which is for training alone")
    norm, attention = kinds[kind], encoder_attention(c, d, H, bias, o_bias=True)
    c.ignore("drop_path_rate", "dropout", "initializer_factor", "use_flash_attn")
    if c.get("use_qk_norm|qk_normalization", False):
        attention = attention.replace(
            q_norm=rms(d, 1e-6), k_norm=rms(d, 1e-6), qk_preprocess=QKPreprocess(across_heads=True)
        )
    scaled = LayerScale(weight=weight(d, role="scale"))
    feed_forward = mlp(d, F, c.activation("hidden_act", "gelu"), bias=True)
    layer = vit_layer(norm, attention, feed_forward).replace(
        attn_out_norm=scaled, mlp_out_norm=scaled
    )
    positions = weight(1, Expr("N_v", (s // p) ** 2 + 1), d, role="lookup")
    tower = VisionTower(
        class_token=weight(1, 1, d, role="scale"),
        patches=patch_embedding(c, d, p, bias=True),
        positions=positions if c.get("use_absolute_position_embeddings", True) else None,
        layers=repeat(layer, L),
        norm_after=None if c.get("use_mean_pooling", True) else layer_norm(d, eps),
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return Tower(tower, INTERNVIT_NAMES)


TOWERS: dict[str, Callable[[Config], Tower]] = {
    "siglip_vision_model": siglip_tower,
    "clip_vision_model": clip_tower,
    "internvl_vision": internvit_tower,
    "pixtral": pixtral_tower,
}
"""`model_type` of a `vision_config` → its reader."""
