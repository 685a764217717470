"""The text model of Idefics: LLaMA, with rows for new tokens."""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, ExtendedEmbedding, Layer, Linear
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, rms, swiglu, unembedding, weight
from ..core.machine import Machine, X
from ..core.tree import Stack, Weight, counted_only, repeat
from .registry import family
from .rope_shared import read_rope


class CrossedDecoder(Decoder):
    """A decoder with layers that attend to images before every few of its own; they take part in
    every pass.
    """

    cross_layers: Stack

    forward = counted_only("Idefics's cross-attention to images")


class ExtendedLinear(Linear):
    """[W x; W' x] with rows W' for tokens that were added, which are stored apart (Idefics)."""

    is_linear_layer: ClassVar[bool] = False
    extra: Weight

    def forward(self, m: Machine[X], x: X) -> X:
        return m.concat(Linear.forward(self, m, x), m.linear(x, self.extra))


NAMES = HF.with_changes(
    outside={
        "embed.extra": "model.embed_tokens.additional_embedding.weight",
        "head.extra": "lm_head.additional_fc.weight",
    }
)


@family("idefics_text", hf=NAMES)
def idefics(c: Config) -> Decoder:
    d, V, F = (
        c.dim("d", "hidden_size", default=4096),
        c.dim("V", "vocab_size", default=32_000),
        c.dim("F", "intermediate_size", default=11_008),
    )
    L, heads, norm = (
        c.dim("L", "num_hidden_layers", default=32),
        c.heads(d, num_heads=32),
        rms(d, c.get("rms_norm_eps", 1e-6)),
    )
    feed_forward, tied = (
        swiglu(d, F, c.activation("hidden_act", "silu")),
        c.get("tie_word_embeddings", False),
    )
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, heads.head_dim)),
        mlp_norm=norm,
        mlp=feed_forward,
    )
    c.ignore(
        "alpha_initializer",
        "alphas_initializer_range",
        "dropout",
        "freeze_lm_head",
        "freeze_text_layers",
    )
    c.ignore(
        "freeze_text_module_exceptions", "freeze_vision_layers", "freeze_vision_module_exceptions"
    )
    embed, head = embedding(V, d), unembedding(V, d, tied)
    if extra := c.dim("V_a", "additional_vocab_size", default=0, least=0):
        embed = embed.extended(ExtendedEmbedding, extra=weight(extra, d, role="lookup"))
        head = head.extended(
            ExtendedLinear, extra=weight(extra, d, tied="embed.extra" if tied else "")
        )
    context = c.get("max_position_embeddings", 2048)
    return decoder(V, d, repeat(layer, L), norm, tied, embed=embed, head=head, context=context)
