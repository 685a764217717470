"""Command A Vision: SigLIP, squares of patches joined and a gated MLP."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import COMMAND_A_TOWER, read_tower, shuffled_projector


@multimodal(forms={"hf-5": {"model.vision_tower.vision_model.": "model.vision_tower."}})
def cohere2_vision(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "siglip_vision_model", COMMAND_A_TOWER)
    projector = shuffled_projector(c, tower.block, text)
    return assemble(text, vision=("model.vision_tower.", tower), projector=("model.multi_modal_projector.", projector))
