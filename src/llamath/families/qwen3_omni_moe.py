"""The text model of Qwen3-Omni's thinker: Qwen3 MoE with other defaults."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from .qwen3_moe import qwen3_moe_decoder
from .registry import family


@family(
    "qwen3_omni_moe_text",
    hf=HF,
    renames_experts="qwen3_omni_moe qwen3_omni_moe_thinker qwen3_omni_moe_text",
)
def qwen3_omni_moe(c: Config) -> Decoder:
    return qwen3_moe_decoder(
        c, kv_heads=4, norm_topk_prob=c.get("norm_topk_prob", True), rounded_down=True
    )
