"""InternVL, as converted to transformers: InternViT on tiles, squares of patches joined, a norm
and an MLP of two layers.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import internvl_projector
from ..tower_parts import part_config, with_crops, with_features
from ..towers import internvit_tower


@multimodal(
    Wrapper(types="internvl", text_type="qwen2", prefix=WHOLE, tied=True), forms=LLAVA_FORMS
)
def internvl(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, internvit_tower(part_config(c, "vision_config", {})), default=-1)
    if tower.block.feature_layers == (-1,):  # after the norm
        tower = tower._replace(block=tower.block.replace(feature_layers=()))
    projector = internvl_projector(c, tower.block, text)
    return assemble(
        text,
        vision=("vision_tower.", with_crops(tower)),
        projector=("multi_modal_projector.", projector),
    )
