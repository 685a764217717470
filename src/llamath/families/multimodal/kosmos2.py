"""Kosmos-2: CLIP, all of whose features, the class token's too, learned queries read at once."""

from __future__ import annotations

from ...core.blocks import Attention, Decoder
from ...core.config import Config
from ...core.constructors import linear, weight
from ...core.multimodal import CrossAttention
from ..counted_towers import Modules, counted, counted_tower
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import feature_width, part_config
from ..towers import clip_tower

_PROJECTOR = {
    "latents": "latent_query",
    "linear": "dense",
    **{f"attn.{x}": f"x_attn.{x}_proj" for x in "qkv"},
    "attn.o": "x_attn.out_proj",
}


@multimodal(Wrapper(types="kosmos-2", text_type="kosmos_2_text_model", tied=True, tied_by="either"))
def kosmos2(c: Config, text: Decoder) -> Assembly:
    tower, d, attn = (
        clip_tower(part_config(c, "vision_config", {}), 1024, 4096, 24, 16, patch=14),
        text.width,
        text.layers[0].child("attn"),
    )
    assert isinstance(attn, Attention)
    square, h = linear(d, d, bias=True), attn.head_dim
    queries = c.dim("Q", "latent_query_num", default=64)
    projector: Modules = {
        "latents": weight(queries, d, role="scale"),
        "linear": linear(d, feature_width(tower.block), bias=True),
        "attn": CrossAttention(
            q=square,
            k=square,
            v=square,
            o=square,
            heads=attn.heads,
            kv_heads=attn.heads,
            head_dim=h,
        ),
    }
    names = {path: name.replace("vision_model.", "", 1) for path, name in tower.names.items()}
    return assemble(
        text,
        vision=(
            "vision_model.model.",
            counted_tower(tower._replace(names=names), per_tile=int(queries)),
        ),
        projector=("image_to_text_projection.", Part(counted(projector), _PROJECTOR)),
    )
