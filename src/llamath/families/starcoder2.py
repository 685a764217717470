"""StarCoder2: grouped queries, rotary, layer norms, a two-matrix feed-forward, biases
everywhere.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow, Heads
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp
from ..core.tree import repeat
from .gguf_record import ROTARY, GGUFMetadata
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(inside={"mlp.up": "mlp.c_fc", "mlp.down": "mlp.c_proj"})


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="starcoder2",
    gguf_metadata=GGUFMetadata(
        keys=f"{ROTARY} norm_epsilon=layer_norm_eps use_bias=attention_bias "
        "sliding_window=window_without_effect"
    ),
    causal_class="Starcoder2ForCausalLM",
)
def starcoder2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    H, _, h = c.heads(d)
    heads = Heads(H, c.dim("K", "num_key_value_heads"), h)
    bias = c.get("use_bias", True)
    norm = layer_norm(d, c.get("norm_epsilon", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            bias=bias,
            rope=read_rope(c, h),
            window=AttentionWindow(size=c.positive_int("sliding_window")),
        ),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("hidden_act", "gelu_pytorch_tanh"), bias=bias),
    )
    c.ignore("mlp_type", "norm_type")
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
    )
