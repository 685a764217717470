"""The modules of DaViT, the vision tower of Florence-2, which are counted: convolutions, attention
in windows, and attention among channels (arXiv:2204.03645).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..core.config import Config
from ..core.constructors import layer_norm, linear, weight
from ..core.image_sizes import FixedImage, UnsupportedImage
from ..core.multimodal import CountedTower
from ..core.tree import Block, Stack, Weight
from .counted_towers import Modules, conv, counted, stack, table

IMAGE_SIDE = 768
"""The pixels of a side of every image, as the published processors resize it."""
_FEATURES = ["spatial_avg_pool", "temporal_avg_pool"]


def davit(v: Config) -> CountedTower:
    """Return the tower of a vision configuration; its projector makes a token of each patch of
    the last stage, and one of all of them.
    """
    widths, bias, ratio = _widths(v), v.get("qkv_bias", True), v.get("mlp_ratio", 4.0)
    depths, sides = _list(v, "depths", [1, 1, 9, 1]), _list(v, "patch_size", [7, 3, 3, 3])
    before = _list(v, "patch_prenorm", [False, True, True, True], bool)
    if not len(widths) == len(depths) == len(sides) == len(before):
        raise v.error(
            "depths",
            f"should have as many stages as embed_dim, {len(widths)}, like "
            "patch_size and patch_prenorm",
        )
    v.ignore("drop_path_rate", "initializer_range", "enable_checkpoint")
    v.ignore("activation_function", "num_groups", "num_heads", "patch_padding", "window_size")
    into = [v.get("in_channels", 3), *widths]
    modules: dict[str, Weight | Block | Stack | None] = {}
    for i, d in enumerate(widths):
        modules[f"convs.{i}.conv"] = conv(d, into[i], sides[i], sides[i])
        modules[f"convs.{i}.norm"] = layer_norm(into[i] if before[i] else d, 1e-5)
    for i, d in enumerate(widths):
        halves = {
            f"{kind}_block.{name}": x
            for kind, attention in (("spatial", "window_attn"), ("channel", "channel_attn"))
            for name, x in _half(d, int(d * ratio), bias, attention).items()
        }
        modules[f"blocks.{i}"] = stack(depths[i], halves)
    parts, strides = counted(modules).parts, _list(v, "patch_stride", [4, 2, 2, 2])
    if (
        len(strides) != len(widths)
        or not all(strides)
        or v.get("image_feature_source", _FEATURES) != _FEATURES
    ):
        reason = "patch_stride or image_feature_source is not that of published models"
        return CountedTower(
            parts=parts, patch_size=1, image_sizes=UnsupportedImage(patch=1, reason=reason)
        )
    side = IMAGE_SIDE
    for x in strides:
        side = -(-side // x)
    patch = prod(strides)
    return CountedTower(
        parts=parts,
        patch_size=patch,
        image_sizes=FixedImage(patch=patch, size=IMAGE_SIDE),
        per_tile=side * side + 1,
    )


def davit_projector(v: Config, transposed: bool) -> Modules:
    """Return the projector: positions of patches and frames, and a linear layer, which some
    files store transposed.
    """
    out, d = v.dim("d_p", "projection_dim", default=1024), _widths(v)[-1]
    places = v.sub("image_pos_embed").get(
        "max_pos_embeddings", v.get("max_position_embeddings", 50)
    )
    frames = v.sub("visual_temporal_embedding").get(
        "max_temporal_embeddings", v.get("max_temporal_embeddings", 100)
    )
    v.sub("image_pos_embed").ignore("type")
    v.sub("visual_temporal_embedding").ignore("type")
    return {
        "image_projection.weight": weight(d, out) if transposed else weight(out, d),
        "image_proj_norm": layer_norm(out, 1e-5),
        "image_position_embed.row_embeddings": table(places, d // 2),
        "image_position_embed.column_embeddings": table(places, d - d // 2),
        "visual_temporal_embed.pos_idx_to_embed": weight(frames, d, role="lookup").replace(
            buffer=True
        ),
    }


def _half(d: int, inner: int, bias: bool, attention: str) -> Modules:
    taps, norm = conv(d, 1, 3, 3), layer_norm(d, 1e-5)
    return {
        "conv1": taps,
        "norm1": norm,
        f"{attention}.qkv": linear(3 * d, d, bias),
        f"{attention}.proj": linear(d, d, True),
        "conv2": taps,
        "norm2": norm,
        "ffn.fc1": linear(inner, d, True),
        "ffn.fc2": linear(d, inner, True),
    }


def _widths(v: Config) -> list[Any]:
    return _list(v, "embed_dim|dim_embed", [128, 256, 512, 1024])


def _list(c: Config, keys: str, default: Sequence[Any], kind: type[int] = int) -> list[Any]:
    """Read a list with an entry for each stage."""
    found: Any = c.get(keys, default)
    if (
        not isinstance(found, (list, tuple))
        or not found
        or not all(type(x) is kind and x >= 0 for x in found)
    ):
        raise c.error(
            keys.split("|")[0], f"should list a {kind.__name__} for each stage, not {found!r:.60}"
        )
    return list(found)
