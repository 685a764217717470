"""Florence-2: DaViT, attention in windows and among channels by turns, before BART, an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.config import Config
from ..core.constructors import layer_norm, linear, weight
from ..core.expr import Expr
from ..core.multimodal import CountedBlock
from ..core.tree import Weight, repeat
from .counted_towers import Modules, conv, counted, table
from .towers import part_config

_SHARED = "model.language_model.shared.weight"
_POSITIONS_BEFORE = 2
"""Rows of BART's positions that no token has."""
_PUBLISHED = {
    ".conv.": ".proj.",
    ".conv1.": ".conv1.fn.dw.",
    ".conv2.": ".conv2.fn.dw.",
    "spatial_block.norm1": "spatial_block.window_attn.norm",
    "channel_block.norm1": "channel_block.channel_attn.norm",
    "_attn.qkv": "_attn.fn.qkv",
    "_attn.proj": "_attn.fn.proj",
    ".norm2": ".ffn.norm",
    ".ffn.fc": ".ffn.fn.net.fc",
    "image_projection.weight": "image_projection",
    "image_position_embed": "image_pos_embed",
    "model.multi_modal_projector.": "",
    "model.vision_tower": "vision_tower",
    "model.language_model.": "language_model.model.",
    "lm_head": "language_model.lm_head",
}
"""Parts of names in transformers → in the files of Microsoft, whose code is shipped with them; in order."""


def florence2(c: Config) -> tuple[CountedBlock, dict[str, str]]:
    """Return the modules, and the parts of names that differ in the files of this configuration."""
    v, t = part_config(c, "vision_config", {}), part_config(c, "text_config", {})
    original = "dim_embed" in v or v.get("model_type", "") == "davit"
    widths, bias, ratio = _list(v, "embed_dim|dim_embed", [128, 256, 512, 1024]), v.get("qkv_bias", True), v.get("mlp_ratio", 4.0)
    depths, sides = _list(v, "depths", [1, 1, 9, 1]), _list(v, "patch_size", [7, 3, 3, 3])
    before = _list(v, "patch_prenorm", [False, True, True, True], bool)
    if not len(widths) == len(depths) == len(sides) == len(before):
        raise v.error("depths", f"should have as many stages as embed_dim, {len(widths)}, like patch_size and patch_prenorm")
    v.ignore("activation_function", "drop_path_rate", "initializer_range", "num_groups", "num_heads", "patch_padding", "patch_stride")
    v.ignore("window_size", "image_feature_source", "enable_checkpoint")
    c.ignore("projection_dim", "vocab_size", "image_token_id", "is_encoder_decoder")
    into = [v.get("in_channels", 3), *widths]
    tower: dict[str, Any] = {}
    for i, (d, side) in enumerate(zip(widths, sides, strict=True)):
        tower[f"vision_tower.convs.{i}.conv"] = conv(d, into[i], side, side)
        tower[f"vision_tower.convs.{i}.norm"] = layer_norm(into[i] if before[i] else d, 1e-5)
    for i, (d, depth) in enumerate(zip(widths, depths, strict=True)):
        tower[f"vision_tower.blocks.{i}"] = repeat(_davit_block(d, int(d * ratio), bias), depth)
    tied = c.get("tie_word_embeddings", True)
    rows, text = _bart(t)
    modules: Modules = {
        **{f"model.{name}": x for name, x in tower.items()},
        **{f"model.multi_modal_projector.{name}": x for name, x in _projector(v, widths[-1], original).items()},
        **{f"model.language_model.{name}": x for name, x in text.items()},
        "lm_head.weight": rows.replace(tied=_SHARED) if tied else rows,
        "language_model.final_logits_bias": weight(1, rows.shape[0], role="bias").replace(buffer=True) if original else None,
    }
    return counted(modules), _PUBLISHED if original else {}


