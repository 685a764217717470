"""RecurrentGemma: two layers with gated linear recurrences, then one of attention in a window, with half of each head rotary."""

from __future__ import annotations

from struct import pack, unpack

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu
from ..core.expr import Expr
from ..core.mixers import GatedRecurrence, gated_recurrence
from ..core.tree import Block, cycle
from ..utils.errors import safe
from .registry import family
from .rope_shared import read_rope, rotary_dim

_LRU = {
    "a": "recurrent_param",
    "gate": "input_gate_weight",
    "gate_bias": "input_gate_bias",
    "decay": "recurrent_gate_weight",
    "decay_bias": "recurrent_gate_bias",
}
NAMES = HF.with_changes(
    outside={"norm": "model.final_norm"},
    inside={
        "attn_norm": "temporal_pre_norm",
        **{f"attn.{x}": f"temporal_block.{x}_proj" for x in "qkvo"},
        **{f"attn.{x}": f"temporal_block.linear_{x}" for x in ("x", "y", "out")},
        "attn.conv": "temporal_block.conv_1d",
        **{f"attn.{x}": f"temporal_block.rg_lru.{name}" for x, name in _LRU.items()},
        "mlp_norm": "channel_pre_norm",
        **{f"mlp.{x}": f"mlp_block.{x}_proj" for x in ("gate", "up", "down")},
    },
    layouts={"attn.conv.weight": "unit", **dict.fromkeys(("attn.gate", "attn.gate_bias", "attn.decay", "attn.decay_bias"), "split")},
)
_KINDS = ("recurrent", "attention")


@family(hf=NAMES)
def recurrent_gemma(c: Config) -> Decoder:
    d, V, F, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("2·F", "intermediate_size"), c.dim("L", "num_hidden_layers")
    if F % 2:
        raise c.error("intermediate_size", f"is {F}, an odd number; half of it is the width of the MLP")
    heads, activation = c.heads(d), c.activation("hidden_activation", "gelu_pytorch_tanh")
    rope = read_rope(c, rotary_dim(c, heads.head_dim, 0.5))
    window = AttentionWindow(size=c.get("attention_window_size|sliding_window", 2048))
    attention = gqa(d, heads, c.get("attention_bias", False), o_bias=True, rope=rope, window=window)
    norm, mlp = rms(d, c.get("rms_norm_eps", 1e-6), offset=1.0), swiglu(d, Expr("F", F // 2), activation, bias=True)

    def layer(mixer: Block) -> Layer:
        return Layer(attn_norm=norm, attn=mixer, mlp_norm=norm, mlp=mlp)

    kinds = {"recurrent": layer(_recurrence(c, d, heads.num_heads, activation)), "attention": layer(attention)}
    types = c.get("block_types", ["recurrent", "recurrent", "attention"])
    if not types or any(x not in _KINDS for x in types):
        raise c.error("block_types", f"should list {' and '.join(_KINDS)}, not {safe(repr(types), 60)}")
    c.ignore("layers_block_type", "layer_types", "w_init_variance_scale", "final_w_init_variance_scale", "conv1d_width")
    embed, cap = embedding(V, d, scale=_bfloat16(d**0.5)), c.get("logits_soft_cap", 30.0)
    return decoder(V, d, cycle([kinds[x] for x in types], L), norm, c.get("tie_word_embeddings", True), embed=embed, softcap=cap)


def _recurrence(c: Config, d: Expr, H: Expr, activation: str) -> GatedRecurrence:
    w = c.dim("w", "lru_width", default=d)
    if w % H:
        raise c.error("lru_width", f"is {w}, which the {H} heads do not divide")
    return gated_recurrence(d, H, Expr("n", w // H), c.dim("c", "conv1d_width", default=4), activation)


def _bfloat16(x: float) -> float:
    """Round as the class stores the factor of the embeddings."""
    bits = int(unpack("<I", pack("<f", x))[0])
    found: float = unpack("<f", pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]
    return found
