"""InternLM 3: Llama's layers with two key/value heads, one switch for the biases of q, k and v,
and one for the others.
"""

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
def internlm3(c: Config) -> Decoder:
    heads, bias = (
        c.heads(c.dim("d", "hidden_size"), num_kv_heads=2, head_dim=128),
        c.get("bias|mlp_bias", False),
    )
    return llama_decoder(
        c, heads, eps=1e-5, bias=c.get("qkv_bias|attention_bias", False), o_bias=bias, mlp_bias=bias
    )
