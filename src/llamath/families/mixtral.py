"""Mixtral: Mistral's layers with a mixture of experts instead of the MLP."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, LOCAL_EXPERTS, GGUFMetadata
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "mlp.router": "block_sparse_moe.gate",
        "mlp.experts.{e}.gate": "block_sparse_moe.experts.{e}.w1",
        "mlp.experts.{e}.down": "block_sparse_moe.experts.{e}.w2",
        "mlp.experts.{e}.up": "block_sparse_moe.experts.{e}.w3",
    }
)


@family(
    hf=NAMES,
    gguf=GGUF_LLAMA,
    gguf_arch="llama",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} sliding_window=window_without_effect {LOCAL_EXPERTS}",
        applies=lambda h: bool(h.uniform_integer("expert_count")),
    ),
    chat="mistral",
    causal_class="MixtralForCausalLM",
    renames_experts="mixtral",
)
def mixtral(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", "num_local_experts", default=8), c.dim("k", "num_experts_per_tok", default=2)
    heads = c.heads(d, num_kv_heads=8)
    norm = rms(d, c.get("rms_norm_eps", 1e-5))
    expert = swiglu(d, F, c.activation("hidden_act"))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            rope=read_rope(c, heads.head_dim, theta=1e6),
            window=AttentionWindow(size=c.positive_int("sliding_window")),
        ),
        mlp_norm=norm,
        mlp=mixture(d, E, k, expert),
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
