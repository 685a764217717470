"""Idefics: CLIP, and perhaps a perceiver whose learned latents read its features; layers among
those of the text attend to the result.
"""

from __future__ import annotations

from ...core.blocks import Attention, Decoder, RMSNorm
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, rms, weight
from ...core.expr import Expr
from ...core.image_sizes import FixedImage
from ...core.multimodal import CountedBlock, CrossAttention
from ...core.tree import Block, Stack, repeat
from ...utils.errors import safe
from ..counted_towers import Modules, counted, counted_tower, stack
from ..idefics import CrossedDecoder
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import feature_width, part_config
from ..towers import clip_tower

_PERCEIVER = {
    "latents": "latents",
    "norm": "layer_norm",
    **{f"layers.{{l}}.attn.{x}": f"blocks.{{l}}.0.{x}_proj" for x in "qkv"},
    **{f"layers.{{l}}.attn.{x}_norm": f"blocks.{{l}}.0.{x}_layer_norm" for x in "qk"},
    "layers.{l}.attn.o": "blocks.{l}.0.output_proj",
    "layers.{l}.attn_norm": "blocks.{l}.0.latents_layer_norm",
    "layers.{l}.feature_norm": "blocks.{l}.0.context_layer_norm",
    "layers.{l}.mlp_norm": "blocks.{l}.1.ln",
    "layers.{l}.mlp.up": "blocks.{l}.1.fc",
    "layers.{l}.mlp.down": "blocks.{l}.1.c_proj",
}

_CROSS = "model.gated_cross_attn_layers.{l}."
_CROSS_LAYER = {
    **{f"attn.{x}": f"cross_attn.{x}_proj" for x in "qkvo"},
    **{f"attn.{x}_norm": f"cross_attn.{x}_layer_norm" for x in "qk"},
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    **{f"mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    "attn_gate": "alpha_cross_attn",
    "mlp_gate": "alpha_dense",
}


@multimodal(
    Wrapper(
        types="idefics",
        text_type="idefics_text",
        flat=True,
        outer_keys="alpha_type cross_layer_interval qk_layer_norms use_resampler",
    )
)
def idefics(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    tower = clip_tower(v, 768, 5120, 32, 16, patch=14, activation="gelu")
    sizes = tower.block.image_sizes
    assert isinstance(sizes, FixedImage)
    # without norm_after
    tower = tower._replace(
        block=tower.block.replace(feature_layers=(-1,), image_sizes=sizes.replace(in_text=1))
    )
    names = {path: name.removeprefix("vision_model.") for path, name in tower.names.items()}
    perceiver = (
        ("model.perceiver_resampler.", _perceiver(c, feature_width(tower.block)))
        if c.get("use_resampler", False)
        else None
    )
    crossed = text.extended(
        CrossedDecoder, cross_layers=_cross_layers(c, text, feature_width(tower.block))
    )
    found = assemble(
        crossed,
        vision=("model.vision_model.", counted_tower(tower._replace(names=names))),
        projector=perceiver,
    )
    return found._replace(
        names={
            **found.names,
            **{f"cross_layers.{{l}}.{path}": _CROSS + name for path, name in _CROSS_LAYER.items()},
        }
    )


def _cross_layers(c: Config, text: Decoder, features: Expr) -> Stack:
    """Read the gated layers that attend to images, before every few layers of the text model."""
    d, own = text.width, text.layers[0]
    attn, feed_forward = own.child("attn"), own.child("mlp")
    assert (
        isinstance(attn, Attention)
        and isinstance(text.norm, RMSNorm)
        and isinstance(feed_forward, Block)
    )
    if (kind := c.get("alpha_type", "float")) not in ("float", "vector"):
        raise c.error("alpha_type", f"should be float or vector, not {safe(repr(kind), 40)}")
    gate = weight(1, 1, d, role="scale") if kind == "vector" else weight(1, role="scale")
    q, kv, head_norm = linear(d, d), linear(d, features), rms(attn.head_dim, text.norm.eps)
    norms = dict.fromkeys(("q_norm", "k_norm"), head_norm) if c.get("qk_layer_norms", False) else {}
    layer = CountedBlock(
        parts={
            "attn": CountedBlock(
                kind="attention", parts={"q": q, "k": kv, "v": kv, "o": q, **norms}
            ),
            "attn_norm": text.norm,
            "attn_gate": gate,
            "mlp_norm": text.norm,
            "mlp": feed_forward,
            "mlp_gate": gate,
        },
        kind="attention",
    )
    return repeat(layer, text.layers.n // c.dim("every", "cross_layer_interval", default=1))


def _perceiver(c: Config, d: Expr) -> Part:
    r = part_config(c, "perceiver_config", {})
    r.ignore("use_resampler")
    H, h = (
        r.dim("H_p", "resampler_n_heads", default=16),
        r.dim("h_p", "resampler_head_dim", default=96),
    )
    norm, head_norm, into = layer_norm(d, 1e-5), layer_norm(h, 1e-5), linear(H * h, d)
    attn = CrossAttention(
        q=into, k=into, v=into, o=linear(d, H * h), heads=H, kv_heads=H, head_dim=h
    )
    if r.get("qk_layer_norms_perceiver", False):
        attn = attn.replace(q_norm=head_norm, k_norm=head_norm)
    layer: Modules = {
        "attn_norm": norm,
        "attn": attn,
        "mlp_norm": norm,
        "mlp": mlp(d, 4 * d, "relu"),
        "feature_norm": norm,
    }
    latents = weight(r.dim("n_p", "resampler_n_latents", default=64), d, role="lookup")
    layers = stack(r.dim("L_p", "resampler_depth", default=6), layer)
    return Part(counted({"latents": latents, "layers": layers, "norm": norm}), _PERCEIVER)
