"""Cosmos 3 as a model that reads images: Qwen3-VL, under the names of files that have models for
images, sound and actions as well.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..qwen_towers import qwen3_merger, qwen3_tower
from ..tower_parts import part_config

_PARTS = {
    x: f"model.visual.{x}"
    for x in ("blocks.", "merger.", "patch_embed.", "pos_embed.", "deepstack_merger_list.")
}
_TEXT = {x: f"model.language_model.{x}" for x in ("embed_tokens", "layers.", "norm")}
DIFFUSERS = {
    **{f"attn.{x}": f"self_attn.to_{x}" for x in "qkv"},
    "attn.o": "self_attn.to_out",
    **{f"attn.{x}_norm": f"self_attn.norm_{x}" for x in "qk"},
}


@multimodal(
    Wrapper(types="cosmos3_omni", text_type="qwen3_vl_text", prefix=("model.", "")),
    inside=DIFFUSERS,
    forms={"hf-older": {}, "hf-modules": {**_TEXT, **_PARTS}},
)
def cosmos3_omni(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    tower = qwen3_tower(vision)
    return assemble(
        text, vision=("", tower), projector=("", qwen3_merger(vision, tower.block, text))
    )
