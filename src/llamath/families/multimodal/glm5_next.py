"""GLM-5.3 Flash: the tower of GLM-OCR with clamped MLPs."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..hyper_shared import limited
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, multimodal
from .glm4v import glm_vision

_MODULES = {
    **{
        f"layers.{{l}}.attn.{x}_conv.weight": "self_attn.conv1d.weight"
        for x in ("query", "key", "value")
    },
    "layers.{l}.attn.forget_down": "self_attn.forget_gate.f_a_proj",
    "layers.{l}.attn.forget": "self_attn.forget_gate.f_b_proj",
    "layers.{l}.attn.dt_bias": "self_attn.forget_gate.dt_bias",
    "layers.{l}.attn.a_log": "self_attn.forget_gate.A_log",
    **{
        f"layers.{{l}}.{x}_hc.{y}.{w}": f"{z}_hc.{n}"
        for x, z in (("attn", "attn"), ("mlp", "ffn"))
        for y in ("pre", "post", "mix")
        for w, n in (("weight", "fn"), ("bias", "base"), ("scale", "scale"))
    },
}


@multimodal(
    Wrapper(types="glm5_next", text_type="glm5_next_text", prefix=LANGUAGE_MODEL), modules=_MODULES
)
def glm5_next(c: Config, text: Decoder) -> Assembly:
    return glm_vision(c, text, is_ocr=True, limit=limited, inner=10_240)
