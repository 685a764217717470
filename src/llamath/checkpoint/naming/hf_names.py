"""Hugging Face tensor names: Llama's table, which most families share."""

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
        "mlp.correction": "mlp.gate.e_score_correction_bias",
        "mlp.experts.{e}.gate": "mlp.experts.{e}.gate_proj",
        "mlp.experts.{e}.up": "mlp.experts.{e}.up_proj",
        "mlp.experts.{e}.down": "mlp.experts.{e}.down_proj",
        "mlp.shared.gate": "mlp.shared_experts.gate_proj",
        "mlp.shared.up": "mlp.shared_experts.up_proj",
        "mlp.shared.down": "mlp.shared_experts.down_proj",
        "embed": "embed_tokens",
        "embed_norm": "enorm",
        "hidden_norm": "hnorm",
        "join": "eh_proj",
        "norm": "shared_head.norm",
        "head": "shared_head.head",
    },
)

HF_GPT2 = Scheme(
    name="hf",
    layer="transformer.h.{l}.",
    outside={
        "embed": "transformer.wte",
        "positions": "transformer.wpe",
        "norm": "transformer.ln_f",
        "head": "lm_head",
    },
    inside={
        "attn_norm": "ln_1",
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn.c_attn"),
        "attn.o": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
    },
)
"""GPT-2's names."""

HF_SANDWICH = HF.with_changes(
    inside={
        "attn_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    }
)
"""Layers with norms before and after each branch, with Gemma 2's names."""

HF_LATENT = HF.with_changes(
    inside={
        "attn.q_down": "self_attn.q_a_proj",
        "attn.q_norm": "self_attn.q_a_layernorm",
        "attn.q_up": "self_attn.q_b_proj",
        "attn.kv_down": "self_attn.kv_a_proj_with_mqa",
        "attn.kv_norm": "self_attn.kv_a_layernorm",
        "attn.k_up": "self_attn.kv_b_proj",
        "attn.v_up": "self_attn.kv_b_proj",
    },
    layouts=dict.fromkeys(("attn.k_up", "attn.v_up"), "heads"),
)
"""Latent attention, with the names of DeepSeek-V2 and V3."""

HF_STACKED = HF.with_changes(
    inside={
        **dict.fromkeys(
            ("mlp.experts.{e}.gate.weight", "mlp.experts.{e}.up.weight"), "mlp.experts.gate_up_proj"
        ),
        "mlp.experts.{e}.down.weight": "mlp.experts.down_proj",
    },
    layouts={f"mlp.experts.{{e}}.{x}": "flip" for x in ("gate", "up", "down")},
)
"""All experts of a layer in two tensors, input first."""
