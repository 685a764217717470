"""MiMo-V2-Flash: values narrower than keys and scaled, sinks and twice the key/value heads in layers with a window, and experts."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, ExpertGroups, Layer, MoE, NarrowValueAttention
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.positions import Rope
from ..core.tree import repeat, sequence
from .registry import family
from .shared import layer_kinds, rope_from, with_experts

NAMES = HF.with_changes(inside={"attn.sinks": "self_attn.attention_sink_bias"})
_WINDOW, _FULL = "sliding_attention", "full_attention"
_FIXED = {"swa_num_attention_heads": "num_attention_heads", "swa_head_dim": "head_dim", "swa_v_head_dim": "v_head_dim"}
_UNUSED = "attention_chunk_size hybrid_block_size scoring_func topk_method n_shared_experts num_nextn_predict_layers"


@family(hf=NAMES, gguf=GGUF, gguf_arch="mimo2")
def mimo_v2_flash(c: Config) -> Decoder:
    d, V, F, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size"), c.dim("L", "num_hidden_layers")
    norm, mlp = rms(d, c.get("rms_norm_eps|layernorm_epsilon", 1e-5)), swiglu(d, F, c.activation("hidden_act"))
    kinds = {kind: Layer(attn_norm=norm, attn=_attention(c, d, kind), mlp_norm=norm, mlp=mlp) for kind in (_WINDOW, _FULL)}
    order = layer_kinds(c, L, kinds, lambda i: _FULL if i == 0 or (i + 1) % 6 == 0 else _WINDOW)
    if "hybrid_layer_pattern" in c:
        order = [_WINDOW if x else _FULL for x in _flags(c, "hybrid_layer_pattern", L)]
    mlps = layer_kinds(c, L, ("dense", "sparse"), lambda i: "sparse" if i else "dense", "mlp_layer_types")
    sparse = _flags(c, "moe_layer_freq", L) if "moe_layer_freq" in c else [x == "sparse" for x in mlps]
    layers = with_experts(c, sequence((kinds[x] for x in order), count_dim=L), _moe(c, d), map(bool, sparse))
    if c.get("n_shared_experts", 0):
        raise c.error("n_shared_experts", f"is {c['n_shared_experts']}; this family has none")
    c.ignore(*_UNUSED.split())
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))


def _attention(c: Config, d: Expr, kind: str) -> NarrowValueAttention:
    """Read the attention of one type of layer."""
    H, K, h = c.heads(d, num_kv_heads=4, head_dim=192)
    v, bias = c.dim("v", "v_head_dim", default=128), c.get("attention_bias", False)
    for key, other in _FIXED.items():
        if key in c and c[key] != c.get(other, c[key]):
            raise c.error(key, f"is {c[key]!r}, unlike {other}; transformers' class has one size for all layers")
    windowed = kind == _WINDOW
    if windowed:
        K = c.dim("Kw", "swa_num_key_value_heads", default=2 * K)
    has_sinks = c.get("add_swa_attention_sink_bias", True) if windowed else c.get("add_full_attention_sink_bias", False)
    window = c.get("sliding_window_size", 0) + 1 if "sliding_window_size" in c else c.get("sliding_window", 129)
    return NarrowValueAttention(
        q=linear(H * h, d, bias),
        k=linear(K * h, d, bias),
        v=linear(K * v, d, bias),
        o=linear(d, H * v),
        sinks=weight(H, role="bias") if has_sinks else None,
        heads=H,
        kv_heads=K,
        head_dim=h,
        v_dim=v,
        v_scale=c.nullable("attention_value_scale", 0.707) or 1.0,
        rope=_rope(c, h, kind),
        window=AttentionWindow(size=window if windowed else None),
    )


def _rope(c: Config, h: Expr, kind: str) -> Rope:
    """Read the rotary positions of one type of layer, from `rope_parameters` or from the published keys."""
    theta = c.get("swa_rope_theta", 1e4) if kind == _WINDOW else c.get("rope_theta", 5e6)
    s = c.sub("rope_parameters").sub(kind)
    share = s.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.334))
    return rope_from(c, s, theta=theta, dim=int(h * share))


def _flags(c: Config, key: str, n: int) -> list[int]:
    """Read a list with 0 or 1 for each layer."""
    flags: list[int] = c[key]
    if not isinstance(flags, list) or len(flags) != n or any(x not in (0, 1) for x in flags):
        raise c.error(key, f"should be a list with 0 or 1 for each of {n} layers")
    return flags


def _moe(c: Config, d: Expr) -> MoE:
    E, k, Fe = c.dim("E", "n_routed_experts|num_local_experts"), c.dim("k", "num_experts_per_tok"), c.dim("Fe", "moe_intermediate_size")
    groups = c.get("n_group", 1)
    for key, only in (("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")):
        if c.get(key, only) != only:
            raise c.error(key, f"should be {only}, which is all that transformers' class computes")
    return MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True),
        experts=repeat(swiglu(d, Fe, c.activation("hidden_act")), E, active=k),
        top_k=k,
        scoring="sigmoid",
        norm_topk_prob=c.get("norm_topk_prob", True),
        routed_scaling_factor=c.get("routed_scaling_factor", 1.0),
        expert_groups=ExpertGroups(groups, c.get("topk_group", 1), 2) if groups > 1 else None,
        fp32_router=True,
    )
