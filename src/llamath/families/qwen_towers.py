"""Readers of the vision towers of Qwen2-VL and its successors, whose projectors merge squares of
patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..core.blocks import Decoder, Norm
from ..core.config import Config
from ..core.constructors import layer_norm, linear, mlp, rms, swiglu, weight
from ..core.expr import Expr, product
from ..core.image_sizes import PixelBudget
from ..core.machine import Machine, X
from ..core.positions import AxialRope
from ..core.towers import EncoderAttention, MLPProjector, PatchEmbedding, VisionTower
from ..core.tree import Block, Stack, repeat, sequence
from .layers_shared import layer_numbers, listed_layers
from .multimodal_registry import Part, Tower
from .tower_parts import encoder_attention, side, vit_layer


class DeepstackProjector(Block):
    """One projector for the last hidden states of a tower, others for earlier ones; the text
    model adds their results to early layers.
    """

    group: ClassVar[str] = "projector"
    merger: MLPProjector
    deepstack: Stack
    feature_width: int  # of one of the hidden states that are joined in the features
    states: int  # number of hidden states

    def forward(self, m: Machine[X], x: X) -> X:
        *earlier, last = m.split(x, *[self.feature_width] * self.states)
        return m.concat(
            self.merger(m, last),
            *(merger(m, x) for merger, x in zip(self.deepstack, earlier, strict=True)),
        )


_EPS = 1e-6
QWEN_NAMES = {
    "patches": "patch_embed.proj",
    "layers.{l}.attn_norm": "blocks.{l}.norm1",
    **{f"layers.{{l}}.attn.{x}": "blocks.{l}.attn.qkv" for x in "qkv"},
    "layers.{l}.attn.o": "blocks.{l}.attn.proj",
    "layers.{l}.mlp_norm": "blocks.{l}.norm2",
}
FC_NAMES = {"layers.{l}.mlp.up": "blocks.{l}.mlp.fc1", "layers.{l}.mlp.down": "blocks.{l}.mlp.fc2"}
_GATED = {f"layers.{{l}}.mlp.{x}": f"blocks.{{l}}.mlp.{x}_proj" for x in ("gate", "up", "down")}
_LINEAR_FC = {
    "layers.{l}.mlp.up": "blocks.{l}.mlp.linear_fc1",
    "layers.{l}.mlp.down": "blocks.{l}.mlp.linear_fc2",
}
_MERGER = {"patch_norm": "ln_q", "linear_1": "mlp.0", "linear_2": "mlp.2"}


def qwen2_tower(c: Config) -> Tower:
    """Read Qwen2-VL: layer norms and MLPs of two matrices."""
    d = c.dim("d_v", "embed_dim", default=1280)
    F = product((c.get("mlp_ratio", 4), d))
    norm, feed_forward = (
        layer_norm(d, _EPS),
        mlp(d, F, c.activation("hidden_act", "quick_gelu"), bias=True),
    )
    layer = vit_layer(norm, _attention(c, d), feed_forward)
    return Tower(
        _tower(c, d, repeat(layer, c.dim("L_v", "depth", default=32)), bias=False),
        QWEN_NAMES | FC_NAMES,
    )


def qwen2_5_tower(c: Config, kv_heads: int | None = None) -> Tower:
    """Read Qwen2.5-VL: RMS norms, gated MLPs, and attention in windows in most layers;
    `kv_heads` is a default.
    """
    c.ignore("tokens_per_second")
    d, F = (
        c.dim("d_v", "hidden_size", default=3584),
        c.dim("F_v", "intermediate_size", default=3420),
    )
    L, merge, window = (
        c.dim("L_v", "depth", default=32),
        c.get("spatial_merge_size", 2),
        c.get("window_size", 112),
    )
    whole = frozenset(layer_numbers(c, "fullatt_block_indexes", (7, 15, 23, 31)))
    attention, norm = _attention(c, d), rms(d, _EPS)
    if kv_heads is not None:
        K = c.dim("K_v", "num_key_value_heads", default=kv_heads)
        if attention.heads % K:
            raise c.error(
                "num_key_value_heads", f"is {K}, which does not divide the {attention.heads} heads"
            )
        kv = linear(K * attention.head_dim, d, True)
        attention = attention.replace(k=kv, v=kv, kv_heads=K)
    windowed = attention.replace(
        window_side=max(1, window // merge // side(c, "p_v", "patch_size", 14)) * merge
    )
    feed_forward = swiglu(d, F, c.activation("hidden_act", "silu"), bias=True)
    full, near = vit_layer(norm, attention, feed_forward), vit_layer(norm, windowed, feed_forward)
    layers = sequence((full if i in whole else near for i in listed_layers(c, L, "depth")), L)
    return Tower(_tower(c, d, layers, bias=False), QWEN_NAMES | _GATED)


def qwen3_tower(c: Config, deepstack: Sequence[int] = (8, 16, 24)) -> Tower:
    """Read Qwen3-VL: learned positions of a square grid, resized to the image."""
    d, F = (
        c.dim("d_v", "hidden_size", default=1152),
        c.dim("F_v", "intermediate_size", default=4304),
    )
    L, places = (
        c.dim("L_v", "depth", default=27),
        c.dim("N_v", "num_position_embeddings", default=2304),
    )
    norm, feed_forward = (
        layer_norm(d, _EPS),
        mlp(d, F, c.activation("hidden_act", "gelu_pytorch_tanh"), bias=True),
    )
    layers = repeat(vit_layer(norm, _attention(c, d), feed_forward), L)
    tower = _tower(c, d, layers, bias=True, patch=16, fewest=65_536, most=16_777_216)
    tower = tower.replace(positions=weight(places, d, role="lookup"), resizing="bilinear")
    if numbers := c.get("deepstack_visual_indexes", list(deepstack)):
        tower = tower.replace(feature_layers=(*(i + 1 for i in numbers), -1))
    return Tower(tower, QWEN_NAMES | _LINEAR_FC | {"positions": "pos_embed.weight"})


def _attention(c: Config, d: Expr) -> EncoderAttention:
    heads = c.dim("H_v", "num_heads", default=16)
    c.sub("rope_parameters").ignore("rope_type", "rope_theta")
    return encoder_attention(
        c, d, heads, bias=True, rope=AxialRope(theta=1e4, dim=d // heads, by_halves=True)
    )


def _tower(
    c: Config,
    d: Expr,
    layers: Stack,
    *,
    bias: bool,
    patch: int = 14,
    fewest: int = 3136,
    most: int = 12_845_056,
) -> VisionTower:
    """The tower without its positions; `fewest` and `most` are the pixels in the published
    configurations of the processors.
    """
    c.ignore("in_chans", "spatial_patch_size")
    p, t = (
        side(c, "p_v", "patch_size", patch),
        c.dim("t_v", "temporal_patch_size", default=Expr.const(2)),
    )
    channels, k = c.dim("C_v", "in_channels", default=Expr.const(3)), c.get("spatial_merge_size", 2)
    patches = PatchEmbedding(
        weight=weight(d, channels, t, p, p), bias=weight(d, role="bias") if bias else None
    )
    sizes = PixelBudget(patch=p, multiple=p * k, fewest=fewest, most=most)
    return VisionTower(patches=patches, layers=layers, patch_size=p, image_sizes=sizes)


def qwen_merger(c: Config, tower: VisionTower, text: Decoder, width: str, norm: Norm) -> Part:
    """Read the projector of Qwen2-VL and Qwen2.5-VL: a norm, then an MLP on squares of patches;
    `width` is the key of its width.
    """
    return Part(
        _merger(c, tower, c.get(width, int(text.width)), norm=None, patch_norm=norm), _MERGER
    )


def qwen3_merger(c: Config, tower: VisionTower, text: Decoder) -> Part:
    """Read the projector of Qwen3-VL, and those of earlier hidden states."""
    d, k = tower.patches.weight.shape[0], c.get("spatial_merge_size", 2)
    out = c.get("out_hidden_size", int(text.width))
    main = _merger(c, tower, out, norm=None, patch_norm=layer_norm(d, _EPS))
    names = {"linear_1": "linear_fc1", "linear_2": "linear_fc2"}
    if not tower.feature_layers:
        return Part(
            main,
            {
                f"{path}": f"merger.{name}"
                for path, name in (names | {"patch_norm": "norm"}).items()
            },
        )
    earlier = _merger(c, tower, out, norm=layer_norm(product((k, k, d)), _EPS), patch_norm=None)
    states = len(tower.feature_layers)
    block = DeepstackProjector(
        merger=main, deepstack=repeat(earlier, states - 1), feature_width=d, states=states
    )
    first = {
        f"merger.{path}": f"merger.{name}"
        for path, name in (names | {"patch_norm": "norm"}).items()
    }
    rest = {
        f"deepstack.{{l}}.{path}": f"deepstack_merger_list.{{l}}.{name}"
        for path, name in (names | {"norm": "norm"}).items()
    }
    return Part(block, first | rest)


def _merger(
    c: Config, tower: VisionTower, out: int, *, norm: Norm | None, patch_norm: Norm | None
) -> MLPProjector:
    k = c.get("spatial_merge_size", 2)
    joined = product((k, k, tower.patches.weight.shape[0]))
    first, second = linear(joined, joined, True), linear(out, joined, True)
    return MLPProjector(
        patch_norm=patch_norm,
        norm=norm,
        linear_1=first,
        linear_2=second,
        activation="gelu",
        merge=k,
    )
