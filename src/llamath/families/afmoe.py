"""AFM mixtures (Arcee Trinity): gated attention, norms around each branch, rotary positions in
layers with a window.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, mixture, rms, swiglu
from ..core.expr import Expr
from .layers_shared import alternating, with_experts
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "attn.gate": "self_attn.gate_proj",
        "attn_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_mlp_layernorm",
        "mlp_out_norm": "post_mlp_layernorm",
        "mlp.router": "mlp.router.gate",
        "mlp.correction": "mlp.expert_bias",
    }
)
NAMES_GGUF = GGUF.with_changes(inside={"attn.gate": "attn_gate"})


@family(
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="afmoe",
    causal_class="AfmoeForCausalLM",
    renames_experts="afmoe",
)
def afmoe(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, eps, bias = (
        c.heads(d, head_dim=128),
        c.get("rms_norm_eps", 1e-5),
        c.get("attention_bias", False),
    )
    norm, head_norm, gate = (
        rms(d, eps),
        rms(heads.head_dim, eps),
        linear(heads.num_heads * heads.head_dim, d),
    )
    attn, mlp = (
        gqa(d, heads, bias, gate=gate, q_norm=head_norm, k_norm=head_norm),
        swiglu(d, F, c.activation("hidden_act")),
    )
    full = Layer(
        attn_norm=norm, attn=attn, attn_out_norm=norm, mlp_norm=norm, mlp=mlp, mlp_out_norm=norm
    )
    rope, window = (
        read_rope(c, heads.head_dim),
        AttentionWindow(size=c.nullable("sliding_window", 1024)),
    )
    windowed = full.replace(attn=attn.replace(rope=rope, window=window))
    layers, dense = (
        alternating(c, L, windowed, full, c.get("global_attn_every_n_layers", 4)),
        c.get("num_dense_layers", 1),
    )
    layers = with_experts(c, layers, _moe(c, d), (i >= dense for i in range(L)))
    embed = embedding(V, d, d**0.5 if c.get("mup_enabled", False) else 1.0)
    c.ignore(
        "score_func",
        "n_group",
        "topk_group",
        "num_expert_groups",
        "num_limited_groups",
        "route_norm",
    )
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, embed=embed, context=context)


def _moe(c: Config, d: Expr) -> MoE:
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    activation = c.activation("hidden_act")
    if (
        c.get("score_func", "sigmoid") != "sigmoid"
        or not c.get("route_norm", True)
        or c.get("n_group|num_expert_groups", 1) != 1
    ):
        raise c.error(
            "score_func",
            "should be sigmoid, normalized and without groups, which is "
            "all that transformers' class computes",
        )
    shared, factor = (
        swiglu(d, c.dim("S", "num_shared_experts", default=2) * Fe, activation),
        c.get("route_scale", 1.0),
    )
    expert = swiglu(d, Fe, activation)
    return mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring="sigmoid",
        routed_scaling_factor=factor,
    )
