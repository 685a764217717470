"""The reader of the tower of DeepSeek-OCR and Unlimited OCR: SAM's encoder, two convolutions,
and CLIP on their result.
"""

from __future__ import annotations

from ..core.blocks import Decoder, Linear
from ..core.config import Config
from ..core.constructors import layer_norm, linear, mlp, weight
from ..core.expr import Expr
from ..core.image_sizes import WholeAndCrops
from ..core.multimodal import CountedBlock, CountedTower
from ..core.towers import LinearProjector
from ..core.tree import Block, repeat
from .counted_towers import Modules, conv, counted
from .multimodal_registry import Names, Part
from .sam_tower import ORIGINAL_SAM_NAMES
from .tower_parts import encoder_attention, vit_layer

_CLIP = "vision_model."
_LAYER = f"{_CLIP}transformer.layers.{{l}}."
DEEP_NAMES: Names = {
    **{path: f"sam_model.{name}" for path, name in ORIGINAL_SAM_NAMES.items()},
    "first": "sam_model.net_2",
    "second": "sam_model.net_3",
    "encoder.class_token": f"{_CLIP}embeddings.class_embedding",
    "encoder.positions": f"{_CLIP}embeddings.position_embedding.weight",
    "encoder.norm_before": f"{_CLIP}pre_layrnorm",
    "encoder.layers.{l}.attn_norm": f"{_LAYER}layer_norm1",
    **{f"encoder.layers.{{l}}.attn.{x}": f"{_LAYER}self_attn.qkv_proj" for x in "qkv"},
    "encoder.layers.{l}.attn.o": f"{_LAYER}self_attn.out_proj",
    "encoder.layers.{l}.mlp_norm": f"{_LAYER}layer_norm2",
    "encoder.layers.{l}.mlp.up": f"{_LAYER}mlp.fc1",
    "encoder.layers.{l}.mlp.down": f"{_LAYER}mlp.fc2",
    "encoder.unread.patch_embedding": f"{_CLIP}embeddings.patch_embedding",
}
_PROJECTOR: Names = {
    "linear": "projector.layers",
    "newline": "image_newline",
    "separator": "view_seperator",
}
_TILE = 640
"""The side of a tile in the code of both models."""


def feature_encoder(
    c: Config, sizes: tuple[Expr, Expr, Expr, Expr], places: int, unread: Block | None = None
) -> CountedBlock:
    """Return CLIP's layers of these sizes, which read the features of another tower; `unread`
    are its patches.
    """
    d, F, L, H = sizes
    norm, activation = (
        layer_norm(d, c.get("layer_norm_eps", 1e-5)),
        c.activation("hidden_act", "quick_gelu"),
    )
    modules: Modules = {
        "class_token": weight(d, role="scale"),
        "positions": weight(Expr("N_v", places + 1), d, role="lookup"),
        "norm_before": norm,
        "layers": repeat(
            vit_layer(
                norm, encoder_attention(c, d, H, bias=True), mlp(d, F, activation, bias=True)
            ),
            L,
        ),
        "unread": unread,
    }
    return counted(modules)


def deep_tower(
    c: Config, sam: CountedTower, encoder: CountedBlock, d: Expr, max_tiles: int
) -> CountedTower:
    """Return the tower of both, with the convolutions between them, for images cut into at most
    so many tiles; `d` is CLIP's width.
    """
    channels = c.get("downsample_channels", [512, 1024])
    if len(channels) != 2 or channels[1] != d:
        raise c.error(
            "downsample_channels",
            f"should be two widths, the second that of CLIP, {d}, not {channels!r:.40}",
        )
    neck = sam.parts["neck"]
    assert isinstance(neck, CountedBlock)
    mix = neck.parts["mix"]
    assert isinstance(mix, Linear)
    size = sam.image_sizes.grid(1, 1).rows * int(sam.patch_size)
    more = {
        "first": conv(channels[0], mix.weight.shape[0], 3, 3, bias=False),
        "second": conv(d, channels[0], 3, 3, bias=False),
        "encoder": encoder,
    }
    sizes = WholeAndCrops(patch=int(sam.patch_size), size=size, tile=_TILE, max_tiles=max_tiles)
    return sam.replace(parts={**sam.parts, **more}, image_sizes=sizes, merge=4)


def deep_projector(d: Expr, text: Decoder) -> Part:
    """Return the linear layer on the features of both encoders, with the learned tokens after
    rows and images; `d` is CLIP's width.
    """
    token = weight(text.width, role="scale")
    return Part(
        LinearProjector(linear=linear(text.width, 2 * d, True), newline=token, separator=token),
        _PROJECTOR,
    )
