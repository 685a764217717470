"""Qwen2-VL and Qwen2.5-VL: a tower for images of any shape, whose squares of patches become one
token each.
"""

from __future__ import annotations

from ...core.blocks import Decoder, Norm
from ...core.config import Config
from ...core.constructors import layer_norm, rms
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen2_5_tower, qwen2_tower, qwen_merger
from ..tower_parts import part_config

FORMS = {
    "hf-5": {"visual.": "model.visual.", "model.": "model.language_model."},
    "hf-modules": {"visual.": "model.visual.", "model.": "model.language_model."},
}


@multimodal(
    *(Wrapper(types=x, text_type=f"{x}_text", flat=True) for x in ("qwen2_vl", "qwen2_5_vl")),
    forms=FORMS,
)
def qwen2_vl(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    if c.get("model_type", "") == "qwen2_vl":
        tower, width = qwen2_tower(vision), "hidden_size"
        norm: Norm = layer_norm(tower.block.patches.weight.shape[0], 1e-6)
    else:
        tower, width = qwen2_5_tower(vision), "out_hidden_size"
        norm = rms(tower.block.patches.weight.shape[0], 1e-6)
    projector = qwen_merger(vision, tower.block, text, width, norm)
    return assemble(text, vision=("visual.", tower), projector=("visual.merger.", projector))
