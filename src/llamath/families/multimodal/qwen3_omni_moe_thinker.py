"""The thinker of Qwen3-Omni: Qwen3-VL's tower under other names, and a tower for sound."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..audio_towers import qwen3_omni_audio
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen3_merger, qwen3_tower
from ..tower_parts import part_config

_PARTS = {"visual.": "model.visual.", "audio_tower.": "model.audio_tower."}
_WORDS = {
    "deepstack_merger_list.{l}.norm": "merger_list.{l}.ln_q",
    "merger.norm": "merger.ln_q",
    "deepstack_merger_list": "merger_list",
    "linear_fc1": "mlp.0",
    "linear_fc2": "mlp.2",
}


@multimodal(
    Wrapper(types="qwen3_omni_moe_thinker", text_type="qwen3_omni_moe_text"),
    forms={"hf-modules": {**_PARTS, "model.": "model.language_model."}},
)
def qwen3_omni_moe_thinker(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    tower = qwen3_tower(vision)
    projector = qwen3_merger(vision, tower.block, text)
    names = dict(projector.names)
    for old, new in _WORDS.items():
        names = {path: name.replace(old, new) for path, name in names.items()}
    audio = qwen3_omni_audio(part_config(c, "audio_config", {}))
    return assemble(
        text,
        vision=("visual.", tower),
        projector=("visual.", projector._replace(names=names)),
        audio=("audio_tower.", audio),
    )
