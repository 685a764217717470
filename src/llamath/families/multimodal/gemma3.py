"""Gemma 3: SigLIP, then the averages of squares of patches, projected."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.towers import PooledProjector
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import pooled_projector
from ..tower_parts import without_images
from ..towers import read_tower


@multimodal(
    Wrapper(types="gemma3", text_type="gemma3_text", prefix=WHOLE, tied=True), forms=LLAVA_FORMS
)
def gemma3(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "siglip_vision_model")
    projector = pooled_projector(c, tower.block, text)
    assert isinstance(projector.block, PooledProjector)
    if not projector.block.merge:
        tower = without_images(tower, "an image has fewer patches than mm_tokens_per_image")
    return assemble(
        text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector)
    ).seeing_later("image")
