"""ModernBERT as a decoder (Ettin): windows in two of three layers, no norm before the first
attention, and a head of two layers.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, TransformedHead
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, linear, swiglu, unembedding
from ..core.tree import Stack, sequence
from .layers_shared import layer_kinds
from .registry import family
from .rope_shared import rope_of_type

NAMES = HF.with_changes(
    outside={
        "embed": "model.embeddings.tok_embeddings",
        "embed_norm": "model.embeddings.norm",
        "norm": "model.final_norm",
        "head.dense": "lm_head.dense",
        "head.norm": "lm_head.norm",
        "head": "decoder",
    },
    inside={
        "attn_norm": "attn_norm",
        **{f"attn.{x}": f"attn.{x}_proj" for x in "qkv"},
        "attn.o": "attn.Wo",
        "mlp_norm": "mlp_norm",
        **dict.fromkeys(("mlp.gate", "mlp.up"), "mlp.Wi"),
        "mlp.down": "mlp.Wo",
    },
)
_BASES = {
    "full_attention": ("global_rope_theta", 160000.0),
    "sliding_attention": ("local_rope_theta", 10000.0),
}


@family("modernbert-decoder", hf=NAMES, causal_class="ModernBertDecoderForCausalLM")
def modernbert_decoder(c: Config) -> Decoder:
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    heads, bias, eps = (
        c.square_heads(d, "num_attention_heads"),
        c.get("norm_bias", False),
        c.get("norm_eps", 1e-5),
    )
    norm, tied = layer_norm(d, eps, bias), c.get("tie_word_embeddings", True)
    mlp = swiglu(
        d,
        c.dim("F", "intermediate_size"),
        c.activation("hidden_activation", "gelu"),
        c.get("mlp_bias", False),
    )

    def layer(kind: str) -> Layer:
        rope = rope_of_type(c, kind, heads.head_dim, theta=c.get(*_BASES[kind]))
        window = AttentionWindow(
            size=c.dim("2·w", "local_attention", default=128, least=2) // 2
            if kind == "sliding_attention"
            else None
        )
        attention = gqa(d, heads, c.get("attention_bias", False), rope=rope, window=window)
        return Layer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=mlp)

    head = unembedding(V, d, tied, c.get("decoder_bias", True)).extended(
        TransformedHead,
        dense=linear(d, d, c.get("classifier_bias", False)),
        norm=norm,
        activation=c.activation("classifier_activation", "gelu"),
    )
    c.ignore("sliding_window")
    context = c.positive_int("max_position_embeddings")
    return decoder(
        V,
        d,
        _layers(c, {kind: layer(kind) for kind in _BASES}),
        norm,
        tied,
        embed_norm=norm,
        head=head,
        context=context,
    )


def _layers(c: Config, kinds: dict[str, Layer]) -> Stack:
    """Return the layers, the first without a norm before attention, as the norm of the
    embeddings is just before it.
    """
    L, nth = c.dim("L", "num_hidden_layers"), c.positive_int("global_attn_every_n_layers", 3)
    first, *others = layer_kinds(
        c, L, kinds, lambda i: "sliding_attention" if i % nth else "full_attention"
    )
    return sequence(
        (kinds[first].replace(attn_norm=None), *(kinds[x] for x in others)), count_dim=L
    )
