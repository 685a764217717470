"""DeepSeek-VL: SigLIP, then an MLP of two layers on the features of each patch."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear
from ...core.towers import MLPProjector
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import feature_width
from ..towers import read_tower


@multimodal(
    Wrapper(types="deepseek_vl", text_type="llama", prefix=LANGUAGE_MODEL, tied=True),
    forms={"hf-5": {"model.vision_model.vision_model.": "model.vision_model."}},
)
def deepseek_vl(c: Config, text: Decoder) -> Assembly:
    tower, d = read_tower(c, "siglip_vision_model", {}), text.width
    block = MLPProjector(
        linear_1=linear(d, feature_width(tower.block), True),
        linear_2=linear(d, d, True),
        activation="gelu",
    )
    projector = Part(block, {"linear_1": "linear1", "linear_2": "linear2"})
    return assemble(
        text, vision=("model.vision_model.", tower), projector=("model.aligner.", projector)
    )
