"""DeepSeek-V4.1: attention to compressed windows that layers share, memories of n-grams, experts,
and deferred hyper-connections.

The family is counted only: windows that layers share, and n-grams of merged tokens, are not part of
the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar

from ..core.blocks import Decoder, Embedding, Linear, MoE, Norm
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, side_table, weight
from ..core.expr import Expr, product
from ..core.extensions.compressed_attention import CompressedAttention, Compressor
from ..core.extensions.ngram_tables import MAX_ROWS, rows_of_hashes, streams_norm
from ..core.latent_attention import Indexer, WindowKeys
from ..core.mixers import RecurrentMixer
from ..core.multimodal import CountedBlock
from ..core.tree import Block, Cut, Stack, Weight, counted_only, sequence
from ..utils.named_tuple import NamedTuple
from .compressed_shared import PUBLISHED, compressed_attention, indexer_sizes, limited_experts
from .hyper_shared import HyperLayer, hyper_connection, stream_mixer
from .layers_shared import MAX_LISTED_LAYERS
from .registry import family

NAMES = PUBLISHED.with_changes(
    name="hf",
    outside={
        **{f"collapse.pre.{x}": "" for x in ("weight", "bias", "scale")},
    },
    inside={
        "mlp.image_correction": "ffn.gate.bias_vl",
        "attn.indexer.keys.k": "attn.indexer.wk",
        "attn.indexer.keys.k_norm": "attn.indexer.k_norm",
        "ngrams.table": "engram.embed",
        "ngrams.kv": "engram.wkv",
        "ngrams.query_norm.weight": "engram.q_weight",
        "ngrams.key_norm.weight": "engram.k_weight",
        "attn.draft.main": "main_proj",
        "attn.draft.main_norm": "main_norm",
        "attn.draft.norm": "norm",
        "attn.draft.markov_embed": "markov_head.embed.weight",
        "attn.draft.markov_head": "markov_head.head",
        "attn.draft.confidence": "confidence_head.proj",
    },
    mtp_layer="mtp.{l}.",
)


class SharedCompressedAttention(CompressedAttention):
    """Attention whose windows and selection are those of the nearest earlier layer that has its
    own.
    """

    forward = counted_only("DeepSeek-V4.1's attention to windows that layers share")


class LatentKeys(WindowKeys):
    """One key for each window, projected from the window's vector."""

    unquantized: ClassVar[frozenset[str]] = frozenset({"k"})

    forward = counted_only("DeepSeek-V4.1's indexer")


class LatentIndexer(Indexer):
    """Chooses windows by keys of its own, or by those of the nearest earlier layer; later layers
    may consider some of them only.
    """

    keys: LatentKeys | None

    forward = counted_only("DeepSeek-V4.1's indexer")


class NGramMemory(RecurrentMixer):
    """To each residual stream, rows of a table for the n-grams that end at each token are added,
    weighted by their product with it.

    Tokens that normalize alike, as a map of the tokenizer says, are the same in an n-gram (Engram).
    """

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"table": "embedding"}
    cuts: ClassVar[dict[str, Cut]] = {"table": Cut(0, on_indivisible="pad")}
    table: Embedding
    kv: Linear  # a key for each stream, and a value
    query_norm: Norm
    key_norm: Norm

    forward = counted_only("DeepSeek-V4.1's memory of n-grams")


class ImageBiasedMoE(MoE):
    """Experts with a correction of the choice for tokens of text, and another for those of
    images.
    """

    groups: ClassVar[dict[str, str]] = {**MoE.groups, "image_correction": "router"}
    image_correction: Weight


class DeferredHyperLayer(HyperLayer):
    """A layer whose branches read the residual streams with the weights that the branch before them
    computed.

    Features of n-grams may be added to the streams first.
    """

    ngrams: Block | None = None

    forward = counted_only("DeepSeek-V4.1's deferred hyper-connections")


class _HashSizes(NamedTuple):
    """The longest n-gram, the hashes of each length, the least rows of a hash, and the number of
    tokens.
    """

    longest: int
    each: int
    least: int
    tokens: int

    @property
    def hashes(self) -> int:
        """The hashes of all lengths from 2 on."""
        return (self.longest - 1) * self.each

    @property
    def problem(self) -> str:
        """What is out of range; empty if nothing is."""
        if (
            self.longest >= 2
            and 0 < self.hashes <= 1000
            and 0 < self.least < MAX_ROWS
            and 0 < self.tokens <= 1 << 30
        ):
            return ""
        return (
            f"is {self.longest} with {self.each} hashes of {self.least} rows and "
            f"{self.tokens} tokens, which is out of range"
        )


