"""DaViT, the vision tower of Florence-2: stages of convolutions, attention in windows, and attention among channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.blocks import Linear
from ..core.config import Config
from ..core.constructors import layer_norm, linear, mlp, weight
from ..core.extensions.davit import (
    ChannelAttention,
    ConvolutionEmbedding,
    DavitBlock,
    DavitHalf,
    DavitStage,
    DavitTower,
    PositionedProjector,
    WindowAttention,
)
from ..core.image_sizes import FixedImage
from ..core.towers import ChannelConvolution
from ..core.tree import Block, Stack, Weight, repeat
from .counted_towers import Modules, counted, table

IMAGE_SIDE = 768
"""The pixels of a side of every image, as the published processors resize it."""


def davit(v: Config, computes: bool) -> DavitTower:
    """Return the tower of a vision configuration. What no shape depends on is read only if it `computes`."""
    widths, bias, ratio = _list(v, "embed_dim|dim_embed", [128, 256, 512, 1024]), v.get("qkv_bias", True), v.get("mlp_ratio", 4.0)
    depths, sides = _list(v, "depths", [1, 1, 9, 1]), _list(v, "patch_size", [7, 3, 3, 3])
    before = _list(v, "patch_prenorm", [False, True, True, True], bool)
    n = len(widths)
    if not n == len(depths) == len(sides) == len(before):
        raise v.error("depths", f"should have as many stages as embed_dim, {n}, like patch_size and patch_prenorm")
    v.ignore("drop_path_rate", "initializer_range", "enable_checkpoint")
    v.ignore("activation_function", "num_groups", "num_heads", "patch_padding", "patch_stride", "window_size", "image_feature_source")
    strides, heads, groups, window, activation = [1] * n, [1] * n, [1] * n, 1, "gelu"
    if computes:
        _check(v, sides)
        window, activation = int(v.dim("w_v", "window_size", default=12)), v.activation("activation_function", "gelu")
        strides = _stages(v, "patch_stride", [4, 2, 2, 2], n)
        heads, groups = (_divisors(v, key, widths) for key in ("num_heads", "num_groups"))
    into = [v.get("in_channels", 3), *widths]
    stages: list[dict[str, Any]] = []
    for i, d in enumerate(widths):
        norm = layer_norm(into[i] if before[i] else d, 1e-5)
        patches = ConvolutionEmbedding(
            weight=weight(d, into[i], sides[i], sides[i]),
            bias=weight(d, role="bias"),
            input_norm=norm if before[i] else None,
            norm=None if before[i] else norm,
            stride=strides[i],
        )
        qkv, proj = linear(3 * d, d, bias), linear(d, d, True)
        spatial = WindowAttention(qkv=qkv, proj=proj, width=d, head_dim=d // heads[i], window=window)
        channel = ChannelAttention(qkv=qkv, proj=proj, width=d, head_dim=d // groups[i])
        taps, fed = (
            ChannelConvolution(weight=weight(d, 1, 3, 3), bias=weight(d, role="bias")),
            mlp(d, int(d * ratio), activation, bias=True),
        )
        halves = (
            DavitHalf(conv1=taps, norm1=layer_norm(d, 1e-5), attn=attn, conv2=taps, norm2=layer_norm(d, 1e-5), mlp=fed)
            for attn in (spatial, channel)
        )
        stages.append({"patches": patches, "layers": repeat(DavitBlock(spatial=next(halves), channel=next(halves)), depths[i])})
    later: DavitStage | None = None
    for stage in reversed(stages[1:]):
        later = DavitStage(**stage, later=later)
    return DavitTower(**stages[0], later=later, patch_size=1, image_sizes=FixedImage(patch=1, size=IMAGE_SIDE))


def davit_projector(v: Config, tower: DavitTower, computes: bool) -> PositionedProjector:
    """Return the projector: positions of patches and frames, and a linear layer."""
    stages = list(_stages_of(tower))
    out, d = v.dim("d_p", "projection_dim", default=1024), int(stages[-1].patches.weight.shape[0])
    places = v.sub("image_pos_embed").get("max_pos_embeddings", v.get("max_position_embeddings", 50))
    frames = v.sub("visual_temporal_embedding").get("max_temporal_embeddings", v.get("max_temporal_embeddings", 100))
    v.sub("image_pos_embed").ignore("type")
    v.sub("visual_temporal_embedding").ignore("type")
    side = IMAGE_SIDE
    for stage in stages:
        side = -(-side // stage.patches.stride)
    if computes and side > places:
        raise v.error("image_pos_embed", f"should have a row for each of {side} rows of patches, not {places}")
    return PositionedProjector(
        rows=weight(places, d // 2, role="lookup"),
        columns=weight(places, d - d // 2, role="lookup"),
        frames=weight(frames, d, role="lookup").replace(buffer=True),
        linear=linear(out, d),
        norm=layer_norm(out, 1e-5),
        side=side,
    )


def davit_modules(tower: DavitTower) -> Modules:
    """Return the modules of its weights by their names in files."""
    modules: dict[str, Weight | Block | Stack | None] = {}
    for i, stage in enumerate(_stages_of(tower)):
        modules[f"convs.{i}.conv"] = Linear(weight=stage.patches.weight, bias=stage.patches.bias)
        modules[f"convs.{i}.norm"] = stage.patches.input_norm or stage.patches.norm
    for i, stage in enumerate(_stages_of(tower)):
        block = stage.layers[0]
        assert isinstance(block, DavitBlock)
        halves = {"spatial_block.": (block.spatial, "window_attn"), "channel_block.": (block.channel, "channel_attn")}
        names = {prefix + name: x for prefix, (half, attn) in halves.items() for name, x in _half_modules(half, attn).items()}
        modules[f"blocks.{i}"] = repeat(counted(names), stage.layers.n)
    return modules


def projector_modules(projector: PositionedProjector, transposed: bool) -> Modules:
    """Return the modules of its weights by their names in files; some store the linear layer transposed."""
    out, d = projector.linear.weight.shape
    return {
        "image_projection.weight": weight(d, out) if transposed else projector.linear.weight,
        "image_proj_norm": projector.norm,
        "image_position_embed.row_embeddings": table(*projector.rows.shape),
        "image_position_embed.column_embeddings": table(*projector.columns.shape),
        "visual_temporal_embed.pos_idx_to_embed": projector.frames,
    }


def _half_modules(half: DavitHalf, attention: str) -> Modules:
    attn = half.attn
    assert isinstance(attn, WindowAttention | ChannelAttention)
    return {
        "conv1": half.conv1,
        "norm1": half.norm1,
        f"{attention}.qkv": attn.qkv,
        f"{attention}.proj": attn.proj,
        "conv2": half.conv2,
        "norm2": half.norm2,
        "ffn.fc1": half.mlp.up,
        "ffn.fc2": half.mlp.down,
    }


def _stages_of(tower: DavitTower) -> list[DavitTower | DavitStage]:
    stages: list[DavitTower | DavitStage] = [tower]
    while (later := stages[-1].later) is not None:
        stages.append(later)
    return stages


def _check(v: Config, sides: Sequence[int]) -> None:
    """Refuse convolutions whose padding is not half of the kernel, and other pooling of the features than the published one."""
    padding = _stages(v, "patch_padding", [3, 1, 1, 1], len(sides))
    if any(side % 2 == 0 or pad != side // 2 for side, pad in zip(sides, padding, strict=True)):
        raise v.error("patch_padding", "should be half of patch_size, rounded down, of an odd patch_size")
    if (found := v.get("image_feature_source", _FEATURES)) != _FEATURES:
        raise v.error("image_feature_source", f"should be {_FEATURES}, whose computation is known, not {found!r:.60}")


_FEATURES = ["spatial_avg_pool", "temporal_avg_pool"]


def _divisors(v: Config, key: str, widths: Sequence[int]) -> list[int]:
    found = _stages(v, key, [4, 8, 16, 32], len(widths))
    if any(not n or d % n for n, d in zip(found, widths, strict=True)):
        raise v.error(key, f"should divide the widths of the stages, {list(widths)}, not {found}")
    return found


def _stages(v: Config, key: str, default: Sequence[int], n: int) -> list[int]:
    if len(found := _list(v, key, default)) != n:
        raise v.error(key, f"should have as many stages as embed_dim, {n}, not {len(found)}")
    return found


def _list(c: Config, keys: str, default: Sequence[Any], kind: type[int] = int) -> list[Any]:
    """Read a list with an entry for each stage."""
    found: Any = c.get(keys, default)
    if not isinstance(found, (list, tuple)) or not found or not all(type(x) is kind and x >= 0 for x in found):
        raise c.error(keys.split("|")[0], f"should list a {kind.__name__} for each stage, not {found!r:.60}")
    return list(found)
