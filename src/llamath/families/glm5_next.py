"""GLM-5.3 Flash: Kimi's delta attention, latent attention to pools of keys in every fourth
layer, several residual streams.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.latent_attention import IndexedAttention, Indexer, LatentSizes, WindowKeys, mla
from ..core.machine import Machine, X
from ..core.mixers import KimiDeltaAttention, kimi_delta
from ..core.tree import Block, repeat
from .glm_moe_dsa import indexer_types
from .hyper_shared import (
    HyperDecoder,
    HyperLayer,
    StreamMean,
    hyper_connection,
    limited,
    stream_mixer,
)
from .indexed_shared import INDEXER_NAMES, layers_with_indexers, read_indexer, without_indexer
from .kimi_shared import DELTA_LAYOUTS, delta_names, kimi_experts
from .layers_shared import layer_kinds, layer_numbers, layers_from, mlp_kinds
from .registry import family


class PoolIndexer(Indexer):
    """An indexer with queries of the latent vector, and weights of their scores (GLM-5.3 Flash)."""

    keys: WindowKeys

    def forward(self, m: Machine[X], x: X, latent: X) -> X:
        q = m.split_heads(self.q(m, latent), self.head_dim)
        weights = m.scale(self.head_weights(m, m.to_float32(x)), self.heads**-0.5)
        return m.add_open_window(self, m.select_keys(self, q, self.keys(m, x), weights))


_FACTORS = {"weight": "fn", "bias": "base", "scale": "scale"}
NAMES = HF_LATENT.with_changes(
    inside=delta_names("self_attn")
    | INDEXER_NAMES
    | {f"attn.indexer.keys.{x}": INDEXER_NAMES[f"attn.indexer.{x}"] for x in ("k", "k_norm")}
    | {
        f"attn.indexer.keys.{x}": f"self_attn.indexer.index_kpool_compress_{y}"
        for x, y in (("bias", "ape"), ("gate.weight", "gate"))
    }
    | {
        f"{x}_hc.{y}.{w}": f"hc_{z}_{n}"
        for x, z in (("attn", "attn"), ("mlp", "ffn"))
        for y in ("pre", "post", "mix")
        for w, n in _FACTORS.items()
    },
    layouts={**HF_LATENT.layouts, **DELTA_LAYOUTS},
)


@family("glm5_next_text", hf=NAMES)
def glm5_next(c: Config) -> Decoder:
    d, V, eps, n = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.get("rms_norm_eps", 1e-5),
        c.dim("hc", "hc_mult", default=4),
    )
    c.require("qk_rope_head_dim", 0, "latent attention of this family has no positions")
    for key in ("mla_use_nope", "mhc", "index_kpool_compress"):
        c.require(key, True, "the published model has it")
    c.require("moe_router_dtype", "float32", "the published model has it")
    c.require("scoring_func", "sigmoid", "the published model has it")
    c.ignore("indexer_rope_interleave", "index_share_for_mtp_iteration", "num_nextn_predict_layers")
    c.ignore(
        "num_key_value_heads",
        "head_dim",
        "qk_head_dim",
        "output_router_logits",
        "router_aux_loss_coef",
    )
    mixers: dict[str, Block] = {
        "linear_attention": _delta(c, d, eps),
        "full_attention": _indexed(c, d, eps),
    }
    mixers["indexed_attention"] = mixers["full_attention"]
    mixers["deepseek_sparse_attention"] = mixers["full_attention"]  # in published configs
    F, L, norm = (
        c.dim("F", "intermediate_size", default=12_288),
        c.dim("L", "num_hidden_layers"),
        rms(d, eps),
    )
    mlps: dict[str, Block] = {
        "dense": limited(c, swiglu(d, F, c.activation("hidden_act"))),
        "sparse": _experts(c, d),
    }
    mixer = stream_mixer(c, d, n, dtype="")
    connection = hyper_connection(c, d, n, eps, factor=2.0, post_eps=0.0, mix=mixer)

    def layer(kind: str, mlp: str) -> HyperLayer:
        plain = Layer(attn_norm=norm, attn=mixers[kind], mlp_norm=norm, mlp=mlps[mlp])
        return plain.extended(HyperLayer, attn_hc=connection, mlp_hc=connection)

    types = layer_kinds(
        c, L, mixers, lambda i: "linear_attention" if i % 4 != 3 else "indexed_attention"
    )
    _check_lists(c, types)
    mlp_types = mlp_kinds(c, L, first=c.get("first_k_dense_replace", 3))
    layers = layers_from(layer, types, mlp_types, count_dim=L)
    layers = layers_with_indexers(c, layers, indexer_types(c, len(layers)), _shared)
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context).extended(
        HyperDecoder, collapse=StreamMean(sizes=(d,) * n, streams=int(n)), sizes=(d,) * n
    )


def _shared(layer: Layer) -> Layer:
    """Return a layer whose attention, if it is to pools, uses the choice of an earlier layer."""
    return without_indexer(layer) if isinstance(layer.attn, IndexedAttention) else layer


def _experts(c: Config, d: Expr) -> MoE:
    """Read the experts, all of them clamped."""
    moe = kimi_experts(c, d, groups=1, kept=1, factor=2.5)
    expert = limited(c, swiglu(d, c.dim("Fe", "moe_intermediate_size"), c.activation("hidden_act")))
    shared = None if moe.shared is None else limited(c, moe.shared)
    return moe.replace(experts=repeat(expert, moe.experts.n, active=moe.top_k), shared=shared)


def _delta(c: Config, d: Expr, eps: float) -> KimiDeltaAttention:
    """Read delta attention; published configs have its sizes in an object."""
    s = c.sub("linear_attn_config")

    def size(letter: str, nested: str, key: str, default: int) -> Expr:
        return s.dim(letter, nested) if nested in s else c.dim(letter, key, default=default)

    H, h = (
        size("Hk", "num_heads", "linear_num_heads", 64),
        size("hk", "head_dim", "linear_head_dim", 128),
    )
    kernel = size("c", "short_conv_kernel_size", "linear_conv_kernel_dim", 4)
    bound = s.get("gate_lower_bound", c.get("linear_lower_bound", -5.0))
    s.require("safe_gate", True, "the decay of every published model has a lower bound")
    c.ignore("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    found = kimi_delta(d, H, h, kernel, eps, c.activation("hidden_act"), lower_bound=bound)
    return found.replace(a_log=weight(H, role="scale"))


def _check_lists(c: Config, types: list[str]) -> None:
    """Refuse lists of layers in `linear_attn_config`, counted from 0, that differ from their
    types.
    """
    s = c.sub("linear_attn_config")
    for key, full in (("full_attn_layers", True), ("kda_layers", False)):
        wanted = [i for i, x in enumerate(types) if (x != "linear_attention") == full]
        if key in s and sorted(layer_numbers(s, key)) != wanted:
            raise s.error(key, f"should list the layers {wanted!r:.60}, counted from 0")


def _indexed(c: Config, d: Expr, eps: float) -> IndexedAttention:
    """Read latent attention to the pools of keys that an indexer selects, and to the keys after
    the last complete one.
    """
    H, n, v = (
        c.dim("H", "num_attention_heads"),
        c.dim("n", "qk_nope_head_dim", default=256),
        c.dim("v", "v_head_dim", default=256),
    )
    s, r = c.dim("s", "q_lora_rank", default=1536), c.dim("r", "kv_lora_rank", default=512)
    attn = mla(
        d,
        LatentSizes(H, n, Expr.const(0), v, s, r),
        c.get("attention_bias", False),
        rope=None,
        eps=eps,
    )
    read, pool = read_indexer(c, d, s, None, heads=32), c.get("index_kpool", 16)
    if pool < 2 or read.top_k % pool:
        raise c.error(
            "index_kpool", f"is {pool}; it should be at least 2 and divide index_topk, {read.top_k}"
        )
    c.require(
        "index_kpool_always_select_tail",
        True,
        "what the first tokens attend to is otherwise not defined",
    )
    h, kept = read.head_dim, Expr("kp", read.top_k // pool)
    assert read.k is not None
    pools = WindowKeys(
        bias=weight(pool, h, role="bias"),
        gate=linear(h, d),
        k=read.k,
        k_norm=read.k_norm,
        head_dim=h,
        ratio=pool,
    )
    indexer = read.replace(k=None, k_norm=None, top_k=kept, ratio=pool).extended(
        PoolIndexer, keys=pools
    )
    return attn.extended(IndexedAttention, indexer=indexer, top_k=kept, block_size=pool)
