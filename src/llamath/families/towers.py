"""Readers of towers and projectors: from the configuration of a part to its block and the names of its tensors in files.

`read_tower` finds the reader of a `vision_config` by its `model_type`, as transformers does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isqrt
from typing import Any

from ..core.attention_facts import AttentionWindow
from ..core.blocks import MLP, Decoder, Layer, Norm
from ..core.config import Config
from ..core.constructors import layer_norm, linear, mlp, rms, swiglu, weight
from ..core.expr import Expr, product
from ..core.image_sizes import FixedImage, NativeImage
from ..core.positions import AxialRope, Rope
from ..core.towers import AttentionPooling, EncoderAttention, MLPProjector, PatchEmbedding, PooledProjector, VisionTower
from ..core.tree import repeat
from ..utils.errors import UnknownModel, safe
from .multimodal_registry import Part, Tower

CLIP_LARGE = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 336,
}  # fmt: skip
"""LLaVA's tower where a configuration has no `vision_config`."""
PIXTRAL_LARGE = {
    "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 1540,
}  # fmt: skip
"""The same of Mistral 3."""

_ENCODER_NAMES = {
    "layers.{l}.attn_norm": "vision_model.encoder.layers.{l}.layer_norm1",
    **{f"layers.{{l}}.attn.{x}": f"vision_model.encoder.layers.{{l}}.self_attn.{x}_proj" for x in "qkv"},
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
PIXTRAL_NAMES = {
    "patches": "patch_conv",
    "norm_before": "ln_pre",
    "layers.{l}.attn_norm": "transformer.layers.{l}.attention_norm",
    **{f"layers.{{l}}.attn.{x}": f"transformer.layers.{{l}}.attention.{x}_proj" for x in "qkvo"},
    "layers.{l}.mlp_norm": "transformer.layers.{l}.ffn_norm",
    **{f"layers.{{l}}.mlp.{x}": f"transformer.layers.{{l}}.feed_forward.{x}_proj" for x in ("gate", "up", "down")},
}


def read_tower(c: Config, default_type: str, default: Mapping[str, Any] | None = None) -> Tower:
    """Read `vision_config` of a whole configuration; without one it is `default`, and without a `model_type` in it `default_type`."""
    vision = part_config(c, "vision_config", default)
    kind = vision.get("model_type", default_type)
    if kind not in TOWERS:
        known = ", ".join(sorted(TOWERS))
        raise UnknownModel(f"{c.source}: vision_config has the unknown model_type {safe(repr(kind), 60)}", hint=f"known: {known}")
    return TOWERS[kind](vision)


def part_config(c: Config, key: str, default: Mapping[str, Any] | None = None) -> Config:
    """Return the nested configuration of a part; an absent one is `default`."""
    if key not in c and default is not None:
        c.defaults_used[key] = default
        c.nested[key] = Config(default, c.source, f"{key}.")
    return c.sub(key)


def side(c: Config, symbol: str, key: str, default: int | None = None) -> Expr:
    """Read a number of pixels on a side, which may be given as a square, [14, 14]."""
    value = c.data.get(key)
    if isinstance(value, (list, tuple)) and len(value) == 2 and value[0] == value[1]:
        c.ignore(key)
        c = Config({key: value[0]}, c.source, "vision_config.")
    return c.dim(symbol, key) if default is None else c.dim(symbol, key, default=default)


def patch_embedding(c: Config, d: Expr, p: Expr, bias: bool) -> PatchEmbedding:
    """Read the linear layer on the pixels of a patch."""
    channels = c.dim("C_v", "num_channels", default=Expr.const(3))
    return PatchEmbedding(weight=weight(d, channels, p, p), bias=weight(d, role="bias") if bias else None)


def encoder_attention(c: Config, d: Expr, H: Expr, bias: bool, rope: Rope | None = None, o_bias: bool | None = None) -> EncoderAttention:
    """Attention of all patches to all others, with as many keys as queries."""
    if d % H:
        raise c.error("num_attention_heads", f"is {H}, which does not divide the width {d} of the tower")
    h = Expr("h_v", d // H)
    q = linear(H * h, d, bias)
    o = linear(d, H * h, bias if o_bias is None else o_bias)
    window = AttentionWindow(causal=False)
    return EncoderAttention(q=q, k=q, v=q, o=o, heads=H, kv_heads=H, head_dim=h, window=window, rope=rope)


def vit_layer(norm: Norm, attention: EncoderAttention, feed_forward: MLP) -> Layer:
    """A layer of a vision transformer."""
    return Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=feed_forward)


def siglip_tower(c: Config) -> Tower:
    """Read SigLIP: positions of a fixed square, a norm after the layers."""
    d, F, L, H = vit_sizes(c)
    p, s = side(c, "p_v", "patch_size", 16), side(c, "s_v", "image_size", 224)
    eps, activation = c.get("layer_norm_eps", 1e-6), c.activation("hidden_act", "gelu_pytorch_tanh")
    norm, attention, feed_forward = layer_norm(d, eps), encoder_attention(c, d, H, bias=True), mlp(d, F, activation, bias=True)
    pooling = None
    if c.get("vision_use_head", True):
        q, probe = attention.q, weight(1, 1, d, role="scale")
        pooling = AttentionPooling(
            probe=probe, q=q, k=q, v=q, o=attention.o, norm=norm, mlp=feed_forward, heads=H, head_dim=attention.head_dim
        )
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


def clip_tower(c: Config) -> Tower:
    """Read CLIP: a class token before the patches, norms before and after the layers."""
    c.ignore("projection_dim", "vocab_size")
    d, F, L, H = vit_sizes(c)
    p, s = side(c, "p_v", "patch_size", 32), side(c, "s_v", "image_size", 224)
    eps, activation = c.get("layer_norm_eps", 1e-5), c.activation("hidden_act", "quick_gelu")
    norm = layer_norm(d, eps)
    tower = VisionTower(
        class_token=weight(d, role="scale"),
        patches=patch_embedding(c, d, p, bias=False),
        positions=weight(Expr("N_v", (s // p) ** 2 + 1), d, role="lookup"),
        norm_before=norm,
        layers=repeat(vit_layer(norm, encoder_attention(c, d, H, bias=True), mlp(d, F, activation, bias=True)), L),
        norm_after=norm,
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return Tower(tower, CLIP_NAMES)


def pixtral_tower(c: Config) -> Tower:
    """Read Pixtral: rotary positions in two dimensions, images of any shape."""
    c.ignore("head_dim", "vocab_size")
    d, F, L, H = vit_sizes(c, width=1024, mlp_width=4096, layers=24, heads=16)
    p, s = side(c, "p_v", "patch_size", 16), side(c, "s_v", "image_size", 1024)
    theta = c.sub("rope_parameters").get("rope_theta", c.get("rope_theta", 1e4))
    c.sub("rope_parameters").ignore("rope_type")
    norm, rope = rms(d, 1e-5), AxialRope(theta=theta, dim=d // H)
    attention, feed_forward = encoder_attention(c, d, H, bias=False, rope=rope), swiglu(d, F, c.activation("hidden_act", "gelu"))
    tower = VisionTower(
        patches=patch_embedding(c, d, p, bias=False),
        norm_before=norm,
        layers=repeat(vit_layer(norm, attention, feed_forward), L),
        patch_size=p,
        image_sizes=NativeImage(patch=p, multiple=p, longest=s),
    )
    return Tower(tower, PIXTRAL_NAMES)


TOWERS: dict[str, Callable[[Config], Tower]] = {
    "siglip_vision_model": siglip_tower,
    "clip_vision_model": clip_tower,
    "pixtral": pixtral_tower,
}
"""`model_type` of a `vision_config` → its reader."""


def vit_sizes(c: Config, width: int = 768, mlp_width: int = 3072, layers: int = 12, heads: int = 12) -> tuple[Expr, Expr, Expr, Expr]:
    """Read width, MLP width, layers and heads of a tower; the arguments are the defaults."""
    d, F = c.dim("d_v", "hidden_size", default=width), c.dim("F_v", "intermediate_size", default=mlp_width)
    return d, F, c.dim("L_v", "num_hidden_layers", default=layers), c.dim("H_v", "num_attention_heads", default=heads)


def with_features(c: Config, tower: Tower, default: int) -> Tower:
    """Read which hidden states of a tower are its features (`vision_feature_layer`), and whether the class token is one of them."""
    numbers: Any = c.get("vision_feature_layer", None)
    numbers = default if numbers is None else numbers
    numbers = tuple(numbers) if isinstance(numbers, list) else (numbers,)
    states = int(tower.block.layers.n) + 1
    if not numbers or not all(type(x) is int and -states <= x < states for x in numbers):
        raise c.error("vision_feature_layer", f"should name hidden states of a tower with {states - 1} layers, not {numbers!r:.60}")
    drops = tower.block.class_token is not None and c.get("vision_feature_select_strategy", "default") == "default"
    return tower._replace(block=tower.block.replace(feature_layers=numbers, drops_class_token=drops))


def feature_width(tower: VisionTower) -> Expr:
    """Return the width of a tower's features."""
    return product((max(1, len(tower.feature_layers)), tower.patches.weight.shape[0]))


def mlp_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read LLaVA's projector: two linear layers."""
    bias, activation = c.get("multimodal_projector_bias", True), c.activation("projector_hidden_act", "gelu")
    d = text.embed.weight.shape[1]
    first, second = linear(d, feature_width(tower), bias), linear(d, d, bias)
    return Part(MLPProjector(linear_1=first, linear_2=second, activation=activation), {x: x for x in ("linear_1", "linear_2")})


def with_merged_patches(tower: Tower, side: int) -> Tower:
    """Return a tower for images whose sides are multiples of `side` patches, which become one token."""
    sizes = tower.block.image_sizes
    if isinstance(sizes, NativeImage):
        tower = tower._replace(block=tower.block.replace(image_sizes=sizes.replace(multiple=sizes.patch * side)))
    return tower


def merging_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read Mistral 3's projector: a norm, a linear layer on squares of patches, two linear layers."""
    bias, activation = c.get("multimodal_projector_bias", False), c.activation("projector_hidden_act", "gelu")
    k, d, dv = c.dim("k_v", "spatial_merge_size", default=2), text.embed.weight.shape[1], tower.patches.weight.shape[0]
    block = MLPProjector(
        norm=rms(dv, text.norm.eps if text.norm else 1e-5),
        merger=linear(dv, product((k, k, dv))),
        linear_1=linear(d, feature_width(tower), bias),
        linear_2=linear(d, d, bias),
        activation=activation,
        merge=k,
    )
    return Part(block, {x: x for x in ("linear_1", "linear_2", "norm")} | {"merger": "patch_merger.merging_layer"})


def pooled_projector(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read Gemma 3's projector, which makes `mm_tokens_per_image` tokens of an image."""
    tokens, d, dv = c.get("mm_tokens_per_image", 256), text.embed.weight.shape[1], tower.patches.weight.shape[0]
    patches, wanted = tower.image_sizes.grid(1, 1).rows, isqrt(max(tokens, 0))
    if not 0 < wanted <= patches:
        raise c.error("mm_tokens_per_image", f"should be between 1 and the {patches**2} patches of an image, not {tokens}")
    eps = c.sub("vision_config").get("layer_norm_eps", 1e-6)
    block = PooledProjector(linear=linear(d, dv), norm=rms(dv, eps, offset=1.0), merge=patches // wanted)
    return Part(block, {"linear.weight": "mm_input_projection_weight", "norm": "mm_soft_emb_norm"}, {"linear": "flip"})
