"""EXAONE 4.5: the tower of Qwen2.5-VL, with fewer key/value heads than query heads."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import rms
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen2_5_tower, qwen_merger
from ..tower_parts import part_config


@multimodal(Wrapper(types="exaone4_5", text_type="exaone4", prefix=LANGUAGE_MODEL))
def exaone4_5(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    tower = qwen2_5_tower(vision, kv_heads=8)
    projector = qwen_merger(
        vision, tower.block, text, "out_hidden_size", rms(tower.block.patches.weight.shape[0], 1e-6)
    )
    return assemble(
        text, vision=("model.visual.", tower), projector=("model.visual.merger.", projector)
    )
