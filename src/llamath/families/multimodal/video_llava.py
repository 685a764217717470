"""Video-LLaVA: two CLIP towers, one for images and one for the frames of videos, and LLaVA's
projector for both.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..joined_parts import joined_parts
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import mlp_projector
from ..tower_parts import with_features
from ..towers import read_tower

_FORMS = {
    name: {
        x.replace("vision_tower", tower): y.replace("vision_tower", tower)
        for x, y in form.items()
        for tower in ("image_tower", "video_tower")
    }
    for name, form in LLAVA_FORMS.items()
}


@multimodal(Wrapper(types="video_llava", text_type="llama", prefix=WHOLE), forms=_FORMS)
def video_llava(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, read_tower(c, "clip_vision_model", {}), default=-2)
    projector = mlp_projector(c, tower.block, text)
    towers = joined_parts(video=("video_tower.", tower), image=("image_tower.", tower))
    return assemble(text, vision=("", towers), projector=("multi_modal_projector.", projector))
