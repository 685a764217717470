"""MiniMax-M3's text model: attention to blocks of keys that an indexer selects, norms of each
head, clamped MLPs and experts.
"""

from __future__ import annotations

from typing import ClassVar

from ..config_keys import any_name
from ..core.attention_facts import Heads
from ..core.blocks import Attention, AttentionBase, ClampedMLP, Decoder, Layer, Linear, MoE, Norm
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, mixture, rms, swiglu
from ..core.expr import Expr
from ..core.machine import Machine, X
from ..core.positions import Rope
from .layers_shared import layer_flags, layer_kinds, layers_from
from .minimax_m2 import NAMES as MINIMAX_M2
from .registry import family
from .rope_shared import read_rope, rotary_dim


class BlockIndexer(AttentionBase):
    """Chooses blocks of consecutive keys for each query: those that contain the keys with the
    largest q · k, and the nearest ones.

    Each of its few heads chooses for one key/value head of the attention; all share one key. The
    choice has no derivative (MiniMax-M3).
    """

    cached_rows: ClassVar[tuple[str, ...]] = ("keys",)
    without_gradient: ClassVar[bool] = True
    q: Linear
    k: Linear
    q_norm: Norm
    k_norm: Norm
    heads: int
    head_dim: int
    block_size: int
    top_blocks: int  # blocks that a query attends to at most
    local_blocks: int  # blocks that it always attends to: its own and those before

    def forward(self, m: Machine[X], x: X) -> X:
        # (B, T, Hi, hi)
        q = m.rope(m.norm_heads(self.q_norm, m.split_heads(self.q(m, x), self.head_dim)), self.rope)
        # (B, T, 1, hi)
        k = m.rope(m.norm_heads(self.k_norm, m.split_heads(self.k(m, x), self.head_dim)), self.rope)
        (k,) = m.update_cache(self, k)
        return m.select_blocks(self, q, k)


NAMES = MINIMAX_M2.with_changes(
    inside={
        **{f"attn.indexer.{x}": f"self_attn.index_{x}_proj" for x in "qk"},
        **{f"attn.indexer.{x}_norm": f"self_attn.index_{x}_norm" for x in "qk"},
        **{
            f"mlp.shared.{x}": f"block_sparse_moe.shared_experts.{x}_proj"
            for x in ("gate", "up", "down")
        },
    }
)
SPARSE, FULL = TYPES = ("minimax_m3_sparse", "full_attention")


@family("minimax_m3_vl_text", hf=NAMES, causal_class="MiniMaxM3VLForCausalLM")
def minimax_m3(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    norm, heads = rms(d, _eps(c), offset=1.0), c.heads(d, num_kv_heads=4, head_dim=128)
    rope = read_rope(c, rotary_dim(c, heads.head_dim), theta=5e6)
    mlps = {
        "dense": _mlp(c, d, c.dim("F", "dense_intermediate_size", default=12288)),
        "sparse": _moe(c, d),
    }

    def layer(kind: str, mlp: str) -> Layer:
        return Layer(
            attn_norm=norm, attn=_attention(c, d, heads, rope, kind), mlp_norm=norm, mlp=mlps[mlp]
        )

    selects = layer_flags(
        c.sub("sparse_attention_config"), "sparse_attention_freq", L, lambda _: False
    )
    has_experts = layer_flags(c, "moe_layer_freq", L, lambda _: True)
    types = layer_kinds(c, L, TYPES, lambda i: SPARSE if selects(i) else FULL)
    mlp_types = layer_kinds(
        c, L, mlps, lambda i: "sparse" if has_experts(i) else "dense", "mlp_layer_types"
    )
    layers = layers_from(layer, types, mlp_types, count_dim=L)
    c.ignore("hidden_act", "rotary_dim")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _eps(c: Config) -> float:
    return c.get("rms_norm_eps", 1e-6)


def _attention(c: Config, d: Expr, heads: Heads, rope: Rope, kind: str) -> Attention:
    norm = rms(heads.head_dim, _eps(c), offset=1.0)
    attn = gqa(d, heads, rope=rope, q_norm=norm, k_norm=norm)
    if kind != SPARSE:
        return attn
    indexer = _indexer(c, d, heads, rope)
    return attn.replace(indexer=indexer, block_size=indexer.block_size)


def _indexer(c: Config, d: Expr, heads: Heads, rope: Rope) -> BlockIndexer:
    """Read the indexer, with transformers' keys or with MiniMax's."""
    s = c.sub("sparse_attention_config")

    def read(key: str, published: str, default: int) -> int:
        value = s.get(published, c.get(key, default))
        if value < 1:
            raise c.error(key, f"should be a positive integer, not {value}")
        return value

    n = Expr("Hi", read("index_n_heads", "sparse_num_index_heads", 4))
    h = Expr("hi", read("index_head_dim", "sparse_index_dim", 128))
    if n != heads.num_kv_heads:
        raise c.error(
            "index_n_heads",
            f"is {n}, but it should be the number of key/value heads, {heads.num_kv_heads}",
        )
    if rope.dim > h:
        raise c.error("index_head_dim", f"is {h}, less than the {rope.dim} rotary channels")
    norm = rms(h, _eps(c), offset=1.0)
    return BlockIndexer(
        q=linear(n * h, d),
        k=linear(h, d),
        q_norm=norm,
        k_norm=norm,
        heads=n,
        head_dim=h,
        rope=rope,
        block_size=read("index_block_size", "sparse_block_size", 128),
        top_blocks=read("index_topk_blocks", "sparse_topk_blocks", 16),
        local_blocks=read("index_local_blocks", "sparse_local_block", 1),
    )


def _mlp(c: Config, d: Expr, F: Expr) -> ClampedMLP:
    return swiglu(d, F).extended(
        ClampedMLP, limit=c.get("swiglu_limit", 7.0), alpha=c.get("swiglu_alpha", 1.702)
    )


def _moe(c: Config, d: Expr) -> MoE:
    E, k = (
        c.dim("E", any_name("num_local_experts"), default=128),
        c.dim("k", "num_experts_per_tok", default=4),
    )
    expert, shared = (
        _mlp(c, d, c.dim("Fe", "intermediate_size")),
        _mlp(c, d, c.dim("Fs", "shared_intermediate_size", default=3072)),
    )
    factor = c.get("routed_scaling_factor", 2.0)
    return mixture(
        d,
        E,
        k,
        expert,
        corrected=True,
        shared=shared,
        scoring="sigmoid",
        routed_scaling_factor=factor,
    )
