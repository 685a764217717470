"""Hy4: latent attention to selected keys with sinks and a gate, several residual streams, and
experts with clamped activations.
"""

from __future__ import annotations

from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.tree import repeat
from .deepseek_shared import deepseek_v3_moe
from .hyper_shared import HyperDecoder, HyperLayer, hyper_connection, limited, stream_sum
from .indexed_shared import HF_INDEXED, indexed_attention, layers_with_indexers, without_indexer
from .layers_shared import dense_or_sparse, listed_layers
from .registry import family
from .rope_shared import read_rope

_GATE = {"weight": "fn", "bias": "base", "scale": "scale"}
NAMES = HF_INDEXED.with_changes(
    outside={
        f"collapse.pre.{x}": f"model.hc_pre.hc_head.hc_head_{name}" for x, name in _GATE.items()
    },
    inside={
        "attn.gate": "self_attn.linear_gate",
        "attn.sinks": "self_attn.learnable_sink_param",
        "mlp.gate": "mlp.linear_gate",
        "mlp.shared.gate": "mlp.shared_experts.linear_gate",
        **dict.fromkeys(
            ("mlp.experts.{e}.gate.weight", "mlp.experts.{e}.up.weight"), "mlp.experts.gate_up_proj"
        ),
        "mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
        **{
            f"attn_hc.{part}.{x}": f"hc_pre.hc_attn_layer.hc_{name}"
            for part in ("pre", "post")
            for x, name in _GATE.items()
        },
        **{
            f"mlp_hc.{part}.{x}": f"hc_pre.hc_mlp_layer.hc_{name}"
            for part in ("pre", "post")
            for x, name in _GATE.items()
        },
    },
)
"""The names that transformers writes and reads."""


@family(hf=NAMES, causal_class="HYV4ForCausalLM")
def hy_v4(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    eps, rope = c.get("rms_norm_eps", 1e-5), read_rope(c, c.dim("p", "qk_rope_head_dim"))
    attn = indexed_attention(c, d, rope, rope, heads=16, q_rank=1536, eps=eps, rope_last=True)
    attn = attn.replace(
        gate=linear(attn.heads * attn.v_dim, d), sinks=weight(attn.heads, role="bias")
    )
    c.ignore("learnable_sink_init", "layer_types")
    moe = deepseek_v3_moe(c, d, factor=2.827)
    expert = limited(c, swiglu(d, c.dim("Fe", "moe_intermediate_size"), c.activation("hidden_act")))
    moe = moe.replace(experts=repeat(expert, moe.experts.n, active=moe.experts.active))
    norm, n = rms(d, eps), c.dim("hc", "hc_mult", default=4)
    connection = hyper_connection(
        c, d, n, eps, factor=c.get("hc_magnitude", 2.0), post_eps=c.get("hc_eps", 1e-6)
    )
    plain = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    dense = plain.extended(HyperLayer, attn_hc=connection, mlp_hc=connection)
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe))
    default = ["shared" if (i - 1) % 4 and i else "full" for i in listed_layers(c, layers.n)]
    layers = layers_with_indexers(c, layers, default, without_indexer)
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context).extended(
        HyperDecoder, collapse=stream_sum(c, d, n, eps), sizes=(d,) * n
    )
