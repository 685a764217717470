"""DeepSeek-V4: attention to the last tokens and to compressed windows, hyper-connections, and first layers whose experts a table gives."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, HashMoE, HyperDecoder, HyperLayer, Layer, MoE, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.latent_attention import CompressedAttention, CompressedIndexer, Compressor
from ..core.positions import Rope, YarnRope
from ..core.tree import repeat, sequence
from .hyper_shared import hyper_connection, limited, stream_mixer, stream_sum
from .registry import family
from .shared import read_layer_types, rope_from

SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
_RATIOS = {0: SLIDING, 4: SPARSE, 128: HEAVY}
_FACTORS = {"weight": "fn", "bias": "base", "scale": "scale"}
_COMPRESSOR = {"kv": "wkv", "weights": "wgate", "bias": "ape", "norm": "norm"}
NAMES = HF.with_changes(
    outside={"head": "head", **{f"collapse.pre.{x}": f"model.hc_head.hc_{name}" for x, name in _FACTORS.items()}},
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
        **{f"attn.indexer.compressor.{x}": f"attn.indexer.compressor.{name}" for x, name in _COMPRESSOR.items()},
        "attn.indexer.q": "attn.indexer.wq_b",
        "attn.indexer.head_weights": "attn.indexer.weights_proj",
        "mlp.router": "ffn.gate",
        "mlp.correction": "ffn.gate.bias",
        "mlp.table": "ffn.gate.tid2eid",
        **{f"mlp.experts.{{e}}.{x}": f"ffn.experts.{{e}}.{w}" for x, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))},
        **{f"mlp.shared.{x}": f"ffn.shared_experts.{w}" for x, w in (("gate", "w1"), ("up", "w3"), ("down", "w2"))},
        **{f"attn_hc.{y}.{x}": f"hc_attn_{name}" for y in ("pre", "post", "mix") for x, name in _FACTORS.items()},
        **{f"mlp_hc.{y}.{x}": f"hc_ffn_{name}" for y in ("pre", "post", "mix") for x, name in _FACTORS.items()},
    },
)
"""The names that transformers writes."""
PUBLISHED = NAMES.with_changes(
    name="hf-published",
    layer="layers.{l}.",
    outside={"embed": "embed", "norm": "norm", **{f"collapse.pre.{x}": f"hc_head_{name}" for x, name in _FACTORS.items()}},
    inside={"attn.kv_norm": "attn.kv_norm"},
)


@family(hf=NAMES, hf_forms=(PUBLISHED,))
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
        "num_key_value_heads", "num_nextn_predict_layers", "topk_method", "norm_topk_prob", "attention_bias", "mlp_bias", "expert_dtype"
    )
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, context=context).extended(HyperDecoder, collapse=stream_sum(c, d, n, eps), sizes=(d,) * n)


def _layer_types(c: Config, n: int) -> list[str]:
    """Read the attention of each layer; `compress_ratios` may go on with the layers of multi-token prediction."""
    if "layer_types" in c:
        c.ignore("compress_ratios")
        return read_layer_types(c, n, _RATIOS.values())
    if "compress_ratios" not in c:
        return [HEAVY if i < 2 or i % 2 == 0 else SPARSE for i in range(n)]
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
    H, h = c.dim("H", "num_attention_heads"), c.dim("h", "head_dim", default=512)
    s, G, o = c.dim("s", "q_lora_rank", default=1024), c.dim("og", "o_groups", default=8), c.dim("o", "o_lora_rank", default=1024)
    if H * h % G:
        raise c.error("o_groups", f"is {G}, which does not divide the {H} heads of {h}")
    main, compress = _ropes(c, h)
    plain = CompressedAttention(
        q_down=linear(s, d),
        q_norm=rms(s, eps),
        q_up=linear(H * h, s),
        head_norm=RMSNorm(eps=eps),
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
        rope=main,
        reverse=main.replace(reverse=True),
    )
    rates = c.sub("compress_rates")
    ratio, heavy = rates.get(SPARSE, 4), rates.get(HEAVY, 128)
    far = plain.replace(rope=compress, reverse=compress.replace(reverse=True))
    indexer_heads = c.dim("Hi", "index_n_heads", default=64), c.dim("hi", "index_head_dim", default=128)
    indexer = CompressedIndexer(
        q=linear(indexer_heads[0] * indexer_heads[1], s),
        k=None,
        k_norm=None,
        head_weights=linear(indexer_heads[0], d),
        heads=indexer_heads[0],
        head_dim=indexer_heads[1],
        top_k=c.dim("ki", "index_topk", default=512),
        rope=compress,
        rope_last=True,
        ratio=ratio,
        compressor=_compressor(d, indexer_heads[1], ratio, eps, compress, overlap=True),
    )
    return {
        SLIDING: plain,
        SPARSE: far.replace(compressor=_compressor(d, h, ratio, eps, compress, overlap=True), indexer=indexer),
        HEAVY: far.replace(compressor=_compressor(d, h, heavy, eps, compress, overlap=False)),
    }


def _compressor(d: Expr, h: Expr, ratio: int, eps: float, rope: Rope, overlap: bool) -> Compressor:
    width = 2 * h if overlap else h
    kv = linear(width, d)
    return Compressor(
        kv=kv,
        weights=kv,
        bias=weight(ratio, width, role="bias"),
        norm=rms(h, eps),
        head_dim=h,
        ratio=ratio,
        overlap=overlap,
        rope=rope,
    )


def _ropes(c: Config, h: Expr) -> tuple[Rope, Rope]:
    """Read the positions of layers without and with compression."""
    share = c.get("partial_rotary_factor", 64 / 512)
    p = c.dim("p", "qk_rope_head_dim") if "qk_rope_head_dim" in c and "partial_rotary_factor" not in c else Expr("p", int(h * share))
    s = c.sub("rope_parameters" if "rope_parameters" in c else "rope_scaling")
    s.ignore("partial_rotary_factor")
    theta, far = c.get("rope_theta", 10000.0), c.get("compress_rope_theta", 160000.0)
    if isinstance(s.data.get("main"), dict) and isinstance(s.data.get("compress"), dict):
        parts = s.sub("main"), s.sub("compress")
        for x in parts:
            x.ignore("partial_rotary_factor")
        main, compress = (rope_from(c, x, theta=y, dim=p, interleaved=True) for x, y in zip(parts, (theta, far), strict=True))
    else:
        main = Rope(theta=theta, dim=p, interleaved=True)
        compress = rope_from(c, s, theta=far, dim=p, interleaved=True).replace(theta=far)
    if isinstance(compress, YarnRope) and compress.attention_factor is None:
        compress = compress.replace(attention_factor=1.0)
    return main, compress


def _experts(c: Config, d: Expr, V: Expr) -> dict[str, MoE]:
    """Read the experts of each type of layer."""
    E, k, Fe = c.dim("E", "n_routed_experts"), c.dim("k", "num_experts_per_tok"), c.dim("Fe", "moe_intermediate_size")
    expert = limited(c, swiglu(d, Fe, c.activation("hidden_act")))
    scoring = c.get("scoring_func", "sqrtsoftplus")
    if scoring not in ("sqrtsoftplus", "softmax", "sigmoid"):
        raise c.error("scoring_func", f"is {scoring!r:.60}", "known: sqrtsoftplus, softmax, sigmoid")
    moe = MoE(
        router=linear(E, d),
        correction=weight(E, role="bias").replace(buffer=True),
        experts=repeat(expert, E, active=k),
        shared=expert,
        top_k=k,
        scoring=scoring,
        routed_scaling_factor=c.get("routed_scaling_factor", 1.5),
    )
    c.ignore("n_shared_experts")
    table = weight(V, k, role="lookup", dtype="I64").replace(buffer=True)
    return {"moe": moe, "hash_moe": moe.replace(correction=None).extended(HashMoE, table=table)}
