"""OLMo: Llama's layers with layer norms that have no weights, and clamped queries, keys and
values.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys
from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import ClipQKV, QKPreprocess
from ..core.blocks import Decoder, Layer, LayerNorm
from ..core.config import Config
from ..core.constructors import decoder, gqa, swiglu
from ..core.tree import repeat
from .gguf_record import ROTARY, GGUFMetadata
from .registry import family
from .rope_shared import read_rope


def _write_gguf(f: GGUFFacts) -> Keys:
    clip = f.first.qk_preprocess.clip
    limit = {"attention.clamp_kqv": clip.limit} if clip else {}
    return {**limit, "attention.layer_norm_epsilon": f.eps}


@family(
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="olmo",
    gguf_metadata=GGUFMetadata(keys=f"{ROTARY} attention_bias clip_qkv", write=_write_gguf),
    causal_class="OlmoForCausalLM",
)
def olmo(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm, limit = LayerNorm(eps=1e-5), c.get("clip_qkv", 0.0)
    qk_preprocess = QKPreprocess(clip=ClipQKV(limit=limit) if limit else None)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=c.get("attention_bias", False),
            rope=read_rope(c, heads.head_dim),
            qk_preprocess=qk_preprocess,
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
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
