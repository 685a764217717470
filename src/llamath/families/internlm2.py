"""InternLM 2 and 2.5: Llama's layers under other names, with queries, key and value of each
key/value head together in one matrix.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .gguf_record import LLAMA, GGUFMetadata
from .registry import family
from .rope_shared import read_rope

NAMES = Scheme(
    name="hf",
    layer="model.layers.{l}.",
    outside={"embed": "model.tok_embeddings", "norm": "model.norm", "head": "output"},
    inside={
        "attn_norm": "attention_norm",
        "attn.q": "attention.wqkv",
        "attn.k": "attention.wqkv",
        "attn.v": "attention.wqkv",
        "attn.o": "attention.wo",
        "mlp_norm": "ffn_norm",
        "mlp.gate": "feed_forward.w1",
        "mlp.up": "feed_forward.w3",
        "mlp.down": "feed_forward.w2",
    },
    layouts=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "heads"),
)


@family(
    hf=NAMES,
    gguf=GGUF_LLAMA,
    gguf_arch="internlm2",
    gguf_metadata=GGUFMetadata(keys=f"{LLAMA} bias=attention_bias"),
)
def internlm2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d)
    norm = rms(d, c.get("rms_norm_eps", 1e-6))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=c.get("bias", True), rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
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
