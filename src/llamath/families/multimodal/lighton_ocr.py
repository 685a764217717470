"""LightOnOCR: Pixtral, then the projector of Mistral 3 without biases."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..projectors import merging_projector
from ..tower_parts import with_merged_patches
from ..towers import PIXTRAL_LARGE, read_tower


@multimodal(Wrapper(types="lighton_ocr", text_type="qwen3", prefix=LANGUAGE_MODEL, tied=True))
def lighton_ocr(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "pixtral", PIXTRAL_LARGE | {"hidden_act": "silu"})
    projector = merging_projector(c, tower.block, text)
    tower = with_merged_patches(tower, c.get("spatial_merge_size", 2))
    return assemble(
        text,
        vision=("model.vision_encoder.", tower),
        projector=("model.vision_projection.", projector),
    )
