"""Phi-3 Vision and Phi-3.5 Vision: CLIP on tiles of an image, squares of four patches joined, two linear layers."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, weight
from ...core.expr import Expr, product
from ...utils.errors import safe
from ..counted_towers import counted_part
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import CLIP_LARGE, clip_tower

_CLIP = "openai/clip-vit-large-patch14-336"
"""The only tower of published models; it has the sizes of LLaVA's."""


@multimodal()
def phi3_v(c: Config, text: Decoder) -> Assembly:
    v, layer = c.sub("img_processor"), c.sub("embd_layer")
    for key in ("image_dim_out", "model_name"):
        if key not in v:
            raise v.error(key, "is missing", "every published config of such a model has it")
    if (name := v.get("model_name", "")) != _CLIP:
        raise v.error("model_name", f"should be {_CLIP}, not {safe(repr(name), 60)}")
    if layer.get("projection_cls", "mlp") != "mlp" or not layer.get("use_hd_transform", True):
        raise layer.error("projection_cls", "should be mlp, with use_hd_transform")
    layer.ignore("embedding_cls", "hd_transform_order", "with_learnable_separator")
    v.ignore("name", "num_img_tokens", "layer_idx", "type_feature")
    tower, d = clip_tower(Config(CLIP_LARGE, c.source, "img_processor.")), text.width
    if (width := v["image_dim_out"]) != tower.block.patches.weight.shape[0]:
        raise v.error("image_dim_out", f"is {width}, but the features of CLIP have {tower.block.patches.weight.shape[0]} channels")
    joined = product((4, Expr("d_v", width)))
    projector = counted_part(
        {
            "glb_GN": weight(1, 1, joined, role="scale"),
            "sub_GN": weight(1, 1, 1, joined, role="scale"),
            "img_projection.0": linear(d, joined, True),
            "img_projection.2": linear(d, d, True),
        }
    )
    prefix = "model.vision_embed_tokens."
    return assemble(text, vision=(f"{prefix}img_processor.", tower), projector=(prefix, projector))
