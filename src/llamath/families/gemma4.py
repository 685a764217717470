"""Gemma 4: wider heads without a window, keys used as values, keys and values shared between
layers, experts parallel to the MLP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ..checkpoint.gguf_metadata.gguf_facts import (
    GGUFFacts,
    Keys,
    mlp_width,
    uniform,
    widths_of_layers,
)
from ..checkpoint.naming.gguf_names import GGUF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, Heads, ScoreTransform
from ..core.blocks import (
    MLP,
    Attention,
    Decoder,
    Layer,
    MoE,
    Norm,
    PerLayerInput,
    RMSNorm,
    add_shared_experts,
    router_logits,
)
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.tree import Block, Weight
from .gemma_shared import HF_PER_LAYER, kv_layers, per_layer_embedding, per_layer_input, with_kv_of
from .gguf_record import SHAPE, GGUFMetadata
from .layers_shared import layer_kinds, layers_from, settings_of_layers
from .registry import family
from .rope_shared import rope_by_type

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader


class ScaledMoE(MoE):
    """Router and experts have their own input norms, the router's times `factor`; each routing
    weight is scaled (Gemma 4).
    """

    groups: ClassVar[dict[str, str]] = {**MoE.groups, "expert_scale": "router"}
    router_norm: Norm
    expert_norm: Norm
    expert_scale: Weight
    factor: float

    def forward(self, m: Machine[X], x: X) -> X:
        logits = router_logits(self, m, m.scale(self.router_norm(m, x), self.factor))
        chosen, weights = m.route(logits, self.correction, self)
        weights = m.scale_by_expert(weights, chosen, self.expert_scale)
        return add_shared_experts(
            self, m, x, m.experts(self, self.experts, self.expert_norm(m, x), chosen, weights)
        )


class DenseAndMoE(Block):
    """dense_out_norm(dense(dense_norm x)) + moe_out_norm(moe x): an MLP and experts in parallel
    (Gemma 4).
    """

    group: ClassVar[str] = "mlp"
    dense_norm: Norm
    dense: MLP
    dense_out_norm: Norm
    moe: MoE
    moe_out_norm: Norm

    def forward(self, m: Machine[X], x: X) -> X:
        y = self.dense_out_norm(m, self.dense(m, self.dense_norm(m, x)))
        return m.add(y, self.moe_out_norm(m, self.moe(m, x)))


class ScaledLayer(Layer):
    """A layer with an optional per-layer embedding branch, whose output is multiplied by one
    stored scalar (Gemma 4).
    """

    groups: ClassVar[dict[str, str]] = {"scalar": "norm"}
    per_layer: PerLayerInput | None = None
    scalar: Weight

    def forward(self, m: Machine[X], x: X, *per_layer: X) -> X:
        x = Layer.forward(self, m, x)
        if self.per_layer is not None:
            x = m.add(x, self.per_layer(m, x, *per_layer))
        return m.scale_by_weight(x, self.scalar)


NAMES = HF_PER_LAYER.with_changes(
    inside={
        "mlp.dense_norm": "pre_feedforward_layernorm",
        **{f"mlp.dense.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
        "mlp.dense_out_norm": "post_feedforward_layernorm_1",
        "mlp.moe.router": "router.proj",
        "mlp.moe.router_norm.weight": "router.scale",
        "mlp.moe.expert_norm": "pre_feedforward_layernorm_2",
        "mlp.moe.expert_scale": "router.per_expert_scale",
        **{f"mlp.moe.experts.{{e}}.{x}.weight": "experts.gate_up_proj" for x in ("gate", "up")},
        "mlp.moe.experts.{e}.down.weight": "experts.down_proj",
        "mlp.moe_out_norm": "post_feedforward_layernorm_2",
        "scalar": "layer_scalar",
    },
)
IN_GGUF = GGUF.with_changes(
    outside={
        f"per_layer.{x}": f"per_layer_{y}"
        for x, y in (("embed", "token_embd"), ("projection", "model_proj"), ("norm", "proj_norm"))
    },
    inside={
        "mlp.dense_norm": "ffn_norm",
        **{f"mlp.dense.{x}": f"ffn_{x}" for x in ("gate", "up", "down")},
        "mlp.dense_out_norm": "post_ffw_norm_1",
        "mlp.moe.router": "ffn_gate_inp",
        "mlp.moe.router_norm.weight": "ffn_gate_inp.scale",
        "mlp.moe.expert_norm": "pre_ffw_norm_2",
        "mlp.moe.expert_scale": "ffn_down_exps.scale",
        **{f"mlp.moe.experts.{{e}}.{x}": "ffn_gate_up_exps" for x in ("gate", "up")},
        "mlp.moe.experts.{e}.down": "ffn_down_exps",
        "mlp.moe_out_norm": "post_ffw_norm_2",
        **{
            f"per_layer.{x}": name
            for x, name in (("gate", "inp_gate"), ("out", "proj"), ("norm", "post_norm"))
        },
        "scalar": "layer_output_scale.weight",
    },
)

SLIDING, FULL = "sliding_attention", "full_attention"
ROPES = {
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return two kinds of layers with different heads, shared keys, and the optional experts and
    per-layer embeddings.
    """
    from ..checkpoint.gguf_metadata.gguf_keys import sliding_layer_types
    from ..checkpoint.gguf_metadata.gguf_rope import read_proportional

    types = sliding_layer_types(h)
    sliding_dim, full_dim = (
        h.uniform_integer("attention.key_length_swa"),
        h.uniform_integer("attention.key_length"),
    )
    if types is None:
        raise h.error("attention.sliding_window_pattern", "is missing")
    sliding, kv = (
        [x == "sliding_attention" for x in types],
        h.per_layer("attention.head_count_kv") or [],
    )
    full_kv, sliding_kv = (
        {n for n, x in zip(kv, sliding, strict=False) if x is kind} for kind in (False, True)
    )
    layers = zip(
        h.layers_with(".attn_k.weight"), h.layers_with(".attn_v.weight"), sliding, strict=True
    )
    k_eq_v = any(k and not v and not x for k, v, x in layers)
    if (
        len(full_kv) > 1
        or len(sliding_kv) > 1
        or (full_kv and sliding_kv and full_kv != sliding_kv and not k_eq_v)
    ):
        raise h.not_uniform("attention.head_count_kv", sorted(full_kv | sliding_kv))
    widths = sorted(set(h.per_layer("feed_forward_length") or ()))
    sliding_rope = {"rope_type": "default", "rope_theta": h.real("rope.freq_base_swa") or 10000.0}
    return {
        "layer_types": types,
        "head_dim": sliding_dim or full_dim,
        "global_head_dim": full_dim,
        "num_key_value_heads": max(sliding_kv or full_kv, default=None),
        "attention_k_eq_v": k_eq_v,
        **({"num_global_key_value_heads": max(full_kv)} if k_eq_v and full_kv else {}),
        "intermediate_size": widths[0] if widths else None,
        "use_double_wide_mlp": len(widths) > 1,
        "num_kv_shared_layers": h.uniform_integer("attention.shared_kv_layers") or 0,
        "rope_parameters": {
            "full_attention": read_proportional(h),
            "sliding_attention": sliding_rope,
        },
        **(
            {"use_bidirectional_attention": "all"} if h.boolean("attention.causal") is False else {}
        ),
        **_read_experts_and_embeddings(h),
    }


