"""DeepSeek-V4: attention to the last tokens and to compressed windows, hyper-connections, and
first layers whose experts a table gives.
"""

from __future__ import annotations

from typing import ClassVar

from ..core.blocks import Decoder, Layer, MoE, add_shared_experts, router_logits
from ..core.config import Config
from ..core.constructors import decoder, rms, weight
from ..core.expr import Expr
from ..core.extensions.compressed_attention import (
    CompressedAttention,
    compressed_indexer,
    compressor,
)
from ..core.machine import Machine, X
from ..core.tree import Weight, sequence
from .compressed_shared import (
    NAMES,
    PUBLISHED,
    compressed_attention,
    indexer_sizes,
    limited_experts,
)
from .hyper_shared import HyperDecoder, HyperLayer, hyper_connection, stream_mixer, stream_sum
from .layers_shared import listed_layers, read_layer_types
from .registry import family


class HashMoE(MoE):
    """Experts that a table gives for each token id; the router only weighs them (DeepSeek-V4)."""

    routes_by_token: ClassVar[bool] = True
    groups: ClassVar[dict[str, str]] = {**MoE.groups, "table": "router"}
    table: Weight  # [V, k], numbers of experts

    def forward(self, m: Machine[X], x: X) -> X:
        chosen, weights = m.route_by_token(router_logits(self, m, x), self.table, self)
        return add_shared_experts(self, m, x, m.experts(self, self.experts, x, chosen, weights))


SLIDING, SPARSE, HEAVY = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
_RATIOS = {0: SLIDING, 4: SPARSE, 128: HEAVY}


@family(hf=NAMES, hf_forms=(PUBLISHED,), causal_class="DeepseekV4ForCausalLM")
def deepseek_v4(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, n = c.get("rms_norm_eps", 1e-6), c.dim("hc", "hc_mult", default=4)
    norm = rms(d, eps)
    connection = hyper_connection(c, d, n, eps, factor=2.0, post_eps=0.0, mix=stream_mixer(c, d, n))
    attention, experts = _attention(c, d, eps), _experts(c, d, V)
    types, mlp_types = _layer_types(c, int(L)), _mlp_types(c, int(L))
    kinds = {
        (x, y): Layer(attn_norm=norm, attn=attention[x], mlp_norm=norm, mlp=experts[y]).extended(
            HyperLayer, attn_hc=connection, mlp_hc=connection
        )
        for x, y in dict.fromkeys(zip(types, mlp_types, strict=True))
    }
    layers = sequence((kinds[x] for x in zip(types, mlp_types, strict=True)), count_dim=L)
    c.ignore(
        "num_key_value_heads",
        "num_nextn_predict_layers",
        "topk_method",
        "norm_topk_prob",
        "attention_bias",
        "expert_dtype",
    )
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context).extended(
        HyperDecoder, collapse=stream_sum(c, d, n, eps), sizes=(d,) * n
    )


def _layer_types(c: Config, n: int) -> list[str]:
    """Read the attention of each layer; `compress_ratios` may go on with the layers of
    multi-token prediction.
    """
    if "layer_types" in c:
        c.ignore("compress_ratios")
        return read_layer_types(c, n, _RATIOS.values())
    if "compress_ratios" not in c:
        return [HEAVY if i < 2 or i % 2 == 0 else SPARSE for i in listed_layers(c, n)]
    ratios = c.get("compress_ratios", [0])
    if len(ratios) < n or any(type(x) is not int or x not in _RATIOS for x in ratios):
        raise c.error("compress_ratios", f"should list 0, 4 or 128 for each of the {n} layers")
    return [_RATIOS[x] for x in ratios[:n]]


def _mlp_types(c: Config, n: int) -> list[str]:
    """Read the type of experts of each layer: with a table by token in the first ones."""
    if "mlp_layer_types" in c:
        c.ignore("num_hash_layers")
        return read_layer_types(c, n, ("hash_moe", "moe"), "mlp_layer_types")
    hashed = c.dim("hash", "num_hash_layers", default=3, least=0)
    return ["hash_moe" if i < hashed else "moe" for i in range(n)]


def _attention(c: Config, d: Expr, eps: float) -> dict[str, CompressedAttention]:
    """Read the attention of each type of layer."""
    plain, far = compressed_attention(c, d, eps, q_rank=1024, norm_heads=True)
    h, s, rates = (
        c.dim("h", "head_dim", default=512),
        c.dim("s", "q_lora_rank", default=1024),
        c.sub("compress_rates"),
    )
    ratio, heavy, sizes = (
        rates.get(SPARSE, 4),
        rates.get(HEAVY, 128),
        indexer_sizes(c, far.rope, heads=64),
    )
    sparse = compressor(d, h, ratio, eps, far.rope, overlap=True)
    indexer = compressed_indexer(d, s, sizes, ratio, eps, far.rope)
    return {
        SLIDING: plain,
        SPARSE: far.replace(compressor=sparse, indexer=indexer, ratio=ratio, top_k=sizes.top_k),
        HEAVY: far.replace(
            compressor=compressor(d, h, heavy, eps, far.rope, overlap=False), ratio=heavy
        ),
    }


def _experts(c: Config, d: Expr, V: Expr) -> dict[str, MoE]:
    """Read the experts of each type of layer."""
    k = c.dim("k", "num_experts_per_tok")
    moe = limited_experts(c, d, c.dim("E", "n_routed_experts"), k)
    table = weight(V, k, role="lookup", dtype="I64").replace(buffer=True)
    return {"moe": moe, "hash_moe": moe.replace(correction=None).extended(HashMoE, table=table)}
