"""Gemma 4: wider heads where there is no window, keys that serve as values, keys borrowed from earlier layers, experts beside the MLP."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..blocks import (
    Attention,
    Decoder,
    DenseAndMoE,
    Embedding,
    PerLayerEmbedding,
    PerLayerInput,
    RMSNorm,
    Rope,
    ScaledLayer,
    ScaledMoE,
    decoder,
    embedding,
    gqa,
    linear,
    rms,
    swiglu,
    weight,
)
from ..config import Config
from ..dims import Dim
from ..names.gguf import GGUF
from ..names.hf import HF_SANDWICH
from ..tree import repeat, sequence
from . import family
from .shared import layer_types, scaled

NAMES = HF_SANDWICH.but(
    outside={
        "per_layer.embed": "model.embed_tokens_per_layer",
        "per_layer.projection": "model.per_layer_model_projection",
        "per_layer.norm": "model.per_layer_projection_norm",
    },
    inside={
        "mlp.dense_norm": "pre_feedforward_layernorm",
        "mlp.dense.gate": "mlp.gate_proj",
        "mlp.dense.up": "mlp.up_proj",
        "mlp.dense.down": "mlp.down_proj",
        "mlp.dense_out_norm": "post_feedforward_layernorm_1",
        "mlp.moe.router": "router.proj",
        "mlp.moe.router_norm.weight": "router.scale",
        "mlp.moe.expert_norm": "pre_feedforward_layernorm_2",
        "mlp.moe.expert_scale": "router.per_expert_scale",
        "mlp.moe.experts.{e}.gate.weight": "experts.gate_up_proj",
        "mlp.moe.experts.{e}.up.weight": "experts.gate_up_proj",
        "mlp.moe.experts.{e}.down.weight": "experts.down_proj",
        "mlp.moe_out_norm": "post_feedforward_layernorm_2",
        "per_layer.gate": "per_layer_input_gate",
        "per_layer.out": "per_layer_projection",
        "per_layer.norm": "post_per_layer_input_norm",
        "scalar": "layer_scalar",
    },
)
IN_GGUF = GGUF.but(
    outside={
        "per_layer.embed": "per_layer_token_embd",
        "per_layer.projection": "per_layer_model_proj",
        "per_layer.norm": "per_layer_proj_norm",
    },
    inside={
        "mlp.dense_norm": "ffn_norm",
        "mlp.dense.gate": "ffn_gate",
        "mlp.dense.up": "ffn_up",
        "mlp.dense.down": "ffn_down",
        "mlp.dense_out_norm": "post_ffw_norm_1",
        "mlp.moe.router": "ffn_gate_inp",
        "mlp.moe.router_norm.weight": "ffn_gate_inp.scale",
        "mlp.moe.expert_norm": "pre_ffw_norm_2",
        "mlp.moe.expert_scale": "ffn_down_exps.scale",
        "mlp.moe.experts.{e}.gate": "ffn_gate_up_exps",
        "mlp.moe.experts.{e}.up": "ffn_gate_up_exps",
        "mlp.moe.experts.{e}.down": "ffn_down_exps",
        "mlp.moe_out_norm": "post_ffw_norm_2",
        "per_layer.gate": "inp_gate",
        "per_layer.out": "proj",
        "per_layer.norm": "post_norm",
        "scalar": "layer_output_scale.weight",
    },
)

NEAR, FAR = "sliding_attention", "full_attention"
ROPES = {
    NEAR: {"rope_type": "default", "rope_theta": 1e4},
    FAR: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
}


@family("gemma4_text", hf=NAMES, gguf=IN_GGUF, arch="gemma4")
def gemma4(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    eps, activation = c.get("rms_norm_eps", 1e-6), c.activation("hidden_activation", "gelu_pytorch_tanh")
    norm, p = rms(d, eps), c.dim("p", "hidden_size_per_layer_input", default=256, least=0)
    own, branch = None, None
    if p:
        rows = c.dim("Vp", "vocab_size_per_layer_input", default=262_144)
        own = PerLayerEmbedding(embed=embedding(rows, L * p, p**0.5), projection=linear(L * p, d), norm=rms(p, eps), factor=d**-0.5)
        branch = PerLayerInput(gate=linear(p, d), out=linear(d, p), norm=norm, activation=activation)
    c.ignore("vocab_size_per_layer_input")
    types = [*layer_types(c, L, ROPES)[:-1], FAR]
    attention, mlp = _attentions(c, d, eps, types), _mlps(c, d, eps, activation)

    @cache
    def layer(kind: str, giver: int | None) -> ScaledLayer:
        within = mlp[giver is not None]
        return ScaledLayer(
            attn_norm=norm,
            attn=attention(kind, giver),
            attn_out_norm=norm,
            mlp_norm=None if isinstance(within, DenseAndMoE) else norm,
            mlp=within,
            mlp_out_norm=norm,
            per_layer=branch,
            scalar=weight(1, role="scale").replace(buffer=True),
        )
