"""OLMo 2: norms on the output of each branch instead of its input, and across all heads of q and
of k.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "attn_out_norm": "post_attention_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    }
)


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="olmo2",
    gguf_metadata=GGUFMetadata(keys=f"{LLAMA} attention_bias", tried_first="olmo3"),
    causal_class="Olmo2ForCausalLM",
)
def olmo2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = H, K, h = c.heads(d)
    eps = c.get("rms_norm_eps", 1e-5)
    norm, q_norm, k_norm = rms(d, eps), rms(H * h, eps), rms(K * h, eps)
    bias = c.get("attention_bias", False)
    layer = Layer(
        attn=gqa(
            d,
            heads,
            bias=bias,
            q_norm=q_norm,
            k_norm=k_norm,
            qk_preprocess=QKPreprocess(across_heads=True),
            rope=read_rope(c, h),
        ),
        attn_out_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
        mlp_out_norm=norm,
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
