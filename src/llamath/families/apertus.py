"""Apertus: a norm for each head, and a two-matrix MLP with xIELU, whose two slopes are learned in
each layer.

The family is counted only: xIELU is not part of the machine.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import MLP, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mlp, rms, weight
from ..core.expr import Expr
from ..core.positions import Llama3Rope, Rope
from ..core.tree import Weight, counted_only, repeat
from .registry import family
from .rope_shared import read_rope

_XIELU = ("alpha_p", "alpha_n", "beta", "eps")
NAMES = HF.with_changes(
    inside={
        "attn_norm": "attention_layernorm",
        "mlp_norm": "feedforward_layernorm",
        **{f"mlp.{x}": f"mlp.act_fn.{x}" for x in _XIELU},
    }
)


class XIELUMLP(MLP):
    """down(xIELU(up x)) with two learned slopes and two stored constants (Huang and Schlag 2024,
    arXiv:2411.13010).
    """

    alpha_p: Weight
    alpha_n: Weight
    beta: Weight
    eps: Weight

    forward = counted_only("Apertus's xIELU")


@family(
    hf=NAMES,
    gguf_arch="apertus",
    why_no_gguf="llama.cpp reads the slopes of xIELU, which are tensors here, from the metadata",
    causal_class="ApertusForCausalLM",
)
def apertus(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d), c.get("rms_norm_eps", 1e-5)
    norm, head_norm, bias = rms(d, eps), rms(heads.head_dim, eps), c.get("attention_bias", False)
    rotary: Rope = Llama3Rope(
        theta=12e6,
        dim=heads.head_dim,
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_context=8192,
    )
    if "rope_theta|rope_scaling|rope_parameters" in c:
        rotary = read_rope(c, heads.head_dim, theta=12e6)
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, bias, rope=rotary, q_norm=head_norm, k_norm=head_norm),
        mlp_norm=norm,
        mlp=_mlp(c, d, F),
    )
    if c.get("mlp_bias", False) or c.get("post_norm", False) or not c.get("qk_norm", True):
        raise c.error(
            "qk_norm",
            "should be true, and mlp_bias and post_norm false, which is all "
            "that transformers' class builds",
        )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _mlp(c: Config, d: Expr, F: Expr) -> MLP:
    if (name := c.get("hidden_act", "xielu")) != "xielu":
        return mlp(d, F, c.activation("hidden_act"))
    slope, constant = weight(1, role="scale"), weight(role="scale").replace(buffer=True)
    return mlp(d, F, name).extended(
        XIELUMLP, alpha_p=slope, alpha_n=slope, beta=constant, eps=constant
    )
