"""Qwen4-Exp: the tower of Qwen3-VL, of which the last hidden state alone is read."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen3_merger, qwen3_tower
from ..tower_parts import part_config

_MODULES = {
    **{
        f"layers.{{l}}.mlp.experts.{{e}}.{x}.weight": "mlp.experts.gate_up_proj"
        for x in ("gate", "up")
    },
    "layers.{l}.mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
}


@multimodal(
    Wrapper(types="qwen4_exp", text_type="qwen4_exp_text", prefix=LANGUAGE_MODEL), modules=_MODULES
)
def qwen4_exp(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    tower = qwen3_tower(vision, deepstack=())
    return assemble(
        text,
        vision=("model.visual.", tower),
        projector=("model.visual.", qwen3_merger(vision, tower.block, text)),
    )
