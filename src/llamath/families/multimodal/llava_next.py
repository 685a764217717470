"""LLaVA-NeXT: LLaVA, with images cut into tiles and a learned token after each row."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import mlp_projector, with_newlines
from ..tower_parts import with_features, with_tiles
from ..towers import CLIP_LARGE, read_tower

RESOLUTIONS = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


@multimodal(
    Wrapper(types="llava_next llava_next_video", text_type="llama", prefix=WHOLE), forms=LLAVA_FORMS
)
def llava_next(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, read_tower(c, "clip_vision_model", CLIP_LARGE), default=-2)
    projector = with_newlines(mlp_projector(c, tower.block, text), "multi_modal_projector.", text)
    return assemble(
        text, vision=("vision_tower.", with_tiles(c, tower, RESOLUTIONS)), projector=("", projector)
    )
