"""OPT: learned positions whose rows begin at 2, ReLU, biases everywhere; the 350m has norms
after the addition and a narrower embedding.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Embedding, Layer, LayerNorm, Linear, PostNormLayer
from ..core.config import Config
from ..core.constructors import (
    decoder,
    embedding,
    gqa,
    layer_norm,
    linear,
    mlp,
    unembedding,
    weight,
)
from ..core.machine import Machine, X
from ..core.tree import repeat
from .registry import family


class ProjectedEmbedding(Embedding):
    """An embedding narrower than the model, projected to its width (OPT-350m)."""

    projection: Linear

    def forward(self, m: Machine[X], ids: X) -> X:
        return self.projection(m, Embedding.forward(self, m, ids))


class ProjectedLinear(Linear):
    """A head narrower than the model: first `projection`, then `weight` (OPT-350m)."""

    projection: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return Linear.forward(self, m, self.projection(m, x))


NAMES = Scheme(
    name="hf",
    layer="model.decoder.layers.{l}.",
    outside={
        "embed": "model.decoder.embed_tokens",
        "embed.projection": "model.decoder.project_in",
        "positions": "model.decoder.embed_positions",
        "norm": "model.decoder.final_layer_norm",
        "head.projection": "model.decoder.project_out",
        "head": "lm_head",
    },
    inside={
        "attn_norm": "self_attn_layer_norm",
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.out_proj",
        "mlp_norm": "final_layer_norm",
        "mlp.up": "fc1",
        "mlp.down": "fc2",
    },
)


@family(hf=NAMES, causal_class="OPTForCausalLM")
def opt(c: Config) -> Decoder:
    d, V, F, C = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "ffn_dim"),
        c.dim("C", "max_position_embeddings"),
    )
    heads, w = (
        c.square_heads(d, "num_attention_heads"),
        c.dim("w", "word_embed_proj_dim", default=d),
    )
    bias, is_pre_norm = c.get("enable_bias", True), c.get("do_layer_norm_before", True)
    norm = (
        layer_norm(d, 1e-5) if c.get("layer_norm_elementwise_affine", True) else LayerNorm(eps=1e-5)
    )
    layer = (Layer if is_pre_norm else PostNormLayer)(
        attn_norm=norm,
        attn=gqa(d, heads, bias=bias),
        mlp_norm=norm,
        mlp=mlp(d, F, c.activation("activation_function", "relu"), bias=bias),
    )
    layers, tied = (
        repeat(layer, c.dim("L", "num_hidden_layers")),
        c.get("tie_word_embeddings", True),
    )
    last = norm if is_pre_norm and not c.get("_remove_final_layer_norm", False) else None
    positions = Embedding(weight=weight(C + 2, d, role="lookup"), offset=2)
    embed, head = embedding(V, d), unembedding(V, d, tied)
    if w != d:
        embed = ProjectedEmbedding(weight=weight(V, w, role="lookup"), projection=linear(d, w))
        head = ProjectedLinear(weight=unembedding(V, w, tied).weight, projection=linear(w, d))
    c.ignore("activation_dropout", "layerdrop", "init_std", "prefix")
    return decoder(V, d, layers, last, tied, embed=embed, positions=positions, head=head, context=C)
