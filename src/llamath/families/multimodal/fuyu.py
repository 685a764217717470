"""Fuyu: a linear layer on the pixels of each patch, without a tower; a token of the text stands
after each row of patches.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import weight
from ...core.expr import Expr, product
from ...core.image_sizes import LinedImage
from ...core.towers import PatchEmbedding, VisionTower
from ...core.tree import Stack
from ..multimodal_registry import WHOLE, Assembly, Tower, Wrapper, assemble, multimodal
from ..tower_parts import side

_MODULES = {
    "language_model.model.": "model.language_model.",
    "language_model.lm_head": "lm_head",
    "vision_embed_tokens": "model.vision_embed_tokens",
}


@multimodal(
    Wrapper(types="fuyu", text_type="persimmon", prefix=WHOLE), forms={"hf-modules": _MODULES}
)
def fuyu(c: Config, text: Decoder) -> Assembly:
    c.ignore("image_size", "pad_token_id", "image_token_id")
    p, channels, d = (
        side(c, "p_v", "patch_size", 30),
        c.dim("C_v", "num_channels", default=Expr.const(3)),
        text.width,
    )
    patches = PatchEmbedding(
        weight=weight(d, product((channels, p, p))), bias=weight(d, role="bias")
    )
    sizes = LinedImage(patch=p, height=1080, width=1920)
    tower = VisionTower(patches=patches, layers=Stack(), patch_size=p, image_sizes=sizes)
    return assemble(text, vision=("", Tower(tower, {"patches": "vision_embed_tokens"})))
