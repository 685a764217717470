"""The reader of SAM's image encoder: attention with learned distances, in windows in most layers, and two convolutions after them."""

from __future__ import annotations

from ..core.config import Config
from ..core.constructors import layer_norm, linear, weight
from ..core.expr import Expr
from ..core.multimodal import CountedBlock
from ..core.tree import sequence
from .counted_towers import Modules, conv, counted, counted_part
from .multimodal_registry import Part
from .towers import side


def sam_tower(c: Config) -> Part:
    """Read the encoder of GOT-OCR 2 and DeepSeek-VL."""
    c.ignore("attention_dropout", "hidden_act", "initializer_range", "num_pos_feats")
    d, L = c.dim("d_v", "hidden_size", default=768), c.dim("L_v", "num_hidden_layers", default=12)
    h = Expr("h_v", d // c.dim("H_v", "num_attention_heads", default=12))
    F = c.dim("F_v", "mlp_dim", default=int(c.get("mlp_ratio", 4.0) * d))
    p, s, channels = (
        side(c, "p_v", "patch_size", 16),
        side(c, "s_v", "image_size", 1024),
        c.dim("C_v", "num_channels", default=Expr.const(3)),
    )
    n, window, eps = Expr.const(s // p), c.dim("w_v", "window_size", default=14), c.get("layer_norm_eps", 1e-6)
    bias, relative, whole = c.get("qkv_bias", True), c.get("use_rel_pos", True), c.get("global_attn_indexes", [2, 5, 8, 11])
    norm = layer_norm(d, eps)

    def layer(span: int) -> CountedBlock:
        distances = weight(2 * span - 1, h, role="lookup") if relative else None
        return counted(
            {
                "layer_norm1": norm,
                "attn.rel_pos_h": distances,
                "attn.rel_pos_w": distances,
                "attn.qkv": linear(3 * d, d, bias),
                "attn.proj": linear(d, d, True),
                "layer_norm2": norm,
                "mlp.lin1": linear(F, d, True),
                "mlp.lin2": linear(d, F, True),
            }
        )

    everywhere, windowed = layer(n), layer(window)
    return counted_part(
        {
            "pos_embed": weight(1, n, n, d, role="lookup") if c.get("use_abs_pos", True) else None,
            "patch_embed.projection": conv(d, channels, p, p),
            "layers": sequence((everywhere if i in whole else windowed for i in range(L)), L),
            **{f"neck.{name}": x for name, x in sam_neck(c).items()},
        }
    )


def sam_neck(c: Config) -> Modules:
    """Read the convolutions that bring the features to fewer channels."""
    d, o = c.dim("d_v", "hidden_size", default=768), c.dim("o_v", "output_channels", default=256)
    return {
        "conv1": conv(o, d, 1, 1, bias=False),
        "layer_norm1": layer_norm(o, 1e-6),
        "conv2": conv(o, o, 3, 3, bias=False),
        "layer_norm2": layer_norm(o, 1e-6),
    }
