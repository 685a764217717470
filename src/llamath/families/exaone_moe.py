"""K-EXAONE: EXAONE 4's attention, a norm before each branch, and DeepSeek-V3's mixture of experts after the first layers."""

from __future__ import annotations

from collections.abc import Iterable

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, ExpertGroups, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu, weight
from ..core.positions import Rope
from ..core.tree import repeat
from .exaone4 import order_of_windows
from .registry import family
from .shared import layer_kinds, read_rope, with_experts

NAMES = HF.with_changes(inside={"mlp.correction": "mlp.e_score_correction_bias"})


@family(hf=NAMES, gguf=GGUF, gguf_arch="exaone-moe")
def exaone_moe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps, activation = c.heads(d, num_kv_heads=32), c.get("rms_norm_eps", 1e-5), c.activation("hidden_act")
    norm, head_norm, rotary = rms(d, eps), rms(heads.head_dim, eps), read_rope(c, heads.head_dim)
    moe, dense, window = _moe(c, d, activation), swiglu(d, F, activation), c.nullable("sliding_window", 4096)

    def layer(rotary: Rope | None, window: int | None) -> Layer:
        attn = gqa(d, heads, q_norm=head_norm, k_norm=head_norm, rope=rotary, window=AttentionWindow(size=window))
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=dense)

    layers = order_of_windows(c, layer(rotary, window), layer(None if window else rotary, None))
    layers = with_experts(c, layers, moe, _is_sparse(c, layers.n))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))


def _moe(c: Config, d: int, activation: str) -> MoE:
    E, k, Fe = c.dim("E", "num_experts"), c.dim("k", "num_experts_per_tok"), c.dim("Fe", "moe_intermediate_size")
    groups = c.get("n_group", 1)
    return MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True),
        experts=repeat(swiglu(d, Fe, activation), E, active=k),
        shared=swiglu(d, c.dim("S", "num_shared_experts", default=1) * Fe, activation),
        top_k=k,
        scoring="sigmoid",
        norm_topk_prob=c.get("norm_topk_prob", True),
        routed_scaling_factor=c.get("routed_scaling_factor", 2.5),
        expert_groups=ExpertGroups(groups, c.get("topk_group", 1), 2) if groups > 1 else None,
        fp32_router=True,
    )


def _is_sparse(c: Config, n: int) -> Iterable[bool]:
    """Return which layers have experts: `mlp_layer_types` says so, or else those after the first `first_k_dense_replace`."""
    first = c.get("first_k_dense_replace", 1)
    kinds = layer_kinds(c, n, ("dense", "sparse"), lambda i: "sparse" if i >= first else "dense", "mlp_layer_types")
    return (x == "sparse" for x in kinds)
