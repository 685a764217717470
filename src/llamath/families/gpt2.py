"""GPT-2: learned positions, layer norms, fused q, k, v, all matrices stored input first, tied
head.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.hf_names import HF_GPT2
from ..config_keys import any_name
from ..core.attention_facts import ScoreTransform
from ..core.blocks import Attention, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, embedding, gqa, layer_norm, mlp
from ..core.tree import Stack, repeat, sequence
from .gguf_record import CLASSIC, GGUFMetadata
from .layers_shared import check_listed
from .registry import family

NAMES = HF_GPT2.with_changes(
    layouts={
        f"{x}.weight": "flip"
        for x in ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.up", "mlp.down")
    }
)


@family(
    hf=NAMES,
    gguf=GGUF_QKV,
    gguf_arch="gpt2",
    gguf_metadata=GGUFMetadata(
        keys=f"{CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size"
    ),
    causal_class="GPT2LMHeadModel",
)
def gpt2(c: Config) -> Decoder:
    d, V, C = (
        c.dim("d", any_name("n_embd")),
        c.dim("V", "vocab_size"),
        c.dim("C", any_name("n_positions"), default=1024),
    )
    heads = c.heads(d, any_name("num_attention_heads"), any_name("n_head"))
    F = c.dim("F", "n_inner", default=4 * d)
    norm = layer_norm(d, c.get("layer_norm_epsilon", 1e-5))
    attention = gqa(
        d,
        heads,
        bias=True,
        score_transform=ScoreTransform(scale=None if c.get("scale_attn_weights", True) else 1.0),
    )
    layer = Layer(
        attn_norm=norm,
        attn=attention,
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("activation_function", "gelu_new"), bias=True),
    )
    layers = repeat(layer, c.dim("L", any_name("n_layer")))
    if c.get("scale_attn_by_inverse_layer_idx", False):
        layers = _layers_scaled_by_index(c, layer, attention)
    c.ignore("reorder_and_upcast_attn")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        positions=embedding(C, d),
        context=C,
    )


def _layers_scaled_by_index(c: Config, layer: Layer, attention: Attention) -> Stack:
    """Return layers whose scores are also divided by the layer number, counted from 1."""
    L, scale = (
        c.dim("L", any_name("n_layer")),
        attention.score_transform.scale or attention.head_dim**-0.5,
    )
    check_listed(c, L, "n_layer")
    return sequence(
        (
            layer.replace(attn=attention.replace(score_transform=ScoreTransform(scale=scale / i)))
            for i in range(1, L + 1)
        ),
        count_dim=L,
    )
