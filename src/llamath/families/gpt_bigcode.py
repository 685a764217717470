"""GPT BigCode (StarCoder, SantaCoder): GPT-2 with one key/value head, matrices stored output
first.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_keys import fused_attention_heads_kv
from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..config_keys import any_name
from ..core.attention_facts import Heads, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.expr import Expr
from ..core.tree import repeat
from .gguf_record import CLASSIC, GGUFMetadata
from .gguf_shared import fused_heads_keys
from .gpt2 import NAMES as GPT2
from .registry import family

NAMES = GPT2.with_changes(layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "heads"))


@family(
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="starcoder",
    gguf_metadata=GGUFMetadata(
        keys=f"{CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size",
        read=lambda h: {"multi_query": fused_attention_heads_kv(h) == 1},
        write=fused_heads_keys,
    ),
    causal_class="GPTBigCodeForCausalLM",
)
def gpt_bigcode(c: Config) -> Decoder:
    d, V, C = (
        c.dim("d", any_name("n_embd")),
        c.dim("V", "vocab_size"),
        c.dim("C", any_name("n_positions")),
    )
    F = c.dim("F", "n_inner", default=4 * d)
    H, K, h = c.square_heads(d, any_name("n_head"), any_name("n_head"))
    heads = Heads(H, Expr("K", 1) if c.get("multi_query", True) else K, h)
    norm = layer_norm(d, c.get("layer_norm_epsilon", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=True,
            score_transform=ScoreTransform(
                scale=None if c.get("scale_attn_weights", True) else 1.0
            ),
        ),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("activation_function", "gelu_pytorch_tanh"), bias=True),
    )
    c.ignore(
        "attention_softmax_in_fp32",
        "scale_attention_softmax_in_fp32",
        "inference_runner",
        "validate_runner_input",
    )
    c.ignore("max_batch_size", "max_sequence_length", "pad_key_length", "pre_allocate_kv_cache")
    layers = repeat(layer, c.dim("L", any_name("n_layer")))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        positions=embedding(C, d),
        context=C,
    )
