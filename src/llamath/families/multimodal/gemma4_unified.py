"""Gemma 4 12B: large patches and frames of sound are projected without a tower."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..gemma4_towers import gemma4_patch_embedder, gemma4_projector, gemma4_sees_later
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal

MODULES = {
    "model.vision_embedder.": "model.embed_vision.",
    "model.embed_vision.embedding_projection": (
        "model.embed_vision.multimodal_embedder.embedding_projection"
    ),
}
"""Names of the modules in memory."""


@multimodal(
    Wrapper(
        types="gemma4_unified", text_type="gemma4_unified_text", prefix=LANGUAGE_MODEL, tied=True
    ),
    forms={"hf-modules": MODULES},
)
def gemma4_unified(c: Config, text: Decoder) -> Assembly:
    vision = projector = audio_projector = None
    if "vision_config" in c:
        own = c.sub("vision_config")
        vision = (
            "model.vision_embedder.",
            gemma4_patch_embedder(own, c.get("vision_soft_tokens_per_image", 280)),
        )
        width = own.dim("out_v", "output_proj_dims", default=3840)
        projector = (
            "model.embed_vision.",
            gemma4_projector(width, own.get("rms_norm_eps", 1e-6), text),
        )
    if "audio_config" in c:
        own = c.sub("audio_config")
        width = own.dim("d_a", "audio_embed_dim", default=640)
        audio_projector = (
            "model.embed_audio.",
            gemma4_projector(width, own.get("rms_norm_eps", 1e-6), text),
        )
    return assemble(
        text, vision=vision, projector=projector, audio_projector=audio_projector
    ).seeing_later(gemma4_sees_later(c))
