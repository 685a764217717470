"""Cohere Compass's text model: Command A's parallel layers, with a rotary embedding for each
type of layer, or none.
"""

from __future__ import annotations

from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, swiglu
from ..core.positions import Rope
from ..core.tree import sequence
from .layers_shared import layer_kinds
from .multimodal_registry import LANGUAGE_MODEL, Wrapper, declare_wrapper
from .registry import family
from .rope_shared import rope_from

declare_wrapper(
    Wrapper(types="cohere_compass", text_type="cohere_compass_text", prefix=LANGUAGE_MODEL)
)

TYPES = ("full_attention", "sliding_attention")


@family("cohere_compass_text", hf=HF, causal_class="CohereCompassForCausalLM")
def cohere_compass(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, bias, window = (
        c.square_heads(d),
        c.get("attention_bias", False),
        c.nullable("sliding_window", 4096),
    )
    norm, mlp = (
        layer_norm(d, c.get("layer_norm_eps", 1e-5), bias=False),
        swiglu(d, F, c.activation("hidden_act")),
    )
    types = layer_kinds(c, L, TYPES, lambda _: "full_attention")

    def layer(kind: str) -> Layer:
        size = window if kind == "sliding_attention" else None
        attn = gqa(
            d, heads, bias, rope=_rope(c, kind, heads.head_dim), window=AttentionWindow(size=size)
        )
        return Layer(attn_norm=norm, attn=attn, mlp=mlp, parallel=True)

    kinds = {kind: layer(kind) for kind in dict.fromkeys(types)}
    c.ignore("pooling")
    return decoder(
        V,
        d,
        sequence((kinds[x] for x in types), count_dim=L),
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
        logit_scale=c.number("logit_scale") or 1.0,
    )


def _rope(c: Config, kind: str, h: int) -> Rope | None:
    """Read the rotary embedding of one type of layer; null: these layers have no positions."""
    ropes = c.sub("rope_parameters")
    if kind in ropes.data:
        ropes.ignore(kind)
        return None if ropes.data[kind] is None else rope_from(c, ropes.sub(kind), theta=1e4, dim=h)
    if any(x in ropes.data for x in TYPES):
        raise ropes.error(
            kind, "is missing", "null means that layers of this type have no positions"
        )
    return rope_from(c, ropes, theta=c.get("rope_theta", 1e4), dim=h)
