"""Qianfan-OCR: InternVL with biased attention, under the names of InternVL's authors."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import internvl_projector
from ..tower_parts import part_config, with_crops, with_features
from ..towers import INTERNVIT_NAMES, internvit_tower
from .internvl_chat import PROJECTOR, VISION

_NAMES = VISION | {
    **{f"layers.{{l}}.attn.{x}_norm": f"encoder.layers.{{l}}.attention.{x}_norm" for x in "qk"},
    "norm_after": "layernorm",
}
_FORMS = {"hf-5": {"language_model.model.layers.": "language_model.model.encoder.layers."}}
"""What version 5.23 of transformers saves."""
_MODULES = {
    **{
        f"vision.{path}": f"model.vision_tower.{name.replace('encoder.layer.', 'layers.')}"
        for path, name in INTERNVIT_NAMES.items()
    },
    "projector.norm": "model.multi_modal_projector.layer_norm",
    "projector.linear_1": "model.multi_modal_projector.linear_1",
    "projector.linear_2": "model.multi_modal_projector.linear_2",
}


@multimodal(
    Wrapper(types="qianfan_ocr", text_type="qwen3", prefix=WHOLE), forms=_FORMS, modules=_MODULES
)
def qianfan_ocr(c: Config, text: Decoder) -> Assembly:
    tower = with_features(
        c, internvit_tower(part_config(c, "vision_config", {}), biased=True), default=-1
    )
    if tower.block.feature_layers == (-1,):  # after the norm
        tower = tower._replace(block=tower.block.replace(feature_layers=()))
    projector = internvl_projector(c, tower.block, text)._replace(names=PROJECTOR)
    return assemble(
        text,
        vision=("vision_model.", with_crops(tower)._replace(names=_NAMES)),
        projector=("", projector),
    )
