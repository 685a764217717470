"""Moondream 2: SigLIP on an image and overlapping tiles of it, joined, two linear layers, and
modules for places and sizes in images.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr, product
from ...core.image_sizes import OverlappingTiles
from ...core.multimodal import UnreadBlock
from ...core.towers import PatchEmbedding, VisionTower
from ...core.tree import fold, repeat
from ..counted_towers import Modules, counted, counted_tower
from ..moondream import check_unpacked
from ..multimodal_registry import Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, vit_layer

_NAMES = {
    "patches": "patch_emb",
    "positions": "pos_emb",
    "layers.{l}.attn_norm": "blocks.{l}.ln1",
    **{f"layers.{{l}}.attn.{x}": "blocks.{l}.attn.qkv" for x in "qkv"},
    "layers.{l}.attn.o": "blocks.{l}.attn.proj",
    "layers.{l}.mlp_norm": "blocks.{l}.ln2",
    "layers.{l}.mlp.up": "blocks.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "blocks.{l}.mlp.fc2",
    "norm_after": "post_ln",
}
_PROJECTOR = {"linear_1": "vision.proj_mlp.fc1", "linear_2": "vision.proj_mlp.fc2"}
_ACTIVATION = "gelu_pytorch_tanh"


_NOTE = (
    "in Moondream the first 730 tokens attend to each other; here each attends to those before it"
)


@multimodal(Wrapper(types="moondream1", text_type="moondream_text", inner=True, note=_NOTE))
def moondream(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    d, F = v.dim("d_v", "enc_dim", default=1152), v.dim("F_v", "enc_ff_dim", default=4304)
    L, H = v.dim("L_v", "enc_n_layers", default=27), v.dim("H_v", "enc_n_heads", default=16)
    p, s = v.dim("p_v", "enc_patch_size", default=14), v.dim("s_v", "crop_size", default=378)
    out, inner = (
        v.dim("d_p", "proj_out_dim", default=2048),
        v.dim("F_p", "proj_inner_dim", default=8192),
    )
    if out != text.width:
        raise v.error("proj_out_dim", f"is {out}, and the text model reads {text.width}")
    margin, norm = v.get("overlap_margin", 4), layer_norm(d, 1e-5)
    tower = VisionTower(
        patches=PatchEmbedding(
            weight=weight(d, product((p, p, v.dim("C_v", "in_channels", default=Expr.const(3))))),
            bias=weight(d, role="bias"),
        ),
        positions=weight(1, Expr("N_v", (s // p) ** 2), d, role="lookup"),
        layers=repeat(
            vit_layer(
                norm, encoder_attention(v, d, H, bias=True), mlp(d, F, _ACTIVATION, bias=True)
            ),
            L,
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=OverlappingTiles(
            patch=int(p), size=int(s), margin=margin, most=v.get("max_crops", 12)
        ),
    )
    joined = linear(inner, product((2, d)), True)
    modules: Modules = {"linear_1": joined, "linear_2": linear(out, inner, True)}
    unread = UnreadBlock(parts=counted(_region(part_config(c, "region_config", {}))).parts)
    names = _PROJECTOR | {f"unread.{x.pattern}": x.pattern for x in fold(unread)}
    projector = Part(counted({**modules, "unread": unread}), names)
    return assemble(
        text,
        vision=("model.vision.", counted_tower(Tower(tower, _NAMES))),
        projector=("model.", projector),
    )


def _region(c: Config) -> Modules:
    """Read what encodes and decodes places and sizes in images."""
    check_unpacked(c)
    d, inner = c.get("dim", 2048), c.get("inner_dim", 8192)
    place, size = c.get("coord_feat_dim", 256), c.get("size_feat_dim", 512)
    modules: Modules = {
        "coord_encoder": linear(d, place, True),
        "coord_decoder.fc1": linear(inner, d, True),
        "coord_decoder.fc2": linear(c.get("coord_out_dim", 1024), inner, True),
        "size_encoder": linear(d, size, True),
        "size_decoder.fc1": linear(inner, d, True),
        "size_decoder.fc2": linear(c.get("size_out_dim", 2048), inner, True),
        "coord_features": weight(1, place // 2, role="lookup"),
        "size_features": weight(2, size // 2, role="lookup"),
    }
    return {f"region.{name}": x for name, x in modules.items()}