def _read_experts_and_embeddings(h: GGUFHeader) -> Keys:
    keys: Keys = {
        "hidden_size_per_layer_input": h.uniform_integer("embedding_length_per_layer_input") or 0
    }
    if rows := h.rows("per_layer_token_embd.weight"):
        keys["vocab_size_per_layer_input"] = rows
    if h.has_tensor(".ffn_gate_inp.weight"):
        keys["enable_moe_block"] = True
        keys |= {
            "num_experts": h.uniform_integer("expert_count"),
            "top_k_experts": h.uniform_integer("expert_used_count"),
        }
        keys["moe_intermediate_size"] = h.uniform_integer("expert_feed_forward_length")
    return keys


def _write_gguf(f: GGUFFacts) -> Keys:
    """Return the keys of two kinds of layers with different heads."""
    full, sliding = f.first, f.sliding or f.first
    borrowed = sum(x is not None and x.kv_layer is not None for x in f.attentions)
    kv: list[int] = [int(x.kv_heads) for x in f.attentions if isinstance(x, Attention)]
    per_layer = f.tree.per_layer
    moe = next((x.mlp.moe for x in f.layers if isinstance(x.mlp, DenseAndMoE)), None)
    dense = [mlp_width(x.mlp.dense if moe is not None else x.mlp) for x in f.layers]
    keys: Keys = {
        "attention.head_count": int(full.heads),
        "attention.head_count_kv": uniform(kv),
        "feed_forward_length": widths_of_layers(dense),
        "rope.freq_base": f.rope.theta if f.rope else None,
        "rope.freq_base_swa": sliding.rope.theta if sliding.rope else None,
        "attention.key_length": int(full.head_dim),
        "attention.value_length": int(full.head_dim),
        "attention.key_length_swa": int(sliding.head_dim),
        "attention.value_length_swa": int(sliding.head_dim),
        "rope.dimension_count": int(full.head_dim),
        "rope.dimension_count_swa": int(sliding.head_dim),
        "attention.sliding_window": f.resolved("sliding_window"),
        "attention.shared_kv_layers": borrowed,
        "embedding_length_per_layer_input": int(per_layer.size) if per_layer else 0,
        "attention.sliding_window_pattern": [
            x is not None and (x.window.size is not None) for x in f.attentions
        ],
    }
    if not full.window.causal:
        keys["attention.causal"] = False
    if moe is not None:
        keys |= {
            "expert_count": len(moe.experts),
            "expert_used_count": int(moe.top_k),
            "expert_feed_forward_length": mlp_width(moe.experts[0]),
        }
    return keys


