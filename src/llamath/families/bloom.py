"""BLOOM: no positions but ALiBi, a norm on the embeddings, q, k, v in one matrix head by head,
biases everywhere.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys, feed_forward_length
from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Decoder, Layer, NormedResidualLayer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.positions import Alibi
from ..core.tree import repeat
from .gguf_record import CLASSIC, GGUFMetadata
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={
        "embed": "transformer.word_embeddings",
        "embed_norm": "transformer.word_embeddings_layernorm",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    inside={
        "attn_norm": "input_layernorm",
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attention.query_key_value"),
        "attn.o": "self_attention.dense",
        "mlp_norm": "post_attention_layernorm",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "heads"),
)


def _write_gguf(f: GGUFFacts) -> Keys:
    context = f.resolved("seq_length")
    return {
        "context_length": context if type(context) is int else int(f.tree.width),
        "feed_forward_length": feed_forward_length(f),
        "attention.head_count_kv": int(f.first.heads),
    }


@family(
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="bloom",
    gguf_metadata=GGUFMetadata(keys=CLASSIC, write=_write_gguf),
    causal_class="BloomForCausalLM",
)
def bloom(c: Config) -> Decoder:
    d, V = c.dim("d", any_name("n_embed")), c.dim("V", "vocab_size")
    heads = c.square_heads(d, any_name("n_head"), any_name("n_head"))
    norm = layer_norm(d, c.get("layer_norm_epsilon", 1e-5))
    kind = (
        NormedResidualLayer if c.get("apply_residual_connection_post_layernorm", False) else Layer
    )
    layer = kind(
        attn_norm=norm,
        attn=gqa(d, heads, bias=True, score_transform=ScoreTransform(alibi=Alibi())),
        mlp_norm=norm,
        mlp=mlp(d, 4 * d, "gelu_pytorch_tanh", bias=True),
    )
    c.ignore(
        "attention_softmax_in_fp32",
        "bias_dropout_fusion",
        "masked_softmax_fusion",
        "n_inner",
        "offset_alibi",
        "seq_length",
    )
    c.ignore("skip_bias_add", "skip_bias_add_qkv", "slow_but_exact", "unk_token_id")
    layers = repeat(layer, c.dim("L", any_name("n_layer")))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", True), embed_norm=norm)
