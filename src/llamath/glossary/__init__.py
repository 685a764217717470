"""What each configuration key says, and what it moves: weights, cache, compute, or nothing that this package counts.

The second text of an entry opens with its group: `weights`, `cache` (no weight), `compute` (neither), `apart` (weights outside the total)
or `nothing`. A nested key is dotted; one that means something of its own in a family, or in a `hybrid`, or where attention is `latent` or
positions are `learned`, stands again as `family/key`. Letters as in `blocks` and `mixers`. Only `NOTHING` is here at once, as every count
asks for it; the rest comes when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .meta import ARGS
    from .words import GLOSSARY, GROUPS, SAME, entry

__all__ = ["ARGS", "GLOSSARY", "GROUPS", "NOTHING", "SAME", "entry"]

NOTHING: dict[str, str] = {
    key: reason
    for reason, keys in {
        "bookkeeping": """architectures auto_map _name_or_path transformers_version model_type _class_name _note internal_version
            is_llama_config finetuning_task problem_type id2label label2id mtplx_mtp_contract mlx_lm_extra_tensors""",
        "how the numbers were stored, not how many": """torch_dtype dtype quantization_config compression_config quantization
            use_bfloat16 for_llm_compressor""",
        "the precision of some steps, not the steps": """bf16 fp16 fp32 params_dtype softmax_in_fp32 attention_softmax_in_fp32
            scale_attention_softmax_in_fp32 residual_in_fp32 mamba_ssm_dtype mamba_ssm_cache_dtype
            reorder_and_upcast_attn slow_but_exact""",
        "where the numbers started, before training": """initializer_range initializer_factor init_std init_config init_device
            block_mlp_init_scale block_out_init_scale block_use_xavier_init conv_use_xavier_init rescale_prenorm_residual""",
        "training only": """attention_dropout hidden_dropout attn_pdrop embd_pdrop resid_pdrop dropout layerdrop activation_dropout
            attn_dropout_prob emb_dropout_prob embedding_dropout attn_config.attn_pdrop expert_dropout classifier_dropout input_jitter_noise
            router_jitter_noise router_aux_loss_coef output_router_logits aux_loss_alpha seq_aux mup_denominator tf_legacy_loss""",
        "which token ids are special": """bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id
            forced_bos_token_id forced_eos_token_id image_token_index image_token_id""",
        "which tokenizer belongs to it": "tokenizer tokenizer_name tokenizer_class n_special predict_special_tokens",
        "how text is drawn from it": """top_k top_p temperature do_sample num_beams num_beam_groups diversity_penalty num_return_sequences
            max_length min_length typical_p length_penalty repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size
            early_stopping bad_words_ids badwordsids suppress_tokens begin_suppress_tokens exponential_decay_length_penalty
            remove_invalid_values return_dict_in_generate output_scores prefix task_specific_params""",
        "how a program runs it": """use_cache pretraining_tp output_attentions output_hidden_states return_dict gradient_checkpointing
            attn_implementation _attn_implementation _attn_implementation_autoset attn_config.attn_impl attn_config.attn_uses_sequence_id
            attn_config.rope_impl attn_config.rope_dail_config chunk_size chunk_size_feed_forward torchscript cache_implementation ep_size
            flash_attn flash_rotary fused_dense use_flash_attn use_cache_kernel use_cache_quantization use_mamba_kernels onnx_safe
            inference_runner validate_runner_input max_batch_size pad_key_length pre_allocate_kv_cache masked_softmax_fusion
            bias_dropout_fusion skip_bias_add skip_bias_add_qkv num_logits_to_keep mask_value context_window_size prefill_chunk_size
            moe_shared_expert_overlap verbose transformers.js_config use_pad_tok_in_ffn""",
        "for encoders and pairs of models": """is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size
            tie_encoder_decoder pruned_heads""",
        "for a classifier's summary, which a language model does not make": """summary_activation summary_first_dropout
            summary_proj_to_labels summary_type summary_use_proj""",
        "the context once more": "n_ctx",
        "for pictures: text has one position for each token": "use_mrope img_processor",
    }.items()
    for key in keys.split()
}
"""Keys that change no weight, no cache and no arithmetic in any family that does not read them, each with the reason."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'meta' if name == 'ARGS' else 'words'}"), name)
