"""Phi-3.5-MoE: Mixtral's layers with layer norms, biases, and two experts chosen one after the
other (SparseMixer).

The family is counted only: SparseMixer is not part of the machine.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, linear, swiglu, unembedding
from ..core.tree import counted_only, repeat
from .gguf_record import LLAMA, LOCAL_EXPERTS, GGUFMetadata
from .gguf_shared import windowed_phi_keys
from .mixtral import NAMES
from .registry import family
from .rope_shared import read_rope


class SparseMixerMoE(MoE):
    """Two experts, chosen one after the other, each weighted by a softmax over the logits close
    to it (arXiv:2409.12136).
    """

    forward = counted_only("Phi-3.5-MoE's SparseMixer")


@family(
    hf=NAMES.with_changes(fused={"mlp.router": "mlp.router"}),
    gguf=GGUF,
    gguf_arch="phimoe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {LOCAL_EXPERTS} attention_bias lm_head_bias sliding_window",
        write=windowed_phi_keys,
    ),
    causal_class="PhimoeForCausalLM",
    has_linear_routers=True,
)
def phimoe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    E, k = c.dim("E", "num_local_experts"), c.dim("k", "num_experts_per_tok", default=2)
    if k != 2:
        raise c.error("num_experts_per_tok", f"is {k}, but this family's router chooses 2")
    heads, bias = c.heads(d, num_kv_heads=8), c.get("attention_bias", False)
    norm = layer_norm(d, c.get("rms_norm_eps", 1e-5))
    experts = repeat(swiglu(d, F, c.activation("hidden_act")), E, active=k)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias,
            rope=read_rope(c, heads.head_dim, 1e6),
            window=AttentionWindow(size=c.positive_int("sliding_window")),
        ),
        mlp_norm=norm,
        mlp=SparseMixerMoE(router=linear(E, d), experts=experts, top_k=k, norm_topk_prob=False),
    )
    layers, tied = (
        repeat(layer, c.dim("L", "num_hidden_layers")),
        c.get("tie_word_embeddings", False),
    )
    head = unembedding(V, d, tied, c.get("lm_head_bias", False))
    c.ignore("router_jitter_noise", "input_jitter_noise", "expert_dropout")
    return decoder(
        V, d, layers, norm, tied, head=head, context=c.positive_int("max_position_embeddings")
    )
