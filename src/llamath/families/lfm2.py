"""LFM2: gated short convolutions and a few layers of attention, SwiGLU in each; the file's name
for the last norm is `embedding_norm`.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.expr import Expr
from ..core.mixers import short_conv
from ..core.tree import repeat
from .gguf_record import BASE, GGUFMetadata
from .layers_shared import layers_at, layers_by_type
from .registry import family
from .rope_shared import read_rope

CONV = dict.fromkeys(("attn.b", "attn.c", "attn.x"), "conv.in_proj") | {
    "attn.conv": "conv.conv",
    "attn.out": "conv.out_proj",
}
NAMES = HF.with_changes(
    outside={"norm": "model.embedding_norm"},
    inside={
        **CONV,
        "attn_norm": "operator_norm",
        "attn.o": "self_attn.out_proj",
        "attn.q_norm": "self_attn.q_layernorm",
        "attn.k_norm": "self_attn.k_layernorm",
        "mlp_norm": "ffn_norm",
        "mlp.gate": "feed_forward.w1",
        "mlp.down": "feed_forward.w2",
        "mlp.up": "feed_forward.w3",
    },
    layouts={"attn.conv.weight": "unit"},
)
NAMES_GGUF = GGUF.with_changes(
    outside={"norm": "token_embd_norm"},
    inside={path: f"short{name}" for path, name in CONV.items()},
)

UNUSED = """block_dim block_mlp_init_scale block_norm_eps block_out_init_scale block_use_swiglu
    block_use_xavier_init block_ff_dim intermediate_size block_multiple_of block_ffn_dim_multiplier
    full_attn_idxs tie_word_embeddings conv_dim conv_dim_out conv_use_xavier_init num_heads
    use_pos_enc"""
"""Keys of the published configurations that repeat others or have no effect."""


@family(
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="lfm2",
    gguf_metadata=GGUFMetadata(
        keys=f"{BASE} norm_eps=rms_norm_eps rope_theta rope_scaling conv_L_cache conv_bias "
        "layer_types=conv_layer_types",
        constants={"block_auto_adjust_ff_dim": False},
    ),
    causal_class="Lfm2ForCausalLM",
)
def lfm2(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, eps = c.heads(d, num_kv_heads=8), c.get("norm_eps", 1e-5)
    norm, head_norm = rms(d, eps), rms(heads.head_dim, eps)
    attn = gqa(d, heads, rope=read_rope(c, heads.head_dim, 1e6), q_norm=head_norm, k_norm=head_norm)
    attention = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, _width(c)))
    conv = attention.replace(
        attn=short_conv(d, c.dim("c", "conv_L_cache"), c.get("conv_bias", False))
    )
    by_index = (
        layers_at(c, L, "full_attn_idxs", attention, conv)
        if "full_attn_idxs" in c
        else repeat(attention, L)
    )
    layers = layers_by_type(c, L, {"full_attention": attention, "conv": conv}, by_index)
    c.ignore(*UNUSED.split())
    tied = c.get(any_name("tie_embedding"), True)
    return decoder(V, d, layers, norm, tied, context=c.positive_int("max_position_embeddings"))


def _width(c: Config) -> Expr:
    """Read the width of the MLP: two thirds of the given one, scaled and rounded up, unless that
    is switched off.
    """
    # block_ff_dim takes precedence
    uses_block_ff_dim = "block_ff_dim" in c and "intermediate_size" not in c.preferred
    F = c.dim("F", "block_ff_dim" if uses_block_ff_dim else "intermediate_size")
    c.ignore("intermediate_size")
    if not c.get("block_auto_adjust_ff_dim", True):
        return F
    multiplier, multiple = (
        c.get("block_ffn_dim_multiplier", 1.0),
        int(c.dim("multiple", "block_multiple_of", default=256)),
    )
    if multiplier <= 0:
        raise c.error("block_ffn_dim_multiplier", f"should be more than 0, not {multiplier}")
    return Expr("F", -(-int(multiplier * int(2 * F / 3)) // multiple) * multiple)
