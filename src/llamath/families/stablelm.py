"""StableLM: Llama's matrices with layer norms, a quarter of each head rotary; the 12B in
parallel with a norm for each head.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import Heads
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, swiglu
from ..core.tree import repeat
from .gguf_record import ROTARY, GGUFMetadata
from .registry import family
from .rope_shared import even_dim, read_rope, rotary_dim

NAMES = HF.with_changes(
    inside={
        "attn.q_norm.{e}": "self_attn.q_layernorm.norms.{e}",
        "attn.k_norm.{e}": "self_attn.k_layernorm.norms.{e}",
    }
)
NAMES_GGUF = GGUF.with_changes(
    inside={"attn.q_norm.{e}": "attn_q_norm", "attn.k_norm.{e}": "attn_k_norm"}
)


@family(
    "stablelm stablelm_epoch",
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="stablelm",
    gguf_metadata=GGUFMetadata(
        keys=f"""{ROTARY} layer_norm_eps partial_rotary_factor use_qkv_bias=attention_bias
            qk_layernorm=use_qk_norm use_parallel_residual=no_mlp_norm"""
    ),
    causal_class="StableLmForCausalLM",
)
def stablelm(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    (H, _, h), K = c.square_heads(d), c.dim("K", "num_key_value_heads")
    eps, bias, parallel = (
        c.get(any_name("layer_norm_eps"), 1e-5),
        c.get("use_qkv_bias", False),
        c.get("use_parallel_residual", False),
    )
    norm, head_norm = layer_norm(d, eps), layer_norm(h, eps, bias=False)
    q_norm, k_norm = (
        repeat(head_norm, n) if c.get("qk_layernorm", False) else None for n in (H, K)
    )
    rotary = read_rope(c, even_dim(rotary_dim(c, h, 0.25, any_name("partial_rotary_factor"))))
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d, Heads(H, K, h), bias=bias, o_bias=False, rope=rotary, q_norm=q_norm, k_norm=k_norm
        ),
        mlp_norm=None if parallel else norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
        parallel=parallel,
    )
    c.ignore("num_heads", "rotary_scaling_factor")
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
