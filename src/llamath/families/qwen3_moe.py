"""Qwen3 MoE: Qwen3's attention with experts instead of the MLP."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import Block, repeat
from .gguf_record import LLAMA, QWEN_MOE, GGUFMetadata
from .qwen_shared import experts, sparse_every
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="qwen3moe",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} {QWEN_MOE} attention_bias mlp_only_layers=dense_layers",
        constants={"norm_topk_prob": True},
    ),
    causal_class="Qwen3MoeForCausalLM",
    renames_experts="qwen3_moe",
)
def qwen3_moe(c: Config) -> Decoder:
    return qwen3_moe_decoder(c, kv_heads=4, norm_topk_prob=c.get("norm_topk_prob", False))


def qwen3_moe_decoder(
    c: Config, kv_heads: int, norm_topk_prob: bool, rounded_down: bool = False
) -> Decoder:
    """Build a Qwen3 mixture with the defaults of one of its configuration classes."""
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, eps = (
        c.heads(d, num_kv_heads=kv_heads, rounded_down=rounded_down),
        c.get("rms_norm_eps", 1e-6),
    )
    norm, head_norm = rms(d, eps), rms(heads.head_dim, eps)
    window = c.nullable("sliding_window", 4096) if c.get("use_sliding_window", False) else None
    bias, turned = c.get("attention_bias", False), read_rope(c, heads.head_dim)
    attention = gqa(
        d,
        heads,
        bias,
        rope=turned,
        window=AttentionWindow(size=window),
        q_norm=head_norm,
        k_norm=head_norm,
    )

    def layer(attn: Block, sparse: bool) -> Layer:
        moe = experts(c, d, norm_topk_prob)
        mlp = (
            moe
            if sparse
            else swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"))
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)

    layers = sparse_every(c, repeat(attention, L), layer)
    c.ignore(
        "intermediate_size",
        "sliding_window",
        "max_window_layers",
        "qkv_bias",
        "use_qk_norm",
        "shared_expert_intermediate_size",
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