class _Role(NamedTuple):
    """What a layer has of its own; the rest it reads from the nearest earlier layer that has it."""

    ratio: int  # tokens of a window; 0: no windows
    has_windows: bool
    has_indexer: bool
    chooses: bool | None  # whether it chooses candidates; None: it has all windows
    table: int | None  # number of its table


@family("deepseek_v41_text", hf=NAMES)
def deepseek_v41(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, n = c.get("rms_norm_eps", 1e-20), c.dim("hc", "hc_mult", default=4)
    norm, connection = (
        rms(d, eps),
        hyper_connection(c, d, n, eps, factor=2.0, post_eps=0.0, mix=stream_mixer(c, d, n)),
    )
    plain, far = compressed_attention(c, d, eps, q_rank=1280, norm_heads=False)
    experts = _experts(c, d, c.dim("E", "n_routed_experts"), c.dim("k", "num_experts_per_tok"))
    draft_experts = _experts(
        c,
        d,
        c.dim("Em", "dspark_n_routed_experts", default=128),
        c.dim("km", "dspark_num_experts_per_tok", default=3),
    )
    tables = list(_tables(c, d, n, eps))

    @cache
    def layer(role: _Role) -> DeferredHyperLayer:
        attn, ngrams = (
            _attention(c, d, eps, far, role) if role.ratio else plain,
            None if role.table is None else tables[role.table],
        )
        return whole.replace(attn=attn, mlp=experts).extended(DeferredHyperLayer, ngrams=ngrams)

    whole = HyperLayer(attn_norm=norm, mlp_norm=norm, attn_hc=connection, mlp_hc=connection)
    layers = sequence(map(layer, _roles(c, int(L))), count_dim=L)
    drafts = [whole.replace(attn=attn, mlp=draft_experts) for attn in _drafts(c, d, V, eps, plain)]
    if (heat := c.get("gate_temp", 1.0)) != 1.0:
        raise c.error("gate_temp", f"is {heat!r:.60}; only routers without a temperature are known")
    c.ignore(
        "num_key_value_heads", "topk_method", "attention_bias", "layer_types", "engram_vocab_size",
        "dspark_block_size",
        "dspark_noise_token_id", "engram_pad_token_id",
    )  # fmt: skip
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(
        V, d, layers, norm, tied, context=context, mtp=sequence(drafts) if drafts else None
    )


def _numbers(c: Config, key: str) -> list[int]:
    found: list[int] = c.get(key, [])
    if any(type(x) is not int or x < 0 for x in found):
        raise c.error(key, f"should list numbers, not {found!r:.60}")
    return found


def _roles(c: Config, L: int) -> Iterator[_Role]:
    """Read what each layer has of its own."""
    # which goes on with the draft layers
    if L > MAX_LISTED_LAYERS or len(ratios := _numbers(c, "compress_ratios")) < L:
        raise c.error("compress_ratios", f"should list a number for each of the {L} layers")
    kv, index, places = (
        _numbers(c, x)
        for x in ("kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids")
    )
    if wrong := [i for i in kv if i >= L or not ratios[i]]:
        raise c.error(
            "kv_source_layer_ids",
            f"names a layer whose compress_ratios is 0, {wrong[0]}",
            "such a layer sees its window alone",
        )
    if wrong := [i for i in index if i >= L or not ratios[i]] or sorted({*kv} - {*index}):
        raise c.error(
            "index_source_layer_ids",
            f"should name all layers of kv_source_layer_ids, and none without windows: {wrong[0]}",
        )
    if sorted({*places}) != places or any(i >= L for i in places):
        raise c.error(
            "engram_layer_ids",
            f"should list some of the {L} layers in their order, not {places!r:.60}",
        )
    last = c["candidate_source_layer_id"]
    if type(last) is not int:
        raise c.error(
            "candidate_source_layer_id", f"should be the number of a layer, not {last!r:.60}"
        )
    if last >= 0 and (last not in index or any(i > last for i in kv)):
        raise c.error(
            "candidate_source_layer_id",
            f"is {last}; later layers should read the windows of this one, by its indexer",
        )
    own = 0
    for i, ratio in enumerate(ratios[:L]):
        own = ratio if i in kv else own
        if ratio not in (0, own):
            raise c.error(
                "compress_ratios",
                f"is {ratio} in layer {i}; the nearest earlier layer with windows has {own}",
            )
        chooses = None if i not in index or not 0 <= last <= i else i == last
        yield _Role(ratio, i in kv, i in index, chooses, places.index(i) if i in places else None)


def _attention(
    c: Config, d: Expr, eps: float, far: CompressedAttention, role: _Role
) -> SharedCompressedAttention:
    """Attention to windows, with those parts that the layer has of its own."""
    h, s, sizes = (
        c.dim("h", "head_dim", default=512),
        c.dim("s", "q_lora_rank", default=1280),
        indexer_sizes(c, far.rope, heads=32),
    )
    size, count = c.get("candidate_block_size", 8), c.get("candidate_topk_blocks", 2048)
    if role.chooses is not None and (
        size < 1 or count < 1 or size * count - size + 1 < sizes.top_k
    ):
        raise c.error(
            "candidate_topk_blocks",
            f"is {count} blocks of {size} windows, too few for the {sizes.top_k} of index_topk",
        )
    windows, keys, indexer = None, None, None
    if role.has_windows:
        kv, ratio = linear(h, d), role.ratio
        windows = Compressor(
            kv=kv,
            weights=kv if ratio > 1 else None,
            norm=rms(h, eps),
            head_dim=h,
            ratio=ratio,
            rope=far.rope,
        )
        keys = LatentKeys(
            k=linear(sizes.head_dim, h),
            k_norm=rms(sizes.head_dim, eps),
            head_dim=sizes.head_dim,
            ratio=ratio,
            rope=far.rope,
        )
    if role.has_indexer:
        Hi, hi, ki = sizes
        indexer = LatentIndexer(
            q=linear(Hi * hi, s),
            k=None,
            k_norm=None,
            head_weights=linear(Hi, d),
            heads=Hi,
            head_dim=hi,
            top_k=ki,
            rope=far.rope,
            rope_last=True,
            ratio=role.ratio,
            keys=keys,
        )
    return far.replace(
        compressor=windows, indexer=indexer, ratio=role.ratio, top_k=sizes.top_k
    ).extended(SharedCompressedAttention)


def _tables(c: Config, d: Expr, n: Expr, eps: float) -> Iterator[NGramMemory]:
    """Read the tables of layers."""
    places, rows = _numbers(c, "engram_layer_ids"), _numbers(c, "engram_num_embeddings")
    if len(rows) != len(places):
        raise c.error(
            "engram_num_embeddings",
            f"should have a number for each of the {len(places)} layers of engram_layer_ids",
        )
    keys = {
        "engram_max_ngram_size": 4,
        "engram_n_heads": 8,
        "engram_vocab_size": 16_000_000,
        "engram_compressed_vocab_size": 99_092,
    }
    sizes = _HashSizes(*(c.get(key, default) for key, default in keys.items()))
    if problem := sizes.problem:
        raise c.error("engram_max_ngram_size", problem)
    for place, (layer, size) in enumerate(zip(places, rows, strict=True)):
        table, heads = (
            (Expr.const(size), c.dim("he", "engram_head_dim", default=256)),
            rows_of_hashes(sizes.least, place, sizes.hashes),
        )
        if size < sum(heads):
            raise c.error(
                "engram_num_embeddings",
                f"is {size:,}, less than the {sum(heads):,} rows of the hashes of layer {layer}",
            )
        wide, kv = streams_norm(d, n, eps), linear((n + 1) * d, product((sizes.hashes, table[1])))
        yield NGramMemory(
            table=side_table(*table, rows_read=sizes.hashes), kv=kv, query_norm=wide, key_norm=wide
        )


def _experts(c: Config, d: Expr, E: Expr, k: Expr) -> ImageBiasedMoE:
    moe, correction = (
        limited_experts(c, d, E, k),
        weight(E, role="bias", dtype="F32").replace(buffer=True),
    )
    shares = c.get("norm_topk_prob", True) and k > 1
    moe = moe.replace(correction=correction, norm_topk_prob=shares, fp32_router=True)
    return moe.extended(ImageBiasedMoE, image_correction=correction)


def _drafts(
    c: Config, d: Expr, V: Expr, eps: float, attn: CompressedAttention
) -> list[CountedBlock]:
    """Read the attention of draft layers, and what they have besides: the first reads hidden
    states of the model, the last makes tokens.
    """
    n: int = c.get("num_nextn_predict_layers", 3)
    states, r = (
        _numbers(c, "dspark_target_layer_ids"),
        c.dim("rm", "dspark_markov_rank", default=256),
    )
    if not 0 <= n <= MAX_LISTED_LAYERS:
        raise c.error(
            "num_nextn_predict_layers", f"should be a number from 0 to {MAX_LISTED_LAYERS}, not {n}"
        )
    parts: list[dict[str, Weight | Block | Stack]] = [{} for _ in range(n)]
    if parts:
        parts[0] |= {"main": linear(d, len(states) * d), "main_norm": rms(d, eps)}
        markov: dict[str, Weight | Block | Stack] = {
            "markov_embed": weight(V, r, role="lookup"),
            "markov_head": linear(V, r),
        }
        parts[-1] |= {"norm": rms(d, eps), **markov, "confidence": linear(1, d + r)}
    more = [{"draft": CountedBlock(parts=x)} if x else {} for x in parts]
    return [CountedBlock(kind="attention", parts={**dict(attn.children), **x}) for x in more]
