"""GPT-J: one layer norm before attention and feed-forward in parallel, neighboring numbers
rotated, a bias on the head.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF_GPT2
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp, unembedding
from ..core.positions import Rope
from ..core.tree import repeat
from .gguf_record import CLASSIC, GGUFMetadata
from .registry import family
from .rope_shared import even_dim

NAMES = HF_GPT2.with_changes(
    inside={
        **{f"attn.{x}": f"attn.{x}_proj" for x in "qkv"},
        "attn.o": "attn.out_proj",
        "mlp.up": "mlp.fc_in",
        "mlp.down": "mlp.fc_out",
    }
)


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="gptj",
    gguf_metadata=GGUFMetadata(
        keys=f"{CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size rotary_dim"
    ),
    causal_class="GPTJForCausalLM",
)
def gptj(c: Config) -> Decoder:
    d, V = c.dim("d", any_name("n_embd")), c.dim("V", "vocab_size")
    F = c.dim("F", "n_inner", default=4 * d)
    heads = c.heads(d, any_name("n_head"), any_name("n_head"))
    norm = layer_norm(d, c.get("layer_norm_epsilon", 1e-5))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            rope=Rope(theta=10000.0, dim=even_dim(c.get("rotary_dim", 64)), interleaved=True),
        ),
        mlp=mlp(d, F, c.activation("activation_function", "gelu_new"), bias=True),
        parallel=True,
    )
    c.ignore("rotary")
    layers = repeat(layer, c.dim("L", any_name("n_layer")))
    context = c.positive_int(any_name("n_positions"))
    tied = c.get("tie_word_embeddings", False)
    return decoder(
        V, d, layers, norm, tied, head=unembedding(V, d, tied, bias=True), context=context
    )
