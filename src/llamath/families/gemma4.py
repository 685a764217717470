"""Gemma 4: wider heads without a window, keys used as values, keys and values shared between layers, experts parallel to the MLP."""

from __future__ import annotations

from functools import cache

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF_SANDWICH
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, Heads, ScoreTransform
from ..core.blocks import MLP, Attention, Decoder, DenseAndMoE, PerLayerEmbedding, PerLayerInput, RMSNorm, ScaledLayer, ScaledMoE
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.tree import repeat, sequence
from .registry import family
from .shared import layer_kinds, rope_from

NAMES = HF_SANDWICH.with_changes(
    outside={
        "per_layer.embed": "model.embed_tokens_per_layer",
        "per_layer.projection": "model.per_layer_model_projection",
        "per_layer.norm": "model.per_layer_projection_norm",
    },
    inside={
        "mlp.dense_norm": "pre_feedforward_layernorm",
        "mlp.dense.gate": "mlp.gate_proj",
        "mlp.dense.up": "mlp.up_proj",
        "mlp.dense.down": "mlp.down_proj",
        "mlp.dense_out_norm": "post_feedforward_layernorm_1",
        "mlp.moe.router": "router.proj",
        "mlp.moe.router_norm.weight": "router.scale",
        "mlp.moe.expert_norm": "pre_feedforward_layernorm_2",
        "mlp.moe.expert_scale": "router.per_expert_scale",
        "mlp.moe.experts.{e}.gate.weight": "experts.gate_up_proj",
        "mlp.moe.experts.{e}.up.weight": "experts.gate_up_proj",
        "mlp.moe.experts.{e}.down.weight": "experts.down_proj",
        "mlp.moe_out_norm": "post_feedforward_layernorm_2",
        "per_layer.gate": "per_layer_input_gate",
        "per_layer.out": "per_layer_projection",
        "per_layer.norm": "post_per_layer_input_norm",
        "scalar": "layer_scalar",
    },
)
IN_GGUF = GGUF.with_changes(
    outside={
        "per_layer.embed": "per_layer_token_embd",
        "per_layer.projection": "per_layer_model_proj",
        "per_layer.norm": "per_layer_proj_norm",
    },
    inside={
        "mlp.dense_norm": "ffn_norm",
        "mlp.dense.gate": "ffn_gate",
        "mlp.dense.up": "ffn_up",
        "mlp.dense.down": "ffn_down",
        "mlp.dense_out_norm": "post_ffw_norm_1",
        "mlp.moe.router": "ffn_gate_inp",
        "mlp.moe.router_norm.weight": "ffn_gate_inp.scale",
        "mlp.moe.expert_norm": "pre_ffw_norm_2",
        "mlp.moe.expert_scale": "ffn_down_exps.scale",
        "mlp.moe.experts.{e}.gate": "ffn_gate_up_exps",
        "mlp.moe.experts.{e}.up": "ffn_gate_up_exps",
        "mlp.moe.experts.{e}.down": "ffn_down_exps",
        "mlp.moe_out_norm": "post_ffw_norm_2",
        "per_layer.gate": "inp_gate",
        "per_layer.out": "proj",
        "per_layer.norm": "post_norm",
        "scalar": "layer_output_scale.weight",
    },
)

SLIDING, FULL = "sliding_attention", "full_attention"
ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


@family(hf=NAMES, gguf=IN_GGUF, gguf_arch="gemma4")
def gemma4(c: Config) -> Decoder:
    return gemma4_decoder(c, c.dim("p", "hidden_size_per_layer_input", default=256, least=0), window=512)


def gemma4_decoder(c: Config, p: Expr | None, window: int) -> Decoder:
    """Return the model with per-layer embeddings of width p; `window` is the default size of the window."""
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    norm, window = rms(d, c.get("rms_norm_eps", 1e-6)), c.get("sliding_window", window)
    types = [*layer_kinds(c, L, ROPES, lambda i: SLIDING if (i + 1) % 6 else FULL)[:-1], FULL]
    first_shared = L - c.get("num_kv_shared_layers", 0)
    kv_layers = {kind: i for i, kind in enumerate(types[: max(first_shared, 0)])}
    if set(kv_layers) != set(types):
        raise c.error("num_kv_shared_layers", "leaves a kind of layer without one of its own keys and values")

    @cache
    def layer(kind: str, kv_layer: int | None) -> ScaledLayer:
        mlp = _mlp(c, d, norm, shares_kv=kv_layer is not None)
        return ScaledLayer(
            attn_norm=norm,
            attn=_attention(c, d, types, kind, kv_layer, window),
            attn_out_norm=norm,
            mlp_norm=norm if isinstance(mlp, MLP) else None,
            mlp=mlp,
            mlp_out_norm=norm,
            per_layer=PerLayerInput(gate=linear(p, d), out=linear(d, p), norm=norm, activation=_activation(c)) if p else None,
            scalar=weight(1, role="scale").replace(buffer=True),
        )

    return decoder(
        V,
        d,
        sequence(layer(kind, kv_layers[kind] if i >= first_shared else None) for i, kind in enumerate(types)),
        norm,
        tied=c.get("tie_word_embeddings", True),
        embed=embedding(V, d, scale=d**0.5),
        per_layer=_per_layer(c, d, L, p) if p else None,
        context=c.positive_int("max_position_embeddings"),
        softcap=c.number("final_logit_softcapping"),
    )


