"""Aya Vision: SigLIP, squares of patches joined, a norm and a gated MLP."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import shuffled_projector
from ..tower_parts import feature_width, with_crops, with_features
from ..towers import AYA_TOWER, read_tower


@multimodal(
    Wrapper(types="aya_vision", text_type="cohere2", prefix=WHOLE, tied=True), forms=LLAVA_FORMS
)
def aya_vision(c: Config, text: Decoder) -> Assembly:
    tower = with_features(
        c, read_tower(c, "siglip_vision_model", AYA_TOWER), default=-1, strategy="full"
    )
    width = feature_width(tower.block) * c.get("downsample_factor", 2) ** 2
    projector = shuffled_projector(
        c, tower.block, text, layer_norm(width, c.get("adapter_layer_norm_eps", 1e-6))
    )
    return assemble(
        text,
        vision=("vision_tower.", with_crops(tower)),
        projector=("multi_modal_projector.", projector),
    )
