"""Phi 1 to 2: one layer norm before attention and feed-forward in parallel, partly rotary,
biases everywhere, even on the head.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, mlp, unembedding
from ..core.tree import repeat
from .gguf_record import ROTARY, GGUFMetadata
from .registry import family
from .rope_shared import even_dim, read_rope, rotary_dim

NAMES = HF.with_changes(
    outside={"norm": "model.final_layernorm"},
    inside={
        "attn.o": "self_attn.dense",
        "attn.q_norm": "self_attn.q_layernorm",
        "attn.k_norm": "self_attn.k_layernorm",
        "mlp.up": "mlp.fc1",
        "mlp.down": "mlp.fc2",
    },
)


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="phi2",
    gguf_metadata=GGUFMetadata(
        keys=f"{ROTARY} layer_norm_eps rotary_dim qk_layernorm=use_qk_norm", tried_first="phi-msft"
    ),
    causal_class="PhiForCausalLM",
)
def phi(c: Config) -> Decoder:
    if "num_local_experts" in c:
        raise c.error(
            "num_local_experts", "makes it a mixture of Phi models, which is not supported"
        )
    d, V = c.dim("d", any_name("hidden_size")), c.dim("V", "vocab_size")
    # n_inner: null, in files of before transformers' class
    null = any(name in c.data for name in any_name("intermediate_size").split("|"))
    F = c.dim("F", any_name("intermediate_size"), default=4 * d if null else 8192)
    heads = c.heads(d, any_name("num_key_value_heads"), any_name("num_attention_heads"))
    eps = c.get(any_name("layer_norm_eps"), 1e-5)
    norm = layer_norm(d, eps)
    head_norm = layer_norm(heads.head_dim, eps) if c.get("qk_layernorm", False) else None
    rotary = read_rope(c, even_dim(c.get("rotary_dim", rotary_dim(c, heads.head_dim, 0.5))))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias=True, q_norm=head_norm, k_norm=head_norm, rope=rotary),
        mlp=mlp(d, F, c.activation(any_name("hidden_act"), "gelu_new"), bias=True),
        parallel=True,
    )
    c.ignore("flash_attn", "flash_rotary", "fused_dense", "img_processor")
    layers = repeat(layer, c.dim("L", any_name("num_hidden_layers")))
    context = c.positive_int(any_name("max_position_embeddings"))
    tied = c.get("tie_word_embeddings", False)
    return decoder(
        V, d, layers, norm, tied, head=unembedding(V, d, tied, bias=True), context=context
    )