def _list(c: Config, keys: str, default: Sequence[Any], kind: type[int] = int) -> list[Any]:
    """Read a list with an entry for each stage."""
    found: Any = c.get(keys, default)
    if not isinstance(found, (list, tuple)) or not found or not all(type(x) is kind and x >= 0 for x in found):
        raise c.error(keys.split("|")[0], f"should list a {kind.__name__} for each stage, not {found!r:.60}")
    return list(found)


def _davit_block(d: int, F: int, bias: bool) -> CountedBlock:
    """Attention in windows, then among groups of channels, each with two convolutions of single channels and an MLP."""
    halves = {"spatial_block": "window_attn", "channel_block": "channel_attn"}
    return counted({f"{half}.{name}": x for half, attention in halves.items() for name, x in _davit_half(d, F, bias, attention).items()})


def _davit_half(d: int, F: int, bias: bool, attention: str) -> Modules:
    norm, taps = layer_norm(d, 1e-5), conv(d, 1, 3, 3)
    return {
        "conv1": taps,
        "norm1": norm,
        f"{attention}.qkv": linear(3 * d, d, bias),
        f"{attention}.proj": linear(d, d, True),
        "conv2": taps,
        "norm2": norm,
        "ffn.fc1": linear(F, d, True),
        "ffn.fc2": linear(d, F, True),
    }


def _projector(v: Config, d: int, original: bool) -> Modules:
    """Read the positions of patches and frames, and the linear layer, which Microsoft stores transposed."""
    out = v.dim("d_p", "projection_dim", default=1024)
    places = v.sub("image_pos_embed").get("max_pos_embeddings", v.get("max_position_embeddings", 50))
    frames = v.sub("visual_temporal_embedding").get("max_temporal_embeddings", v.get("max_temporal_embeddings", 100))
    v.sub("image_pos_embed").ignore("type")
    v.sub("visual_temporal_embedding").ignore("type")
    return {
        "image_projection.weight": weight(d, out) if original else weight(out, d),
        "image_proj_norm": layer_norm(out, 1e-5),
        "image_position_embed.row_embeddings": table(places, d // 2),
        "image_position_embed.column_embeddings": table(places, d - d // 2),
        "visual_temporal_embed.pos_idx_to_embed": weight(frames, d, role="lookup").replace(buffer=True),
    }


def _bart(t: Config) -> tuple[Weight, Modules]:
    """Read BART: its embedding, and its encoder and decoder, which share it."""
    t.ignore(
        "activation_dropout", "activation_function", "attention_dropout", "classifier_dropout", "decoder_layerdrop", "encoder_layerdrop"
    )
    t.ignore("decoder_attention_heads", "encoder_attention_heads", "init_std", "scale_embedding", "dropout")
    t.ignore("num_hidden_layers", "is_decoder", "model_type", "num_beams")
    d, V = t.dim("d", "d_model", default=1024), t.dim("V", "vocab_size", default=50_265)
    rows, norm = weight(V, d, role="lookup"), layer_norm(d, 1e-5)
    own = rows.replace(tied=_SHARED) if t.get("tie_word_embeddings", True) else rows
    places = table(Expr.const(t.dim("C", "max_position_embeddings", default=1024) + _POSITIONS_BEFORE), d)
    modules: dict[str, Any] = {"shared.weight": rows}
    for name in ("encoder", "decoder"):
        F = t.dim("F", f"{name}_ffn_dim", default=4096)
        layer: Modules = {
            **_attention("self_attn", d),
            **(_attention("encoder_attn", d) if name == "decoder" else {}),
            "fc1": linear(F, d, True),
            "fc2": linear(d, F, True),
            "final_layer_norm": norm,
        }
        modules |= {
            f"{name}.embed_tokens.weight": own,
            f"{name}.embed_positions": places,
            f"{name}.layers": repeat(counted(layer), t.dim("L", f"{name}_layers", default=12)),
            f"{name}.layernorm_embedding": norm,
        }
    return rows, modules


def _attention(name: str, d: Expr) -> Modules:
    return {**{f"{name}.{x}_proj": linear(d, d, True) for x in ("k", "v", "q", "out")}, f"{name}_layer_norm": layer_norm(d, 1e-5)}
