"""DiffLlama: Llama with differential attention (arXiv:2410.05258).

The family is counted only: differential attention is not part of the machine.
"""

from __future__ import annotations

from math import exp
from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Attention, Decoder, Layer, Norm, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu, weight
from ..core.tree import Cut, Weight, counted_only, sequence
from .layers_shared import check_listed
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={f"attn.{x}": f"self_attn.lambda_{x}" for x in ("q1", "k1", "q2", "k2")}
)


class DifferentialAttention(Attention):
    """The outputs of the first half of the heads minus a learned share of those of the second;
    each difference is normalized.
    """

    cuts: ClassVar[dict[str, Cut]] = {}  # the halves of the heads belong together
    q1: Weight
    k1: Weight
    q2: Weight
    k2: Weight
    out_norm: Norm
    initial: float  # share before training, which depends on the number of the layer

    forward = counted_only("DiffLlama's differential attention")


@family(hf=NAMES, causal_class="DiffLlamaForCausalLM")
def diffllama(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    check_listed(c, L)
    heads, eps = c.heads(d), c.get("rms_norm_eps", 1e-5)
    if heads.num_kv_heads % 2:
        raise c.error(
            "num_key_value_heads",
            f"is {heads.num_kv_heads}, but values are cut into two halves of heads",
        )
    plain = gqa(d, heads, c.get("attention_bias", False), rope=read_rope(c, heads.head_dim))
    c.ignore("lambda_std_dev")
    share, norm, mlp = (
        weight(heads.head_dim, role="scale"),
        rms(d, eps),
        swiglu(d, F, c.activation("hidden_act")),
    )
    attention = plain.extended(
        DifferentialAttention,
        q1=share,
        k1=share,
        q2=share,
        k2=share,
        out_norm=RMSNorm(eps=eps),
        initial=0.0,
    )

    def layer(i: int) -> Layer:
        attn = attention.replace(initial=0.8 - 0.6 * exp(-0.3 * i))
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=mlp)

    layers = sequence((layer(i) for i in range(L)), count_dim=L)
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
