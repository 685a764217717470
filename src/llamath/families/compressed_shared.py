"""Readers of what DeepSeek-V4 and V4.1 share: attention to the last tokens beside compressed
windows, its positions, and its experts.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import MoE, RMSNorm
from ..core.config import Config
from ..core.constructors import linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.extensions.compressed_attention import CompressedAttention
from ..core.latent_attention import IndexerSizes
from ..core.positions import Rope, YarnRope
from ..core.tree import repeat
from .hyper_shared import limited
from .rope_shared import rope_from

_FACTORS = {"weight": "fn", "bias": "base", "scale": "scale"}
_COMPRESSOR = {"kv": "wkv", "weights": "wgate", "bias": "ape", "norm": "norm"}
NAMES = HF.with_changes(
    outside={
        "head": "head",
        **{f"collapse.pre.{x}": f"model.hc_head.hc_{name}" for x, name in _FACTORS.items()},
    },
    inside={
        "attn_norm": "attn_norm",
        "mlp_norm": "ffn_norm",
        "attn.q_down": "attn.wq_a",
        "attn.q_norm": "attn.q_norm",
        "attn.q_up": "attn.wq_b",
        "attn.kv": "attn.wkv",
        "attn.kv_norm": "attn.norm",
        "attn.o_down": "attn.wo_a",
        "attn.o_up": "attn.wo_b",
        "attn.sinks": "attn.attn_sink",
        **{f"attn.compressor.{x}": f"attn.compressor.{name}" for x, name in _COMPRESSOR.items()},
        **{
            f"attn.indexer.compressor.{x}": f"attn.indexer.compressor.{name}"
            for x, name in _COMPRESSOR.items()
        },
        "attn.indexer.q": "attn.indexer.wq_b",
        "attn.indexer.head_weights": "attn.indexer.weights_proj",
        "mlp.router": "ffn.gate",
        "mlp.correction": "ffn.gate.bias",
        "mlp.table": "ffn.gate.tid2eid",
        **{
            f"mlp.experts.{{e}}.{x}": f"ffn.experts.{{e}}.{w}"
            for x, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
        },
        **{
            f"mlp.shared.{x}": f"ffn.shared_experts.{w}"
            for x, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
        },
        **{
            f"attn_hc.{y}.{x}": f"hc_attn_{name}"
            for y in ("pre", "post", "mix")
            for x, name in _FACTORS.items()
        },
        **{
            f"mlp_hc.{y}.{x}": f"hc_ffn_{name}"
            for y in ("pre", "post", "mix")
            for x, name in _FACTORS.items()
        },
    },
)
"""The names that transformers writes."""
PUBLISHED = NAMES.with_changes(
    name="hf-published",
    layer="layers.{l}.",
    outside={
        "embed": "embed",
        "norm": "norm",
        **{f"collapse.pre.{x}": f"hc_head_{name}" for x, name in _FACTORS.items()},
    },
    inside={"attn.kv_norm": "attn.kv_norm"},
)
"""The names of the published files."""


def compressed_attention(
    c: Config, d: Expr, eps: float, *, q_rank: int, norm_heads: bool
) -> tuple[CompressedAttention, CompressedAttention]:
    """Read attention to the last tokens, with the positions of layers without and with windows;
    `q_rank` is the default of its key.
    """
    H, h = c.dim("H", "num_attention_heads"), c.dim("h", "head_dim", default=512)
    s, G, o = (
        c.dim("s", "q_lora_rank", default=q_rank),
        c.dim("og", "o_groups", default=8),
        c.dim("o", "o_lora_rank", default=1024),
    )
    if H * h % G:
        raise c.error("o_groups", f"is {G}, which does not divide the {H} heads of {h}")
    near, far = _ropes(c, h)
    plain = CompressedAttention(
        q_down=linear(s, d),
        q_norm=rms(s, eps),
        q_up=linear(H * h, s),
        head_norm=RMSNorm(eps=eps) if norm_heads else None,
        kv=linear(h, d),
        kv_norm=rms(h, eps),
        o_down=linear(G * o, H * h // G),
        o_up=linear(d, G * o),
        sinks=weight(H, role="bias", dtype="F32"),
        heads=H,
        head_dim=h,
        o_groups=G,
        o_rank=o,
        group_dim=Expr.const(H * h // G),
        window=AttentionWindow(size=c.positive_int("sliding_window") or 128),
        rope=near,
        reverse=near.replace(reverse=True),
    )
    return plain, plain.replace(rope=far, reverse=far.replace(reverse=True))


def _ropes(c: Config, h: Expr) -> tuple[Rope, Rope]:
    """Read the positions of layers without and with windows."""
    share = c.get("partial_rotary_factor", 64 / 512)
    p = (
        c.dim("p", "qk_rope_head_dim")
        if "qk_rope_head_dim" in c and "partial_rotary_factor" not in c
        else Expr("p", h.scaled(share))
    )
    s = c.rope()
    s.ignore("partial_rotary_factor")
    theta, far = c.get("rope_theta", 10000.0), c.get("compress_rope_theta", 160000.0)
    if isinstance(s.data.get("main"), dict) and isinstance(s.data.get("compress"), dict):
        parts = s.sub("main"), s.sub("compress")
        for x in parts:
            x.ignore("partial_rotary_factor")
        main, compress = (
            rope_from(c, x, theta=y, dim=p, interleaved=True)
            for x, y in zip(parts, (theta, far), strict=True)
        )
    else:
        main = Rope(theta=theta, dim=p, interleaved=True)
        compress = rope_from(c, s, theta=far, dim=p, interleaved=True).replace(theta=far)
    if isinstance(compress, YarnRope) and compress.attention_factor is None:
        compress = compress.replace(attention_factor=1.0)
    return main, compress


def indexer_sizes(c: Config, rope: Rope | None, *, heads: int) -> IndexerSizes:
    """Read the sizes of an indexer; `heads` is the default number of its heads."""
    found = IndexerSizes(
        c.dim("Hi", "index_n_heads", heads),
        c.dim("hi", "index_head_dim", 128),
        c.dim("ki", "index_topk", 512),
    )
    if rope is not None and rope.dim > found.head_dim:
        raise c.error(
            "index_head_dim", f"is {found.head_dim}, less than the {rope.dim} channels that rotate"
        )
    return found


def limited_experts(c: Config, d: Expr, E: Expr, k: Expr) -> MoE:
    """Read k of E experts with clamped factors, and one that all tokens pass, which alone may
    have biases.
    """
    Fe, activation = c.dim("Fe", "moe_intermediate_size"), c.activation("hidden_act")
    shared = limited(c, swiglu(d, Fe, activation, c.get("mlp_bias", False)))
    scoring = c.get("scoring_func", "sqrtsoftplus")
    if scoring not in ("sqrtsoftplus", "softmax", "sigmoid"):
        raise c.error(
            "scoring_func", f"is {scoring!r:.60}", "known: sqrtsoftplus, softmax, sigmoid"
        )
    c.ignore("n_shared_experts")
    return MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True),
        experts=repeat(limited(c, swiglu(d, Fe, activation)), E, active=k),
        shared=shared,
        top_k=k,
        scoring=scoring,
        routed_scaling_factor=c.get("routed_scaling_factor", 1.5),
    )
