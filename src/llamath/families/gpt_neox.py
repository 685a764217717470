"""GPT-NeoX, Pythia and RedPajama: q, k, v in one matrix head by head, partly rotary, two norms
on parallel branches.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.tree import repeat
from .gguf_record import SHAPE, GGUFMetadata
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES = Scheme(
    name="hf",
    layer="gpt_neox.layers.{l}.",
    outside={
        "embed": "gpt_neox.embed_in",
        "norm": "gpt_neox.final_layer_norm",
        "head": "embed_out",
    },
    inside={
        "attn_norm": "input_layernorm",
        "attn.q": "attention.query_key_value",
        "attn.k": "attention.query_key_value",
        "attn.v": "attention.query_key_value",
        "attn.o": "attention.dense",
        "mlp_norm": "post_attention_layernorm",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "heads"),
)


@family(
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="gptneox",
    gguf_metadata=GGUFMetadata(
        keys=f"""{SHAPE} head_dim max_position_embeddings intermediate_size layer_norm_eps
            use_parallel_residual attention_bias rope_theta rope_scaling
            rotary_pct=partial_rotary_factor"""
    ),
    causal_class="GPTNeoXForCausalLM",
)
def gpt_neox(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d, "num_attention_heads")
    norm = layer_norm(d, c.get("layer_norm_eps", 1e-5))
    rotary = read_rope(
        c,
        rotary_dim(c, heads.head_dim, 0.25, any_name("rotary_pct")),
        keys=any_name("rotary_emb_base"),
    )
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("attention_bias", True), rope=rotary),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "gelu"), bias=True),
        parallel=c.get("use_parallel_residual", True),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
