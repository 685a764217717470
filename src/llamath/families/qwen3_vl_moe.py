"""The text model of Qwen3-VL's mixtures: Qwen3 MoE with its experts stored as stacks, input
first.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF_STACKED
from ..core.blocks import Decoder
from ..core.config import Config
from .qwen3_moe import qwen3_moe_decoder
from .registry import family


@family("qwen3_vl_moe_text", hf=HF_STACKED, gguf=GGUF, gguf_arch="qwen3vlmoe")
def qwen3_vl_moe(c: Config) -> Decoder:
    c.ignore("norm_topk_prob")
    return qwen3_moe_decoder(c, kv_heads=16, norm_topk_prob=True)
