"""Gemma 4: a tower for images, one for sound, and a linear layer after each."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..gemma4_towers import (
    gemma4_audio_tower,
    gemma4_projector,
    gemma4_sees_later,
    gemma4_vision_tower,
)
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal


@multimodal(Wrapper(types="gemma4", text_type="gemma4_text", prefix=LANGUAGE_MODEL, tied=True))
def gemma4(c: Config, text: Decoder) -> Assembly:
    vision = audio = projector = audio_projector = None
    if "vision_config" in c:
        own = c.sub("vision_config")
        tower = gemma4_vision_tower(own, c.get("vision_soft_tokens_per_image", 280))
        vision = ("model.vision_tower.", tower)
        eps = own.get("rms_norm_eps", 1e-6)
        projector = (
            "model.embed_vision.",
            gemma4_projector(tower.block.patches.weight.shape[0], eps, text),
        )
    if "audio_config" in c:
        own = c.sub("audio_config")
        audio = ("model.audio_tower.", gemma4_audio_tower(own))
        width = own.dim("out_a", "output_proj_dims", default=1536)
        audio_projector = (
            "model.embed_audio.",
            gemma4_projector(width, own.get("rms_norm_eps", 1e-6), text),
        )
    return assemble(
        text, vision=vision, projector=projector, audio=audio, audio_projector=audio_projector
    ).seeing_later(gemma4_sees_later(c))
