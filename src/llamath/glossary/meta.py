"""The fields of Meta's `ModelArgs`, said as the keys are."""

from __future__ import annotations

ARGS: dict[str, tuple[str, str]] = {
    "dim": ("d, the width of the residual stream that every layer reads and writes", "weights: nearly all; compute"),
    "n_layers": ("L, how many layers stand one after another", "weights of all layers, as many times; cache; compute"),
    "n_heads": ("H, query heads; each has dim / n_heads numbers", "weights of wk and wv, unless n_kv_heads follows; compute"),
    "n_kv_heads": ("K, key/value heads that groups of query heads share; absent: as many as n_heads", "weights of wk and wv; cache"),
    "vocab_size": ("V, rows of embedding and output; −1: to be taken from the tokenizer", "weights of tok_embeddings and output; compute"),
    "multiple_of": ("F is rounded up to a multiple of this", "weights of w1, w2 and w3; compute"),
    "ffn_dim_multiplier": ("what F is multiplied by before it is rounded; absent: 1", "weights of w1, w2 and w3; compute"),
    "norm_eps": ("what is added to the mean square before its root is taken", "compute: arithmetic of the norms"),
    "rope_theta": ("the base of the rotary angles", "compute: how far positions are told apart"),
    "max_batch_size": ("how many sequences the reference makes room for at once", "cache: its size, not the model"),
    "max_seq_len": ("how many positions the reference makes room for", "cache: its size, not the model"),
    "use_scaled_rope": ("Llama 3.1's slowing of the slow rotary angles, by 8", "compute: positions past 8,192"),
}
"""The fields of `ModelArgs` → what each says, and what it moves."""
