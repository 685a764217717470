"""Baichuan: Llama's layers with q, k and v in one matrix, 13B with ALiBi.

Baichuan 2 is counted only: its normalized head is not part of the machine.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Decoder, Layer, Linear
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu, unembedding
from ..core.positions import Alibi
from ..core.tree import counted_only, repeat
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(inside=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "self_attn.W_pack"))
_VOCABULARY_OF_2 = 125696
"""By which programs tell Baichuan 2 from the first: their configs have no other difference."""


class NormalizedHead(Linear):
    """y = W x with each row of W divided by its length."""

    is_linear_layer: ClassVar[bool] = False
    forward = counted_only("Baichuan 2's normalized head")


@family(hf=NAMES, gguf=GGUF_LLAMA, gguf_arch="baichuan")
def baichuan(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d, "num_attention_heads"), rms(d, c.get("rms_norm_eps", 1e-6))
    context = c.positive_int("max_position_embeddings")
    if context is None and "model_max_length" not in c:
        raise c.error(
            "max_position_embeddings",
            "is missing",
            "7B has it, and rotary positions; 13B has model_max_length instead, and ALiBi",
        )
    if context is not None:
        attn = gqa(d, heads, rope=read_rope(c, heads.head_dim))
    else:
        attn = gqa(d, heads, score_transform=ScoreTransform(alibi=Alibi()))
    layers = repeat(
        Layer(
            attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
        ),
        c.dim("L", "num_hidden_layers"),
    )
    tied = c.get("tie_word_embeddings", False)
    head = unembedding(V, d, tied)
    c.ignore("model_max_length")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied,
        head=head.extended(NormalizedHead) if V == _VOCABULARY_OF_2 else head,
        context=context or c.positive_int("model_max_length"),
    )
