"""IQuest-Coder: Llama's layers with defaults of its own."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder
from ..core.config import Config
from .llama import llama, llama_decoder
from .registry import family


@family(
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="llama",
    gguf_metadata=llama.gguf_metadata,
    causal_class="LlamaForCausalLM",
)
def iquestcoder(c: Config) -> Decoder:
    for key in ("clip_qkv", "use_sliding_window"):
        if c.get(key, None):
            raise c.error(
                key, f"is {c[key]!r}; no published model has it, and transformers rejects it"
            )
    c.ignore("sliding_window")
    heads = c.heads(c.dim("d", "hidden_size"), num_kv_heads=8, head_dim=128)
    return llama_decoder(
        c, heads, eps=1e-5, bias=c.get("attention_bias", False), mlp_bias=c.get("mlp_bias", False)
    )
