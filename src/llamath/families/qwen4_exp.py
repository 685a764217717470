"""Qwen4-Exp: Qwen3.5's mixers and experts on several residual streams, windows of keys that an
indexer selects, tables of n-grams.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

from ..core.blocks import Attention, AttentionBase, Decoder, Embedding, Layer, Linear, Norm
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, side_table, weight
from ..core.expr import Expr, product
from ..core.extensions.ngram_tables import MAX_ROWS, rows_of_hashes, streams_norm
from ..core.latent_attention import WindowKeys
from ..core.machine import Machine, X
from ..core.mixers import Convolution, GatedDeltaNet, RecurrentMixer, convolution
from ..core.tree import Block, Stack, Weight, sequence
from ..utils.errors import safe
from ..utils.named_tuple import NamedTuple
from .hyper_shared import HyperDecoder, StreamMean
from .layers_shared import layer_kinds
from .qwen_shared import NAMES_DELTA, delta_net, experts_with_shared, gated_attention
from .registry import family


class NGramInput(RecurrentMixer):
    """Features of the n-grams that end at each token, for every residual stream: g + silu(conv(norm
    g)) (Qwen4-Exp).

    Hashes of the n-grams choose rows e of a table. In each stream, g = value e · sigmoid(s √|r| /
    √√d), with the sign s of r = k · q, the product of the normalized key e and stream.
    """

    short_name: ClassVar[str] = "n-gram input"
    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"table": "embedding"}
    multipliers: Weight
    head_sizes: Weight  # rows of each hash
    head_offsets: Weight  # their first rows
    table: Stack
    key: Linear
    value: Linear
    key_norm: Norm
    query_norm: Norm
    conv_norm: Norm
    conv: Convolution
    width: int
    sizes: tuple[int, ...]  # of the streams
    ngram_size: int
    heads_per_ngram: int
    end_token: int

    def forward(self, m: Machine[X], x: X) -> X:
        # (B, T, hashes)
        rows = m.hash_ngrams(self, self.multipliers, self.head_sizes, self.head_offsets)
        e = m.merge_heads(m.lookup_in_parts(rows, self.table))
        k, q = self.key_norm(m, self.key(m, e)), self.query_norm(m, x)
        # (B, T, n, 1)
        r = m.scale(
            m.dot(m.split_heads(k, self.width), m.split_heads(q, self.width)), self.width**-0.5
        )
        gates = m.act(m.merge_heads(m.signed_root(r, 1e-6)), "sigmoid")
        value = self.value(m, e)
        g = m.concat(
            *[m.multiply(value, each) for each in m.split(gates, *[1 for _ in self.sizes])]
        )
        return m.add(g, m.act(self.conv(m, self.conv_norm(m, g)), "silu"))


class HashFacts(NamedTuple):
    """The longest n-gram, the hashes of each length, and the token at which n-grams end."""

    ngram_size: int
    heads_per_ngram: int
    end_token: int


def ngram_input(
    d: Expr,
    n: Expr,
    eps: float,
    parts: tuple[int, int],
    widths: tuple[Expr, Expr],
    kernel: int,
    facts: HashFacts,
) -> NGramInput:
    """A table of `parts[0]` rows in `parts[1]` parts, with the gates that add its rows to n
    residual streams; `widths` are those of a row and of all.
    """
    (rows, count), (width, e), heads = parts, widths, (facts.ngram_size - 1) * facts.heads_per_ngram
    size = -(-rows // count)  # as torch.chunk does; the last part is the rest
    wide, whole = (
        streams_norm(d, n, eps, offset=1.0),
        (((_part(size, width, heads),), rows // size)),
    )
    rest = [((_part(rows % size, width, heads),), 1)] if rows % size else []
    return NGramInput(
        multipliers=_numbers(facts.ngram_size),
        head_sizes=_numbers(heads),
        head_offsets=_numbers(heads),
        table=Stack(whole, *rest, active=1),
        key=linear(product((n, d)), e),
        value=linear(d, e),
        key_norm=wide,
        query_norm=wide,
        conv_norm=wide,
        conv=convolution(n * d, kernel).replace(dilation=facts.ngram_size),
        width=d,
        sizes=(d,) * n,
        ngram_size=facts.ngram_size,
        heads_per_ngram=facts.heads_per_ngram,
        end_token=facts.end_token,
    )


def _part(rows: int, width: Expr, hashes: int) -> Embedding:
    """A part of a table, as if a token read all its rows in one of them: only their number is
    known.
    """
    return side_table(rows, width, rows_read=hashes)


def _numbers(count: int) -> Weight:
    return weight(count, role="scale", dtype="I64").replace(buffer=True)


class LowRankSum(StreamMean):
    """The mean of gate · y over streams y, each normalized by itself, with gate = sigmoid(up
    silu(down y / n)) (Qwen4-Exp).
    """

    group: ClassVar[str] = "mlp"
    norm: Norm
    down: Linear
    up: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return _gated_mean(self, m, self.norm(m, x))


class LowRankConnection(LowRankSum):
    """A branch reads such a mean of the n streams; what it computes is added to each, times 2
    sigmoid(inject y / n).
    """

    inject: Linear


class LowRankLayer(Layer):
    """A layer on several residual streams, `(B, T, n · d)`, to which features of n-grams may be
    added first (Qwen4-Exp).
    """

    attn_hc: LowRankConnection
    mlp_hc: LowRankConnection
    ngrams: Block | None = None

    def forward(self, m: Machine[X], x: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = x if self.ngrams is None else m.add(x, self.ngrams(m, x))
        return _inject(self.mlp_hc, m, _inject(self.attn_hc, m, x, self.attn), self.mlp)


def _gated_mean(connection: LowRankSum, m: Machine[X], normed: X) -> X:
    """Return the gated mean of normalized streams, `(B, T, d)`."""
    low = m.act(m.scale(connection.down(m, normed), 1 / connection.streams), "silu")
    return StreamMean.forward(
        connection, m, m.multiply(m.act(connection.up(m, low), "sigmoid"), normed)
    )


def _inject(connection: LowRankConnection, m: Machine[X], x: X, branch: Block) -> X:
    """Return the streams with the result of a branch added to each."""
    normed = connection.norm(m, x)
    y = m.dropout(branch(m, _gated_mean(connection, m, normed)))
    # (B, T, n)
    shares = m.scale(
        m.act(m.scale(connection.inject(m, normed), 1 / connection.streams), "sigmoid"), 2.0
    )
    return m.add(
        x,
        m.concat(
            *[m.multiply(y, each) for each in m.split(shares, *[1 for _ in connection.sizes])]
        ),
    )


class WindowIndexer(AttentionBase):
    """Chooses the windows of each query, and the one that it is in until that is complete: of
    tokens that attention reads one by one.

    Queries are projected from x and normalized, and their scores are added up (Qwen4-Exp).
    """

    without_gradient: ClassVar[bool] = True
    q: Linear
    keys: WindowKeys
    q_norm: Norm
    heads: int
    head_dim: int
    top_k: int  # windows
    ratio: int  # tokens of a window

    def forward(self, m: Machine[X], x: X) -> X:
        # (B, T, Hi, hi)
        q = m.rope(m.norm_heads(self.q_norm, m.split_heads(self.q(m, x), self.head_dim)), self.rope)
        return m.add_open_window(self, m.select_keys(self, q, self.keys(m, x), None))


_CONNECTION = {
    "norm": "hc_norm",
    "down": "input_mix_weight_down",
    "up": "input_mix_weight_up",
    "inject": "block_inject_weight",
}
_NGRAMS = {
    "key": "key_proj",
    "value": "value_proj",
    "key_norm": "norm_key",
    "query_norm": "norm_query",
    "conv_norm": "norm_conv",
}
_HASHES = {
    "multipliers": "layer_multipliers",
    "head_sizes": "ngram_heads_vocab_sizes",
    "head_offsets": "ngram_heads_offsets",
}
_NORMS = (
    "collapse.norm",
    "attn_hc.norm",
    "mlp_hc.norm",
    "ngrams.key_norm",
    "ngrams.query_norm",
    "ngrams.conv_norm",
)
NAMES = NAMES_DELTA.with_changes(
    outside={f"collapse.{x}": f"model.hyper_connection_mixer.{y}" for x, y in _CONNECTION.items()},
    inside={
        **{
            f"{x}_hc.{y}": f"{x}_hyper_connection.{name}"
            for x in ("attn", "mlp")
            for y, name in _CONNECTION.items()
        },
        **dict.fromkeys(
            ("attn.indexer.q", "attn.indexer.keys.k"), "self_attn.indexer.index_qk_proj"
        ),
        "attn.indexer.q_norm": "self_attn.indexer.q_layernorm",
        "attn.indexer.keys.mean_norm": "self_attn.indexer.k_layernorm",
        **{f"ngrams.{x}": f"ple.{y}" for x, y in _NGRAMS.items()},
        **{f"ngrams.{x}": f"ple.ple_embedding.{y}" for x, y in _HASHES.items()},
        "ngrams.conv": "ple.conv1d",
        "ngrams.table.{e}": "ple.ple_embedding.ngram_embedding.shard_{e}",
    },
    layouts={**NAMES_DELTA.layouts, "ngrams.conv": "unit", **dict.fromkeys(_NORMS, "flat")},
)

LINEAR = "linear_attention"


@family("qwen4_exp_text", hf=NAMES, causal_class="Qwen4ExpForCausalLM")
def qwen4_exp(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, n = c.get("rms_norm_eps", 1e-6), c.dim("hc", "hc_count", default=4)
    moe, mix = experts_with_shared(c, d, c.get("norm_topk_prob", True)), _sum(c, d, n, eps)
    connection = mix.extended(LowRankConnection, inject=linear(n, n * d))
    nth = c.get("full_attention_interval", 4)
    types = layer_kinds(
        c,
        L,
        (LINEAR, "indexed_attention", "full_attention"),
        lambda i: LINEAR if (i + 1) % nth else "indexed_attention",
    )
    # without such a layer, its keys may be absent
    readers = {x: _delta if x == LINEAR else _attention for x in dict.fromkeys(types)}
    kinds: dict[str, Block] = {x: read(c, d, eps) for x, read in readers.items()}
    numbers = sorted(set(_layer_numbers(c)))
    tables = {number: _ngrams(c, d, n, eps, place) for place, number in enumerate(numbers)}
    if unknown := [x for x in numbers if not 1 <= x <= L or types[x - 1] != LINEAR]:
        raise c.error(
            "ple_layer_ids", f"names the layer {unknown[0]} of {L}, which has no linear attention"
        )

    @cache
    def layer(kind: str, number: int) -> LowRankLayer:
        return LowRankLayer(
            attn=kinds[kind],
            mlp=moe,
            attn_hc=connection,
            mlp_hc=connection,
            ngrams=tables.get(number),
        )

    layers = sequence(
        (layer(x, i if i in tables else 0) for i, x in enumerate(types, 1)), count_dim=L
    )
    c.ignore("output_router_logits", "router_aux_loss_coef", "seed", "eos_token_id")
    found = decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
    return found.replace(norm=None).extended(HyperDecoder, collapse=mix, sizes=(d,) * n)


def _layer_numbers(c: Config) -> list[int]:
    """Read the layers, counted from 1, with tables of n-grams."""
    numbers: list[int] = c.get("ple_layer_ids", []) or []
    if not isinstance(numbers, list) or any(type(x) is not int for x in numbers):
        raise c.error(
            "ple_layer_ids", f"should be a list of layers' numbers, not {safe(repr(numbers), 60)}"
        )
    return numbers


def _sum(c: Config, d: Expr, n: Expr, eps: float) -> LowRankSum:
    """Read a gated mean of n residual streams."""
    r = c.dim("hr", "hc_lowrank", default=320)
    return LowRankSum(
        sizes=(d,) * n,
        streams=int(n),
        norm=streams_norm(d, n, eps, offset=1.0),
        down=linear(r, n * d),
        up=linear(n * d, r),
    )


def _delta(c: Config, d: Expr, eps: float) -> GatedDeltaNet:
    gate = c.get("output_gate_type", None) or c.activation("hidden_act")
    if gate not in ("silu", "swish", "sigmoid"):
        raise c.error("output_gate_type", f"is {gate!r:.60}", "known: silu, swish, sigmoid")
    return delta_net(c, d, eps).replace(gate_activation=gate)


def _attention(c: Config, d: Expr, eps: float) -> Attention:
    """Gated attention to windows of keys that an indexer selects, and to the keys after the last
    complete one.
    """
    attn, ratio, budget = (
        gated_attention(c, d, eps),
        c["indexer_compress_ratio"],
        c["indexer_budget"],
    )
    Hi, hi, norm = (
        c.dim("Hi", "indexer_n_heads"),
        c.dim("hi", "indexer_head_dim"),
        rms(c.dim("hi", "indexer_head_dim"), eps, offset=1.0),
    )
    if c.dim("Ki", "indexer_kv_heads") != 1:
        raise c.error(
            "indexer_kv_heads", f"is {c['indexer_kv_heads']}; only indexers with one key are known"
        )
    if (
        type(ratio) is not int
        or type(budget) is not int
        or ratio < 2
        or budget < ratio
        or budget % ratio
    ):
        raise c.error(
            "indexer_compress_ratio",
            f"is {ratio!r:.20}; it should be at least 2 and divide indexer_budget, {budget!r:.20}",
        )
    if attn.rope is not None and attn.rope.dim > hi:
        raise c.error(
            "indexer_head_dim", f"is {hi}, less than the {attn.rope.dim} channels that rotate"
        )
    keys = WindowKeys(k=linear(hi, d), mean_norm=norm, head_dim=hi, ratio=ratio, rope=attn.rope)
    indexer = WindowIndexer(
        q=linear(Hi * hi, d),
        keys=keys,
        q_norm=norm,
        heads=Hi,
        head_dim=hi,
        top_k=Expr("kp", budget // ratio),
        ratio=ratio,
        rope=attn.rope,
    )
    return attn.replace(indexer=indexer, block_size=ratio)


def _ngrams(c: Config, d: Expr, n: Expr, eps: float, place: int) -> NGramInput:
    """Read a table of hashed n-grams, stored in parts, and what adds its rows to the residual
    streams.
    """
    end = c["eos_token_id"]
    end = end[0] if isinstance(end, list) and end else end
    if type(end) is not int:
        raise c.error("eos_token_id", f"is {end!r:.60}; n-grams end at this token")
    facts, base = (
        HashFacts(c.get("ngram_size", 3), c.get("heads_per_ngram", 8), end),
        c.get("ngram_vocab_size_base", 20_000_000),
    )
    heads, e = (
        (facts.ngram_size - 1) * facts.heads_per_ngram,
        c.dim("e", "ple_embed_dim", default=d),
    )
    if not 0 < base < MAX_ROWS or facts.ngram_size < 2 or not 0 < heads <= 1000:
        raise c.error(
            "ngram_vocab_size_base", f"is {base} with {heads} heads, which is out of range"
        )
    step, shards = c.get("make_ngram_vocab_size_divisible_by", 128), c.get("split_ngram_parts", 512)
    rows = -(-sum(rows_of_hashes(base, place, heads)) // step) * step
    if not 0 < shards <= rows:
        raise c.error("split_ngram_parts", f"should be from 1 to {rows}, not {shards}")
    widths = Expr("e_h", int(e) // heads), e
    return ngram_input(d, n, eps, (rows, shards), widths, c.get("ple_conv_kernel_size", 4), facts)
