"""Command A Vision: SigLIP, squares of patches joined and a gated MLP."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.image_sizes import LeastScaledImage
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..projectors import shuffled_projector
from ..tower_parts import with_crops
from ..towers import COMMAND_A_TOWER, read_tower


@multimodal(
    Wrapper(types="cohere2_vision", text_type="cohere2", prefix=LANGUAGE_MODEL, tied=True),
    forms={"hf-5": {"model.vision_tower.vision_model.": "model.vision_tower."}},
)
def cohere2_vision(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "siglip_vision_model", COMMAND_A_TOWER)
    projector = shuffled_projector(c, tower.block, text)
    return assemble(
        text,
        vision=("model.vision_tower.", with_crops(tower, LeastScaledImage)),
        projector=("model.multi_modal_projector.", projector),
    )
