"""ChatGLM 2 and 3 and GLM-4 as first published: GLM's layers under the names of Megatron."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.attention_facts import Heads
from ..core.blocks import Decoder, Layer, NormedResidualLayer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, rms, swiglu
from ..core.positions import Rope
from ..core.tree import repeat
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="transformer.encoder.layers.{l}.",
    outside={
        "embed": "transformer.embedding.word_embeddings",
        "norm": "transformer.encoder.final_layernorm",
        "head": "transformer.output_layer",
    },
    inside={
        "attn_norm": "input_layernorm",
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attention.query_key_value"),
        "attn.o": "self_attention.dense",
        "mlp_norm": "post_attention_layernorm",
        **dict.fromkeys(("mlp.gate", "mlp.up"), "mlp.dense_h_to_4h"),
        "mlp.down": "mlp.dense_4h_to_h",
    },
)
_UNUSED = """apply_query_key_layer_scaling attention_softmax_in_fp32 bias_dropout_fusion
    original_rope position_encoding_2d pre_seq_len multi_query_group_num vocab_size"""


@family(hf=NAMES, gguf=GGUF_QKV.with_changes(inside={"mlp.gate": "ffn_up"}), gguf_arch="chatglm")
def chatglm(c: Config) -> Decoder:
    for key, model in (
        ("position_encoding_2d", "ChatGLM-6B, the first"),
        ("vision_config", "GLM-4V"),
        ("pre_seq_len", "P-tuning"),
    ):
        if c.data.get(key):
            raise c.error(
                key,
                f"belongs to {model}, which is not supported",
                "count its checkpoint: the header is exact for any model",
            )
    d, V, F = (
        c.dim("d", any_name("hidden_size")),
        c.dim("V", "padded_vocab_size|vocab_size"),
        c.dim("F", any_name("ffn_hidden_size")),
    )
    H = c.dim("H", any_name("num_attention_heads"))
    h = c.dim("h", "kv_channels")
    K = (
        c.dim("K", "multi_query_group_num", default=1)
        if c.get("multi_query_attention", False)
        else H
    )
    bias, eps = c.get("add_bias_linear", False), c.get("layernorm_epsilon", 1e-5)
    norm = rms(d, eps) if c.get("rmsnorm", True) else layer_norm(d, eps)
    rotary = Rope(theta=1e4 * c.get("rope_ratio", 1.0), dim=h // 2, interleaved=True)
    kind = (
        NormedResidualLayer if c.get("apply_residual_connection_post_layernorm", False) else Layer
    )
    layer = kind(
        attn_norm=norm,
        attn=gqa(d, Heads(H, K, h), bias or c.get("add_qkv_bias", False), bias, rope=rotary),
        mlp_norm=norm,
        mlp=swiglu(d, F, bias=bias),
    )
    c.ignore(*_UNUSED.split())
    layers, last_norm = (
        repeat(layer, c.dim("L", any_name("num_layers"))),
        norm if c.get("post_layer_norm", True) else None,
    )
    return decoder(
        V,
        d,
        layers,
        last_norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("seq_length"),
    )
