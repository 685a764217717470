"""MiMo-V2-Flash: values narrower than keys and scaled, sinks and twice the key/value heads in
layers with a window, and experts.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow, Heads
from ..core.blocks import Attention, Decoder, Layer, MoE, norm_and_rotate, project_heads
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.positions import Rope
from .deepseek_shared import sigmoid_experts
from .layers_shared import layer_flags, layer_kinds, layers_from, mlp_kinds
from .registry import family
from .rope_shared import rope_from


class NarrowValueAttention(Attention):
    """Attention whose values have a size of their own and are multiplied by a factor before they
    are cached (MiMo-V2).
    """

    v_dim: int
    v_scale: float = 1.0

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.k is not None and self.v is not None
        q = norm_and_rotate(self, m, self.q_norm, project_heads(self, m, self.q, x))  # (B, T, H, h)
        k = norm_and_rotate(self, m, self.k_norm, project_heads(self, m, self.k, x))  # (B, T, K, h)
        v = m.scale(m.split_heads(self.v(m, x), self.v_dim), self.v_scale)  # (B, T, K, v)
        k, v = m.update_cache(self, k, v)
        return self.o(m, m.merge_heads(m.attention(self, q, k, v, self.head_dim, self.sinks)))


NAMES = HF.with_changes(inside={"attn.sinks": "self_attn.attention_sink_bias"})
_WINDOW, _FULL = "sliding_attention", "full_attention"
_FIXED = {
    "swa_num_attention_heads": "num_attention_heads",
    "swa_head_dim": "head_dim",
    "swa_v_head_dim": "v_head_dim",
}
_UNUSED = (
    "attention_chunk_size hybrid_block_size scoring_func topk_method n_shared_experts "
    "num_nextn_predict_layers"
)


@family(hf=NAMES, gguf=GGUF, gguf_arch="mimo2", causal_class="MiMoV2FlashForCausalLM")
def mimo_v2_flash(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    norm = rms(d, c.get("rms_norm_eps|layernorm_epsilon", 1e-5))
    mixers = {kind: _attention(c, d, kind) for kind in (_WINDOW, _FULL)}
    dense, moe = swiglu(d, F, c.activation("hidden_act")), _moe(c, d)

    def layer(kind: str, sparse: bool) -> Layer:
        return Layer(attn_norm=norm, attn=mixers[kind], mlp_norm=norm, mlp=moe if sparse else dense)

    types = layer_kinds(c, L, mixers, lambda i: _FULL if i == 0 or (i + 1) % 6 == 0 else _WINDOW)
    mlp_types = mlp_kinds(c, L, first=1)
    windowed = layer_flags(c, "hybrid_layer_pattern", L, lambda i: types[i] == _WINDOW)
    sparse = layer_flags(c, "moe_layer_freq", L, lambda i: mlp_types[i] == "sparse")
    layers = layers_from(
        layer,
        (_WINDOW if windowed(i) else _FULL for i in range(L)),
        map(sparse, range(L)),
        count_dim=L,
    )
    c.require("n_shared_experts", 0, "this family has none")
    c.ignore(*_UNUSED.split())
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _attention(c: Config, d: Expr, kind: str) -> NarrowValueAttention:
    """Read the attention of one type of layer."""
    H, K, h = c.heads(d, num_kv_heads=4, head_dim=192)
    v, bias = c.dim("v", "v_head_dim", default=128), c.get("attention_bias", False)
    for key, other in _FIXED.items():
        if key in c and c[key] != c.get(other, c[key]):
            raise c.error(
                key,
                f"is {c[key]!r}, unlike {other}; transformers' class has one size for all layers",
            )
    windowed = kind == _WINDOW
    if windowed:
        K = c.dim("Kw", "swa_num_key_value_heads", default=2 * K)
    has_sinks = (
        c.get("add_swa_attention_sink_bias", True)
        if windowed
        else c.get("add_full_attention_sink_bias", False)
    )
    window = (
        c.get("sliding_window_size", 0) + 1
        if "sliding_window_size" in c
        else c.get("sliding_window", 129)
    )
    attn = gqa(
        d,
        Heads(H, K, h),
        bias,
        rope=_rope(c, h, kind),
        window=AttentionWindow(size=window if windowed else None),
    )
    attn = attn.replace(
        v=linear(K * v, d, bias),
        o=linear(d, H * v),
        sinks=weight(H, role="bias") if has_sinks else None,
    )
    return attn.extended(
        NarrowValueAttention, v_dim=v, v_scale=c.nullable("attention_value_scale", 0.707) or 1.0
    )


def _rope(c: Config, h: Expr, kind: str) -> Rope:
    """Read the rotary positions of one type of layer, from `rope_parameters` or from the
    published keys.
    """
    theta = c.get("swa_rope_theta", 1e4) if kind == _WINDOW else c.get("rope_theta", 5e6)
    s = c.sub("rope_parameters").sub(kind)
    share = s.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.334))
    return rope_from(c, s, theta=theta, dim=h.scaled(share))


def _moe(c: Config, d: Expr) -> MoE:
    E, k, Fe = (
        c.dim("E", "n_routed_experts|num_local_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    for key, only in (("scoring_func", "sigmoid"), ("topk_method", "noaux_tc")):
        c.require(key, only, "transformers' class computes nothing else")
    return sigmoid_experts(c, d, E, k, swiglu(d, Fe, c.activation("hidden_act")))
