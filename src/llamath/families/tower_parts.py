"""What readers of towers have in common: sizes, layers, which features are read, and how images
are cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.attention_facts import AttentionWindow
from ..core.blocks import MLP, Layer, Norm
from ..core.config import Config
from ..core.constructors import linear, weight
from ..core.expr import Expr, product
from ..core.image_sizes import CroppedImage, FixedImage, NativeImage, TiledImage, UnsupportedImage
from ..core.positions import Rope
from ..core.towers import EncoderAttention, PatchEmbedding, VisionTower
from ..utils.errors import safe
from .multimodal_registry import Tower


def part_config(c: Config, key: str, default: Mapping[str, Any] | None = None) -> Config:
    """Return the nested configuration of a part; an absent one is `default`."""
    if key not in c and default is not None:
        c.defaults_used[key] = default
        c.nested[key] = Config(default, c.source, f"{key}.")
    return c.sub(key)


def check_class(c: Config, *known: str) -> None:
    """Refuse a whole configuration whose `architectures` names another class, with other
    modules.
    """
    classes = c.get("architectures", list(known[:1]))
    if len(classes) != 1 or classes[0] not in known:
        hint = (
            "other classes of this type have other modules; count the checkpoint instead of "
            "its config"
        )
        raise c.error(
            "architectures", f"is {safe(repr(classes), 80)}, not {' or '.join(known)}", hint
        )


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
    return PatchEmbedding(
        weight=weight(d, channels, p, p), bias=weight(d, role="bias") if bias else None
    )


def encoder_attention(
    c: Config,
    d: Expr,
    H: Expr,
    bias: bool,
    rope: Rope | None = None,
    o_bias: bool | None = None,
    letter: str = "h_v",
) -> EncoderAttention:
    """Attention of all patches to all others, with as many keys as queries; the letter is that
    of a head's size.
    """
    if d % H:
        raise c.error(
            "num_attention_heads", f"is {H}, which does not divide the width {d} of the tower"
        )
    h = Expr(letter, d // H)
    q = linear(H * h, d, bias)
    o = linear(d, H * h, bias if o_bias is None else o_bias)
    window = AttentionWindow(causal=False)
    return EncoderAttention(
        q=q, k=q, v=q, o=o, heads=H, kv_heads=H, head_dim=h, window=window, rope=rope
    )


def vit_layer(norm: Norm, attention: EncoderAttention, feed_forward: MLP) -> Layer:
    """A layer of a vision transformer."""
    return Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=feed_forward)


def vit_sizes(
    c: Config, width: int = 768, mlp_width: int = 3072, layers: int = 12, heads: int = 12
) -> tuple[Expr, Expr, Expr, Expr]:
    """Read width, MLP width, layers and heads of a tower; the arguments are the defaults."""
    d, F = (
        c.dim("d_v", "hidden_size|embed_dim", default=width),
        c.dim("F_v", "intermediate_size", default=mlp_width),
    )
    return (
        d,
        F,
        c.dim("L_v", "num_hidden_layers", default=layers),
        c.dim("H_v", "num_attention_heads", default=heads),
    )


def feature_width(tower: VisionTower) -> Expr:
    """Return the width of a tower's features."""
    return product((max(1, len(tower.feature_layers)), tower.patches.weight.shape[0]))


def without_images(tower: Tower, reason: str) -> Tower:
    """Return a tower that is counted, but whose configuration describes no pass of an image."""
    return tower._replace(
        block=tower.block.replace(
            image_sizes=UnsupportedImage(patch=int(tower.block.patch_size), reason=reason)
        )
    )


def with_features(
    c: Config, tower: Tower, default: int | Sequence[int], strategy: str | None = "default"
) -> Tower:
    """Read which hidden states of a tower are its features (`vision_feature_layer`), and, unless
    `strategy` is None, whether its first token, the class, is left out.
    """
    numbers: Any = c.get("vision_feature_layer|vision_feature_layers", None)
    numbers = default if numbers is None else numbers
    numbers = tuple(numbers) if isinstance(numbers, (list, tuple)) else (numbers,)
    states = int(tower.block.layers.n) + 1
    if not numbers or not all(type(x) is int for x in numbers):
        raise c.error(
            "vision_feature_layer",
            f"should name hidden states of a tower with {states - 1} layers, not {numbers!r:.60}",
        )
    if absent := [x for x in numbers if not -states <= x < states]:
        tower = without_images(
            tower,
            f"vision_feature_layer names hidden state {absent[0]} of a "
            f"tower with {states - 1} layers",
        )
    drops = "full" if strategy is None else c.get("vision_feature_select_strategy", strategy)
    if drops not in ("default", "full"):
        raise c.error(
            "vision_feature_select_strategy",
            f"should be default or full, not {safe(repr(drops), 40)}",
        )
    return tower._replace(
        block=tower.block.replace(feature_layers=numbers, drops_class_token=drops == "default")
    )


def with_merged_patches(tower: Tower, side: int) -> Tower:
    """Return a tower for images whose sides are multiples of `side` patches, which become one
    token.
    """
    sizes = tower.block.image_sizes
    if isinstance(sizes, NativeImage):
        tower = tower._replace(
            block=tower.block.replace(image_sizes=sizes.replace(multiple=sizes.patch * side))
        )
    return tower


def with_tiles(
    c: Config, tower: Tower, default: Sequence[Sequence[int]], max_tiles: int | None = None
) -> Tower:
    """Read the resolutions that images are fitted to (`image_grid_pinpoints`), for images cut
    into tiles.
    """
    found: Any = c.get("image_grid_pinpoints", None) or default
    if not all(
        isinstance(x, (list, tuple)) and len(x) == 2 and all(type(y) is int and y > 0 for y in x)
        for x in found
    ):
        raise c.error(
            "image_grid_pinpoints", "should be a list of heights and widths, like [[336, 672]]"
        )
    sizes = tower.block.image_sizes
    if not isinstance(sizes, FixedImage):
        return tower
    resolutions = tuple((int(h), int(w)) for h, w in found)
    tiles = TiledImage(
        patch=sizes.patch,
        size=sizes.size,
        resolutions=resolutions,
        max_tiles=max_tiles,
        only_alone=max_tiles is not None,
    )
    return tower._replace(block=tower.block.replace(image_sizes=tiles))


def with_crops(
    tower: Tower,
    kind: type[CroppedImage] = CroppedImage,
    max_tiles: int = 12,
    thumbnail: bool = True,
) -> Tower:
    """Return a tower for images cut into at most `max_tiles` tiles, as many as processors make
    unless told otherwise.
    """
    sizes = tower.block.image_sizes
    if not isinstance(sizes, FixedImage):
        return tower
    crops = kind(patch=sizes.patch, size=sizes.size, max_tiles=max_tiles, thumbnail=thumbnail)
    return tower._replace(block=tower.block.replace(image_sizes=crops))
