"""Moondream 2 of 2025: Phi-1.5, SigLIP on overlapping crops, and an encoder and a decoder of places and sizes in images.

Its config.json is empty but for its class: the sizes are those of the code that is shipped with it, unless `config` gives others.
"""

from __future__ import annotations

from ..core.config import Config
from ..core.constructors import layer_norm, linear, weight
from ..core.expr import product
from ..core.multimodal import CountedBlock
from ..core.tree import repeat
from ..utils.errors import UnknownModel, safe
from .counted_towers import Modules, counted

_CLASS = "HfMoondream"


def moondream(c: Config) -> tuple[CountedBlock, dict[str, str]]:
    """Return the modules under their names in files."""
    classes: list[str] = c.get("architectures", [])
    if classes != [_CLASS]:
        found = f"{c.source}: the architectures of this moondream1 model are {safe(repr(classes), 60)}, not {_CLASS}"
        raise UnknownModel(found, hint="the releases of 2024 have other towers; count the checkpoint instead of its config")
    sizes = c.sub("config")
    sizes.ignore("tokenizer", "skills")
    modules: Modules = {
        **{f"model.vision.{name}": x for name, x in _vision(sizes.sub("vision")).items()},
        **{f"model.text.{name}": x for name, x in _text(sizes.sub("text")).items()},
        **{f"model.region.{name}": x for name, x in _region(sizes.sub("region")).items()},
    }
    return counted(modules), {}


def _text(c: Config) -> Modules:
    c.ignore("max_context", "prefix_attn", "group_size")
    d, V, L = c.get("dim", 2048), c.get("vocab_size", 51_200), c.get("n_layers", 24)
    H, F = c.get("n_heads", 32), c.get("ff_dim", 4 * d)
    qkv = d + 2 * d // H * c.get("n_kv_heads", H)
    layer: Modules = {
        "ln": layer_norm(d, 1e-5),
        "attn.qkv": linear(qkv, d, True),
        "attn.proj": linear(d, d, True),
        "mlp.fc1": linear(F, d, True),
        "mlp.fc2": linear(d, F, True),
    }
    return {
        "wte": weight(V, d, role="lookup"),
        "blocks": repeat(counted(layer), L),
        "post_ln": layer_norm(d, 1e-5),
        "lm_head": linear(V, d, True),
    }


def _vision(c: Config) -> Modules:
    c.ignore("enc_n_heads", "max_crops", "overlap_margin")
    d, F, L = c.get("enc_dim", 1152), c.get("enc_ff_dim", 4304), c.get("enc_n_layers", 27)
    p, s, out, inner = c.get("enc_patch_size", 14), c.get("crop_size", 378), c.get("proj_out_dim", 2048), c.get("proj_inner_dim", 8192)
    norm = layer_norm(d, 1e-5)
    layer: Modules = {
        "ln1": norm,
        "attn.qkv": linear(3 * d, d, True),
        "attn.proj": linear(d, d, True),
        "ln2": norm,
        "mlp.fc1": linear(F, d, True),
        "mlp.fc2": linear(d, F, True),
    }
    return {
        "patch_emb": linear(d, product((p, p, c.get("in_channels", 3))), True),
        "pos_emb": weight(1, (s // p) ** 2, d, role="lookup"),
        "blocks": repeat(counted(layer), L),
        "post_ln": norm,
        "proj_mlp.fc1": linear(inner, 2 * d, True),
        "proj_mlp.fc2": linear(out, inner, True),
    }


def _region(c: Config) -> Modules:
    c.ignore("group_size")
    d, inner = c.get("dim", 2048), c.get("inner_dim", 8192)
    place, size = c.get("coord_feat_dim", 256), c.get("size_feat_dim", 512)
    return {
        "coord_encoder": linear(d, place, True),
        "coord_decoder.fc1": linear(inner, d, True),
        "coord_decoder.fc2": linear(c.get("coord_out_dim", 1024), inner, True),
        "size_encoder": linear(d, size, True),
        "size_decoder.fc1": linear(inner, d, True),
        "size_decoder.fc2": linear(c.get("size_out_dim", 2048), inner, True),
        "coord_features": weight(1, place // 2, role="lookup"),
        "size_features": weight(2, size // 2, role="lookup"),
    }
