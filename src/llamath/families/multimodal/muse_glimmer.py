"""Muse Glimmer: attention in windows in most layers of the tower, squares of patches joined,
three linear layers and a plain norm.
"""

from __future__ import annotations

from ...core.blocks import Decoder, RMSNorm
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr, product
from ...core.image_sizes import ClosestShape
from ...core.positions import AxialRope
from ...core.towers import AdapterProjector, PatchEmbedding, VisionTower
from ...core.tree import sequence
from ..layers_shared import listed_layers
from ..multimodal_registry import (
    LANGUAGE_MODEL,
    Assembly,
    Part,
    Tower,
    Wrapper,
    assemble,
    multimodal,
)
from ..tower_parts import encoder_attention, part_config, side, vit_layer, vit_sizes, without_images

_NAMES = {
    "patches": "patch_embedder.patch_embedding",
    "positions": "patch_embedder.position_embedding_table.weight",
    "norm_before": "ln_pre",
    "layers.{l}.attn_norm": "layers.{l}.norm1",
    **{f"layers.{{l}}.attn.{x}": f"layers.{{l}}.attn.{x}_proj" for x in "qkv"},
    "layers.{l}.attn.o": "layers.{l}.attn.proj",
    "layers.{l}.mlp_norm": "layers.{l}.norm2",
    "layers.{l}.mlp.up": "layers.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "layers.{l}.mlp.fc2",
    "norm_after": "ln_post",
}
_PROJECTOR = {
    "linear_1": "vision_adapter.fc1",
    "linear_2": "vision_adapter.fc2",
    "linear": "vision_projection",
}
_WINDOW, _FULL = "window_attention", "full_attention"


@multimodal(
    Wrapper(types="muse_glimmer", text_type="muse_glimmer_text", prefix=LANGUAGE_MODEL, tied=False)
)
def muse_glimmer(c: Config, text: Decoder) -> Assembly:
    return assemble(text, **glimmer_parts(c, text))


def glimmer_parts(c: Config, text: Decoder) -> dict[str, tuple[str, Part | Tower]]:
    """Read the tower and the projector."""
    v = part_config(c, "vision_config", {})
    v.ignore("max_position_embeddings")
    d, F, L, H = vit_sizes(v, width=1536, mlp_width=8960, layers=50, heads=16)
    p, k, times = (
        side(v, "p_v", "patch_size", 14),
        v.get("merge_size", 2),
        v.dim("t_v", "patch_temporal", default=Expr.const(2)),
    )
    rows, columns = v.get("pos_emb_height", 32), v.get("pos_emb_width", 32)
    if rows != columns:
        raise v.error(
            "pos_emb_width",
            f"is {columns}, unlike the height {rows}",
            "only square grids of positions are known",
        )
    theta, eps = v.sub("rope_parameters").get("rope_theta", 1e4), v.get("layer_norm_eps", 1e-5)
    v.sub("rope_parameters").ignore("rope_type")
    rope = AxialRope(theta=theta, dim=d // H, by_halves=True, columns_first=True, offset=1)
    norm, attention = layer_norm(d, 1e-5), encoder_attention(v, d, H, bias=True, rope=rope)
    feed_forward = mlp(d, F, v.activation("hidden_act", "gelu"), bias=True)
    kinds = {
        _FULL: vit_layer(norm, attention, feed_forward),
        _WINDOW: vit_layer(norm, attention.replace(window_side=rows), feed_forward),
    }
    n = int(L)
    types = v.get(
        "layer_types",
        [_FULL if (i + 1) % 4 == 0 or i == n - 1 else _WINDOW for i in listed_layers(v, n)],
    )
    if len(types) != n or not all(x in kinds for x in types):
        raise v.error("layer_types", f"should be a list of {n} words, {_FULL} or {_WINDOW}")
    outer = layer_norm(d, eps)
    tower = VisionTower(
        patches=PatchEmbedding(weight=weight(d, product((times, Expr("C_v", 3), p, p)))),
        positions=weight(Expr("N_v", rows * columns), d, role="lookup"),
        resizing="zeros",
        norm_before=outer,
        layers=sequence((kinds[x] for x in types), L),
        norm_after=outer,
        patch_size=p,
        image_sizes=ClosestShape(patch=p, multiple=p * k, most=4096),
    )
    joined, inner = product((k, k, d)), c.dim("F_p", "projector_hidden_size", default=4096)
    projector = AdapterProjector(
        linear_1=linear(inner, width := c.dim("D_v", "out_hidden_size", default=6144)),
        linear_2=linear(inner, inner),
        linear=linear(text.width, inner),
        norm=RMSNorm(eps=text.norm.eps if text.norm is not None else 1e-5),
        activation=c.activation("projector_hidden_act", "gelu"),
        merge=k,
        by_channel=True,
    )
    vision = Tower(tower, _NAMES)
    if width != joined:
        vision = without_images(
            vision, f"out_hidden_size is {width}, but squares of patches have {joined} features"
        )
    return {
        "vision": ("model.vision_tower.", vision),
        "projector": ("model.", Part(projector, _PROJECTOR)),
    }
