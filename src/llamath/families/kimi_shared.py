"""Readers that families with Kimi's delta attention share: names, and DeepSeek-V3's experts
under other keys.
"""

from __future__ import annotations

from collections.abc import Callable

from ..config_keys import any_name
from ..core.blocks import ExpertGroups, Layer, MoE
from ..core.config import Config
from ..core.constructors import mixture, rms, swiglu
from ..core.expr import Expr
from ..core.tree import Block, Stack
from .layers_shared import layer_kinds, layers_from, mlp_kinds

DELTA_LAYOUTS = dict.fromkeys((f"attn.{x}_conv.weight" for x in ("query", "key", "value")), "unit")


DELTA_GGUF = {
    **{f"attn.{x}": f"attn_{x[0]}" for x in ("query", "key", "value")},
    **{f"attn.{x}_conv": f"ssm_conv1d_{x[0]}" for x in ("query", "key", "value")},
    "attn.forget_down": "ssm_f_a",
    "attn.forget": "ssm_f_b",
    "attn.dt_bias": "ssm_dt.bias",
    "attn.a_log": "ssm_a",
    "attn.beta": "ssm_beta",
    "attn.gate_down": "ssm_g_a",
    "attn.gate": "ssm_g_b",
    "attn.norm": "ssm_norm",
    "attn.out": "attn_output",
}


def delta_names(module: str, **others: str) -> dict[str, str]:
    """Return the HF names of delta attention in this module of a layer; `others` differ."""
    names = {
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        "query_conv": "q_conv1d",
        "key_conv": "k_conv1d",
        "value_conv": "v_conv1d",
        "forget_down": "f_a_proj",
        "forget": "f_b_proj",
        "dt_bias": "dt_bias",
        "a_log": "A_log",
        "beta": "b_proj",
        "gate_down": "g_a_proj",
        "gate": "g_b_proj",
        "norm": "o_norm",
        "out": "o_proj",
    }
    return {f"attn.{ours}": f"{module}.{theirs}" for ours, theirs in (names | others).items()}


def kimi_experts(c: Config, d: Expr, *, groups: int, kept: int, factor: float) -> MoE:
    """Read experts chosen by sigmoid with a learned bias; the arguments are the family's
    defaults.
    """
    E, k = (
        c.dim("E", any_name("num_experts")),
        c.dim("k", any_name("num_experts_per_token"), default=8),
    )
    Fe, S = (
        c.dim("Fe", "moe_intermediate_size"),
        c.dim("S", "num_shared_experts|n_shared_experts", default=1, least=0),
    )
    groups, activation = c.get("num_expert_group|n_group", groups), c.activation("hidden_act")
    kept = c.get("topk_group", kept)
    c.require(
        "moe_router_activation_func|score_function", "sigmoid", "every published model has it"
    )
    c.ignore("use_grouped_topk", "moe_layer_freq", "topk_method")
    return mixture(
        d,
        E,
        k,
        swiglu(d, Fe, activation),
        corrected=True,
        shared=swiglu(d, S * Fe, activation) if S else None,
        scoring="sigmoid",
        norm_topk_prob=c.get("moe_renormalize|norm_topk_prob", True),
        routed_scaling_factor=c.get("routed_scaling_factor", factor),
        expert_groups=ExpertGroups(groups, kept, 2) if groups > 1 else None,
        fp32_router=True,
    )


def delta_hybrid(
    c: Config,
    d: Expr,
    eps: float,
    delta: Block,
    full: Block,
    moe: MoE,
    first: int,
    is_full: Callable[[int], bool],
) -> Stack:
    """Return layers with delta or full attention, the first ones with a dense MLP; the last two
    are the family's order without lists.
    """
    L, norm = c.dim("L", "num_hidden_layers"), rms(d, eps)
    mixers: dict[str, Block] = {"linear_attention": delta, "full_attention": full}
    mlps: dict[str, Block] = {
        "dense": swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act")),
        "sparse": moe,
    }
    first = c.get("first_k_dense_replace", first)
    types = layer_kinds(
        c, L, mixers, lambda i: "full_attention" if is_full(i) else "linear_attention"
    )

    def layer(mixer: str, mlp: str) -> Layer:
        return Layer(attn_norm=norm, attn=mixers[mixer], mlp_norm=norm, mlp=mlps[mlp])

    return layers_from(layer, types, mlp_kinds(c, L, first), count_dim=L)
