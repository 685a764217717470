"""LFM3: short convolutions, attention in full and in windows with a gate for each head, and
norms before and after each branch.
"""

from __future__ import annotations

from ..core.attention_facts import AttentionWindow
from ..core.blocks import Attention, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu
from ..core.expr import Expr
from ..core.mixers import short_conv
from ..core.tree import Block, sequence
from .layers_shared import layer_kinds
from .lfm2 import NAMES as NAMES_LFM2
from .registry import family
from .rope_shared import rope_by_type

NAMES = NAMES_LFM2.with_changes(
    inside={
        "attn.o": "self_attn.o_proj",
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "attn.gate": "self_attn.gate_proj",
        "attn_out_norm": "post_operator_norm",
        "mlp_out_norm": "post_ffn_norm",
    }
)
ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    "full_attention": {
        "rope_type": "proportional",
        "rope_theta": 1e6,
        "partial_rotary_factor": 0.5,
    },
}
"""Type of a layer → its rotary embedding without `rope_parameters`."""


@family(hf=NAMES, causal_class="Lfm3ForCausalLM")
def lfm3(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, window = c.get("norm_eps|rms_norm_eps", 1e-5), c.nullable("sliding_window", 256)
    norm, mlp = rms(d, eps), swiglu(d, c.dim("F", "intermediate_size"))
    out_norm = norm if c.get("use_sandwich_norm", True) else None
    kernel = c.dim("c", "conv_L_cache", default=7)

    def layer(mixer: Block) -> Layer:
        return Layer(
            attn_norm=norm,
            attn=mixer,
            attn_out_norm=out_norm,
            mlp_norm=norm,
            mlp=mlp,
            mlp_out_norm=out_norm,
        )

    kinds = {
        "conv": layer(short_conv(d, kernel, c.get("conv_bias", False))),
        "full_attention": layer(_attention(c, d, eps, "full_attention", None)),
        "sliding_attention": layer(_attention(c, d, eps, "sliding_attention", window)),
    }
    types = layer_kinds(
        c,
        L,
        kinds,
        lambda i: (
            "full_attention" if i % 4 == 2 else "sliding_attention" if i and i % 4 == 0 else "conv"
        ),
    )
    layers = sequence((kinds[x] for x in types), count_dim=L)
    tied = c.get("tie_word_embeddings|tie_embedding", True)
    return decoder(V, d, layers, norm, tied, context=c.positive_int("max_position_embeddings"))


def _attention(c: Config, d: Expr, eps: float, kind: str, window: int | None) -> Attention:
    """Read the attention of one type of layer."""
    heads = H, _, h = c.heads(d, num_kv_heads=4, head_dim=128)
    rope, gate = (
        rope_by_type(c, ROPES, kind, h),
        linear(H, d) if c.get("use_attention_gate", True) else None,
    )
    norm, bias = rms(h, eps), c.get("attention_bias", False)
    attn = gqa(
        d,
        heads,
        bias,
        rope=rope,
        window=AttentionWindow(size=window),
        gate=gate,
        q_norm=norm,
        k_norm=norm,
    )
    return attn.replace(gate_per_head=gate is not None)
