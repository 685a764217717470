"""BitNet b1.58: Llama's layers with squared ReLU, and norms before the output projections of
attention and MLP.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer, Linear, NormedLinear
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import repeat
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={"attn.o.norm": "self_attn.attn_sub_norm", "mlp.down.norm": "mlp.ffn_sub_norm"}
)
NAMES_GGUF = GGUF.with_changes(
    inside={"attn.o.norm": "attn_sub_norm", "mlp.down.norm": "ffn_sub_norm"}
)


@family(hf=NAMES, gguf=NAMES_GGUF, gguf_arch="bitnet", causal_class="BitNetForCausalLM")
def bitnet(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d, num_kv_heads=5), c.get("rms_norm_eps", 1e-5)
    attn = gqa(d, heads, c.get("attention_bias", False), rope=read_rope(c, heads.head_dim, 5e5))
    mlp, norm = swiglu(d, F, c.activation("hidden_act", "relu2")), rms(d, eps)

    def normed(linear: Linear) -> NormedLinear:
        return linear.extended(NormedLinear, norm=rms(linear.weight.shape[1], eps))

    layer = Layer(
        attn_norm=norm,
        attn=attn.replace(o=normed(attn.o)),
        mlp_norm=norm,
        mlp=mlp.replace(down=normed(mlp.down)),
    )
    layers, tied = (
        repeat(layer, c.dim("L", "num_hidden_layers")),
        c.get("tie_word_embeddings", False),
    )
    return decoder(V, d, layers, norm, tied, context=c.positive_int("max_position_embeddings"))