@family(
    "gemma4_text",
    hf=NAMES,
    gguf=IN_GGUF,
    gguf_arch="gemma4",
    gguf_metadata=GGUFMetadata(
        keys=f"{SHAPE} max_position_embeddings rms_norm_eps attention_bias "
        "final_logit_softcapping sliding_window",
        read=_read_gguf,
        write=_write_gguf,
    ),
    causal_class="Gemma4ForCausalLM",
    has_linear_routers=True,
)
def gemma4(c: Config) -> Decoder:
    return gemma4_decoder(
        c, c.dim("p", "hidden_size_per_layer_input", default=256, least=0), window=512
    )


def gemma4_decoder(c: Config, p: Expr | None, window: int) -> Decoder:
    """Return the model with per-layer embeddings of width p; `window` is the default size of the
    window.
    """
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    norm, activation = (
        rms(d, c.get("rms_norm_eps", 1e-6)),
        c.activation("hidden_activation", "gelu_pytorch_tanh"),
    )
    types = [*layer_kinds(c, L, ROPES, lambda i: SLIDING if (i + 1) % 6 else FULL)[:-1], FULL]
    attention = {kind: _attention(c, d, types, kind, window) for kind in dict.fromkeys(types)}

    def layer(kind: str, kv_layer: int | None) -> ScaledLayer:
        mlp = _mlp(c, d, norm, activation, shares_kv=kv_layer is not None)
        return ScaledLayer(
            attn_norm=norm,
            attn=with_kv_of(attention[kind], kv_layer),
            attn_out_norm=norm,
            mlp_norm=norm if isinstance(mlp, MLP) else None,
            mlp=mlp,
            mlp_out_norm=norm,
            per_layer=per_layer_input(d, p, norm, activation) if p else None,
            scalar=weight(1, role="scale").replace(buffer=True),
        )

    layers = layers_from(layer, types, kv_layers(c, types, sharing=0))
    tied, context, cap = (
        c.get("tie_word_embeddings", True),
        c.positive_int("max_position_embeddings"),
        c.number("final_logit_softcapping"),
    )
    embed, per_layer = embedding(V, d, scale=d**0.5), per_layer_embedding(c, d, L, p) if p else None
    return decoder(
        V, d, layers, norm, tied, embed=embed, per_layer=per_layer, context=context, softcap=cap
    )


def _attention(c: Config, d: Expr, types: list[str], kind: str, window: int) -> Attention:
    """Read the attention of one type of layer, with keys and values of its own."""
    heads, eps = c.heads(d, num_heads=8, num_kv_heads=4, head_dim=256), c.get("rms_norm_eps", 1e-6)
    k_eq_v, bidirectional = (
        c.get("attention_k_eq_v", False),
        c.get("use_bidirectional_attention", "") == "all",
    )
    size: int | None = c.get("sliding_window", window)
    if kind == FULL:
        heads, size = _full_attention_heads(c, heads, types, k_eq_v), None
    elif bidirectional:
        # as in transformers: ± (window // 2 + 1), ends included
        size = c.get("sliding_window", window) // 2 + 2
    attention = gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=rope_by_type(c, ROPES, kind, heads.head_dim),
        window=AttentionWindow(size=size, causal=not bidirectional),
        q_norm=rms(heads.head_dim, eps),
        k_norm=rms(heads.head_dim, eps),
        score_transform=ScoreTransform(scale=1.0),
    ).replace(v_norm=RMSNorm(eps=eps))
    return attention.replace(v=None) if kind == FULL and k_eq_v else attention


def _full_attention_heads(c: Config, heads: Heads, types: list[str], k_eq_v: bool) -> Heads:
    """Return the heads of the layers without a window, from Google's keys or from those that
    transformers 5 saves for each layer.
    """
    H, K, h = heads
    c.ignore("num_global_key_value_heads", "global_head_dim")
    if "per_layer_config" not in c:
        K = (
            c.dim("Kg", "num_global_key_value_heads")
            if k_eq_v and "num_global_key_value_heads" in c
            else K
        )
        return Heads(H, K, c.dim("hg", "global_head_dim", default=512))
    if (s := settings_of_layers(c, types, FULL)) is None:
        return heads
    K = s.dim("Kg", "num_key_value_heads") if "num_key_value_heads" in s else K
    return Heads(H, K, s.dim("hg", "head_dim", default=h))


def _mlp(c: Config, d: Expr, norm: RMSNorm, activation: str, shares_kv: bool) -> MLP | DenseAndMoE:
    F, double_wide = c.dim("F", "intermediate_size"), c.get("use_double_wide_mlp", False)
    dense = swiglu(d, 2 * F if double_wide and shares_kv else F, activation)
    c.ignore(
        "num_experts",
        "top_k_experts",
        "moe_intermediate_size",
        "expert_intermediate_size",
        "vocab_size_per_layer_input",
    )
    if not c.get("enable_moe_block", False):
        return dense
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "top_k_experts"),
        c.dim("Fe", any_name("moe_intermediate_size")),
    )
    experts = mixture(d, E, k, swiglu(d, Fe, activation))
    moe = experts.extended(
        ScaledMoE,
        router_norm=norm,
        factor=d**-0.5,
        expert_norm=norm,
        expert_scale=weight(E, role="scale"),
    )
    return DenseAndMoE(
        dense_norm=norm, dense=dense, dense_out_norm=norm, moe=moe, moe_out_norm=norm
    )
