"""RecurrentGemma: two layers with gated linear recurrences, then one of attention in a window, with
half of each head rotary.

The family is counted only: the gated recurrence is not part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, Linear
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, linear, rms, swiglu, weight
from ..core.expr import Expr, product
from ..core.mixers import Convolution, RecurrentMixer, convolution
from ..core.tree import Block, Cut, Weight, counted_only, cycle
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
    layouts={
        "attn.conv.weight": "unit",
        **dict.fromkeys(("attn.gate", "attn.gate_bias", "attn.decay", "attn.decay_bias"), "split"),
    },
)
_KINDS = ("recurrent", "attention")


class GatedRecurrence(RecurrentMixer):
    """A linear recurrence of single channels with gates, both projected from each head of the
    channels alone (arXiv:2402.19427).
    """

    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(
            ("x", "y", "conv", "gate", "gate_bias", "decay", "decay_bias", "a"), Cut(0, "heads")
        ),
        "out": Cut(1, "heads"),
    }
    y: Linear
    x: Linear
    out: Linear
    conv: Convolution
    a: Weight
    gate: Weight  # the matrices of all heads below each other, inputs first
    gate_bias: Weight
    decay: Weight
    decay_bias: Weight
    heads: int

    forward = counted_only("RecurrentGemma's gated recurrence")


@family(hf=NAMES, causal_class="RecurrentGemmaForCausalLM")
def recurrent_gemma(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("2·F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    if F % 2:
        raise c.error(
            "intermediate_size", f"is {F}, an odd number; half of it is the width of the MLP"
        )
    heads, activation = c.heads(d), c.activation("hidden_activation", "gelu_pytorch_tanh")
    rope = read_rope(c, rotary_dim(c, heads.head_dim, 0.5))
    window = AttentionWindow(size=c.get("attention_window_size|sliding_window", 2048))
    attention = gqa(d, heads, c.get("attention_bias", False), o_bias=True, rope=rope, window=window)
    norm, mlp = (
        rms(d, c.get("rms_norm_eps", 1e-6), offset=1.0),
        swiglu(d, Expr("F", F // 2), activation, bias=True),
    )

    def layer(mixer: Block) -> Layer:
        return Layer(attn_norm=norm, attn=mixer, mlp_norm=norm, mlp=mlp)

    kinds = {"recurrent": layer(_recurrence(c, d, heads.num_heads)), "attention": layer(attention)}
    types = c.get("block_types", ["recurrent", "recurrent", "attention"])
    if not types or any(x not in _KINDS for x in types):
        raise c.error(
            "block_types", f"should list {' and '.join(_KINDS)}, not {safe(repr(types), 60)}"
        )
    c.ignore(
        "layers_block_type",
        "layer_types",
        "w_init_variance_scale",
        "final_w_init_variance_scale",
        "conv1d_width",
    )
    embed, cap = embedding(V, d), c.get("logits_soft_cap", 30.0)
    return decoder(
        V,
        d,
        cycle([kinds[x] for x in types], L),
        norm,
        c.get("tie_word_embeddings", True),
        embed=embed,
        softcap=cap,
    )


def _recurrence(c: Config, d: Expr, H: Expr) -> GatedRecurrence:
    w = c.dim("w", "lru_width", default=d)
    if w % H:
        raise c.error("lru_width", f"is {w}, which the {H} heads do not divide")
    n, kernel = Expr("n", w // H), c.dim("c", "conv1d_width", default=4)
    channels = product((H, n))
    matrices, bias, into = (
        weight(channels, n),
        weight(channels, role="bias"),
        linear(channels, d, True),
    )
    return GatedRecurrence(
        y=into,
        x=into,
        out=linear(d, channels, True),
        conv=convolution(channels, kernel, bias=True),
        a=weight(channels, role="scale"),
        gate=matrices,
        gate_bias=bias,
        decay=matrices,
        decay_bias=bias,
        heads=H,
    )
