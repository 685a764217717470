"""The text model of Qwen3-VL: Qwen3 with another base of its rotary positions."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from .gguf_record import LLAMA, GGUFMetadata
from .gguf_shared import rotary_sections
from .qwen3 import qwen3_decoder
from .registry import family

_SECTIONS = rotary_sections(24, 20, 20)


@family(
    "qwen3_vl_text",
    hf=HF,
    gguf=GGUF,
    gguf_arch="qwen3vl",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias", write=lambda f: {**_SECTIONS(f), "n_deepstack_layers": 0}
    ),
    standalone_type="qwen3",
)
def qwen3_vl(c: Config) -> Decoder:
    return qwen3_decoder(c, theta=5e5)
