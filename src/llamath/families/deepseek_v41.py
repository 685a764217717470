"""DeepSeek-V4.1: attention to compressed keys that layers share, memories of n-grams, experts, and residual streams.

What its selection of keys and its memories compute is not known here, so that the model is counted alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.blocks import Decoder, HyperLayer, ImageBiasedMoE, Layer
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr, product
from ..core.multimodal import CountedBlock
from ..core.tree import Block, Stack, Weight, repeat, sequence
from .deepseek_v4 import PUBLISHED
from .hyper_shared import hyper_connection, limited, stream_mixer
from .registry import family

NAMES = PUBLISHED.with_changes(
    name="hf",
    outside={
        **{f"collapse.pre.{x}": "" for x in ("weight", "bias", "scale")},
    },
    inside={
        "mlp.image_correction": "ffn.gate.bias_vl",
        "attn.indexer.k": "attn.indexer.wk",
        "attn.indexer.k_norm": "attn.indexer.k_norm",
        "attn.engram.table": "engram.embed.weight",
        "attn.engram.kv": "engram.wkv",
        "attn.engram.q_scale": "engram.q_weight",
        "attn.engram.k_scale": "engram.k_weight",
        "attn.draft.main": "main_proj",
        "attn.draft.main_norm": "main_norm",
        "attn.draft.norm": "norm",
        "attn.draft.markov_embed": "markov_head.embed.weight",
        "attn.draft.markov_head": "markov_head.head",
        "attn.draft.confidence": "confidence_head.proj",
    },
    mtp_layer="mtp.{l}.",
)
_SOURCES = ("kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids")
"""Layers with keys, an indexer and a memory of their own."""
Modules = dict[str, Weight | Block | Stack]


@family(hf=NAMES)
def deepseek_v41(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, n = c.get("rms_norm_eps", 1e-20), c.dim("hc", "hc_mult", default=4)
    norm, connection = rms(d, eps), hyper_connection(c, d, n, eps, factor=2.0, post_eps=0.0, mix=stream_mixer(c, d, n))

    def layer(attn: Modules, moe: ImageBiasedMoE) -> HyperLayer:
        found = Layer(attn_norm=norm, attn=CountedBlock(kind="attention", parts=attn), mlp_norm=norm, mlp=moe)
        return found.extended(HyperLayer, attn_hc=connection, mlp_hc=connection)

    plain, experts = _attention(c, d, eps), _experts(c, d, c.dim("E", "n_routed_experts"), c.dim("k", "num_experts_per_tok"))
    draft_experts = _experts(
        c, d, c.dim("Em", "dspark_n_routed_experts", default=128), c.dim("km", "dspark_num_experts_per_tok", default=3)
    )
    ratios = _per_layer(c, "compress_ratios", int(L))
    kv, index, engrams, rows = (_numbers(c, x) for x in (*_SOURCES, "engram_num_embeddings"))
    if len(rows) != len(engrams):
        raise c.error("engram_num_embeddings", f"should have a number for each of the {len(engrams)} layers of engram_layer_ids")
    kinds: dict[tuple[int | bool, ...], HyperLayer] = {}
    order = []
    for i, ratio in enumerate(ratios[: int(L)]):
        table = rows[engrams.index(i)] if i in engrams else 0
        key = (ratio if i in kv else 0, i in kv, i in index, table)
        if key not in kinds:
            more = _compressor(c, d, eps, ratio) if i in kv else {}
            more |= {"indexer": _indexer(c, d, eps, owns_keys=i in kv)} if i in index else {}
            more |= {"engram": _engram(c, d, n, table)} if table else {}
            kinds[key] = layer(plain | more, experts)
        order.append(kinds[key])
    drafts = [layer(plain | {"draft": x} if x else plain, draft_experts) for x in _drafts(c, d, V, eps)]
    c.ignore(
        "num_key_value_heads", "n_shared_experts", "topk_method", "norm_topk_prob", "attention_bias", "layer_types", "sliding_window",
        "rope_theta", "rope_scaling", "rope_parameters", "compress_rope_theta", "qk_rope_head_dim", "index_topk",
        "candidate_source_layer_id",
        "candidate_topk_blocks", "candidate_block_size", "engram_vocab_size", "engram_pad_token_id", "engram_compressed_vocab_size",
        "dspark_block_size", "dspark_noise_token_id", "gate_temp",
    )  # fmt: skip
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    mtp = sequence(drafts) if drafts else None
    return decoder(V, d, sequence(order, count_dim=L), norm, tied, context=context, mtp=mtp)


def _numbers(c: Config, key: str) -> list[int]:
    found: list[int] = c.get(key, [])
    if any(type(x) is not int or x < 0 for x in found):
        raise c.error(key, f"should list numbers, not {found!r:.60}")
    return found


def _per_layer(c: Config, key: str, n: int) -> Sequence[int]:
    """Read a number for each layer, which may go on with those of the draft layers."""
    if len(found := _numbers(c, key)) < n:
        raise c.error(key, f"should list a number for each of the {n} layers")
    return found


def _attention(c: Config, d: Expr, eps: float) -> Modules:
    """Read what the attention of every layer has."""
    H, h = c.dim("H", "num_attention_heads"), c.dim("h", "head_dim", default=512)
    s, G, o = c.dim("s", "q_lora_rank", default=1280), c.dim("og", "o_groups", default=8), c.dim("o", "o_lora_rank", default=1024)
    if H * h % G:
        raise c.error("o_groups", f"is {G}, which does not divide the {H} heads of {h}")
    return {
        "q_down": linear(s, d),
        "q_norm": rms(s, eps),
        "q_up": linear(H * h, s),
        "kv": linear(h, d),
        "kv_norm": rms(h, eps),
        "o_down": linear(G * o, H * h // G),
        "o_up": linear(d, G * o),
        "sinks": weight(H, role="bias", dtype="F32"),
    }


def _compressor(c: Config, d: Expr, eps: float, ratio: int) -> Modules:
    """The keys that a layer makes for itself and those after it: of single tokens, or of windows that a gate weighs."""
    if ratio < 1:
        raise c.error("kv_source_layer_ids", "names a layer whose compress_ratios is 0", "such a layer sees its window alone")
    h = c.dim("h", "head_dim", default=512)
    gate: Modules = {"weights": linear(h, d)} if ratio > 1 else {}
    parts: Modules = {"kv": linear(h, d), "norm": rms(h, eps), **gate}
    return {"compressor": CountedBlock(parts=parts)}


def _indexer(c: Config, d: Expr, eps: float, owns_keys: bool) -> CountedBlock:
    s, H, h = c.dim("s", "q_lora_rank", default=1280), c.dim("Hi", "index_n_heads", default=32), c.dim("hi", "index_head_dim", default=128)
    parts: Modules = {"q": linear(H * h, s), "head_weights": linear(H, d)}
    keys: Modules = {"k": linear(h, c.dim("h", "head_dim", default=512)), "k_norm": rms(h, eps)}
    return CountedBlock(parts=parts | keys if owns_keys else parts)


def _engram(c: Config, d: Expr, n: Expr, rows: int) -> CountedBlock:
    """The memory of a layer: a table of hashed n-grams, of which a token reads a row for each hash and each length."""
    h = c.dim("he", "engram_head_dim", default=256)
    read = c.dim("ne", "engram_max_ngram_size", default=4) - 1, c.dim("Ne", "engram_n_heads", default=8)
    table = weight(Expr("r", rows), h, role="lookup").replace(rows_read=int(product(read)))
    scale = weight(n, d, role="scale")
    parts: Modules = {"table": table, "kv": linear((n + 1) * d, product((*read, h))), "q_scale": scale, "k_scale": scale}
    return CountedBlock(kind="embedding", parts=parts)


def _experts(c: Config, d: Expr, E: Expr, k: Expr) -> ImageBiasedMoE:
    scoring, correction = c.get("scoring_func", "sqrtsoftplus"), weight(E, role="bias", dtype="F32").replace(buffer=True)
    expert = limited(c, swiglu(d, c.dim("Fe", "moe_intermediate_size"), c.activation("hidden_act")))
    return ImageBiasedMoE(
        router=linear(E, d),
        correction=correction,
        experts=repeat(expert, E, active=k),
        shared=expert,
        top_k=k,
        scoring=scoring,
        routed_scaling_factor=c.get("routed_scaling_factor", 1.5),
        image_correction=correction,
    )


def _drafts(c: Config, d: Expr, V: Expr, eps: float) -> list[CountedBlock | None]:
    """Read what the draft layers have besides: the first reads hidden states of the model, the last makes tokens."""
    n: int = c.get("num_nextn_predict_layers", 3)
    states, r = _numbers(c, "dspark_target_layer_ids"), c.dim("rm", "dspark_markov_rank", default=256)
    if n < 0:
        raise c.error("num_nextn_predict_layers", f"should not be negative, like {n}")
    parts: list[Modules] = [{} for _ in range(n)]
    if parts:
        parts[0] |= {"main": linear(d, len(states) * d), "main_norm": rms(d, eps)}
        markov: Modules = {"markov_embed": weight(V, r, role="lookup"), "markov_head": linear(V, r)}
        parts[-1] |= {"norm": rms(d, eps), **markov, "confidence": linear(1, d + r)}
    return [CountedBlock(parts=x) if x else None for x in parts]
