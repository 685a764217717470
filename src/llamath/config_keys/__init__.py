"""The names of configuration keys, and the keys that affect nothing in families that do not read
them; `key_meanings` says what each one means.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

SYNONYMS = {
    name: key
    for key, names in {
        "hidden_size": "n_embd n_embed d_model model_dim",
        "num_hidden_layers": "n_layer n_layers num_layers num_transformer_layers",
        "num_attention_heads": "n_head n_heads attention_heads",
        "num_key_value_heads": "num_kv_heads n_head_kv num_attention_groups attn_config.kv_n_heads",
        "head_dim": "attention_head_dim",
        "intermediate_size": "n_inner ffn_dim ffn_hidden_size dff",
        "max_position_embeddings": "n_positions max_seq_len max_sequence_length model_max_length "
        "max_context_length",
        "tie_word_embeddings": "share_input_output_layers tie_embedding",
        "rms_norm_eps": "norm_eps layernorm_epsilon layer_norm_eps layer_norm_epsilon norm_epsilon",
        "hidden_act": "hidden_activation activation_function activation activation_fn_name",
        "embedding_multiplier": "scale_emb",
        "qkv_bias": "use_qkv_bias",
        "use_conv_bias": "mamba_conv_bias",
        "num_experts": "num_local_experts n_routed_experts",
        "num_experts_per_tok": "experts_per_token top_k_experts moe_top_k num_experts_per_token",
        "moe_intermediate_size": "expert_intermediate_size",
        "shared_expert_intermediate_size": "moe_shared_expert_intermediate_size share_expert_dim "
        "share_expert_dims",
        "sliding_window": "sliding_window_attention_size sliding_window_size window_size",
        "sliding_window_pattern": "_sliding_window_pattern",
        "layers_block_type": "hybrid_override_pattern",
        "no_rope_layer_interval": "nope_layer_interval",
        "rope_theta": "rotary_emb_base rotary.base rope_freq_constant",
        "rope_scaling.rope_type": "rope_scaling.type",
        "rope_scaling.factor": "rotary.scaling_factor",
        "partial_rotary_factor": "rotary_pct rope_pct",
        "rope_interleave": "rope_interleaved",
        "mamba_num_heads": "mamba_n_heads",
        "mamba_head_dim": "mamba_d_head",
        "ssm_state_size": "mamba_d_state",
        "n_groups": "mamba_n_groups",
        "n_group": "num_expert_group",
        "norm_topk_prob": "moe_renormalize",
        "n_shared_experts": "num_shared_experts",
        "scoring_func": "moe_router_activation_func score_function",
        "conv_kernel": "mamba_d_conv",
        "time_step_min": "mamba_dt_min",
    }.items()
    for name in names.split()
}
"""Other name of a key → the key."""
_WORDS = {
    word: key
    for key, words in {
        "hidden_size": "width hidden d",
        "num_hidden_layers": "layers depth",
        "num_attention_heads": "heads",
        "num_key_value_heads": "kv_heads",
        "head_dim": "head_size",
        "intermediate_size": "ffn mlp ffn_width",
        "moe_intermediate_size": "expert_ffn",
        "vocab_size": "vocab vocabulary",
        "tie_word_embeddings": "tied tie",
        "num_experts": "experts",
        "num_experts_per_tok": "top_k active_experts",
        "max_position_embeddings": "context",
    }.items()
    for word in words.split()
}
"""Word for a dimension that is the name of no key → the key."""

NO_EFFECT: dict[str, str] = {
    key: reason
    for reason, keys in {
        "metadata": """architectures auto_map _name_or_path transformers_version model_type
            _class_name _note internal_version is_llama_config finetuning_task problem_type id2label
            label2id mtplx_mtp_contract mlx_lm_extra_tensors""",
        "the format of stored numbers, not their count": """torch_dtype dtype quantization_config
            compression_config quantization use_bfloat16 for_llm_compressor expert_dtype""",
        "the precision of some operations": """bf16 fp16 fp32 params_dtype softmax_in_fp32
            attention_softmax_in_fp32 scale_attention_softmax_in_fp32 residual_in_fp32
            mamba_ssm_dtype mamba_ssm_cache_dtype reorder_and_upcast_attn slow_but_exact""",
        "initialization before training": """initializer_range embedding_initializer_range
            initializer_factor init_method init_std init_config init_device block_mlp_init_scale
            block_out_init_scale block_use_xavier_init conv_use_xavier_init rescale_prenorm_residual
            w_init_variance_scale final_w_init_variance_scale lambda_std_dev time_step_init_scheme
            time_step_scale""",
        "training only": """attention_dropout hidden_dropout attn_pdrop embd_pdrop resid_pdrop
            dropout layerdrop activation_dropout attn_dropout_prob emb_dropout_prob
            embedding_dropout attn_config.attn_pdrop expert_dropout classifier_dropout
            input_jitter_noise router_jitter_noise router_aux_loss_coef output_router_logits
            ffn_config.moe_jitter_eps ffn_config.moe_loss_weight emb_pdrop z_loss_coefficient
            mtp_loss_scaling_factor aux_loss_alpha seq_aux mup_denominator tf_legacy_loss""",
        "ids of special tokens": """bos_token_id cls_token_id eos_token_id pad_token_id unk_token_id
            sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id
            image_token_index image_token_id""",
        "the tokenizer": "tokenizer tokenizer_name tokenizer_class n_special "
        "predict_special_tokens",
        "settings of text generation": """top_k top_p temperature do_sample num_beams
            num_beam_groups diversity_penalty num_return_sequences max_length min_length typical_p
            length_penalty repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
            early_stopping bad_words_ids badwordsids suppress_tokens begin_suppress_tokens
            exponential_decay_length_penalty remove_invalid_values return_dict_in_generate
            output_scores prefix task_specific_params""",
        "settings of an implementation": """use_cache pretraining_tp output_attentions
            output_hidden_states return_dict gradient_checkpointing
            attn_implementation _attn_implementation _attn_implementation_autoset
            attn_config.attn_impl attn_config.attn_uses_sequence_id attn_config.rope_impl
            attn_config.rope_dail_config chunk_size mamba_chunk_size chunk_size_feed_forward
            torchscript cache_implementation ep_size flash_attn flash_rotary fused_dense
            use_flash_attn use_cache_kernel use_cache_quantization use_mamba_kernels use_mambapy
            use_falcon_mambapy use_associative_scan fused_add_norm onnx_safe inference_runner
            validate_runner_input max_batch_size pad_key_length pre_allocate_kv_cache
            masked_softmax_fusion bias_dropout_fusion skip_bias_add skip_bias_add_qkv
            num_logits_to_keep mask_value context_window_size prefill_chunk_size
            moe_shared_expert_overlap verbose transformers.js_config use_pad_tok_in_ffn""",
        "for encoders and encoder-decoder models": """is_decoder is_encoder_decoder
            add_cross_attention cross_attention_hidden_size tie_encoder_decoder pruned_heads""",
        "for a classifier's summary layer": """summary_activation summary_first_dropout
            summary_proj_to_labels summary_type
            summary_use_proj""",
        "the context again": "n_ctx",
        "for images: text has one position per token": "use_mrope img_processor",
    }.items()
    for key in keys.split()
}
"""Keys that affect no weight, no cache and no arithmetic in families that do not read them → the
reason."""


def key_of_word(word: str, known: Iterable[str], present: Container[str]) -> str | None:
    """Return the known key that stands for a word such as `heads`: one that is present, else the
    usual name.
    """
    key = _WORDS.get(word)
    found = [x for x in known if SYNONYMS.get(x, x) == key]
    return min(found, key=lambda x: (x not in present, x != key, x), default=None)


def any_name(key: str) -> str:
    """Return a key and its synonyms, joined by `|` as `Config` reads them, the given name first."""
    first = SYNONYMS.get(key, key)
    return "|".join(
        dict.fromkeys((key, first, *(name for name, other in SYNONYMS.items() if other == first)))
    )
