"""The text model of Molmo 2: Qwen3, with rows of the embedding beyond those of the head."""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import MLP, Decoder, ExtendedEmbedding, Layer, Linear
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, weight
from ..core.machine import Machine, X
from ..core.tree import Block, Cut, repeat
from .registry import family
from .rope_shared import read_rope


class UpFirstMLP(Block):
    """down(act(gate x) · up x), with `up` before `gate` in one stored matrix (Molmo 2)."""

    group: ClassVar[str] = "mlp"
    cuts: ClassVar[dict[str, Cut]] = MLP.cuts
    up: Linear
    gate: Linear
    down: Linear
    activation: str

    def forward(self, m: Machine[X], x: X) -> X:
        return self.down(m, m.gated(self.gate(m, x), self.up(m, x), self.activation))


NAMES = HF.with_changes(
    outside={
        "embed.weight": "model.transformer.wte.embedding",
        "embed.extra": "model.transformer.wte.new_embedding",
        "norm": "model.transformer.ln_f",
    },
    inside={
        "attn_norm": "attn_norm",
        "mlp_norm": "ff_norm",
        **{f"attn.{x}": "self_attn.att_proj" for x in "qkv"},
        "attn.o": "self_attn.attn_out",
        **dict.fromkeys(("mlp.gate", "mlp.up"), "mlp.ff_proj"),
        "mlp.down": "mlp.ff_out",
    },
).replace(layer="model.transformer.blocks.{l}.")


@family("molmo2_text", hf=NAMES)
def molmo2(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps = c.heads(d, num_kv_heads=8, head_dim=128), c.get("rms_norm_eps", 1e-6)
    c.require("qk_norm_type", "qwen3", "every published model has it")
    c.require("norm_after", False, "every published model has it")
    if c.get("rope_scaling_layers", None) not in (
        None,
        list(range(c.dim("L", "num_hidden_layers"))),
    ):
        raise c.error("rope_scaling_layers", "lists some layers alone, which is not known")
    norm, head_norm = rms(d, eps), rms(heads.head_dim, eps)
    attn = gqa(
        d,
        heads,
        c.get("attention_bias", False),
        rope=read_rope(c, heads.head_dim),
        q_norm=head_norm,
        k_norm=head_norm,
    )
    up = linear(F, d)
    feed_forward = UpFirstMLP(
        up=up, gate=up, down=linear(d, F), activation=c.activation("hidden_act", "silu")
    )
    layer = Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=feed_forward)
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    found = decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )
    extra = c.dim("V_i", "additional_vocab_size", default=128)
    return found.replace(
        embed=found.embed.extended(ExtendedEmbedding, extra=weight(extra, d, role="lookup"))
    )
