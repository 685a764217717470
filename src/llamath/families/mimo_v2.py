"""MiMo-V2: MiMo-V2-Flash with other sizes, and towers that are not counted."""

from __future__ import annotations

from ..core.blocks import Decoder
from ..core.config import Config
from .mimo_v2_flash import NAMES, mimo_v2_flash
from .multimodal_registry import Wrapper, declare_wrapper
from .registry import family

declare_wrapper(Wrapper(types="mimo_v2", text_type="mimo_v2", flat=True))


@family(hf=NAMES)
def mimo_v2(c: Config) -> Decoder:
    if (layout := c["attention_projection_layout"]) != "split":
        raise c.error(
            "attention_projection_layout",
            f"is {layout!r:.40}; only split is supported",
            "fused_qkv interleaves q, k and v by the ranks of its training; count the "
            "checkpoint: its header is exact for any model",
        )
    tree: Decoder = mimo_v2_flash(c)
    return tree
