"""Mistral 3: Pixtral, then a merger of squares of patches and an MLP of two layers."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import merging_projector
from ..tower_parts import with_features, with_merged_patches
from ..towers import PIXTRAL_LARGE, read_tower


@multimodal(
    Wrapper(types="mistral3", text_type="mistral", prefix=WHOLE, tied=True), forms=LLAVA_FORMS
)
def mistral3(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, read_tower(c, "pixtral", PIXTRAL_LARGE), default=-1, strategy=None)
    projector = merging_projector(c, tower.block, text)
    tower = with_merged_patches(tower, c.get("spatial_merge_size", 2))
    return assemble(
        text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector)
    )
