"""Hy3: Qwen3's attention, and experts chosen by sigmoid scores with a learned bias, with shared
ones; the first layer is dense.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from .layers_shared import dense_or_sparse
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={
        "mlp.router": "mlp.router.gate",
        "mlp.correction": "mlp.expert_bias",
        "mlp.shared.gate": "mlp.shared_mlp.gate_proj",
        "mlp.shared.up": "mlp.shared_mlp.up_proj",
        "mlp.shared.down": "mlp.shared_mlp.down_proj",
    },
    fused={
        "mlp.router": "mlp.gate",
        "mlp.correction": "mlp.e_score_correction_bias",
        **{f"mlp.shared.{x}": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
    },
)


@family(hf=NAMES, causal_class="HYV3ForCausalLM")
def hy_v3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps, activation = (
        c.heads(d, num_kv_heads=8, head_dim=128),
        c.get("rms_norm_eps", 1e-5),
        c.activation("hidden_act"),
    )
    norm, head_norm, rope = (
        rms(d, eps),
        rms(heads.head_dim, eps),
        read_rope(c, heads.head_dim, theta=11_158_840.0),
    )
    attn = gqa(
        d, heads, bias=c.get("attention_bias", False), rope=rope, q_norm=head_norm, k_norm=head_norm
    )
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    bias = c.get("mlp_bias", False)
    expert, shared = (
        swiglu(d, Fe, activation),
        swiglu(d, c.dim("S", "num_shared_experts", default=1) * Fe, activation, bias),
    )
    factor = c.get("router_scaling_factor", 2.826)
    moe = mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring="sigmoid",
        routed_scaling_factor=factor,
        fp32_router=True,
    )
    c.ignore("enable_moe_fp32_combine")
    dense = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, activation, bias))
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
