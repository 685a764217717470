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
        "attn_out_norm": "post_attention_norm",
        "mlp_norm": "ffn_norm",
        "mlp.gate": "ffn_gate",
        "mlp.up": "ffn_up",
        "mlp.down": "ffn_down",
        "mlp_out_norm": "post_ffw_norm",
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

GGUF_QKV = GGUF.with_changes(inside=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn_qkv"))
"""Architectures with one matrix for q, k and v: those of all heads, matrix after matrix."""

NORMS = ("attn_norm", "attn.q_norm", "attn.k_norm", "attn_out_norm", "mlp_norm", "mlp_out_norm", "norm")
GGUF_SHIFTED = GGUF.with_changes(layouts=dict.fromkeys(NORMS, "shifted"))
"""Gemma 1 to 3: llama.cpp has no offset in its norms, so the 1 is added to the weights."""

GGUF_LATENT = GGUF.with_changes(
    inside={
        "attn.q_down": "attn_q_a",
        "attn.q_norm": "attn_q_a_norm",
        "attn.q_up": "attn_q_b",
        "attn.kv_down": "attn_kv_a_mqa",
        "attn.kv_norm": "attn_kv_a_norm",
        "attn.k_up": "attn_k_b",
        "attn.v_up": "attn_v_b",
    },
    layouts={"attn.k_up": "flip split", "attn.v_up": "split"},
)
"""Latent attention since April 2025: k_up lies so that it can be absorbed into the query. Older files have both as one `attn_kv_b`."""

GGUF_LLAMA = GGUF.with_changes(layouts={"attn.q": "rotary", "attn.k": "rotary"})
"""llama.cpp's own `llama` architecture keeps Meta's pairs."""
