"""MPT: ALiBi, no biases, q, k, v in one matrix, tied head; and the options of llm-foundry."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..core.attention_facts import ClipQKV, Heads, QKPreprocess, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.expr import Expr
from ..core.positions import Alibi, Rope
from ..core.tree import repeat
from .registry import family

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


@family(hf=NAMES, gguf=GGUF_QKV, gguf_arch="mpt", causal_class="MptForCausalLM")
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
