"""Qwen 3: norms on the heads of q and k, and late layers that may have a window."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from .gguf_record import LLAMA, GGUFMetadata
from .layers_shared import layers_with_late_windows
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="qwen3",
    gguf_metadata=GGUFMetadata(keys=f"{LLAMA} attention_bias"),
    causal_class="Qwen3ForCausalLM",
)
def qwen3(c: Config) -> Decoder:
    return qwen3_decoder(c, theta=1e4)


def qwen3_decoder(c: Config, theta: float) -> Decoder:
    """Build a Qwen3 model with the default of `rope_theta` of one of its configuration classes."""
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, eps = c.heads(d, num_kv_heads=32, head_dim=128), c.get("rms_norm_eps", 1e-6)
    norm, head_norm, bias = rms(d, eps), rms(heads.head_dim, eps), c.get("attention_bias", False)
    mlp = swiglu(d, F, c.activation("hidden_act"))

    def layer(window: int | None) -> Layer:
        attention = gqa(
            d,
            heads,
            bias,
            rope=read_rope(c, heads.head_dim, theta),
            window=AttentionWindow(size=window),
            q_norm=head_norm,
            k_norm=head_norm,
        )
        return Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=mlp)

    layers = layers_with_late_windows(c, L, layer)
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
