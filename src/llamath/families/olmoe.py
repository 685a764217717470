"""OLMoE: Llama's layers with norms across all heads of q and of k, values that may be clipped,
and many small experts.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import ClipQKV, QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="olmoe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias clip_qkv num_experts num_experts_per_tok"
    ),
    causal_class="OlmoeForCausalLM",
    renames_experts="olmoe",
)
def olmoe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", any_name("num_experts")), c.dim("k", "num_experts_per_tok")
    H, K, h = heads = c.square_heads(d)
    eps, bias, limit = (
        c.get("rms_norm_eps", 1e-5),
        c.get("attention_bias", False),
        c.number("clip_qkv"),
    )
    norm, q_norm, k_norm = rms(d, eps), rms(H * h, eps), rms(K * h, eps)
    qk_preprocess = QKPreprocess(
        across_heads=True, clip=None if limit is None else ClipQKV(limit=limit, after_norm=True)
    )
    expert = swiglu(d, F, c.activation("hidden_act"))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias,
            rope=read_rope(c, h),
            qk_preprocess=qk_preprocess,
            q_norm=q_norm,
            k_norm=k_norm,
        ),
        mlp_norm=norm,
        mlp=mixture(d, E, k, expert, norm_topk_prob=c.get("norm_topk_prob", False)),
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
