"""The text model of Qwen2-VL and Qwen2.5-VL: Qwen2 with other defaults."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from .gguf_record import LLAMA, GGUFMetadata
from .gguf_shared import rotary_sections
from .qwen2 import qwen2_decoder
from .registry import family


@family(
    "qwen2_vl_text qwen2_5_vl_text",
    hf=HF,
    gguf=GGUF,
    gguf_arch="qwen2vl",
    gguf_metadata=GGUFMetadata(keys=LLAMA, write=rotary_sections(16, 24, 24)),
    standalone_type="qwen2",
)
def qwen2_vl(c: Config) -> Decoder:
    return qwen2_decoder(c, theta=1e6, eps=1e-5, kv_heads=8, full=80)
