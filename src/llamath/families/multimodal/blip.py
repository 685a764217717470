"""BLIP that writes captions: a vision transformer, to whose features layers of the text model
attend; no token stands for the image.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.image_sizes import FixedImage
from ..blip_tower import blip_tower
from ..counted_towers import counted_tower
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..tower_parts import check_class, part_config


@multimodal(Wrapper(types="blip", text_type="blip_text_model", tied=True))
def blip(c: Config, text: Decoder) -> Assembly:
    c.ignore(
        "projection_dim",
        "image_text_hidden_size",
        "logit_scale_init_value",
        "label_smoothing",
        "initializer_factor",
    )
    check_class(c, "BlipForConditionalGeneration")
    v = part_config(c, "vision_config", {})
    v.ignore("projection_dim")
    tower = blip_tower(v, 768, 3072, 12, 12, patch=16, size=384, eps=1e-5)
    sizes = tower.block.image_sizes
    assert isinstance(sizes, FixedImage)
    tower = tower._replace(block=tower.block.replace(image_sizes=sizes.replace(in_text=0)))
    return assemble(text, vision=("vision_model.", counted_tower(tower)))
