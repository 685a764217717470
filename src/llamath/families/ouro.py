"""Ouro: layers with norms before and after each branch, which run several times, with the last norm
after each time.
"""

from __future__ import annotations

from typing import ClassVar

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer, Linear
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms, swiglu
from .layers_shared import read_layer_types
from .looped_shared import looped_layers
from .registry import family
from .rope_shared import read_rope, rotary_dim

NAMES = HF.with_changes(
    outside={"exit_gate": "model.early_exit_gate"},
    inside={
        "attn_out_norm": "input_layernorm_2",
        "mlp_out_norm": "post_attention_layernorm_2",
    },
)


class ExitGateDecoder(Decoder):
    """A model with a gate that says after each pass whether it would be enough; all of them are
    made where the threshold is 1, as in published configs (arXiv:2510.25741).
    """

    groups: ClassVar[dict[str, str]] = {**Decoder.groups, "exit_gate": "other"}
    exit_gate: Linear


@family(hf=NAMES)
def ouro(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, norm = c.heads(d), rms(d, c.get("rms_norm_eps", 1e-6))
    c.require("early_exit_threshold", 1.0, "how many passes a token gets is not known otherwise")
    if "early_exit_step" in c:
        raise c.error("early_exit_step", "is set", "every published model makes all passes")
    c.require("use_sliding_window", False, "no published model has windows")
    if "layer_types" in c:
        read_layer_types(c, c.dim("L", "num_hidden_layers"), ("full_attention",))
    c.ignore("sliding_window", "max_window_layers")
    layer = Layer(
        attn_norm=norm,
        attn=gqa(d, heads, rope=read_rope(c, rotary_dim(c, heads.head_dim))),
        attn_out_norm=norm,
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
        mlp_out_norm=norm,
    )
    layers = looped_layers(c, layer, "total_ut_steps", norm)
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    tree = decoder(V, d, layers, norm, tied, context=context)
    return tree.extended(ExitGateDecoder, exit_gate=linear(1, d, bias=True))
