"""Phi-3 Vision and Phi-3.5 Vision: CLIP on tiles of an image, squares of four patches joined,
two linear layers.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, weight
from ...core.expr import Expr, product
from ...core.image_sizes import EnlargedImage
from ...utils.errors import safe
from ..counted_towers import Modules, counted, counted_tower
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..towers import CLIP_LARGE, clip_tower

_CLIP = "openai/clip-vit-large-patch14-336"
"""The only tower of published models; it has the sizes of LLaVA's."""
_SIZE = 336
_TILES = 16
"""Tiles of an image: those of Phi-3 Vision's processor, and what Phi-3.5 Vision recommends for
one image."""
_PROJECTOR = {
    "separator": "glb_GN",
    "newline": "sub_GN",
    "linear_1": "img_projection.0",
    "linear_2": "img_projection.2",
}


@multimodal(
    Wrapper(types="phi3_v", text_type="phi3", flat=True, outer_keys="embd_layer img_processor")
)
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
    if (features := (v.get("layer_idx", -2), v.get("type_feature", "patch"))) != (-2, "patch"):
        raise v.error(
            "layer_idx",
            f"should be -2, with the type_feature patch, not {safe(repr(features), 40)}",
        )
    v.ignore("name", "num_img_tokens")
    tower, d = clip_tower(Config(CLIP_LARGE, c.source, "img_processor.")), text.width
    if (width := v["image_dim_out"]) != tower.block.patches.weight.shape[0]:
        raise v.error(
            "image_dim_out",
            f"is {width}, but the features of CLIP have "
            f"{tower.block.patches.weight.shape[0]} channels",
        )
    joined = product((4, Expr("d_v", width)))
    sizes = EnlargedImage(patch=int(tower.block.patch_size), size=_SIZE, most=_TILES)
    tower = tower._replace(block=tower.block.replace(image_sizes=sizes))
    projector: Modules = {
        "separator": weight(1, 1, joined, role="scale"),
        "newline": weight(1, 1, 1, joined, role="scale"),
        "linear_1": linear(d, joined, True),
        "linear_2": linear(d, d, True),
    }
    prefix = "model.vision_embed_tokens."
    vision = (f"{prefix}img_processor.", counted_tower(tower, merge=2))
    return assemble(text, vision=vision, projector=(prefix, Part(counted(projector), _PROJECTOR)))
