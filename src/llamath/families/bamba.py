"""Bamba: layers of Mamba-2 and a few of attention with half of each head rotary, SwiGLU in each."""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.tree import Block
from .layers_shared import layers_at
from .mamba_shared import MAMBA2_LAYOUTS, mamba2_layer, mamba2_names
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES_FEED_FORWARD = HF.with_changes(
    outside={"norm": "model.final_layernorm"},
    inside={
        "mlp_norm": "pre_ff_layernorm",
        **{f"mlp.{x}": f"feed_forward.{x}_proj" for x in ("gate", "up", "down")},
    },
)
NAMES = NAMES_FEED_FORWARD.with_changes(inside=mamba2_names("mamba"), layouts=MAMBA2_LAYOUTS)


@family(hf=NAMES, causal_class="BambaForCausalLM")
def bamba(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d, num_kv_heads=8), c.get("rms_norm_eps", 1e-5)
    norm, mlp = rms(d, eps), swiglu(d, F, c.activation("hidden_act"), c.get("mlp_bias", False))
    rope = read_rope(c, rotary_dim(c, heads.head_dim, 0.5))

    def layer(mixer: Block) -> Layer:
        return Layer(attn_norm=norm, attn=mixer, mlp_norm=norm, mlp=mlp)

    attention = layer(gqa(d, heads, c.get("attention_bias", False), rope=rope))
    layers = layers_at(
        c,
        c.dim("L", "num_hidden_layers"),
        "attn_layer_indices",
        attention,
        layer(mamba2_layer(c, d, eps)),
    )
    c.ignore(
        "attn_rotary_emb",
        "mamba_chunk_size",
        "num_logits_to_keep",
        "z_loss_coefficient",
        "layer_types",
        "layers_block_type",
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
