"""Sarvam 30B: the layers and names of Ling 2, with other defaults."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from .bailing_moe import NAMES, ling_decoder
from .kimi_shared import kimi_experts
from .registry import family


@family(hf=NAMES)
def sarvam_moe(c: Config) -> Decoder:
    if "head_dim" not in c:  # the class has heads of 256 then, published files those of d / H
        raise c.error("head_dim", "is missing", "every published config has it")
    moe = kimi_experts(c, c.dim("d", "hidden_size"), groups=1, kept=1, factor=2.5)
    if not c.get("moe_router_enable_expert_bias", True):
        moe = moe.replace(correction=None)
    return ling_decoder(c, moe, norms=True, theta=1e4, dense=1)
