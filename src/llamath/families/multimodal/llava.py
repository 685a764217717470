"""LLaVA: CLIP, SigLIP or Pixtral, then an MLP of two layers on the features of each patch."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import mlp_projector
from ..tower_parts import with_features
from ..towers import CLIP_LARGE, read_tower


@multimodal(Wrapper(types="llava", text_type="llama", prefix=WHOLE), forms=LLAVA_FORMS)
def llava(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, read_tower(c, "clip_vision_model", CLIP_LARGE), default=-2)
    projector = mlp_projector(c, tower.block, text)
    return assemble(
        text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector)
    )
