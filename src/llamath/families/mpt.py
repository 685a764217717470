"""MPT: ALiBi, no biases, q, k, v in one matrix, tied head; and the options of llm-foundry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys, feed_forward_length
from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..core.attention_facts import ClipQKV, Heads, QKPreprocess, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.expr import Expr
from ..core.positions import Alibi, Rope
from ..core.tree import repeat
from .gguf_record import GGUFMetadata
from .gguf_shared import fused_heads_keys
from .registry import family

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

NAMES = Scheme(
    name="hf",
    layer="transformer.blocks.{l}.",
    outside={
        "embed": "transformer.wte",
        "positions": "transformer.wpe",
        "norm": "transformer.norm_f",
        "head": "lm_head",
    },
    inside={
        "attn_norm": "norm_1",
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn.Wqkv"),
        "attn.o": "attn.out_proj",
        "attn.q_norm": "attn.q_ln",
        "attn.k_norm": "attn.k_ln",
        "mlp_norm": "norm_2",
        "mlp.up": "ffn.up_proj",
        "mlp.down": "ffn.down_proj",
    },
)


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return the `attn_config`, the feed-forward width as a multiple, and whether positions are
    learned or by ALiBi.
    """
    from ..checkpoint.gguf_metadata.gguf_keys import fused_attention_heads_kv

    heads, kv = h.required("attention.head_count"), fused_attention_heads_kv(h)
    width, inner, slope = (
        h.required("embedding_length"),
        h.required("feed_forward_length"),
        h.real("attention.max_alibi_bias") or 0.0,
    )
    if inner % width:
        raise h.unsupported(f"a feed-forward width of {inner} with an embedding length of {width}")
    kinds = {heads: "multihead_attention", 1: "multiquery_attention"}
    attention: Keys = {
        "alibi": slope > 0,
        "attn_type": kinds.get(kv or heads, "grouped_query_attention"),
        "qk_ln": h.has_tensor(".attn_q_norm.weight"),
    }
    attention |= {"alibi_bias_max": slope} if slope else {}
    attention |= {"kv_n_heads": kv} if kv not in kinds else {}
    if clip := h.real("attention.clamp_kqv"):
        attention["clip_qkv"] = clip
    return {
        "attn_config": attention,
        "expansion_ratio": inner // width,
        "no_bias": not h.has_tensor(".attn_norm.bias"),
        "learned_pos_emb": h.has_tensor("position_embd.weight"),
    }


def _write_gguf(f: GGUFFacts) -> Keys:
    scores, clip = f.first.score_transform, f.first.qk_preprocess.clip
    return {
        **fused_heads_keys(f),
        "feed_forward_length": feed_forward_length(f),
        "attention.max_alibi_bias": float(scores.alibi.max_bias)
        if isinstance(scores.alibi, Alibi)
        else 0.0,
        "attention.clamp_kqv": clip.limit if clip else None,
    }


@family(
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="mpt",
    gguf_metadata=GGUFMetadata(
        keys="""d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads
            max_seq_len=max_position_embeddings vocab_size tie_word_embeddings
            layer_norm_epsilon=layer_norm_eps head_dim""",
        read=_read_gguf,
        write=_write_gguf,
    ),
    causal_class="MptForCausalLM",
)
def mpt(c: Config) -> Decoder:
    d, V, C, a = (
        c.dim("d", "d_model"),
        c.dim("V", "vocab_size"),
        c.dim("C", "max_seq_len"),
        c.sub("attn_config"),
    )
    if c.sub("ffn_config").get("ffn_type", "mptmlp") != "mptmlp":
        raise c.error("ffn_config.ffn_type", "is not mptmlp, the only supported MLP of MPT")
    if "layernorm" not in c.get("norm_type", "low_precision_layernorm"):
        raise c.error("norm_type", "is not a layer norm, the only supported norm of MPT")
    H, K, h = c.heads(d, "n_heads", "n_heads")
    if (kind := a.get("attn_type", "multihead_attention")) == "grouped_query_attention":
        K = a.dim("K", "kv_n_heads")
    heads = Heads(H, Expr("K", 1) if kind == "multiquery_attention" else K, h)
    F = (c.dim("r", "expansion_ratio", default=4) * d).with_symbol("F")
    bias, eps = not c.get("no_bias", True), c.get("layer_norm_epsilon", 1e-5)
    norm = layer_norm(d, eps, bias)
    alibi = Alibi(max_bias=a.get("alibi_bias_max", 8.0)) if a.get("alibi", True) else None
    rope = Rope(theta=a.get("rope_theta", 10000.0), dim=h) if a.get("rope", False) else None
    scores = ScoreTransform(scale=a.number("softmax_scale"), alibi=alibi)
    clip, qk_norm = (
        ClipQKV(limit=limit) if (limit := a.number("clip_qkv")) else None,
        a.get("qk_ln", False),
    )
    attn = gqa(
        d,
        heads,
        bias,
        rope=rope,
        q_norm=norm if qk_norm else None,
        k_norm=layer_norm(heads.num_kv_heads * h, eps, bias) if qk_norm else None,
        qk_preprocess=QKPreprocess(clip=clip, across_heads=qk_norm),
        score_transform=scores,
    )
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp(d, F, "gelu", bias))
    positions = embedding(C, d) if c.get("learned_pos_emb", True) and not (alibi or rope) else None
    scale = (
        d**-0.5
        if c.data.get("logit_scale") == "inv_sqrt_d_model"
        else c.number("logit_scale") or 1.0
    )
    c.ignore("logit_scale")
    a.ignore(
        "attn_impl",
        "attn_pdrop",
        "attn_uses_sequence_id",
        "kv_n_heads",
        "prefix_lm",
        "rope_impl",
        "rope_dail_config",
    )
    c.ignore(
        "embedding_fraction",
        "fc_type",
        "init_config",
        "init_device",
        "tokenizer_name",
        "use_pad_tok_in_ffn",
        "verbose",
    )
    layers = repeat(layer, c.dim("L", "n_layers"))
    tied = c.get("tie_word_embeddings", True)
    return decoder(V, d, layers, norm, tied, positions=positions, context=C, logit_scale=scale)
