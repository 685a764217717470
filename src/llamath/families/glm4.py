"""GLM-4-0414: norms before and after each branch, half of each head rotary in neighboring pairs,
gate and up in one matrix.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES = HF.with_changes(
    inside={
        "attn_out_norm": "post_self_attn_layernorm",
        "mlp.gate": "mlp.gate_up_proj",
        "mlp.up": "mlp.gate_up_proj",
        "mlp_out_norm": "post_mlp_layernorm",
    }
)


@family(
    hf=NAMES,
    gguf=GGUF.with_changes(inside={"mlp.gate": "ffn_up"}),
    gguf_arch="glm4",
    gguf_metadata=GGUFMetadata(keys=f"{LLAMA} attention_bias partial_rotary_factor"),
    causal_class="Glm4ForCausalLM",
)
def glm4(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d, num_kv_heads=2, head_dim=128)
    norm, bias = rms(d, c.get("rms_norm_eps", 1.5625e-7)), c.get("attention_bias", True)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=bias,
            o_bias=False,
            rope=read_rope(c, rotary_dim(c, heads.head_dim, 0.5), interleaved=True),
        ),
        attn_out_norm=norm,
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
        mlp_out_norm=norm,
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
