"""Qwen3-VL, Qwen3.5 and their mixtures of experts: a tower for images of any shape; features of
several of its layers reach the text.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen3_merger, qwen3_tower
from ..tower_parts import part_config


@multimodal(
    *(
        Wrapper(types=x, text_type=f"{x}_text", prefix=LANGUAGE_MODEL)
        for x in ("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")
    ),
    saves_outputs_first=True,
)
def qwen3_vl(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    if c.get("model_type", "").startswith("qwen3_5"):
        vision.data = {**vision.data, "deepstack_visual_indexes": []}
    tower = qwen3_tower(vision)
    return assemble(
        text,
        vision=("model.visual.", tower),
        projector=("model.visual.", qwen3_merger(vision, tower.block, text)),
    )
