"""Qwen4-Exp: Qwen3.5's mixers and experts on several residual streams, with tables of n-grams in some layers, which are counted only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import isqrt

from ..core.blocks import Decoder, HyperDecoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, weight
from ..core.expr import Expr, product
from ..core.mixers import convolution
from ..core.multimodal import CountedBlock
from ..core.tree import Block, Stack, Weight, sequence
from .qwen_shared import NAMES_DELTA, delta_net, experts_with_shared, gated_attention
from .registry import family
from .shared import layer_kinds

_CONNECTION = ("hc_norm", "input_mix_weight_down", "input_mix_weight_up", "block_inject_weight")
_TABLE = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
NAMES = NAMES_DELTA.with_changes(
    outside={f"collapse.{x}": f"model.hyper_connection_mixer.{x}" for x in _CONNECTION},
    inside={
        **{f"mlp.moe.{x.removeprefix('mlp.')}": name for x, name in NAMES_DELTA.inside.items() if x.startswith("mlp.")},
        **{f"mlp.{x}_hc.{y}": f"{x}_hyper_connection.{y}" for x in ("attn", "mlp") for y in _CONNECTION},
        **{f"attn.indexer.{x}": f"self_attn.indexer.{x}" for x in ("index_qk_proj", "q_layernorm", "k_layernorm")},
        **{f"mlp.ple.{x}": f"ple.{x}" for x in ("key_proj", "value_proj", "norm_key", "norm_query", "norm_conv", "conv1d")},
        **{f"mlp.ple.{x}": f"ple.ple_embedding.{x}" for x in _TABLE},
        "mlp.ple.table.{e}.weight": "ple.ple_embedding.ngram_embedding.shard_{e}.weight",
    },
    layouts={**NAMES_DELTA.layouts, "mlp.ple.conv1d.weight": "unit"},
)
MAX_ROWS = 1 << 40
"""Upper limit of `ngram_vocab_size_base`, so that primes after it are found quickly."""

LINEAR = "linear_attention"

Parts = dict[str, Weight | Block | Stack]


@family(hf=NAMES)
def qwen4_exp(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, n = c.get("rms_norm_eps", 1e-6), c.dim("hc", "hc_count", default=4)
    moe = experts_with_shared(c, d, norm_topk_prob=True)
    mix = _connection(c, d, n)
    connection = CountedBlock(kind="mlp", parts=mix | {"block_inject_weight": linear(n, n * d)})
    nth = c.get("full_attention_interval", 4)
    types = layer_kinds(c, L, (LINEAR, "indexed_attention", "full_attention"), lambda i: LINEAR if (i + 1) % nth else "indexed_attention")
    readers = {x: delta_net if x == LINEAR else _attention for x in dict.fromkeys(types)}  # without such a layer, its keys may be absent
    kinds: dict[str, Block] = {x: read(c, d, eps) for x, read in readers.items()}
    numbers: list[int] = sorted(set(c.get("ple_layer_ids", []) or []))
    tables = {number: _table(c, d, n, place) for place, number in enumerate(numbers)}
    if unknown := [x for x in numbers if not 1 <= x <= L]:
        raise c.error("ple_layer_ids", f"names the layer {unknown[0]} of {L}")

    @cache
    def layer(kind: str, number: int) -> Layer:
        parts: Parts = {"moe": moe, "attn_hc": connection, "mlp_hc": connection}
        if number:
            parts["ple"] = tables[number]
        return Layer(attn=kinds[kind], mlp=CountedBlock(kind="mlp", parts=parts))

    layers = sequence((layer(x, i if i in tables else 0) for i, x in enumerate(types, 1)), count_dim=L)
    c.ignore("norm_topk_prob", "output_gate_type", "output_router_logits", "router_aux_loss_coef", "seed", "eos_token_id", "indexer_budget")
    found = decoder(V, d, layers, rms(d, eps), tied=c.get("tie_word_embeddings", False), context=c.positive_int("max_position_embeddings"))
    return found.replace(norm=None).extended(HyperDecoder, collapse=CountedBlock(kind="mlp", parts=mix), sizes=(d,) * n)


def _connection(c: Config, d: Expr, n: Expr) -> Parts:
    """A connection of low rank between residual streams."""
    r = c.dim("hr", "hc_lowrank", default=320)
    return {"hc_norm": rms(n * d, 1e-6), "input_mix_weight_down": linear(r, n * d), "input_mix_weight_up": linear(n * d, r)}


def _attention(c: Config, d: Expr, eps: float) -> Block:
    """Gated attention to blocks of keys that an indexer selects."""
    attn = gated_attention(c, d, eps)
    c.ignore("indexer_compress_ratio")
    Hi, Ki, hi = c.dim("Hi", "indexer_n_heads"), c.dim("Ki", "indexer_kv_heads"), c.dim("hi", "indexer_head_dim")
    indexer = CountedBlock(parts={"index_qk_proj": linear((Hi + Ki) * hi, d), "q_layernorm": rms(hi, eps), "k_layernorm": rms(hi, eps)})
    return CountedBlock(kind="attention", parts={**dict(attn.children), "indexer": indexer})


def _table(c: Config, d: Expr, n: Expr, place: int) -> CountedBlock:
    """A table of hashed n-grams, stored in shards, and what adds its rows to the residual streams."""
    heads = (c.get("ngram_size", 3) - 1) * c.get("heads_per_ngram", 8)
    e, base = c.dim("e", "ple_embed_dim", default=d), c.get("ngram_vocab_size_base", 20_000_000)
    if not 0 < base < MAX_ROWS or not 0 < heads <= 1000:
        raise c.error("ngram_vocab_size_base", f"is {base} with {heads} heads, which is out of range")
    primes = _primes(base)
    sizes = [next(primes) for _ in range((place + 1) * heads)][place * heads :]
    step, shards = c.get("make_ngram_vocab_size_divisible_by", 128), c.get("split_ngram_parts", 512)
    rows = -(-sum(sizes) // step) * step
    if not 0 < shards <= rows:
        raise c.error("split_ngram_parts", f"should be from 1 to {rows}, not {shards}")
    size = -(-rows // shards)  # as torch.chunk does; the last shard is the rest
    width = Expr("e_h", int(e) // heads)

    def shard(n: int) -> CountedBlock:
        return CountedBlock(kind="embedding", parts={"weight": weight(Expr("ngrams", n), width, role="lookup")})

    table = Stack(((shard(size),), rows // size), *([((shard(rows % size),), 1)] if rows % size else []))

    def numbers(count: int) -> Weight:
        return weight(count, role="scale").replace(buffer=True)

    wide = rms(n * d, 1e-6)
    parts: Parts = {
        "layer_multipliers": numbers(c.get("ngram_size", 3)),
        "ngram_heads_vocab_sizes": numbers(heads),
        "ngram_heads_offsets": numbers(heads),
        "table": table,
        "key_proj": linear(product((n, d)), e),
        "value_proj": linear(d, e),
        **dict.fromkeys(("norm_key", "norm_query", "norm_conv"), wide),
        "conv1d": convolution(n * d, c.get("ple_conv_kernel_size", 4)),
    }
    return CountedBlock(kind="mlp", parts=parts)


def _primes(start: int) -> Iterator[int]:
    """Yield the primes from this number on."""
    while True:
        if start > 1 and all(start % i for i in range(2, isqrt(start) + 1)):
            yield start
        start += 1
