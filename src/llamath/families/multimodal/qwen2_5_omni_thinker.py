"""The thinker of Qwen2.5-Omni: Qwen2.5-VL, and a tower for sound."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import rms
from ..audio_towers import qwen2_5_omni_audio
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen2_5_tower, qwen_merger
from ..tower_parts import part_config

_PARTS = {"visual.": "model.visual.", "audio_tower.": "model.audio_tower."}
_SPLIT = {f"layers.{{l}}.attn.{x}": f"blocks.{{l}}.attn.{x}" for x in "qkv"}


@multimodal(
    Wrapper(types="qwen2_5_omni_thinker", text_type="qwen2_5_omni_text"),
    forms={"hf-modules": {**_PARTS, "model.": "model.language_model."}},
)
def qwen2_5_omni_thinker(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    tower = qwen2_5_tower(vision)
    tower = tower._replace(names={**tower.names, **_SPLIT})
    projector = qwen_merger(
        vision, tower.block, text, "out_hidden_size", rms(tower.block.patches.weight.shape[0], 1e-6)
    )
    audio = qwen2_5_omni_audio(part_config(c, "audio_config", {}))
    return assemble(
        text,
        vision=("visual.", tower),
        projector=("visual.merger.", projector),
        audio=("audio_tower.", audio),
    )
