"""xLSTM 7B: recurrent layers without attention, each head with a matrix as memory, input and
forget gates (arXiv:2503.13427).

The family is counted only: the recurrence of its gates is not part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer, Linear, Norm, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, linear, rms, swiglu, weight
from ..core.expr import Expr
from ..core.mixers import RecurrentMixer
from ..core.tree import Cut, counted_only, repeat
from .registry import family

_MIXER = {
    "query": "q",
    "key": "k",
    "value": "v",
    "out_gate": "ogate_preact",
    "in_gate": "igate_preact",
    "forget_gate": "fgate_preact",
    "norm": "multihead_norm",
    "out": "out_proj",
}
NAMES = HF.with_changes(
    layer="backbone.blocks.{l}.",
    outside={"embed": "backbone.embeddings", "norm": "backbone.out_norm"},
    inside={
        "attn_norm": "norm_mlstm",
        **{f"attn.{ours}": f"mlstm_layer.{theirs}" for ours, theirs in _MIXER.items()},
        "mlp_norm": "norm_ffn",
        "mlp.gate": "ffn.proj_up_gate",
        "mlp.up": "ffn.proj_up",
        "mlp.down": "ffn.proj_down",
    },
)


class MatrixLSTM(RecurrentMixer):
    """out(norm(y) · sigmoid(out_gate x)): each head keeps a matrix `[key, value]` and a vector
    `[key]`, scaled by exp(forget gate) and added to by exp(in gate).
    """

    short_name: ClassVar[str] = "mLSTM"
    cuts: ClassVar[dict[str, Cut]] = {
        **dict.fromkeys(
            ("query", "key", "value", "out_gate", "in_gate", "forget_gate"), Cut(0, "heads")
        ),
        "out": Cut(1, "heads"),
    }
    query: Linear
    key: Linear
    value: Linear
    out_gate: Linear
    in_gate: Linear
    forget_gate: Linear
    norm: Norm
    out: Linear
    heads: int
    gate_softcap: float

    forward = counted_only("xLSTM's matrix memory")


@family(hf=NAMES, causal_class="xLSTMForCausalLM")
def xlstm(c: Config) -> Decoder:
    for key, other in (("embedding_dim", "hidden_size"), ("num_blocks", "num_hidden_layers")):
        both = key in c and other in c and not {key, other} & set(c.preferred)
        if both and c[key] != c[other]:
            raise c.error(key, f"is {c[key]!r:.40}, unlike {other}", "the two are one number")
    d, V = c.dim("d", "hidden_size|embedding_dim"), c.dim("V", "vocab_size")
    bias, eps = c.get("use_bias", False), c.get("norm_eps", 1e-6)
    c.require("weight_mode", "single", "every published model has separate matrices")
    c.require("add_out_norm", True, "transformers' class always has that norm")
    norm = _norm(d, eps, bias)
    factor, multiple = (
        c.get("ffn_proj_factor", 2.667),
        c.positive_int("ffn_round_up_to_multiple_of", 64),
    )
    F = Expr("F", _rounded_up(c, d, factor, multiple))
    layer = Layer(
        attn_norm=norm,
        attn=_mixer(c, d, eps, bias),
        mlp_norm=norm,
        mlp=swiglu(d, F, "silu", bias),
    )
    # how kernels of the class compute
    c.ignore("norm_reduction_force_float32", "chunkwise_kernel", "sequence_kernel", "step_kernel")
    c.ignore("mode", "chunk_size", "return_last_states", "autocast_kernel_dtype", "eps")
    c.ignore("inference_state_dtype", "max_inference_chunksize")
    layers = repeat(layer, c.dim("L", "num_hidden_layers|num_blocks"))
    softcap = c.get("output_logit_soft_cap", 30.0)
    tied = c.get("tie_word_embeddings", False)
    return decoder(V, d, layers, rms(d, eps), tied, context=None, softcap=softcap)


def _norm(d: Expr, eps: float, bias: bool) -> RMSNorm:
    norm = rms(d, eps)
    return norm.replace(bias=weight(d, role="bias")) if bias else norm


def _rounded_up(c: Config, d: Expr, factor: float, multiple: int) -> int:
    """Return the width of the MLP by the rule of the class."""
    width = int((d * factor + multiple - 1) // multiple) * multiple if 0 < factor < 1e6 else 0
    if width < 1:
        raise c.error("ffn_proj_factor", f"is {factor}, which gives the MLP no width")
    return width


def _mixer(c: Config, d: Expr, eps: float, bias: bool) -> MatrixLSTM:
    H = c.dim("H", "num_heads", default=8)
    sizes = {}
    for letter, key, default in (("q", "qk_dim_factor", 0.5), ("v", "v_dim_factor", 1.0)):
        factor = c.get(key, default)
        width = d.scaled(factor) if 0 < factor < 1e6 else 0
        if width < 1 or width % H:
            raise c.error(key, f"is {factor}: {width} channels are not divided by {H} heads")
        sizes[letter] = H * Expr(f"h{letter}", width // H)
    q, v = sizes["q"], sizes["v"]
    return MatrixLSTM(
        query=linear(q, d, bias),
        key=linear(q, d, bias),
        value=linear(v, d, bias),
        out_gate=linear(v, d, bias),
        in_gate=linear(H, d, True),
        forget_gate=linear(H, d, True),
        norm=_norm(v, eps, bias),
        out=linear(d, v, bias),
        heads=H,
        gate_softcap=c.get("gate_soft_cap", 15.0),
    )
