"""Fuyu: a linear layer on the pixels of each patch, without a tower."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear
from ...core.expr import Expr, product
from ..counted_towers import counted_part
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import side

_MODULES = {
    "language_model.model.": "model.language_model.",
    "language_model.lm_head": "lm_head",
    "vision_embed_tokens": "model.vision_embed_tokens",
}


@multimodal(forms={"hf-modules": _MODULES})
def fuyu(c: Config, text: Decoder) -> Assembly:
    c.ignore("image_size", "pad_token_id", "image_token_id")
    p, channels = side(c, "p_v", "patch_size", 30), c.dim("C_v", "num_channels", default=Expr.const(3))
    patches = linear(text.width, product((channels, p, p)), bias=True)
    return assemble(text, vision=("", counted_part({"vision_embed_tokens": patches})))
