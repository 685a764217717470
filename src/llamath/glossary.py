"""What each configuration key says, and what it moves: weights, cache, compute, or nothing that this package counts."""

from __future__ import annotations

NOTHING = {
    key: reason
    for reason, keys in {
        "bookkeeping": "architectures auto_map _name_or_path transformers_version model_type _class_name",
        "how the numbers were stored, not how many there are": "torch_dtype dtype quantization_config compression_config",
        "training only": """initializer_range attention_dropout hidden_dropout attn_pdrop embd_pdrop resid_pdrop dropout layerdrop
            router_aux_loss_coef output_router_logits router_jitter_noise embedding_dropout initializer_factor""",
        "which token ids are special": "bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id",
        "how the reference implementation runs": """use_cache pretraining_tp output_attentions output_hidden_states return_dict
            gradient_checkpointing attn_implementation _attn_implementation is_decoder task_specific_params""",
    }.items()
    for key in keys.split()
}
"""Keys that change no weight, no cache and no arithmetic, each with the reason."""

GLOSSARY: dict[str, tuple[str, str]] = {
    "model_type": ("the family: which builder reads the other keys", "everything"),
    "vocab_size": ("V, the rows of the embedding and of the head; may be padded past the tokenizer", "weights: embedding and head"),
    "hidden_size": ("d, the width of the residual stream that every block reads and writes", "every weight; compute"),
}
"""Key → what it says, and which weights, cache or compute it moves."""

ARGS: dict[str, tuple[str, str]] = {
    "dim": ("d, the width of the residual stream", "every weight; compute"),
    "n_layers": ("L, how many decoder layers", "all layer weights; cache; compute"),
    "n_heads": ("H, query heads; each is dim / n_heads wide", "how attention is cut, not its q and o weights"),
    "n_kv_heads": ("K, key/value heads that groups of query heads share; absent: as many as n_heads", "weights of k and v; cache"),
    "vocab_size": ("V, rows of the embedding and the output; −1 until the tokenizer is known", "weights: tok_embeddings and output"),
    "multiple_of": ("the feed-forward width is rounded up to a multiple of this", "weights of w1, w2, w3"),
    "ffn_dim_multiplier": ("stretches the feed-forward width before it is rounded", "weights of w1, w2, w3"),
    "norm_eps": ("added to the mean square before its root is taken", "no weight; arithmetic only"),
    "rope_theta": ("the base of the rotary angles", "no weight; how far positions can be told apart"),
    "max_batch_size": ("how many sequences the reference sets its cache up for", "cache only, not the model"),
    "max_seq_len": ("how many positions the reference sets its cache and angles up for", "cache only, not the model"),
    "use_scaled_rope": ("Llama 3.1's stretching of the low rotary frequencies", "no weight; positions past 8,192"),
}
"""The fields of `ModelArgs`, said in the same way."""