def _activation(c: Config) -> str:
    return c.activation("hidden_activation", "gelu_pytorch_tanh")


def _per_layer(c: Config, d: Expr, L: Expr, p: Expr) -> PerLayerEmbedding:
    rows = c.dim("Vp", "vocab_size_per_layer_input", default=262_144)
    norm = rms(p, c.get("rms_norm_eps", 1e-6))
    return PerLayerEmbedding(embed=embedding(rows, L * p, p**0.5), projection=linear(L * p, d), norm=norm, size=p, factor=d**-0.5)


def _attention(c: Config, d: Expr, types: list[str], kind: str, kv_layer: int | None, window: int) -> Attention:
    heads, eps = c.heads(d, num_heads=8, num_kv_heads=4, head_dim=256), c.get("rms_norm_eps", 1e-6)
    k_eq_v, bidirectional = c.get("attention_k_eq_v", False), c.get("use_bidirectional_attention", "") == "all"
    ropes = c.sub("rope_parameters") if "rope_parameters" in c else Config(ROPES)
    if kind == FULL:
        heads, size = _full_attention_heads(c, heads, types, k_eq_v), None
    else:
        size = window // 2 + 2 if bidirectional else window  # as in transformers: ± (window // 2 + 1), ends included
    h = heads.head_dim
    attention = gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=rope_from(c, ropes.sub(kind), theta=1e4, dim=h),
        window=AttentionWindow(size=size, causal=not bidirectional),
        q_norm=rms(h, eps),
        score_transform=ScoreTransform(scale=1.0),
    )
    if kv_layer is not None:
        return attention.replace(k=None, v=None, kv_layer=kv_layer)
    return attention.replace(k_norm=rms(h, eps), v_norm=RMSNorm(eps=eps), **({"v": None} if kind == FULL and k_eq_v else {}))


def _full_attention_heads(c: Config, heads: Heads, types: list[str], k_eq_v: bool) -> Heads:
    """Return the heads of the layers without a window, from Google's keys or from those that transformers 5 saves for each layer."""
    (H, K, h), configs = heads, c.sub("per_layer_config")
    c.ignore("num_global_key_value_heads", "global_head_dim")
    if "per_layer_config" not in c:
        K = c.dim("Kg", "num_global_key_value_heads") if k_eq_v and "num_global_key_value_heads" in c else K
        return Heads(H, K, c.dim("hg", "global_head_dim", default=512))
    if not configs.data:  # no layer differs from the others
        return heads
    full_layers = [i for i, kind in enumerate(types) if kind == FULL]
    listed = {int(key): key for key in configs.data if key.isdecimal() and len(key) < 10}  # transformers writes "5" or "05"
    settings = list(configs.data.values())
    if sorted(listed) != full_layers or len(listed) < len(settings) or any(x != settings[0] for x in settings):
        raise c.error("per_layer_config", "should have the same settings for each layer with full attention, and none for other layers")
    configs.ignore(*listed.values())
    layer_config = configs.sub(listed[full_layers[0]])
    K = layer_config.dim("Kg", "num_key_value_heads") if "num_key_value_heads" in layer_config else K
    return Heads(H, K, layer_config.dim("hg", "head_dim", default=h))


def _mlp(c: Config, d: Expr, norm: RMSNorm, shares_kv: bool) -> MLP | DenseAndMoE:
    F, double_wide = c.dim("F", "intermediate_size"), c.get("use_double_wide_mlp", False)
    dense = swiglu(d, 2 * F if double_wide and shares_kv else F, _activation(c))
    c.ignore("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size", "vocab_size_per_layer_input")
    if not c.get("enable_moe_block", False):
        return dense
    E, k, Fe = c.dim("E", "num_experts"), c.dim("k", "top_k_experts"), c.dim("Fe", any_name("moe_intermediate_size"))
    moe = ScaledMoE(
        router=linear(E, d),
        router_norm=norm,
        factor=d**-0.5,
        expert_norm=norm,
        expert_scale=weight(E, role="scale"),
        experts=repeat(swiglu(d, Fe, _activation(c)), E, active=k),
        top_k=k,
    )
    return DenseAndMoE(dense_norm=norm, dense=dense, dense_out_norm=norm, moe=moe, moe_out_norm=norm)
