"""GGUF names, by role: one table for every architecture, and what a few do otherwise."""

from __future__ import annotations

from .scheme import Scheme

GGUF = Scheme(
    name="gguf",
    layer="blk.{l}.",
    outside={
        "embed": "token_embd",
        "positions": "position_embd",
        "embed_norm": "token_embd_norm",
        "norm": "output_norm",
        "head": "output",
    },
    inside={
        "attn_norm": "attn_norm",
        "attn.q": "attn_q",
        "attn.k": "attn_k",
        "attn.v": "attn_v",
        "attn.o": "attn_output",
        "attn.q_norm": "attn_q_norm",
        "attn.k_norm": "attn_k_norm",
        "attn.sinks": "attn_sinks.weight",
        "mlp_norm": "ffn_norm",
        "mlp.gate": "ffn_gate",
        "mlp.up": "ffn_up",
        "mlp.down": "ffn_down",
        "mlp.router": "ffn_gate_inp",
        "mlp.correction": "exp_probs_b.bias",
        "mlp.experts.{e}.gate": "ffn_gate_exps",
        "mlp.experts.{e}.up": "ffn_up_exps",
        "mlp.experts.{e}.down": "ffn_down_exps",
        "mlp.shared.gate": "ffn_gate_shexp",
        "mlp.shared.up": "ffn_up_shexp",
        "mlp.shared.down": "ffn_down_shexp",
        "mlp.shared_gate": "ffn_gate_inp_shexp",
    },
)
"""Dimensions are listed output first here, as everywhere; the file itself lists them the other way round."""

GGUF_LLAMA = GGUF.but(layouts={"attn.q": "rotary", "attn.k": "rotary"})
"""llama.cpp's own `llama` architecture keeps Meta's pairs."""
