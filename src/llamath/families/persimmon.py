"""Persimmon and Fuyu: a layer norm for each head, half of each head rotary, squared ReLU, biases
everywhere but on the head.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.tree import repeat
from .registry import family
from .rope_shared import even_dim, read_rope, rotary_dim

NAMES = HF.with_changes(
    outside={"norm": "model.final_layernorm"},
    inside={
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attn.query_key_value"),
        "attn.o": "self_attn.dense",
        "attn.q_norm": "self_attn.q_layernorm",
        "attn.k_norm": "self_attn.k_layernorm",
        "mlp.up": "mlp.dense_h_to_4h",
        "mlp.down": "mlp.dense_4h_to_h",
    },
    layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "heads"),
)


@family(hf=NAMES, causal_class="PersimmonForCausalLM")
def persimmon(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.square_heads(d, "num_attention_heads"), c.get("layer_norm_eps", 1e-5)
    norm, head_norm = (
        layer_norm(d, eps),
        layer_norm(heads.head_dim, eps) if c.get("qk_layernorm", True) else None,
    )
    rotary = read_rope(c, even_dim(rotary_dim(c, heads.head_dim, 0.5)))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=True, q_norm=head_norm, k_norm=head_norm, rope=rotary),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "relu2"), bias=True),
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
