"""Kimi K3: Kimi Linear with latent experts, gates on latent attention, and residuals that attend
to those of earlier layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import MLP, Decoder, LatentMoE, Layer, Linear, Norm, apply_optional
from ..core.config import Config
from ..core.constructors import decoder, linear, mixture, rms, swiglu, weight
from ..core.expr import Expr
from ..core.latent_attention import LatentAttention, attend, latents_of, queries_of, query_latent_of
from ..core.machine import Machine, X
from ..core.mixers import PaddedKimiDeltaAttention, kimi_delta
from ..core.tree import Block, Cut
from .deepseek_shared import latent_attention
from .hyper_shared import HyperDecoder
from .kimi_linear import EXPERTS, full_layers
from .kimi_shared import DELTA_LAYOUTS, delta_names
from .layers_shared import check_listed, layers_from
from .registry import family


class GatedLatentAttention(LatentAttention):
    """Latent attention in which a sigmoid gate multiplies each channel of the outputs of its
    heads (Kimi K3).
    """

    cuts: ClassVar[dict[str, Cut]] = {**LatentAttention.cuts, "gate": Cut(0, "heads")}
    gate: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        q, q_rope = queries_of(self, m, query_latent_of(self, m, x))
        y = m.merge_heads(attend(self, m, q, q_rope, latents_of(self, m, x)))
        return self.o(m, m.multiply(y, m.act(self.gate(m, x), "sigmoid")))


class SituMLP(MLP):
    """down(β tanh(g / β) · sigmoid(g) · λ tanh(u / λ)) with g = gate x and u = up x, in float32
    (Kimi K3).
    """

    beta: float
    linear_beta: float | None = None  # None: u as it is

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.gate is not None
        gate, up = m.to_float32(self.gate(m, x)), m.to_float32(self.up(m, x))
        y = m.multiply(m.softcap(gate, self.beta), m.act(gate, "sigmoid"))
        y = m.multiply(y, m.softcap(up, self.linear_beta))
        return self.down(m, m.to_model_dtype(y))


class DepthAttention(Block):
    """Σ softmax(proj(norm xᵢ))ᵢ · xᵢ: attention of each token to several of its residual streams
    x (Kimi K3).
    """

    group: ClassVar[str] = "mlp"
    norm: Norm
    proj: Linear
    width: int
    streams: int

    def forward(self, m: Machine[X], x: X) -> X:
        streams = m.split_heads(x, self.width)  # (B, T, n, d)
        scores = m.merge_heads(m.to_float32(self.proj(m, self.norm(m, streams))))  # (B, T, n)
        weights = m.split_heads(m.softmax(scores), self.streams)  # (B, T, 1, n)
        return m.merge_heads(m.to_model_dtype(m.mix_streams(m.to_float32(streams), weights)))


class DepthAttentionLayer(Layer):
    """A layer whose branches read an attention to the outputs of earlier blocks of layers, and to
    the sum of its own block's (Kimi K3).

    Its input has the streams of complete blocks, those of the others, which nothing reads yet,
    and that sum last. The first layer of a block completes the one before it: the sum becomes that
    block's stream, and a new one begins.
    """

    attn_depth: DepthAttention
    mlp_depth: DepthAttention
    sizes: tuple[int, ...]  # of what the streams are split into
    complete: bool  # whether any stream is
    opens: bool  # whether a block begins here

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        known, later, total = _streams_of(self, m.split(x, *self.sizes))
        read = [] if known is None else [known]
        y = self.attn_depth(m, m.concat(*read, total)) if read else total
        y = self.attn(m, apply_optional(self.attn_norm, m, y))
        if self.opens:
            read, total = [*read, total], y
        else:
            total = m.add(total, y)
        y = self.mlp_depth(m, m.concat(*read, total))
        total = m.add(total, self.mlp(m, apply_optional(self.mlp_norm, m, y)))
        return m.concat(*read, *([] if later is None else [later]), total)


def _streams_of(layer: DepthAttentionLayer, parts: Sequence[X]) -> tuple[X | None, X | None, X]:
    """Return the streams of complete blocks, those of later ones, and the sum; that of a block
    which is completed by the layer is left out.
    """
    *streams, total = parts
    known = streams.pop(0) if layer.complete else None
    return known, streams[-1] if len(streams) > layer.opens else None, total


_LATENT = {"down": "down_proj", "norm": "norm", "up": "up_proj"}
_DEPTH = {
    f"{ours}_depth.{x}": f"{theirs}_res_{x}"
    for ours, theirs in (("attn", "self_attention"), ("mlp", "mlp"))
    for x in ("norm", "proj")
}
NAMES = HF_LATENT.with_changes(
    outside={f"collapse.{x}": f"model.output_attn_res_{x}" for x in ("norm", "proj")},
    inside={
        **delta_names("self_attn", gate="g_proj"),
        **EXPERTS,
        **{f"mlp.latent_{x}": f"block_sparse_moe.routed_expert_{y}" for x, y in _LATENT.items()},
        **_DEPTH,
    },
    layouts={**HF_LATENT.layouts, **DELTA_LAYOUTS},
)
_PROVEN = (96, 128)
"""Heads of delta attention and their size in the published model, whose `A_log` has 128 numbers."""


@family("kimi_k3_text", hf=NAMES)
def kimi_k3(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, first, block = (
        c.get("rms_norm_eps", 1e-5),
        c.get("first_k_dense_replace", 1),
        c.positive_int("attn_res_block_size", 12),
    )
    norm, is_full, n = rms(d, eps), full_layers(c), -(-int(L) // block)
    delta, latent = _delta(c, d, eps), _latent(c, d)
    dense, moe = _situ(c, d, c.dim("F", "intermediate_size")), _experts(c, d, eps)

    def depth(streams: int) -> DepthAttention:
        return DepthAttention(norm=norm, proj=linear(1, d), width=d, streams=streams)

    # layers with as many streams share these
    before_attn, before_mlp = ([depth(i) for i in range(1, n + 2)] for _ in range(2))

    def layer(full: bool, sparse: bool, closed: int, opens: bool) -> DepthAttentionLayer:
        plain = Layer(
            attn_norm=norm,
            attn=latent if full else delta,
            mlp_norm=norm,
            mlp=moe if sparse else dense,
        )
        return plain.extended(
            DepthAttentionLayer,
            attn_depth=before_attn[closed],
            mlp_depth=before_mlp[closed + opens],
            sizes=tuple(d * k for k in (closed, int(opens), n - closed - opens, 1) if k),
            complete=closed > 0,
            opens=opens,
        )

    check_listed(c, L)
    facts = zip(
        *((is_full(i), i >= first, -(-i // block), i % block == 0) for i in range(int(L))),
        strict=True,
    )
    layers = layers_from(layer, *facts, count_dim=L)
    c.ignore("num_key_value_heads", "topk_method")
    found = decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
    return found.extended(HyperDecoder, collapse=depth(n + 1), sizes=(d,) * (n + 1))


def _situ(c: Config, d: Expr, F: Expr) -> SituMLP:
    c.require("hidden_act", "situ", "the published model has it")
    bounds = {
        "beta": c.get("activation_situ_beta", None) or 1.0,
        "linear_beta": c.get("activation_situ_linear_beta", None),
    }
    return swiglu(d, F, "sigmoid").extended(SituMLP, **bounds)


def _delta(c: Config, d: Expr, eps: float) -> Block:
    s = c.sub("linear_attn_config")
    H, h, kernel = (
        s.dim("Hk", "num_heads"),
        s.dim("hk", "head_dim"),
        s.dim("c", "short_conv_kernel_size", default=4),
    )
    if (int(H), int(h)) != _PROVEN:
        raise s.error(
            "num_heads",
            f"is {H} with a head_dim of {h}",
            f"the published model proves {_PROVEN[0]} heads of {_PROVEN[1]} alone",
        )
    if not s.get("use_full_rank_gate", False):
        raise s.error("use_full_rank_gate", "is not true, unlike in the published model")
    bound = s.get("gate_lower_bound", -5.0)
    found = kimi_delta(d, H, h, kernel, eps, "silu", lower_bound=bound).replace(
        gate_down=None, gate=linear(H * h, d)
    )
    return found.extended(PaddedKimiDeltaAttention).replace(a_log=weight(h, role="scale"))


def _latent(c: Config, d: Expr) -> Block:
    """Latent attention without positions, with a gate of its heads."""
    if not c.get("mla_use_nope", True) or not c.get("mla_use_output_gate", False):
        raise c.error(
            "mla_use_output_gate", "or mla_use_nope is not true, unlike in the published model"
        )
    width = c.dim("H", "num_attention_heads") * c.dim("v", "v_head_dim")
    return latent_attention(c, d, None, q_rank=1536).extended(
        GatedLatentAttention, gate=linear(width, d)
    )


def _experts(c: Config, d: Expr, eps: float) -> LatentMoE:
    """Experts on a narrowed residual, and shared ones on the whole."""
    e, Fe = c.dim("de", "routed_expert_hidden_size"), c.dim("Fe", "moe_intermediate_size")
    E, k, S = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_token"),
        c.dim("S", "num_shared_experts"),
    )
    if not c.get("latent_moe_use_norm", False):
        raise c.error("latent_moe_use_norm", "is not true, unlike in the published model")
    c.require("num_expert_group", 1, "the published model has no groups of experts")
    c.ignore("use_grouped_topk", "moe_layer_freq", "topk_group", "num_nextn_predict_layers")
    scoring, norm = c.get("moe_router_activation_func", "sigmoid"), c.get("moe_renormalize", True)
    factor, expert, shared = (
        c.get("routed_scaling_factor", 1.0),
        _situ(c, e, Fe),
        _situ(c, d, S * Fe),
    )
    moe = mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring=scoring,
        norm_topk_prob=norm,
        fp32_router=True,
    )
    latent = {"latent_down": linear(e, d), "latent_norm": rms(e, eps), "latent_up": linear(d, e)}
    return moe.extended(LatentMoE, routed_scaling_factor=factor, **latent)
