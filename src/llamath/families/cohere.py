"""Cohere's Command R and Aya: attention and MLP in parallel after one bias-free layer norm,
neighboring rotary pairs, scaled logits.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import Heads
from ..core.blocks import Decoder, Layer, LayerNorm
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, swiglu, weight
from ..core.tree import repeat
from .gguf_record import ROTARY, GGUFMetadata
from .gguf_shared import unscaled_positions_keys
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="command-r",
    gguf_metadata=GGUFMetadata(
        keys=f"{ROTARY} layer_norm_eps attention_bias use_qk_norm logit_scale",
        write=unscaled_positions_keys,
    ),
    causal_class="CohereForCausalLM",
)
def cohere(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    (H, K, h), eps = c.heads(d), c.get("layer_norm_eps", 1e-5)
    q_norm, k_norm = (
        LayerNorm(weight=weight(n, h, role="scale"), eps=eps)
        if c.get("use_qk_norm", False)
        else None
        for n in (H, K)
    )
    positions = read_rope(c, h, theta=5e5, interleaved=True)
    layer = Layer(
        attn_norm=layer_norm(d, eps, bias=False),
        attn=gqa(
            d,
            Heads(H, K, h),
            c.get("attention_bias", False),
            rope=positions,
            q_norm=q_norm,
            k_norm=k_norm,
        ),
        mlp=swiglu(d, F, c.activation("hidden_act")),
        parallel=True,
    )
    return decoder(
        V,
        d,
        repeat(layer, L),
        layer_norm(d, eps, bias=False),
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int(any_name("model_max_length")),
        logit_scale=c.get("logit_scale", 0.0625),
    )
