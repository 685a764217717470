"""Ling and Ring: grouped-query attention with a mixture of experts; from Ling 2 on with norms on
heads, and experts as in DeepSeek-V3.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.expr import Expr
from .deepseek_shared import mtp_layers
from .kimi_shared import kimi_experts
from .layers_shared import dense_first
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES = HF.with_changes(
    outside={"embed": "model.word_embeddings"},
    inside={
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attention.query_key_value"),
        "attn.o": "attention.dense",
        "attn.q_norm": "attention.query_layernorm",
        "attn.k_norm": "attention.key_layernorm",
        "mlp.correction": "mlp.gate.expert_bias",
        "embed": "word_embeddings",
        "norm": "final_layernorm",
    },
)


@family("bailing_moe bailing_moe_v2", hf=NAMES, gguf=GGUF_QKV, gguf_arch="bailingmoe2")
def bailing_moe(c: Config) -> Decoder:
    second = "score_function" in c or c.get("model_type", "") == "bailing_moe_v2"
    c.require("norm_head", False, "no published model normalizes the rows of its head")
    moe = (
        kimi_experts(c, c.dim("d", "hidden_size"), groups=8, kept=4, factor=1.0)
        if second
        else _first_experts(c, c.dim("d", "hidden_size"))
    )
    if not c.get("moe_router_enable_expert_bias", second):
        moe = moe.replace(correction=None)
    return ling_decoder(c, moe, norms=second, theta=6e5, dense=0)


def ling_decoder(c: Config, moe: MoE, *, norms: bool, theta: float, dense: int) -> Decoder:
    """Read a model of Ling's layers with these experts; the others are the family's defaults:
    whether heads have norms, the base of the positions, and how many layers are dense.
    """
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d), c.get("rms_norm_eps", 1e-6)
    norm, head_norm = (
        rms(d, eps),
        rms(heads.head_dim, eps) if c.get("use_qk_norm", norms) else None,
    )
    rope = read_rope(c, c.get("rotary_dim", rotary_dim(c, heads.head_dim)), theta=theta)
    attn = gqa(
        d,
        heads,
        c.get("use_qkv_bias", False),
        c.get("use_bias", False),
        rope=rope,
        q_norm=head_norm,
        k_norm=head_norm,
    )
    c.ignore(
        "partial_rotary_factor",
        "moe_shared_expert_intermediate_size",
        "use_sliding_window",
        "sliding_window",
        "max_window_layers",
    )
    layer = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers, mtp = (
        dense_first(c, layer, layer.replace(mlp=moe), default=dense),
        mtp_layers(c, V, d, layer.replace(mlp=moe)),
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
        mtp=mtp,
    )


def _first_experts(c: Config, d: Expr) -> MoE:
    """Read the experts of the first Ling, chosen by softmax."""
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    S, activation = c.dim("S", "num_shared_experts", default=0, least=0), c.activation("hidden_act")
    shared = swiglu(d, S * Fe, activation) if S else None
    return mixture(
        d,
        E,
        k,
        swiglu(d, Fe, activation),
        shared=shared,
        norm_topk_prob=c.get("norm_topk_prob", True),
    )
