"""GGUF tensor names: a table for all architectures, and the exceptions of a few."""

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
"""Shapes are [out, in] here, as everywhere; GGUF files list dimensions in reverse order."""

GGUF_QKV = GGUF.with_changes(inside=dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn_qkv"))
"""Architectures with q, k and v concatenated in one matrix."""

GGUF_MTP = {
    "embed": "nextn.embed_tokens",
    "embed_norm": "nextn.enorm",
    "hidden_norm": "nextn.hnorm",
    "join": "nextn.eh_proj",
    "norm": "nextn.shared_head_norm",
    "head": "nextn.shared_head_head",
}
"""Names in layers for multi-token prediction, for families whose published files have them."""

_NORMS = (
    "attn_norm",
    "attn.q_norm",
    "attn.k_norm",
    "attn_out_norm",
    "mlp_norm",
    "mlp_out_norm",
    "norm",
)
GGUF_SHIFTED = GGUF.with_changes(layouts=dict.fromkeys(_NORMS, "shifted"))
"""Gemma 1 to 3: llama.cpp's norms have no offset, so 1 is added to their weights."""

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
"""Latent attention since April 2025: k_up is transposed to be absorbed into the query. Older
files have one `attn_kv_b`."""

GGUF_LLAMA = GGUF.with_changes(layouts={"attn.q": "rotary", "attn.k": "rotary"})
"""llama.cpp's `llama` architecture has interleaved rotary pairs, like Meta's files."""
