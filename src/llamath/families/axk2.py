"""A.X K2: DeepSeek-V3.2's attention with a gate of its outputs, and norms with gates of low
rank.
"""

from __future__ import annotations

from typing import ClassVar

from ..core.blocks import Decoder, Layer, Linear, Norm
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu
from ..core.latent_attention import IndexedAttention, attend, latents_of, queries_of
from ..core.machine import Machine, X
from .deepseek_shared import deepseek_v3_moe
from .indexed_shared import HF_INDEXED, indexed_attention
from .layers_shared import dense_or_sparse
from .registry import family
from .rope_shared import read_rope


class GatedIndexedAttention(IndexedAttention):
    """Indexed attention; queries and a gate are projected from the latent vector before and
    after its norm (A.X K2).
    """

    computes_on_shards: ClassVar[bool] = True

    def forward(self, m: Machine[X], x: X) -> X:
        assert (
            self.q_down is not None
            and self.q_norm is not None
            and self.indexer is not None
            and self.gate is not None
        )
        down = self.q_down(m, x)
        latent = self.q_norm(m, down)
        both = m.concat(latent, down)
        q, q_rope = queries_of(self, m, both)
        cached = latents_of(self, m, x)
        y = m.merge_heads(attend(self, m, q, q_rope, cached, self.indexer(m, x, latent)))
        gate = m.act(m.to_float32(self.gate(m, both)), "sigmoid")
        return self.o(m, m.to_model_dtype(m.multiply(m.to_float32(y), gate)))


class GatedNorm(Norm):
    """y · sigmoid(up(silu(down y))) with y = inner x: a norm with a gate of low rank (A.X K2)."""

    inner: Norm
    gate_down: Linear
    gate_up: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        y = self.inner(m, x)
        gate = self.gate_up(m, m.act(self.gate_down(m, y), "silu"))
        return m.to_model_dtype(m.multiply(m.to_float32(y), m.act(m.to_float32(gate), "sigmoid")))


_GATED = {"{}.inner": "{}.norm", "{}.gate_down": "{}.W_down", "{}.gate_up": "{}.W_up"}
_PLAIN = HF_INDEXED.with_changes(
    inside={
        "attn.q_up": "self_attn.q_b_proj",
        "attn.gate": "self_attn.q_b_proj",
        **{
            path.format("attn_norm"): name.format("input_layernorm")
            for path, name in _GATED.items()
        },
        **{
            path.format("mlp_norm"): name.format("post_attention_layernorm")
            for path, name in _GATED.items()
        },
    }
)
NAMES = _PLAIN.replace(layouts={**_PLAIN.layouts, "attn.q_up": "heads", "attn.gate": "heads"})


@family(hf=NAMES, causal_class="AXK2ForCausalLM")
def axk2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm, rope = (
        rms(d, c.get("rms_norm_eps", 1e-6)),
        read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=True),
    )
    rank = c.dim("g", "gated_norm_rank", default=16)
    gated_norm = GatedNorm(inner=norm, gate_down=linear(rank, d), gate_up=linear(d, rank))
    attn = indexed_attention(c, d, rope, rope.replace(interleaved=False), heads=16, q_rank=384)
    c.ignore("rope_interleave", "layer_types")
    assert attn.q_down is not None
    H, s, v = attn.heads, attn.q_down.weight.shape[0], attn.v_dim
    queries = linear(H * (attn.nope_dim + attn.rope_dim), 2 * s)
    attn = attn.replace(q_up=queries, gate=linear(H * v, 2 * s)).extended(GatedIndexedAttention)
    moe = deepseek_v3_moe(c, d, factor=2.5)
    if moe.expert_groups is not None:
        moe = moe.replace(expert_groups=moe.expert_groups._replace(other_score=0.0))
    dense = Layer(
        attn_norm=gated_norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_or_sparse(c, dense, dense.replace(mlp_norm=gated_norm, mlp=moe))
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
