"""SmolVLM: SigLIP on tiles of an image, squares of patches joined and one linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import TEXT_MODEL, Assembly, Wrapper, assemble, multimodal
from ..projectors import joined_projector
from ..tower_parts import part_config
from ..towers import idefics3_tower


@multimodal(Wrapper(types="smolvlm", text_type="llama", prefix=TEXT_MODEL))
def smolvlm(c: Config, text: Decoder) -> Assembly:
    tower = idefics3_tower(part_config(c, "vision_config", {}))
    projector = joined_projector(c, tower.block, text)
    return assemble(
        text, vision=("model.vision_model.", tower), projector=("model.connector.", projector)
    )
