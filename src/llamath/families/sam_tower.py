"""The reader of SAM's image encoder: attention with learned distances, in windows in most
layers, and two convolutions after them.
"""

from __future__ import annotations

from ..core.blocks import MLP, Layer
from ..core.config import Config
from ..core.constructors import layer_norm, linear, mlp, weight
from ..core.expr import Expr
from ..core.image_sizes import FixedImage
from ..core.multimodal import CountedBlock, CountedTower
from ..core.towers import PatchEmbedding, VisionTower
from ..core.tree import sequence
from .counted_towers import Modules, conv, count_tower, counted, each
from .layers_shared import layer_numbers, listed_layers
from .tower_parts import side

NECK_NAMES = {
    "reduce": "conv1",
    "reduce_norm": "layer_norm1",
    "mix": "conv2",
    "mix_norm": "layer_norm2",
}
_LAYER = {
    "attn_norm": "layer_norm1",
    "attn.rows": "attn.rel_pos_h",
    "attn.columns": "attn.rel_pos_w",
    **{f"attn.{x}": "attn.qkv" for x in "qkv"},
    "attn.o": "attn.proj",
    "mlp_norm": "layer_norm2",
    "mlp.up": "mlp.lin1",
    "mlp.down": "mlp.lin2",
}
SAM_NAMES = {
    "positions": "pos_embed",
    "patches": "patch_embed.projection",
    **{f"layers.{{l}}.{path}": f"layers.{{l}}.{name}" for path, name in _LAYER.items()},
    **{f"neck.{path}": f"neck.{name}" for path, name in NECK_NAMES.items()},
}
"""Names in transformers."""
ORIGINAL_SAM_NAMES = {
    **{
        path: name.replace("layers.", "blocks.").replace("layer_norm", "norm")
        for path, name in SAM_NAMES.items()
    },
    "patches": "patch_embed.proj",
    **{f"neck.{path}": f"neck.{i}" for i, path in enumerate(NECK_NAMES)},
}
"""Names in Meta's files."""


def sam_tower(c: Config, letter: str = "v") -> CountedTower:
    """Read SAM's encoder, whose names in transformers are `SAM_NAMES`; the letters of its
    dimensions end in this one.
    """
    c.ignore("attention_dropout", "initializer_range", "num_pos_feats")
    d, L = (
        c.dim(f"d_{letter}", "hidden_size", default=768),
        c.dim(f"L_{letter}", "num_hidden_layers", default=12),
    )
    H = c.dim(f"H_{letter}", "num_attention_heads", default=12)
    F = c.dim(f"F_{letter}", "mlp_dim", default=int(c.get("mlp_ratio", 4.0) * d))
    p, s = side(c, f"p_{letter}", "patch_size", 16), side(c, f"s_{letter}", "image_size", 1024)
    channels = c.dim(f"C_{letter}", "num_channels", default=Expr.const(3))
    n, window, norm = (
        Expr.const(s // p),
        c.dim(f"w_{letter}", "window_size", default=14),
        layer_norm(d, c.get("layer_norm_eps", 1e-6)),
    )
    relative, whole = (
        c.get("use_rel_pos", True),
        frozenset(layer_numbers(c, "global_attn_indexes", (2, 5, 8, 11))),
    )
    feed_forward: MLP = mlp(d, F, c.activation("hidden_act", "gelu"), bias=True)

    def layer(span: int) -> Layer:
        into, h = linear(d, d, c.get("qkv_bias", True)), Expr(f"h_{letter}", d // H)
        table = weight(2 * span - 1, h, role="lookup") if relative else None
        weights: Modules = {
            **each("", "rows columns", table),
            **each("", "q k v", into),
            "o": linear(d, d, True),
        }
        attn = CountedBlock(kind="attention", parts=counted(weights).parts)
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=feed_forward)

    everywhere, windowed = layer(n), layer(window)
    tower = VisionTower(
        positions=weight(1, n, n, d, role="lookup") if c.get("use_abs_pos", True) else None,
        patches=PatchEmbedding(weight=weight(d, channels, p, p), bias=weight(d, role="bias")),
        layers=sequence((everywhere if i in whole else windowed for i in listed_layers(c, L)), L),
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return count_tower(tower, {"neck": sam_neck(c, letter)}, merge=4)


def sam_neck(c: Config, letter: str = "v") -> CountedBlock:
    """Read the convolutions that bring the features to fewer channels."""
    d, o = (
        c.dim(f"d_{letter}", "hidden_size", default=768),
        c.dim(f"o_{letter}", "output_channels", default=256),
    )
    reduce, mix = conv(o, d, 1, 1, bias=False), conv(o, o, 3, 3, bias=False)
    return counted(
        {
            "reduce": reduce,
            "reduce_norm": layer_norm(o, 1e-6),
            "mix": mix,
            "mix_norm": layer_norm(o, 1e-6),
        }
    )
