"""BART: an encoder and a decoder with norms after each addition, learned positions and one table
of tokens.
"""

from __future__ import annotations

from ..core.attention_facts import Heads
from ..core.blocks import (
    MLP,
    Embedding,
    Linear,
    Norm,
    PostNormLayer,
    apply_optional,
    residual_branch,
)
from ..core.config import Config
from ..core.constructors import gqa, layer_norm, linear, mlp, weight
from ..core.expr import Expr
from ..core.extensions.encoder_decoder import EncoderDecoder, TextEncoder
from ..core.machine import Machine, X
from ..core.multimodal import CountedBlock, CrossAttention, UnreadBlock
from ..core.towers import EncoderAttention
from ..core.tree import Block, Stack, Weight, repeat
from .counted_towers import Modules, counted


class EncodedLayer(PostNormLayer):
    """x = attn_norm(x + attn x); x = cross_norm(x + cross_attn(x, encoder)); x = mlp_norm(x +
    mlp x).
    """

    cross_attn: CrossAttention
    cross_norm: Norm

    def forward(self, m: Machine[X], x: X, *states: X) -> X:
        assert self.attn is not None and self.mlp is not None
        x = apply_optional(
            self.attn_norm, m, m.add(x, residual_branch(self, m, self.attn, x, None))
        )
        x = self.cross_norm(m, m.add(x, m.dropout(self.cross_attn(m, x, *states))))
        return apply_optional(
            self.mlp_norm, m, m.add(x, residual_branch(self, m, self.mlp, x, None))
        )


_POSITIONS_BEFORE = 2
"""Rows of the positions that no token has."""


def bart(t: Config, tied_head: bool, computes: bool) -> EncoderDecoder:
    """Return the model of a text configuration. Its heads and factors are read only if it
    `computes`: no shape depends on them.
    """
    t.ignore(
        "activation_dropout",
        "attention_dropout",
        "classifier_dropout",
        "decoder_layerdrop",
        "encoder_layerdrop",
    )
    t.ignore("init_std", "dropout", "num_hidden_layers", "is_decoder", "model_type", "num_beams")
    t.ignore(
        "decoder_attention_heads",
        "encoder_attention_heads",
        "scale_embedding",
        "activation_function",
    )
    d, V, C = (
        t.dim("d", "d_model", default=1024),
        t.dim("V", "vocab_size", default=50_265),
        t.dim("C", "max_position_embeddings", default=1024),
    )
    norm, activation, scale = layer_norm(d, 1e-5), "gelu", 1.0
    heads = {"encoder": (Expr.const(1), d), "decoder": (Expr.const(1), d)}
    if computes:
        activation = t.activation("activation_function", "gelu")
        scale = float(d) ** 0.5 if t.get("scale_embedding", False) else 1.0
        for name, (letter, size) in {"encoder": ("H_e", "h_e"), "decoder": ("H", "h")}.items():
            H = t.dim(letter, f"{name}_attention_heads", default=16)
            if int(d) % int(H):
                raise t.error(
                    f"{name}_attention_heads", f"should divide d_model, {int(d):,}, not {int(H):,}"
                )
            heads[name] = (H, Expr(size, int(d) // int(H)))
    H, h = heads["encoder"]
    read = gqa(d, Heads(H, H, h), bias=True)
    fields = {name: getattr(read, name) for name in read.fields}
    encoder_layer = PostNormLayer(
        attn_norm=norm,
        attn=EncoderAttention(**fields),
        mlp_norm=norm,
        mlp=mlp(d, t.dim("F_e", "encoder_ffn_dim", default=4096), activation, bias=True),
    )
    H, h = heads["decoder"]
    into, out = linear(H * h, d, bias=True), linear(d, H * h, bias=True)
    layer = EncodedLayer(
        attn_norm=norm,
        attn=gqa(d, Heads(H, H, h), bias=True),
        cross_attn=CrossAttention(q=into, k=into, v=into, o=out, heads=H, kv_heads=H, head_dim=h),
        cross_norm=norm,
        mlp_norm=norm,
        mlp=mlp(d, t.dim("F", "decoder_ffn_dim", default=4096), activation, bias=True),
    )
    rows, is_one = weight(V, d, role="lookup"), t.get("tie_word_embeddings", True)
    shared = "embed.weight" if is_one else "encoder.embed.weight"
    positions = Embedding(
        weight=weight(C + _POSITIONS_BEFORE, d, role="lookup"), offset=_POSITIONS_BEFORE
    )
    encoder = TextEncoder(
        embed=Embedding(weight=rows.replace(tied=shared) if is_one else rows, scale=scale),
        positions=positions,
        embed_norm=norm,
        layers=repeat(encoder_layer, t.dim("L_e", "encoder_layers", default=12)),
    )
    head = weight(V, d)
    return EncoderDecoder(
        embed=Embedding(weight=rows, scale=scale),
        positions=positions,
        embed_norm=norm,
        layers=repeat(layer, t.dim("L", "decoder_layers", default=12)),
        head=Linear(weight=head.replace(tied=shared) if tied_head else head),
        width=d,
        vocab=V,
        context=C,
        encoder=encoder,
        unread=None
        if is_one
        else UnreadBlock(
            kind="embedding",
            parts={"embed": CountedBlock(kind="embedding", parts={"weight": rows})},
        ),
    )


def bart_modules(tree: EncoderDecoder, shared: str) -> Modules:
    """Return the modules of its weights by their names in files; `shared` is the name of the
    table that encoder and decoder share.
    """
    assert tree.positions is not None and tree.embed_norm is not None
    rows = tree.embed.weight
    own = rows if tree.unread is not None else rows.replace(tied=shared)
    modules: dict[str, Weight | Block | Stack | None] = {"shared.weight": rows}
    for name, part in (("encoder", tree.encoder), ("decoder", tree)):
        assert part.positions is not None
        modules |= {
            f"{name}.embed_tokens.weight": own,
            f"{name}.embed_positions": CountedBlock(parts={"weight": part.positions.weight}),
            f"{name}.layers": repeat(counted(_layer_modules(part.layers[0])), part.layers.n),
            f"{name}.layernorm_embedding": part.embed_norm,
        }
    return modules


def _layer_modules(layer: Block) -> Modules:
    assert isinstance(layer, PostNormLayer)
    modules = dict(_attention_modules("self_attn", layer.attn, layer.attn_norm))
    if isinstance(layer, EncodedLayer):
        modules |= _attention_modules("encoder_attn", layer.cross_attn, layer.cross_norm)
    assert isinstance(layer.mlp, MLP)
    return {
        **modules,
        "fc1": layer.mlp.up,
        "fc2": layer.mlp.down,
        "final_layer_norm": layer.mlp_norm,
    }


def _attention_modules(name: str, attn: Block | None, norm: Block | None) -> Modules:
    return {
        **{f"{name}.{file}": getattr(attn, x) for file, x in _PROJECTIONS.items()},
        f"{name}_layer_norm": norm,
    }


_PROJECTIONS = {"k_proj": "k", "v_proj": "v", "q_proj": "q", "out_proj": "o"}
