"""Hugging Face names: the table most families share, as Llama's checkpoints have it."""

from __future__ import annotations

from .scheme import Scheme

HF = Scheme(
    name="hf",
    layer="model.layers.{l}.",
    outside={
        "embed": "model.embed_tokens",
        "norm": "model.norm",
        "head": "lm_head",
    },
    inside={
        "attn_norm": "input_layernorm",
        "attn.q": "self_attn.q_proj",
        "attn.k": "self_attn.k_proj",
        "attn.v": "self_attn.v_proj",
        "attn.o": "self_attn.o_proj",
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "attn.sinks": "self_attn.sinks",
        "mlp_norm": "post_attention_layernorm",
        "mlp.gate": "mlp.gate_proj",
        "mlp.up": "mlp.up_proj",
        "mlp.down": "mlp.down_proj",
        "mlp.router": "mlp.gate",
        "mlp.experts.{e}.gate": "mlp.experts.{e}.gate_proj",
        "mlp.experts.{e}.up": "mlp.experts.{e}.up_proj",
        "mlp.experts.{e}.down": "mlp.experts.{e}.down_proj",
    },
)
