"""LLaVA-OneVision: SigLIP, with a single image cut into tiles and a learned token after each
row.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...utils.errors import safe
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import mlp_projector, with_newlines
from ..tower_parts import with_features, with_tiles
from ..towers import SIGLIP_LARGE, read_tower

RESOLUTIONS = tuple((384 * h, 384 * w) for h in range(1, 7) for w in range(1, 7))


@multimodal(Wrapper(types="llava_onevision", text_type="qwen2", prefix=WHOLE), forms=LLAVA_FORMS)
def llava_onevision(c: Config, text: Decoder) -> Assembly:
    tower = with_features(
        c, read_tower(c, "siglip_vision_model", SIGLIP_LARGE), default=-1, strategy="full"
    )
    projector = with_newlines(mlp_projector(c, tower.block, text), "multi_modal_projector.", text)
    aspect = c.get("vision_aspect_ratio", "anyres_max_9")
    if not aspect.startswith("anyres_max_") or not aspect[11:].isdecimal():
        raise c.error(
            "vision_aspect_ratio", f"should be anyres_max_N, not {safe(repr(aspect), 40)}"
        )
    tower = with_tiles(c, tower, RESOLUTIONS, max_tiles=int(aspect[11:]))
    return assemble(text, vision=("vision_tower.", tower), projector=("", projector))
