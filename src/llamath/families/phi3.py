"""Phi-3 and Phi-4: Llama's layers with q, k, v in one matrix and gate, up in another; long
contexts by LongRoPE.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .gguf_shared import windowed_phi_keys
from .registry import family
from .rope_shared import read_rope, rotary_dim

QKV = dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attn.qkv_proj")
NAMES = HF.with_changes(inside=QKV | {"mlp.gate": "mlp.gate_up_proj", "mlp.up": "mlp.gate_up_proj"})


@family(
    "phi3 phi4",
    hf=NAMES,
    gguf=GGUF_QKV.with_changes(inside={"mlp.gate": "ffn_up"}),
    gguf_arch="phi3",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} partial_rotary_factor sliding_window", write=windowed_phi_keys
    ),
    causal_class="Phi3ForCausalLM",
)
def phi3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            rope=read_rope(c, rotary_dim(c, heads.head_dim)),
            window=AttentionWindow(size=c.positive_int("sliding_window")),
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
    )
    c.ignore(
        "attention_bias",
        "mlp_bias",
        "lm_head_bias",
        "full_attn_mod",
        "interpolate_factor",
        "original_max_position_embeddings",
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
