"""ShieldGemma 2: Gemma 3, of whose logits two are read; its files hold it as a module of a
classifier.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..projectors import pooled_projector
from ..towers import read_tower

_SAVED = {
    "model.vision_tower.vision_model.": "model.vision_tower.",
    "model.language_model.lm_head": "lm_head",
}


@multimodal(
    Wrapper(
        types="shieldgemma2",
        text_type="gemma3_text",
        prefix=("", "model.language_model."),
        tied=True,
    ),
    forms={
        "hf-5": _SAVED,
        "hf-modules": _SAVED | {"model.language_model.model.": "model.language_model."},
    },
)
def shieldgemma2(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "siglip_vision_model")
    projector = pooled_projector(c, tower.block, text)
    model = assemble(
        text,
        vision=("model.vision_tower.", tower),
        projector=("model.multi_modal_projector.", projector),
    )
    return model.seeing_later("image")
