"""The meaning of each config key, and what it affects: weights, cache, compute, or nothing that
this package counts.

Each entry is (meaning, effect). The effect opens with its group: `weights`, `cache` (no weights),
`compute` (neither), `apart` (weights that are excluded from the total) or `nothing`. A nested key
is dotted. A key with another meaning in one family, or in hybrid models (`hybrid`), with latent
attention (`latent`) or with learned positions (`learned`), has a second entry under `family/key`.
The letters are those of `core.blocks` and `core.mixers`.
"""

from __future__ import annotations

from . import SYNONYMS

Entry = tuple[str, str]
GROUPS = ("weights", "cache", "compute", "apart", "nothing")
"""The groups of effects, the largest first."""

_ONE_FACTOR, _ANGLES, _STRETCHED, _SCORES = (
    "compute: one factor",
    "compute: the angles",
    "compute: which angles are stretched",
    "compute: the scores",
)
_EXCLUDED = "apart: weights excluded from the total"
_FIXED = "nothing: given by another key, or fixed in the family"

SECTIONS: dict[str, dict[str, Entry]] = {
    "Model, width, depth and vocabulary": {
        "model_type": (
            "the family, which reads the other keys",
            "weights: every shape; cache; compute",
        ),
        "architectures": (
            "the saved class: with a language model head, without one, or with a classifier",
            "weights of the head",
        ),
        "num_labels": (
            "n, the number of classes of a classifier",
            "weights of the classifier, in place of a head",
        ),
        "id2label": (
            "the names of a classifier's n classes; counted if num_labels is absent",
            "weights of the classifier",
        ),
        "hidden_size": ("d, the width of the residual stream", "weights: nearly all; compute"),
        "num_hidden_layers": ("L, the number of layers", "weights of all layers; cache; compute"),
        "cross_attention_layers": (
            "numbers of the layers that attend to images instead of text (Llama 3.2 Vision)",
            "weights; cache; compute",
        ),
        "intermediate_size": (
            "F, the width of the MLP, or of each expert",
            "weights of the MLP; compute",
        ),
        "recurrent_gemma/intermediate_size": (
            "2·F, twice the width of the MLP (RecurrentGemma)",
            "weights of the MLP; compute",
        ),
        "mamba2/intermediate_size": (
            "expand · hidden_size, as transformers saves it (Mamba 2)",
            "nothing: num_heads · head_dim is read",
        ),
        "qwen/intermediate_size": (
            "2·F, the widths of gate and up together",
            "weights of the MLP; compute",
        ),
        "llama4/intermediate_size": (
            "Fe, the width of each expert, including the shared one",
            "weights of the experts; compute",
        ),
        "lfm2/intermediate_size": (
            "F before it is reduced to two thirds and rounded; block_ff_dim takes precedence",
            "weights of the MLP",
        ),
        "ffn_multipliers": (
            "F / d of each layer, before F is rounded to ffn_dim_divisor (OpenELM)",
            "weights of the MLP; compute",
        ),
        "ffn_dim_divisor": (
            "F is rounded to a multiple of this (OpenELM)",
            "weights of the MLP; compute",
        ),
        "block_configs": (
            "attention and MLP of each layer: none, a single matrix, or their sizes (Nemotron NAS)",
            "weights of all layers; cache; compute",
        ),
        "ffn_with_glu": ("whether the MLP has a gate (OpenELM)", "weights of the MLP; compute"),
        "intermediate_multiple_size": (
            "r, the width of the MLP over d: F = r · d (GPT-NeoX Japanese)",
            "weights of the MLP; compute",
        ),
        "intermediate_size_mlp": (
            "F, the width of the MLP in layers without experts (Llama 4)",
            "weights of these layers; compute",
        ),
        "gemma3n/intermediate_size": (
            "F, the width of the MLP, or a list with one for each layer",
            "weights of the MLP; compute",
        ),
        "activation_sparsity_pattern": (
            "share of the gate's inputs that each layer sets to zero (Gemma 3n)",
            "compute: the MLP",
        ),
        "laurel_rank": (
            "r, rank of the low-rank residual of each layer (Gemma 3n)",
            "weights of two matrices; compute",
        ),
        "altup_num_inputs": (
            "n, residual streams, of which each layer computes one (Gemma 3n)",
            "weights of the routers and of 2·(n − 1) projections; compute",
        ),
        "altup_active_idx": (
            "number of the residual stream that the layers compute (Gemma 3n)",
            "compute: which stream",
        ),
        "altup_correct_scale": (
            "whether the input of the per-layer branch is scaled (Gemma 3n)",
            "nothing: only true is supported",
        ),
        "altup_coef_clip": (
            "limit of the weights of residual streams in training (Gemma 3n)",
            "nothing: training only",
        ),
        "inkling/intermediate_size": (
            "F, the width of the MLP; or Fe, of the experts, if dense_intermediate_size is given",
            "weights of MLPs or experts",
        ),
        "inkling/dense_intermediate_size": (
            "F, the width of the MLP in layers without experts, here",
            "weights of these layers; compute",
        ),
        "inkling/n_shared_experts": (
            "S, experts that every token uses, with weights from the router",
            "weights of these experts; compute",
        ),
        "minimax_m3/intermediate_size": (
            "Fe, the width of each expert, but not of the shared one",
            "weights of the experts; compute",
        ),
        "dense_intermediate_size": (
            "F, the width of the MLP in layers without experts (MiniMax-M3)",
            "weights of these layers; compute",
        ),
        "minimax_m3/shared_intermediate_size": (
            "Fs, the width of the expert that every token uses",
            "weights of this expert; compute",
        ),
        "expansion_ratio": (
            "r, the width of the MLP over d: F = r · d (MPT)",
            "weights of the MLP; compute",
        ),
        "block_ff_dim": (
            "F before LFM2 takes two thirds of it, scales it and rounds it up",
            "weights of the MLP; compute",
        ),
        "block_auto_adjust_ff_dim": (
            "whether block_ff_dim is reduced and rounded; false: it is F itself",
            "weights of the MLP; compute",
        ),
        "block_multiple_of": (
            "LFM2's F is rounded up to a multiple of this",
            "weights of the MLP; compute",
        ),
        "block_ffn_dim_multiplier": (
            "factor of LFM2's F before it is rounded up",
            "weights of the MLP; compute",
        ),
        "cohere2_moe/intermediate_size": (
            "F, the width of each expert, and of dense layers by default",
            "weights of the MLP; compute",
        ),
        "prefix_dense_intermediate_size": (
            "Fd, the width of the MLP in layers without experts (Cohere)",
            "weights of these layers; compute",
        ),
        "aria/intermediate_size": (
            "F, the width of each expert, shared ones included",
            "weights of the experts; compute",
        ),
        "hc_mult": (
            "hc, residual streams of hyper-connections",
            "weights of the connections; compute",
        ),
        "hc_count": ("hc, residual streams (Qwen4-Exp)", "weights of the connections; compute"),
        "hc_lowrank": (
            "hr, the rank of the gates of residual streams (Qwen4-Exp)",
            "weights of the connections; compute",
        ),
        "muse_spark/tie_word_embeddings": (
            "whether embedding and head are one matrix; the class never ties them",
            _FIXED,
        ),
        "residual_gate_temperature": (
            "divisor of the logits of each branch's share (Muse Spark)",
            "compute: the residual stream",
        ),
        "moe_hidden_size": (
            "de, the width of the experts' inputs and outputs (Muse Spark)",
            "weights of the experts; compute",
        ),
        "hc_sinkhorn_iters": (
            "steps that make rows and columns of the mixing matrix sum to 1",
            "compute: the mixing of streams",
        ),
        "hc_magnitude": ("factor of what a branch adds to the streams (Hy4)", _ONE_FACTOR),
        "hc_eps": ("number added to the gates of hyper-connections", "compute: the gates"),
        "use_double_wide_mlp": (
            "whether layers that share the keys and values of another layer have an MLP of width "
            "2·F (Gemma 4)",
            "weights of the MLP in these layers; compute",
        ),
        "ffn_config": ("MPT's MLP settings, an object", "nothing: only one choice is supported"),
        "dbrx/ffn_config": (
            "settings of DBRX's experts, an object",
            "weights of the experts; compute",
        ),
        "ffn_config.hidden_size": (
            "width of the experts' input (DBRX)",
            "nothing: it is that of the model",
        ),
        "ffn_config.ffn_act_fn": (
            "activation of the experts, an object (DBRX)",
            "compute: the activation",
        ),
        "ffn_config.ffn_act_fn.name": (
            "name of the activation of the experts (DBRX)",
            "compute: the activation",
        ),
        "ffn_config.moe_normalize_expert_weights": (
            "1: weights of the chosen experts sum to 1; null: they are left as they are (DBRX)",
            "compute: the weights of experts",
        ),
        "ffn_config.ffn_type": (
            "type of MPT's MLP: mptmlp, two matrices",
            "nothing: other types are rejected",
        ),
        "vocab_size": (
            "V, rows of the embedding and of the head; often padded beyond the tokenizer",
            "weights of embedding and head; compute",
        ),
        "unpadded_vocab_size": (
            "tokens without padding: as many logits are returned (Inkling)",
            "compute: the number of logits",
        ),
        "chatglm/padded_vocab_size": (
            "V, rows of the embedding and of the head (ChatGLM)",
            "weights of embedding and head; compute",
        ),
        "vocab_size_per_layer_input": (
            "Vp, rows of the per-layer embedding (Gemma 4)",
            "weights of that embedding",
        ),
        "hidden_size_per_layer_input": (
            "p, width of the per-layer embedding in each layer; 0: there is none",
            "weights of that embedding and of a branch in each layer; compute",
        ),
        "word_embed_proj_dim": (
            "w, width of the embedding; where it is less than d, a matrix projects it to d "
            "(OPT-350m)",
            "weights of embedding, head and the projections",
        ),
        "pooling": (
            "how an embedding model pools the last states: bos, eos or mean (Cohere)",
            "nothing: the model with a head does not",
        ),
        "norm_head": (
            "whether the rows of the head are divided by their lengths (Ling)",
            "nothing: true is rejected",
        ),
        "tie_word_embeddings": (
            "whether head and embedding share one matrix, which is then counted once",
            "weights of the head",
        ),
        "num_loops": (
            "R, how often the layers run (Nanbeige)",
            "cache: one in each pass; compute",
        ),
        "total_ut_steps": (
            "R, how often the layers run (Ouro)",
            "cache: one in each pass; compute",
        ),
        "skip_loop_final_norm": (
            "whether the last norm runs once, not after each pass over the layers (Nanbeige)",
            "compute: arithmetic of the norms",
        ),
        "loop_loss_weights": (
            "weights of the losses after each pass (Nanbeige)",
            "nothing: training only",
        ),
        "early_exit_threshold": (
            "the probability with which a token ends its passes; 1: after all (Ouro)",
            _FIXED,
        ),
        "early_exit_step": ("the pass after which all tokens end; absent (Ouro)", _FIXED),
        "kv_channels": ("the size of a head again (Nanbeige)", _FIXED),
        "ngram_vocab_size_ratio": (
            "x: rows of the tables of n-grams, over the vocabulary (LongCat)",
            "weights of the tables of n-grams",
        ),
        "longcat_flash_ngram/emb_neighbor_num": (
            "n, tokens of the longest n-gram in a table (LongCat)",
            "weights of the tables of n-grams; compute",
        ),
        "emb_split_num": (
            "k, tables of n-grams of each length (LongCat)",
            "weights of the tables of n-grams; compute",
        ),
    },
    "Attention and recurrent mixers": {
        # heads
        "num_attention_heads": (
            "H, query heads of size h",
            "weights of q and o if head_dim is given, else of k and v unless K = H; compute",
        ),
        "latent/num_attention_heads": (
            "H, heads; each has its own key and value, projected up from the latent vector",
            "weights of q, k, v and o; compute",
        ),
        "num_attention_heads_per_layer": (
            "H of each layer, where layers differ (Laguna)",
            "weights of q, o and the gates; compute",
        ),
        "num_key_value_heads": (
            "K, key/value heads, each shared by H / K query heads",
            "weights of k and v; cache",
        ),
        "gpt_neo/num_heads": (
            "H, the number of heads",
            "compute: the shape of the heads; no weights",
        ),
        "head_dim": (
            "h, the size of one head; need not be d / H",
            "weights of q, k, v and o; cache; compute",
        ),
        "kv_channels": (
            "h, the size of one head; here always d / H",
            "nothing: another size is rejected",
        ),
        "jetmoe/kv_channels": (
            "h, the size of one head",
            "weights of the experts of attention, k and v; cache",
        ),
        "jetmoe/num_key_value_heads": (
            "K, the heads of each expert of attention, and of the keys and values",
            "weights of attention; cache",
        ),
        "jetmoe/num_attention_heads": (
            "k · K, the heads of all chosen experts together (JetMoE)",
            _FIXED,
        ),
        "local_attention": (
            "2·w, twice the window of some layers, in tokens (ModernBERT)",
            "cache: tokens kept; compute",
        ),
        "num_mem_blocks": (
            "M, shared blocks, which take turns in the layers with one (Zamba2)",
            "weights of the shared blocks",
        ),
        "adapter_rank": (
            "r, rank of the adapters that each use of a shared block has (Zamba2)",
            "weights of the adapters; compute",
        ),
        "use_shared_attention_adapter": (
            "whether q, k and v of shared blocks have adapters (Zamba2)",
            "weights of the adapters; compute",
        ),
        "n_mamba_heads": (
            "n, heads of Mamba with time steps, b and c of their own (Zamba)",
            "weights of the mixer",
        ),
        "zamba2/n_mamba_heads": (
            "Hm, heads of Mamba-2 (Zamba2)",
            "weights of the mixer; cache: the states",
        ),
        "mamba_ngroups": (
            "G, groups of heads that share b and c of Mamba-2 (Zamba2)",
            "weights of the mixer; cache: the convolution",
        ),
        "multi_query_attention": (
            "whether multi_query_group_num says the key/value heads (ChatGLM)",
            "weights of k and v; cache",
        ),
        "multi_query_group_num": (
            "K, key/value heads with multi_query_attention (ChatGLM)",
            "weights of k and v; cache",
        ),
        "chatglm/kv_channels": (
            "h, the size of one head (ChatGLM)",
            "weights of q, k, v and o; cache; compute",
        ),
        "num_query_heads": (
            "H, query heads of each layer (OpenELM)",
            "weights of q and o; compute",
        ),
        "openelm/num_kv_heads": (
            "K, key/value heads of each layer (OpenELM)",
            "weights of k and v; cache",
        ),
        "multi_query": (
            "whether all query heads share one key/value head; false: each has its own",
            "weights of k and v; cache",
        ),
        "new_decoder_architecture": (
            "whether layers are those of Falcon 40B, with K key/value heads and a norm for each "
            "branch",
            "weights of k, v and the norms; cache",
        ),
        "attn_config": (
            "MPT's attention settings, an object",
            "weights of attention; cache; compute",
        ),
        "attn_config.attn_type": (
            "how key/value heads are shared: multihead, multiquery or grouped_query_attention",
            "weights of k and v; cache",
        ),
        "global_head_dim": (
            "hg, the size of one head in layers without a sliding window (Gemma 4)",
            "weights of q, k, v and o in these layers; cache; compute",
        ),
        "num_global_key_value_heads": (
            "Kg, key/value heads in layers without a sliding window, with attention_k_eq_v "
            "(Gemma 4)",
            "weights of k in these layers; cache",
        ),
        "attention_k_eq_v": (
            "whether keys are used as values in layers without a sliding window, which then have "
            "no v",
            "weights of k and v in these layers",
        ),
        "swa_num_key_value_heads": (
            "Kw, key/value heads in layers with a sliding window (MiMo-V2, Inkling)",
            "weights of k and v; cache",
        ),
        "num_kv_shared_layers": (
            "number of last layers that use the keys and values of an earlier layer (Gemma 4)",
            "weights of k and v in these layers; cache",
        ),
        "per_layer_config": (
            "settings of single layers, by layer number (transformers 5)",
            "weights of attention in these layers; cache",
        ),
        "use_qk_norm": (
            "whether queries and keys are normalized",
            "weights: the scales of these norms",
        ),
        "llama4/use_qk_norm": (
            "whether rotated queries and keys are normalized, without a learned scale",
            _SCORES,
        ),
        "qk_layernorm": (
            "whether each head's queries and keys have a layer norm",
            "weights of these norms",
        ),
        "attn_config.qk_ln": (
            "whether queries and keys have a layer norm over all heads (MPT)",
            "weights of these norms",
        ),
        "num_sliding_attention_heads": (
            "Hs, heads of layers with a sliding window (Step 3.5)",
            "weights of q, o and gates in these layers",
        ),
        "attention_other_setting": (
            "heads of layers with a sliding window, an object (Step 3.5)",
            "weights of q, o and gates in these layers",
        ),
        "attention_other_setting.attention_type": ("type of the layers that it is about", _FIXED),
        "attention_other_setting.num_attention_heads": (
            "Hs, their query heads",
            "weights of q, o and gates in these layers; compute",
        ),
        "attention_other_setting.num_attention_groups": (
            "their key/value heads",
            "nothing: as many as in the other layers",
        ),
        "attention_other_setting.head_dim": (
            "size of their heads",
            "nothing: that of the other layers",
        ),
        "attention_other_setting.true_head_dim": (
            "size of their heads, again",
            "nothing: that of the other layers",
        ),
        "gating": (
            "what multiplies the attention output: one number per head (true), or per channel "
            "(Laguna)",
            "weights of the gate",
        ),
        "attn_output_gate": (
            "whether a sigmoid gate multiplies the attention output",
            "weights of the gate, as many as of q; false is rejected",
        ),
        # scores
        "attention_value_scale": ("factor of the values (MiMo-V2)", _ONE_FACTOR),
        "key_multiplier": ("factor of the keys before the rotation (Falcon-H1)", _ONE_FACTOR),
        "attention_in_multiplier": ("factor of the input of attention (Falcon-H1)", _ONE_FACTOR),
        "attention_out_multiplier": ("factor of the output of attention (Falcon-H1)", _ONE_FACTOR),
        "query_pre_attn_scalar": (
            "scores are divided by the square root of this instead of √h (Gemma)",
            _ONE_FACTOR,
        ),
        "attention_multiplier": (
            "scores are multiplied by this instead of 1 / √h (Granite)",
            _ONE_FACTOR,
        ),
        "attn_config.softmax_scale": (
            "scores are multiplied by this; null: by 1 / √h (MPT)",
            _ONE_FACTOR,
        ),
        "qk_scale_factor": (
            "factor of the scores in addition to 1 / √h (Muse Glimmer)",
            _ONE_FACTOR,
        ),
        "scale_attn_weights": ("whether scores are divided by √h", _ONE_FACTOR),
        "scale_attn_by_inverse_layer_idx": (
            "whether scores are also divided by the layer number, counted from 1",
            _ONE_FACTOR,
        ),
        "embedding_multiplier_scale": (
            "factor of the embeddings (Grok 2)",
            "compute: no weight depends on it",
        ),
        "output_multiplier_scale": (
            "factor of the logits (Grok 2)",
            "compute: no weight depends on it",
        ),
        "router_logit_softcapping": (
            "soft cap of the logits of the router (Grok 2)",
            "compute: the choice of experts",
        ),
        "attn_temperature_len": (
            "position beyond which capped scores are scaled by its logarithm (Grok 2)",
            _SCORES,
        ),
        "attn_logit_softcapping": (
            "soft cap of the scores: cap · tanh(score / cap); null: none",
            _SCORES,
        ),
        "clip_qkv": (
            "queries, keys and values are clamped to ± this; null: not",
            "compute: rare values",
        ),
        "use_bidirectional_attention": (
            "whether tokens attend to later tokens too; Gemma 4: all of them, or within an image",
            "compute: the attention mask",
        ),
        "attn_config.prefix_lm": (
            "whether attention within the prompt is bidirectional (MPT)",
            "nothing: taken as false",
        ),
        # windows and layer types
        "sliding_window": (
            "size of the sliding window in tokens, the query's own included; null: no window",
            "cache: these layers keep no more; compute",
        ),
        "keep_window_size": (
            "the most keys that a query attends to, chosen by a learned mask (Doge)",
            "compute: which keys are masked",
        ),
        "use_sliding_window": ("whether sliding_window is used at all", "cache; compute"),
        "max_window_layers": (
            "first layer with a sliding window (Qwen2-MoE: first without), with use_sliding_window",
            "cache; compute",
        ),
        "prefix_dense_sliding_window_pattern": (
            "n: every nth of the first dense layers has no sliding window; 1: they rotate all "
            "the same (Cohere)",
            "cache; compute",
        ),
        "sliding_window_pattern": (
            "n: every nth layer has no sliding window; or a string of L (window) and G (none)",
            "cache; compute",
        ),
        "global_local_attention_pattern": (
            "type of each layer, as written by one conversion tool",
            "cache; compute",
        ),
        "attention_chunk_size": (
            "chunk size of layers with chunked attention (Llama 4)",
            "cache: these layers keep no more; compute",
        ),
        "layer_types": (
            "type of each layer: sliding window, chunked, full or linear attention, convolution",
            "cache; compute",
        ),
        "global_attn_every_n_layers": (
            "n: every nth layer has no sliding window (AFM)",
            "cache; compute",
        ),
        "hybrid_layer_pattern": (
            "for each layer: 1 for a sliding window, 0 for none (MiMo-V2)",
            "weights of k, v and sinks; cache",
        ),
        "add_swa_attention_sink_bias": (
            "whether layers with a sliding window have sinks (MiMo-V2)",
            "weights: H numbers a layer",
        ),
        "add_full_attention_sink_bias": (
            "whether layers without a sliding window have sinks (MiMo-V2)",
            "weights: H numbers a layer",
        ),
        "use_cla": (
            "whether layers share keys and values (Hunyuan)",
            "nothing: only false is supported",
        ),
        "attention_types": (
            "pairs of a pattern of global and local layers and its number of repetitions (GPT-Neo)",
            "cache; compute",
        ),
        "gemma4/layer_types": (
            "type of each layer: sliding window, or full attention with other head sizes",
            "weights of attention; cache; compute",
        ),
        "gemma4_unified/layer_types": (
            "type of each layer: sliding window, or full attention with larger heads",
            "weights of attention; cache; compute",
        ),
        "step3p5/layer_types": (
            "type of each layer: full attention, or a sliding window with another number of heads",
            "weights of attention; cache; compute",
        ),
        "gemma3n/layer_types": (
            "type of each layer: full attention or a sliding window; the last ones use another's "
            "keys",
            "weights of k and v in some cases; cache; compute",
        ),
        "inkling/sliding_window_size": (
            "size of the sliding window, and number of distances with a learned bias there",
            "weights of the profiles; cache; compute",
        ),
        "inkling/layer_types": (
            "type of each layer: hybrid, or hybrid_sliding with a sliding window and heads of "
            "its own",
            "weights of attention; cache; compute",
        ),
        "local_layer_ids": (
            "numbers of layers, from 0, with a sliding window (Inkling)",
            "weights of attention; cache; compute",
        ),
        "inkling/swa_num_attention_heads": (
            "Hw, heads in layers with a sliding window (Inkling)",
            "weights of q and o in these layers; compute",
        ),
        "inkling/swa_head_dim": (
            "hw, size of a head in layers with a sliding window (Inkling)",
            "weights of attention in these layers; cache",
        ),
        "d_rel": (
            "R, numbers of a query head that weigh profiles of biases by distance (Inkling)",
            "weights of their projections",
        ),
        "rel_extent": (
            "D, distances with a learned bias in layers without a window (Inkling)",
            "weights of the profiles; compute",
        ),
        "log_scaling_n_floor": (
            "position from which queries grow with the logarithm of it; null: none (Inkling)",
            _SCORES,
        ),
        "log_scaling_alpha": ("how much they grow (Inkling)", _SCORES),
        "minimax/attn_type_list": (
            "type of each layer: 0 for linear attention, 1 for softmax attention (MiniMax-01)",
            "weights of the mixers; cache; compute",
        ),
        "minimax/layer_types": (
            "type of each layer: full or linear attention (MiniMax-01)",
            "weights of the mixers; cache; compute",
        ),
        "hybrid/layer_types": (
            "type of each layer: full attention, or a recurrent mixer",
            "weights of the mixers; cache; compute",
        ),
        "attn_layer_indices": (
            "numbers of the layers with attention; others have Mamba-2 (Bamba)",
            "weights of these layers; cache",
        ),
        "mimo_v2_flash/layer_types": (
            "type of each layer: full attention, or a sliding window with other key/value heads "
            "(MiMo-V2)",
            "weights of k, v and sinks; cache; compute",
        ),
        "full_attn_idxs": (
            "layers with attention, if layer_types is absent; the others are convolutions",
            "weights of the mixers; cache; compute",
        ),
        "full_attention_interval": (
            "n: every nth layer has full attention, the others linear (Qwen)",
            "weights of the mixers; cache; compute",
        ),
        "layers_block_type": (
            "type of each layer: Mamba M, attention *, MLP -, experts E (Nemotron-H)",
            "weights: which layers there are; cache; compute",
        ),
        # residuals that attend to earlier ones
        "attn_res_block_size": (
            "layers after which the residual is kept for the layers that follow, which attend to "
            "all that were kept (Kimi K3)",
            "compute",
        ),
        "moondream/dim": (
            "d, the width of the residual stream (Moondream)",
            "weights: nearly all; compute",
        ),
        "moondream/ff_dim": ("F, the width of the MLP (Moondream)", "weights of the MLP; compute"),
        "moondream/n_kv_heads": ("K, key/value heads (Moondream)", "weights of k and v; cache"),
        "moondream/max_context": (
            "the number of positions (Moondream)",
            "cache: the longest context",
        ),
        "moondream/prefix_attn": (
            "tokens at the start that attend to each other (Moondream)",
            _FIXED,
        ),
        "moondream/group_size": (
            "group of packed weights (Moondream)",
            "nothing: only null is supported",
        ),
        # latent attention
        "mla_use_output_gate": (
            "whether the heads of latent attention have a gate (Kimi K3)",
            "weights of the gate; compute",
        ),
        "use_mla": (
            "whether attention is latent (DeepSeek-V2); false: as in Llama",
            "weights of attention; cache; compute",
        ),
        "q_lora_rank": (
            "s, size of the latent vector of the queries; null: none",
            "weights of q; compute",
        ),
        "kv_lora_rank": (
            "r, size of the latent vector of keys and values",
            "weights of k and v; cache; compute",
        ),
        "qk_nope_head_dim": (
            "n, size of the non-rotary part of a query or key head",
            "weights of q and k; compute",
        ),
        "qk_rope_head_dim": (
            "p, size of the rotary part of a query head; all heads share one rotary key",
            "weights of q and k; cache; compute",
        ),
        "v_head_dim": ("v, size of a value head", "weights of v and o; compute"),
        # attention to selected keys
        "index_n_heads": (
            "Hi, query heads of the indexer, which selects the keys that queries attend to",
            "weights of the indexer; compute",
        ),
        "index_head_dim": (
            "hi, size of a head of the indexer, which caches one key of this size",
            "weights of the indexer; cache; compute",
        ),
        "index_topk": (
            "ki, the most keys that a query attends to",
            "compute: keys beyond them are scored, but not attended to",
        ),
        "indexer_types": (
            "for each layer: full, with an indexer; shared, with the selection of the nearest "
            "earlier one",
            "weights of indexers; cache; compute",
        ),
        "kv_source_layers": (
            "for each layer: the one whose latent vectors it reads; its own number: itself "
            "(Mistral Large 4)",
            "weights of the attention; cache; compute",
        ),
        "mistral_large4/no_rope_layers": (
            "for each layer: 1 for keys with a rotary part, 0 for keys without positions",
            "weights of the latent vectors; cache; compute: the angles",
        ),
        "mistral_large4/no_rope_layer_interval": (
            "n: the keys of every nth layer have no positions",
            "weights of the latent vectors; cache; compute: the angles",
        ),
        "learnable_sink_init": (
            "first value of attention sinks (Hy4)",
            "nothing: the sinks are trained",
        ),
        "compress_ratios": (
            "for each layer: tokens of a window in compressed attention, 4 or 128, or any number "
            "(V4.1); 0: none (DeepSeek-V4)",
            "weights of attention; cache; compute",
        ),
        "compress_rates": (
            "tokens of a window, by type of layer (DeepSeek-V4)",
            "weights of attention; cache; compute",
        ),
        "compress_rates.compressed_sparse_attention": (
            "of layers with an indexer",
            "weights of attention; cache; compute",
        ),
        "compress_rates.heavily_compressed_attention": (
            "of layers without an indexer",
            "weights of attention; cache; compute",
        ),
        "kv_source_layer_ids": (
            "the layers with windows of their own, which later ones read, too (DeepSeek-V4.1)",
            "weights of attention; cache; compute",
        ),
        "index_source_layer_ids": (
            "the layers with an indexer, whose choice later ones use, too (DeepSeek-V4.1)",
            "weights of indexers; compute",
        ),
        "candidate_source_layer_id": (
            "the layer that chooses blocks of windows, in which later indexers choose; -1: none "
            "(DeepSeek-V4.1)",
            "compute: the windows that are scored",
        ),
        "candidate_topk_blocks": (
            "the most blocks of windows that it chooses (DeepSeek-V4.1)",
            "compute: the windows that are scored",
        ),
        "candidate_block_size": (
            "windows of such a block (DeepSeek-V4.1)",
            "compute: the windows that are scored",
        ),
        "o_groups": (
            "og, groups of heads whose outputs are projected separately (DeepSeek-V4)",
            "weights of o; compute",
        ),
        "o_lora_rank": ("o, output width of each group (DeepSeek-V4)", "weights of o; compute"),
        "gated_norm_rank": (
            "g, rank of the gates of norms (A.X K2)",
            "weights of the norms; compute",
        ),
        "index_topk_pattern": (
            "for each layer: F, with an indexer, or S, without one (GLM-5)",
            "weights of indexers; cache; compute",
        ),
        "index_topk_freq": (
            "n: every nth layer has an indexer (GLM-5)",
            "weights of indexers; cache; compute",
        ),
        "index_skip_topk_offset": (
            "layers at the start that all have an indexer (GLM-5)",
            "weights of indexers; cache; compute",
        ),
        "indexer_rope_interleave": ("whether the indexer rotates adjacent channels", _FIXED),
        # attention to selected blocks
        "minimax_m3/layer_types": (
            "type of each layer: full attention, or to blocks of keys that an indexer selects",
            "weights of the indexers; cache; compute",
        ),
        "index_block_size": (
            "number of keys in a block (MiniMax-M3)",
            "compute: which keys are attended to",
        ),
        "index_topk_blocks": (
            "blocks that a query attends to at most",
            "compute: the attended keys",
        ),
        "index_local_blocks": (
            "blocks that a query always attends to, its own included",
            "compute: which blocks",
        ),
        "sparse_attention_config": (
            "attention to selected blocks of keys, an object (MiniMax-M3)",
            "weights of the indexers; cache; compute",
        ),
        "sparse_attention_config.sparse_num_index_heads": (
            "Hi, heads of the indexer",
            "nothing: as many as key/value heads",
        ),
        "sparse_attention_config.sparse_index_dim": (
            "hi, size of a head of the indexer",
            "weights of the indexers; cache; compute",
        ),
        "sparse_attention_config.sparse_block_size": (
            "number of keys in a block, in MiniMax's own config",
            "compute: the attended keys",
        ),
        "sparse_attention_config.sparse_topk_blocks": (
            "blocks that a query attends to at most, there",
            "compute: the attended keys",
        ),
        "sparse_attention_config.sparse_local_block": (
            "blocks that a query always attends to, there",
            "compute: which blocks",
        ),
        "sparse_attention_config.sparse_attention_freq": (
            "1 for each layer with an indexer",
            "weights of the indexers; cache; compute",
        ),
        # attention to selected windows
        "index_kpool": (
            "tokens of a window, which has one key of the indexer (GLM-5.3 Flash)",
            "weights of the indexers; cache; compute",
        ),
        "index_kpool_always_select_tail": (
            "whether a query attends to the tokens after the last complete window; true",
            _FIXED,
        ),
        "indexer_n_heads": (
            "Hi, heads of the indexer (Qwen4-Exp)",
            "weights of the indexers; compute",
        ),
        "indexer_kv_heads": ("keys of the indexer for each token: 1 (Qwen4-Exp)", _FIXED),
        "indexer_head_dim": (
            "hi, size of a head of the indexer (Qwen4-Exp)",
            "weights of the indexers; cache; compute",
        ),
        "indexer_budget": (
            "the most keys of complete windows that a query attends to (Qwen4-Exp)",
            "compute: the attended keys",
        ),
        "indexer_compress_ratio": (
            "tokens of a window, which has one key of the indexer (Qwen4-Exp)",
            "cache; compute",
        ),
        # tables of n-grams
        "ple_layer_ids": (
            "the layers, from 1, with a table of n-grams (Qwen4-Exp)",
            "weights of the tables; compute",
        ),
        "ple_embed_dim": (
            "e, the features of the n-grams of a token together (Qwen4-Exp)",
            "weights of the tables; compute",
        ),
        "ple_conv_kernel_size": (
            "tokens that the convolution after a table reads (Qwen4-Exp)",
            "weights of the convolution; compute",
        ),
        "engram_layer_ids": (
            "the layers, from 0, with a table of n-grams (DeepSeek-V4.1)",
            "compute: where their features are added",
        ),
        "engram_num_embeddings": (
            "the rows of each table (DeepSeek-V4.1)",
            "weights of the tables",
        ),
        "engram_max_ngram_size": (
            "the longest n-grams (DeepSeek-V4.1)",
            "weights after the tables; compute",
        ),
        "engram_n_heads": (
            "hashes of each n-gram (DeepSeek-V4.1)",
            "weights after the tables; compute",
        ),
        "engram_head_dim": (
            "he, the size of a row (DeepSeek-V4.1)",
            "weights of the tables; compute",
        ),
        "engram_vocab_size": (
            "the least rows of each hash, which is a prime number (DeepSeek-V4.1)",
            "compute: which rows",
        ),
        "engram_compressed_vocab_size": (
            "tokens after those that normalize alike are merged (DeepSeek-V4.1)",
            "compute: which rows",
        ),
        "engram_pad_token_id": (
            "the token that stands for those before the first (DeepSeek-V4.1)",
            "compute: which rows",
        ),
        "ngram_size": ("the longest n-grams (Qwen4-Exp)", "weights of the tables; compute"),
        "heads_per_ngram": ("hashes of each n-gram (Qwen4-Exp)", "weights of the tables; compute"),
        "ngram_vocab_size_base": (
            "the least rows of each hash, which is a prime number (Qwen4-Exp)",
            "weights of the tables",
        ),
        "make_ngram_vocab_size_divisible_by": (
            "the rows of a table are rounded up to a multiple (Qwen4-Exp)",
            "weights of the tables",
        ),
        "split_ngram_parts": (
            "parts in which a table is stored (Qwen4-Exp)",
            "nothing: the table is the same",
        ),
        "qwen4_exp/eos_token_id": (
            "the token at which n-grams end, the first of a list",
            "compute: which n-grams",
        ),
        "seed": (
            "of the factors of the hashes, which files store (Qwen4-Exp)",
            "nothing: files have what follows from it",
        ),
        # recurrent mixers
        "linear_lower_bound": (
            "lower bound of the logarithm of the decay (GLM-5.3 Flash)",
            "compute: the state",
        ),
        "linear_allow_neg_eigval": (
            "whether the steps of linear attention are doubled (OLMo Hybrid)",
            _ONE_FACTOR,
        ),
        "linear_a_log_min": (
            "lower end of the initial decays of linear attention (OLMo Hybrid)",
            "nothing: initialization only",
        ),
        "linear_a_log_max": (
            "upper end of the initial decays of linear attention (OLMo Hybrid)",
            "nothing: initialization only",
        ),
        "linear_dt_min": (
            "lower end of the initial time steps of linear attention (OLMo Hybrid)",
            "nothing: initialization only",
        ),
        "linear_dt_max": (
            "upper end of the initial time steps of linear attention (OLMo Hybrid)",
            "nothing: initialization only",
        ),
        "linear_dt_init_floor": (
            "smallest initial time step of linear attention (OLMo Hybrid)",
            "nothing: initialization only",
        ),
        "linear_num_key_heads": (
            "Hk, key heads of linear attention",
            "weights of linear attention; compute",
        ),
        "linear_key_head_dim": (
            "hk, size of a key head of linear attention",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_num_value_heads": (
            "Hv, value heads of linear attention, each with a state [hk, hv]",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_value_head_dim": (
            "hv, size of a value head of linear attention",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_num_heads": (
            "Hk, heads of delta attention, each with a state [hk, hk]",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_head_dim": (
            "hk, size of a head of delta attention",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_attn_config": (
            "the sizes and the layers of delta attention, an object (Kimi)",
            "weights of linear attention; cache; compute",
        ),
        "linear_attn_config.num_heads": (
            "Hk, heads of delta attention; elsewhere linear_num_heads",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_attn_config.head_dim": (
            "hk, size of a head of delta attention; elsewhere linear_head_dim",
            "weights of linear attention; cache: its state; compute",
        ),
        "linear_attn_config.short_conv_kernel_size": (
            "c, kernel size of the convolutions before delta attention",
            "weights of the convolutions; cache: c positions",
        ),
        "linear_attn_config.full_attn_layers": (
            "layers with full attention, counted from 1 (Kimi)",
            "weights of the mixers; cache; compute",
        ),
        "linear_attn_config.kda_layers": (
            "layers with delta attention, counted from 1 (Kimi)",
            "weights of the mixers; cache; compute",
        ),
        "sconv_kernel_size": (
            "c, kernel size of these convolutions, in published configs",
            "weights of the convolutions; cache: c positions",
        ),
        "linear_conv_kernel_dim": (
            "c, kernel size of the convolution before linear attention",
            "weights of the convolution; cache: c positions",
        ),
        "bailing_hybrid/head_dim": (
            "hk, size of a head of Ling's delta attention",
            "weights of its heads; cache: its state; compute",
        ),
        "short_conv_kernel_size": (
            "c, kernel size of the convolutions before Ling's delta attention",
            "weights of the convolutions; cache: c positions",
        ),
        "linear_attn_config.gate_lower_bound": (
            "lower bound of the logarithm of the decay of delta attention (Kimi K3)",
            "compute: the state",
        ),
        "linear_attn_config.use_full_rank_gate": (
            "whether the gate of delta attention is one matrix (Kimi K3)",
            "weights of the gate",
        ),
        "linear_attn_config.num_kv_heads": (
            "keys and values of delta attention; null: as many as queries (Solar Open 2)",
            _FIXED,
        ),
        "xlstm/num_heads": (
            "H, heads of the matrix memory (xLSTM)",
            "weights of the gates; cache: its state; compute",
        ),
        "qk_dim_factor": (
            "channels of queries and of keys, as a share of d (xLSTM)",
            "weights of queries and keys; cache: the state; compute",
        ),
        "v_dim_factor": (
            "channels of values, as a share of d (xLSTM)",
            "weights of values and output; cache: the state; compute",
        ),
        "gate_soft_cap": ("soft cap of the input and forget gates (xLSTM)", "compute: the state"),
        "output_logit_soft_cap": ("soft cap of the logits (xLSTM)", "compute: the logits"),
        "ffn_proj_factor": (
            "F / d, before it is rounded up (xLSTM)",
            "weights of the MLP; compute",
        ),
        "ffn_round_up_to_multiple_of": (
            "F is rounded up to a multiple of this number (xLSTM)",
            "weights of the MLP; compute",
        ),
        "cca_time0": (
            "c, taps of the convolution of each channel of queries and keys (ZAYA)",
            "weights of the convolutions; cache: positions before; compute",
        ),
        "cca_time1": (
            "cg, taps of the convolution of each head of queries and keys (ZAYA)",
            "weights of the convolutions; cache: positions before; compute",
        ),
        "linear_attn_config.safe_gate": (
            "whether the decay of delta attention has a lower bound; it has (GLM-5.3)",
            _FIXED,
        ),
        "kda_use_full_proj": (
            "whether forget and output gates of delta attention are one matrix each (Solar Open 2)",
            "weights of the gates",
        ),
        "kda_allow_neg_eigval": (
            "whether the steps of delta attention go up to 2, not 1 (Solar Open 2)",
            "compute: the state",
        ),
        "gqa_interval": (
            "n: delta attention in n layers after each with attention (Solar Open 2)",
            "weights of the mixers; cache; compute",
        ),
        "gqa_layers": (
            "layers with attention, counted from 0 (Solar Open 2)",
            "weights of the mixers; cache; compute",
        ),
        "use_gqa_gate": (
            "whether a sigmoid gate multiplies what the heads return (Solar Open 2)",
            "weights of the gate; compute",
        ),
        "use_gqa_gate_bias": ("whether this gate has a bias (Solar Open 2)", "weights: a bias"),
        "kda_safe_gate": (
            "whether the decay of delta attention has a lower bound (Ling)",
            "compute: the state",
        ),
        "kda_lower_bound": ("lower bound of the logarithm of that decay", "compute: the state"),
        "layer_group_size": (
            "n: every nth layer has latent attention, others delta attention",
            "weights of the mixers; cache; compute",
        ),
        "mamba_num_heads": (
            "Hm, Mamba heads, each with a state [m, N]",
            "weights of Mamba; cache: its state; compute",
        ),
        "mamba_head_dim": (
            "m, size of a Mamba head",
            "weights of Mamba; cache: its state; compute",
        ),
        "n_groups": ("G, groups of Mamba heads that share B and C", "weights of Mamba; compute"),
        "ssm_state_size": (
            "N, state size of each channel of a Mamba head",
            "weights of Mamba; cache: its state; compute",
        ),
        "conv_kernel": (
            "c, kernel size of Mamba's convolution",
            "weights of the convolution; cache: c positions",
        ),
        "use_conv_bias": (
            "whether Mamba's convolution has a bias",
            "weights: a bias of the convolution",
        ),
        "mamba_hidden_act": (
            "activation after Mamba's convolution",
            "compute: no weight depends on it",
        ),
        "time_step_min": ("lower bound of Mamba's time step", "compute: the state"),
        "time_step_limit": (
            "the range that Mamba's time steps are clamped to",
            "compute: the state",
        ),
        "mamba_expand": (
            "the width of all Mamba heads, or channels, over d, in hybrids",
            "weights of Mamba; cache: its state; compute",
        ),
        "mamba_proj_bias": (
            "whether the input and output projections of Mamba have biases, in hybrids",
            "weights: biases of Mamba",
        ),
        "mamba_d_ssm": (
            "the width of all Mamba heads; null: mamba_expand times the model's (Falcon-H1)",
            "weights of Mamba; cache: its state",
        ),
        "mamba_rms_norm": ("whether Mamba's output has a norm (Falcon-H1)", "weights of this norm"),
        "mamba_norm_before_gate": (
            "whether that norm precedes the gate instead of following it",
            "compute: the output of Mamba",
        ),
        "mamba_dt_rank": (
            "R, rank of Mamba's time steps, in hybrids; auto: d / 16",
            "weights of Mamba; compute",
        ),
        "projectors_bias": (
            "whether Mamba's output projection has a bias (Falcon-H1)",
            "weights: a bias of Mamba",
        ),
        "ssm_multipliers": (
            "factors of Mamba's projections z, x, B, C and dt (Falcon-H1)",
            "compute: five factors",
        ),
        "ssm_in_multiplier": ("factor of the input of Mamba (Falcon-H1)", _ONE_FACTOR),
        "ssm_out_multiplier": ("factor of the output of Mamba (Falcon-H1)", _ONE_FACTOR),
        "attn_layer_period": (
            "every this many layers one has attention, the others Mamba (Jamba)",
            "weights of the mixers; cache; compute",
        ),
        "attn_layer_offset": (
            "number of the first layer with attention (Jamba)",
            "weights of the mixers; cache; compute",
        ),
        "mamba2/num_heads": (
            "Hm, heads of Mamba-2, each with a state [m, N]",
            "weights of Mamba; cache: its state; compute",
        ),
        "mamba2/head_dim": (
            "m, size of a head of Mamba-2",
            "weights of Mamba; cache: its state; compute",
        ),
        "mamba2/expand": (
            "the width of all heads of Mamba-2 over d",
            "weights of Mamba; cache: its state; compute",
        ),
        "mamba/intermediate_size": (
            "i, channels of Mamba",
            "weights of Mamba; cache: its state; compute",
        ),
        "state_size": (
            "N, size of the state of each channel of Mamba",
            "weights of Mamba; cache: its state; compute",
        ),
        "time_step_rank": ("R, rank of Mamba's time steps", "weights of Mamba; compute"),
        "mamba/hidden_act": (
            "activation after the convolution of Mamba",
            "compute: no weight depends on it",
        ),
        "conv_kernel_size": (
            "c, kernel size of the convolutions in each layer (Inkling)",
            "weights of the convolutions; cache: c positions",
        ),
        "conv1d_width": (
            "c, kernel size of the convolutions (RecurrentGemma)",
            "weights of the convolution; cache: c positions",
        ),
        "lru_width": (
            "w, channels of the gated recurrences (RecurrentGemma)",
            "weights of the mixers; cache; compute",
        ),
        "block_types": (
            "types of layers, recurrent and attention, in turn (RecurrentGemma)",
            "weights: which layers there are; cache; compute",
        ),
        "attention_window_size": (
            "size of the window of attention in tokens, the query's own included (RecurrentGemma)",
            "cache: these layers keep no more; compute",
        ),
        "logits_soft_cap": (
            "soft cap of the logits: cap · tanh(logit / cap) (RecurrentGemma)",
            "compute: the logits",
        ),
        "conv_L_cache": (
            "c, kernel size of the short convolution (LFM2)",
            "weights of the convolution; cache: c positions",
        ),
        "use_sandwich_norm": (
            "whether each branch is normalized before it is added, too (LFM3)",
            "weights of these norms",
        ),
        "use_attention_gate": (
            "whether a sigmoid gate multiplies the output of each head (LFM3)",
            "weights of the gates",
        ),
        "conv_bias": (
            "whether the short convolution and its projections have biases",
            "weights: biases of the convolution",
        ),
    },
    "Experts and multi-token prediction": {
        "router_hidden_size": (
            "R, width of the MLP that chooses the experts (ZAYA)",
            "weights of the router; compute",
        ),
        "residual_moe": (
            "whether an MLP stands beside the experts (Grok 2)",
            "weights of the MLP; compute",
        ),
        "num_experts": (
            "E, experts in a layer; each token is routed to k of them",
            "weights of experts and router",
        ),
        "num_experts_per_tok": (
            "k, experts per token",
            "compute: the active weights, not the total",
        ),
        "moe_intermediate_size": (
            "Fe, the width of each expert",
            "weights of the experts; compute",
        ),
        "n_shared_experts": (
            "S, shared experts, which every token uses, as one MLP of width S·Fe",
            "weights of these experts; compute",
        ),
        "shared_expert_intermediate_size": (
            "Fs, the width of the shared expert",
            "weights of this expert; compute",
        ),
        "shared_intermediate_size": (
            "Fs, the width of an MLP alone or beside experts; 0: there is none (Granite)",
            "weights of this MLP",
        ),
        "num_shared_experts": (
            "S, shared experts, which every token uses, as one MLP of width S·Fe (Hy3, K-EXAONE)",
            "weights of these experts; compute",
        ),
        "moe_latent_size": (
            "r, input and output width of the experts, where it is not d (Nemotron 3 Super)",
            "weights of the experts and of two matrices around them; compute",
        ),
        # which layers
        "enable_moe_block": (
            "whether every layer has experts in addition to its MLP (Gemma 4)",
            "weights of experts and router; compute",
        ),
        "first_k_dense_replace": (
            "number of first layers with a dense MLP instead of experts",
            "weights of these layers",
        ),
        "moe_layer_freq": (
            "n: after the first dense layers, every nth has experts",
            "nothing: only 1 is supported",
        ),
        "is_moe": (
            "whether layers add experts of one neuron to their MLP (Doge)",
            "weights of the experts",
        ),
        "mimo_v2_flash/moe_layer_freq": (
            "for each layer: 1 for experts, 0 for a dense MLP (MiMo-V2)",
            "weights of these layers",
        ),
        "expert_layer_period": (
            "every this many layers one has experts (Jamba)",
            "weights of these layers",
        ),
        "expert_layer_offset": (
            "number of the first layer with experts (Jamba)",
            "weights of these layers",
        ),
        "mimo_v2/moe_layer_freq": (
            "1 for experts, 0 for a dense MLP, for each layer (MiMo-V2)",
            "weights of these layers",
        ),
        "minimax_m3/moe_layer_freq": (
            "1 for each layer with experts, 0 for the others",
            "weights of these layers",
        ),
        "dense_mlp_idx": (
            "number of first layers without experts (Inkling)",
            "weights of these layers",
        ),
        "decoder_sparse_step": (
            "n: every nth layer has experts, the others a dense MLP",
            "weights of these layers",
        ),
        "mlp_only_layers": (
            "numbers of layers, from 0, with a dense MLP regardless of decoder_sparse_step",
            "weights of these layers",
        ),
        "mlp_layer_types": (
            "type of the MLP of each layer: dense or sparse",
            "weights of these layers",
        ),
        "num_dense_layers": (
            "number of first layers with a dense MLP instead of experts (LFM2-MoE)",
            "weights of these layers",
        ),
        "moe_topk": (
            "k, experts per token, or a list with one number a layer (Hunyuan)",
            "compute: the active weights, not the total",
        ),
        "moe_num_experts": (
            "E, experts in a layer; each token is routed to k of them (ERNIE, Step 3.5, Aria)",
            "weights of experts and router",
        ),
        "moe_k": ("k, experts per token (ERNIE)", "compute: the active weights, not the total"),
        "moe_num_shared_experts": (
            "S, shared experts, which every token uses (ERNIE, Aria)",
            "weights of these experts; compute",
        ),
        "num_shared_expert": (
            "shared experts of each layer (Hunyuan)",
            "nothing: only 1 is supported",
        ),
        "moe_layer_start_index": ("first layer with experts (ERNIE)", "weights of these layers"),
        "moe_layer_end_index": (
            "last layer with experts; -1: the last of all (ERNIE)",
            "weights of these layers",
        ),
        "moe_layer_interval": (
            "n: every nth layer between these two has experts (ERNIE)",
            "weights of these layers",
        ),
        "zero_expert_num": (
            "Z, experts without weights, which return their input, among those that the router "
            "chooses from (LongCat)",
            "weights of the router; compute",
        ),
        "zero_expert_type": (
            "what experts without weights compute: identity (LongCat)",
            "nothing: others are rejected",
        ),
        "expert_ffn_hidden_size": (
            "Fe, the width of each expert (LongCat)",
            "weights of the experts; compute",
        ),
        "interleave_moe_layer_step": (
            "n: every nth layer has experts, the others a dense MLP (Llama 4)",
            "weights of these layers",
        ),
        "moe_layers": (
            "numbers of layers, from 0, with experts (Llama 4)",
            "weights of these layers",
        ),
        "moe_layers_enum": (
            "numbers of layers, from 0, with experts, as a list or a text (Step 3.5)",
            "weights of these layers",
        ),
        "shared_expert_combination_strategy": (
            "average: routed and shared experts are added and halved; sum: added",
            _ONE_FACTOR,
        ),
        "routed_expert_hidden_size": (
            "de, width of the residual that routed experts read and write (Kimi K3)",
            "weights of these experts and of the projections before and after them; compute",
        ),
        "latent_moe_use_norm": (
            "whether that residual is normalized after the experts (Kimi K3)",
            "weights of the norm; compute",
        ),
        # routing
        "scoring_func": (
            "function from router logits to scores: softmax, sigmoid or sqrtsoftplus",
            "compute: the routing weights",
        ),
        "topk_method": (
            "routing method: greedy, group_limited_greedy, or noaux_tc, which has a correction "
            "bias",
            "weights: the E numbers of that bias; compute",
        ),
        "moe_router_enable_expert_bias": (
            "whether the router has a correction bias (Ling)",
            "weights: the E numbers of that bias",
        ),
        "use_routing_bias": (
            "whether the router has a correction bias (MiniMax)",
            "weights: the E numbers of that bias",
        ),
        "deepseek_v4/num_experts_per_tok": (
            "k, experts that a token passes through, and columns of the tables by token",
            "weights: these tables; compute",
        ),
        "num_hash_layers": (
            "hash, number of first layers with a table of the experts of each token (DeepSeek-V4)",
            "weights: these tables, and the correction biases of the other layers",
        ),
        "n_group": ("number of expert groups", "compute: which experts can be chosen together"),
        "topk_group": (
            "number of groups from which a token's experts are chosen",
            "compute: which experts can be chosen together",
        ),
        "gate_temp": ("divisor of the router's logits: 1 (DeepSeek-V4.1)", _FIXED),
        "norm_topk_prob": (
            "whether the routing weights of the chosen experts are normalized to sum to 1",
            "compute: the routing weights",
        ),
        "routed_scaling_factor": ("factor of the sum of the chosen experts", _ONE_FACTOR),
        "inkling/route_scale": ("factor of the weights of all experts", _ONE_FACTOR),
        "moe_router_scaling_factor": (
            "factor of the sum of the chosen experts (Step 3.5)",
            _ONE_FACTOR,
        ),
        "route_scale": ("factor of the sum of the chosen experts (AFM)", _ONE_FACTOR),
        "moe_routed_scaling_factor": (
            "factor of the sum of the chosen experts (Laguna)",
            _ONE_FACTOR,
        ),
        "moe_router_logit_softcapping": (
            "soft cap of the router's logits; 0: none",
            "compute: the routing weights",
        ),
        "moe_apply_router_weight_on_input": (
            "whether routing weights multiply the inputs of the experts",
            "nothing: only false is supported",
        ),
        "router_scaling_factor": ("factor of the sum of the chosen experts (Hy3)", _ONE_FACTOR),
        "use_expert_bias": (
            "whether a learned bias is added to the scores of experts before the choice",
            "weights: the E numbers of that bias",
        ),
        "enable_moe_fp32_combine": (
            "whether routed and shared experts are added in float32 (Hy3)",
            "compute: precision",
        ),
        "router_jitter_noise": (
            "how close to the best logit an expert must be to enter the softmax (Phi-3.5-MoE); "
            "elsewhere training only",
            "compute: the routing weights",
        ),
        # multi-token prediction
        "num_nextn_predict_layers": (
            "number of multi-token prediction layers",
            "apart: weights in files, excluded from the total",
        ),
        "dspark_target_layer_ids": (
            "the layers whose hidden states draft layers read (DeepSeek-V4.1)",
            _EXCLUDED,
        ),
        "dspark_markov_rank": (
            "rm, rank of the draft layers' matrix from a token to the next (DeepSeek-V4.1)",
            _EXCLUDED,
        ),
        "dspark_n_routed_experts": ("Em, experts of a draft layer (DeepSeek-V4.1)", _EXCLUDED),
        "dspark_num_experts_per_tok": (
            "km, experts of a draft layer that a token passes (DeepSeek-V4.1)",
            _EXCLUDED,
        ),
        "dspark_block_size": (
            "tokens that draft layers make at once (DeepSeek-V4.1)",
            "nothing: draft layers are counted alone",
        ),
        "dspark_noise_token_id": (
            "the token in the place of those to be made (DeepSeek-V4.1)",
            "nothing: draft layers are counted alone",
        ),
        "num_mtp_layers": ("number of multi-token prediction layers, in other configs", _EXCLUDED),
        "mtp_num_hidden_layers": ("number of multi-token prediction layers (Qwen)", _EXCLUDED),
        "chain_hidden_post_norm": (
            "whether multi-token prediction layers have a common norm (Inkling)",
            _EXCLUDED,
        ),
        "mtp_hidden_states_first": (
            "order of the inputs of multi-token prediction layers (Inkling)",
            _EXCLUDED,
        ),
        "mtp_local_layer_ids": (
            "multi-token prediction layers with a sliding window (Inkling)",
            _EXCLUDED,
        ),
        "mtp_layer_types": ("attention type of each multi-token prediction layer", _EXCLUDED),
        "mtp_mlp_layer_types": ("type of the MLP of each multi-token prediction layer", _EXCLUDED),
        "mtp_use_dedicated_embeddings": (
            "whether the multi-token prediction layers have an embedding of their own",
            _EXCLUDED,
        ),
        "mtp_hybrid_override_pattern": (
            "types of the multi-token prediction layers, a letter each (Nemotron 3)",
            _EXCLUDED,
        ),
        "mtp_layers_block_type": (
            "types of the multi-token prediction layers, a word each (Nemotron 3)",
            _EXCLUDED,
        ),
        "num_mtp_modules": ("number of multi-token prediction modules (MiniMax)", _EXCLUDED),
        "mtp_transformer_layers": (
            "number of layers in each multi-token prediction module",
            _EXCLUDED,
        ),
        "use_mtp": ("whether multi-token prediction modules were trained (MiniMax)", _EXCLUDED),
    },
    "Norms, biases, activations and factors": {
        # norms
        "rms_norm_eps": ("epsilon of the norms", "compute: arithmetic of the norms"),
        "mixer_rms_eps": (
            "epsilon of the norms of time steps, b and c (Falcon Mamba)",
            "compute: arithmetic of the norms",
        ),
        "post_norm_eps": (
            "epsilon of the norms after attention and MLP",
            "compute: arithmetic of the norms",
        ),
        "norms": (
            "whether there are norms; false leaves them out, as in textbook counts (classic)",
            "weights of the norms",
        ),
        "rmsnorm": (
            "whether the norms are RMS norms; false: layer norms (ChatGLM)",
            "weights: biases of the norms",
        ),
        "post_layer_norm": (
            "whether there is a norm before the head (ChatGLM)",
            "weights of this norm",
        ),
        "normalize_qk_projections": (
            "whether each head's queries and keys are normalized (OpenELM)",
            "weights: the scales of these norms",
        ),
        "norm_type": (
            "type of the norms: layer norm",
            "nothing: other types are rejected or unknown",
        ),
        "layer_norm_elementwise_affine": ("whether the norms have weights", "weights of the norms"),
        "do_layer_norm_before": (
            "whether norms come before attention and MLP, with a last one before the head; "
            "false: after them",
            "weights of the last norm; compute: the order",
        ),
        "_remove_final_layer_norm": (
            "whether the norm before the head is left out",
            "weights of the last norm",
        ),
        "num_ln_in_parallel_attn": (
            "1: attention and MLP share a norm; 2: each has its own (Falcon)",
            "weights of the norms",
        ),
        "apply_residual_connection_post_layernorm": (
            "whether a branch is added to its normalized input instead of the residual stream",
            "compute: the order of the additions",
        ),
        "parallel_attn": (
            "whether attention and MLP run in parallel on one normalized input (Falcon)",
            "weights of the second norm; compute: the order",
        ),
        "use_parallel_residual": (
            "whether attention and MLP run in parallel",
            "compute: the order",
        ),
        "stablelm/use_parallel_residual": (
            "whether attention and MLP run in parallel on one normalized input, without a second "
            "norm",
            "weights of the second norm; compute: the order",
        ),
        "use_res_clamp": (
            "whether the residual stream is clamped to the range of float16",
            "compute: rare values",
        ),
        "use_post_norm": (
            "whether a norm follows attention and MLP (HyperCLOVA X)",
            "weights of these norms",
        ),
        # biases
        "attention_bias": (
            "whether attention's matrices have biases; in some families not o",
            "weights: biases of attention",
        ),
        "attention_out_bias": (
            "whether attention's output matrix has a bias (Seed-OSS)",
            "weights: biases of attention",
        ),
        "add_bias_linear": (
            "whether all matrices of the layers have biases (ChatGLM)",
            "weights: biases of attention and MLP",
        ),
        "add_qkv_bias": (
            "whether q, k and v have biases (ChatGLM)",
            "weights: biases of q, k and v",
        ),
        "qkv_bias": ("whether q, k and v have biases; o has none", "weights: biases of q, k and v"),
        "bias": (
            "whether the matrices of the layers have biases",
            "weights: biases of attention and MLP",
        ),
        "internlm/bias": ("whether q, k, v and o have biases", "weights: biases of attention"),
        "internlm2/bias": (
            "whether attention's four matrices have biases",
            "weights: biases of attention",
        ),
        "no_bias": (
            "whether the matrices of the layers, and MPT's norms, have no biases",
            "weights: biases",
        ),
        "qwen/no_bias": (
            "whether o and the MLP have no biases; q, k and v have them",
            "weights: biases",
        ),
        "enable_bias": (
            "whether attention and MLP have biases (OPT)",
            "weights: biases of attention and MLP",
        ),
        "use_bias": (
            "whether attention and MLP have biases (StarCoder2, ERNIE)",
            "weights: biases of attention and MLP",
        ),
        "nemotron_h/use_bias": (
            "whether Mamba's input and output projections have biases",
            "weights: biases of Mamba",
        ),
        "mamba/use_bias": (
            "whether in_proj and out_proj of Mamba have biases",
            "weights: biases of Mamba",
        ),
        "hidden_mamba_act": ("the activation of Mamba (Zamba)", "compute: the activation"),
        "classifier_activation": (
            "the activation of the head's first layer (ModernBERT)",
            "compute: the activation",
        ),
        "classifier_bias": (
            "whether the head's first layer has a bias (ModernBERT)",
            "weights of the head",
        ),
        "decoder_bias": ("whether the head has a bias (ModernBERT)", "weights of the head"),
        "norm_bias": ("whether layer norms have biases (ModernBERT)", "weights of the norms"),
        "mlp_bias": ("whether gate, up and down have biases", "weights: biases of the MLP"),
        "router_bias": (
            "whether the router has a bias (LongCat)",
            "weights: the numbers of that bias",
        ),
        "lm_head_bias": ("whether the head has a bias", "weights: V numbers of the head's bias"),
        # activations and factors
        "hidden_act": ("activation of the MLP", "compute: no weight depends on it"),
        "mlp_hidden_act": (
            "activation of the MLP (Nemotron-H)",
            "compute: no weight depends on it",
        ),
        "activation_situ_beta": ("β, soft limit of the gate (Kimi K3)", "compute: the MLP"),
        "activation_situ_linear_beta": (
            "soft limit of up; null: none (Kimi K3)",
            "compute: the MLP",
        ),
        "swiglu_limits": (
            "limit ± of both factors in the experts of each layer; 0 or null: none (Step 3.5)",
            "compute: rare values",
        ),
        "swiglu_limits_shared": ("the same in MLPs and shared experts", "compute: rare values"),
        "swiglu_limit": (
            "upper limit of the gate, and limit ± of up (GPT-OSS)",
            "compute: the MLP",
        ),
        "swiglu_alpha": ("slope of the gate: g · sigmoid(alpha · g) (GPT-OSS)", "compute: the MLP"),
        "scale_embedding": (
            "whether the embeddings are multiplied by √d (BioGPT, XGLM)",
            _ONE_FACTOR,
        ),
        "embedding_multiplier": ("factor of the embeddings", _ONE_FACTOR),
        "logit_scale": ("factor of the logits; inv_sqrt_d_model: 1 / √d", _ONE_FACTOR),
        "lm_head_multiplier": ("factor of the logits (Falcon-H1)", _ONE_FACTOR),
        "mlp_multipliers": (
            "factors of the MLP's gate and of its output (Falcon-H1)",
            "compute: two factors",
        ),
        "logits_scaling": ("divisor of the logits", _ONE_FACTOR),
        "hyperclovax/logits_scaling": ("factor of the logits", _ONE_FACTOR),
        "logits_mup_width_multiplier": ("divisor of the logits (Inkling)", _ONE_FACTOR),
        "output_multiplier": (
            "factor of the logits before their soft cap (Muse Glimmer)",
            _ONE_FACTOR,
        ),
        "mup_enabled": ("whether the embeddings are multiplied by √d (AFM)", _ONE_FACTOR),
        "dim_model_base": (
            "b, a base width: the logits are multiplied by b / d (MiniCPM)",
            _ONE_FACTOR,
        ),
        "final_logit_softcapping": (
            "soft cap of the logits: cap · tanh(logit / cap); null: none",
            "compute: the logits",
        ),
        "full_attn_alpha_factor": (
            "factor of the residual stream at layers with softmax attention (MiniMax-01)",
            _ONE_FACTOR,
        ),
        "layernorm_full_attention_alpha": (
            "factor of the residual stream at layers with softmax attention, in MiniMax's own "
            "config",
            _ONE_FACTOR,
        ),
        "full_attn_beta_factor": (
            "factor of the branch at layers with softmax attention (MiniMax-01)",
            _ONE_FACTOR,
        ),
        "layernorm_full_attention_beta": (
            "factor of the branch at layers with softmax attention, in MiniMax's own config",
            _ONE_FACTOR,
        ),
        "linear_attn_alpha_factor": (
            "factor of the residual stream at layers with linear attention (MiniMax-01)",
            _ONE_FACTOR,
        ),
        "layernorm_linear_attention_alpha": (
            "factor of the residual stream at layers with linear attention, in MiniMax's own "
            "config",
            _ONE_FACTOR,
        ),
        "linear_attn_beta_factor": (
            "factor of the branch at layers with linear attention (MiniMax-01)",
            _ONE_FACTOR,
        ),
        "layernorm_linear_attention_beta": (
            "factor of the branch at layers with linear attention, in MiniMax's own config",
            _ONE_FACTOR,
        ),
        "mlp_alpha_factor": ("factor of the residual stream at the MLP (MiniMax-01)", _ONE_FACTOR),
        "layernorm_mlp_alpha": (
            "factor of the residual stream at the MLP, in MiniMax's own config",
            _ONE_FACTOR,
        ),
        "mlp_beta_factor": ("factor of the branch at the MLP (MiniMax-01)", _ONE_FACTOR),
        "layernorm_mlp_beta": (
            "factor of the branch at the MLP, in MiniMax's own config",
            _ONE_FACTOR,
        ),
        "postnorm": (
            "whether the residual stream is normalized (MiniMax-01)",
            "nothing: false is rejected",
        ),
        "block_size": (
            "tokens that linear attention computes at once (MiniMax-01)",
            "nothing: the result is the same",
        ),
        "layernorm_attention_alpha": (
            "factor of an older layout of layers (MiniMax-01)",
            "nothing: not read by the class",
        ),
        "shared_moe_mode": ("scoring of shared experts (MiniMax-01)", "nothing: there are none"),
        "residual_multiplier": (
            "factor of each branch before it is added to the residual stream",
            _ONE_FACTOR,
        ),
        "scale_depth": ("each branch is multiplied by this / √L (MiniCPM)", _ONE_FACTOR),
    },
    "Positions": {
        "rope_scaling.hybrid": (
            "positions of layers without a window, an object (ZAYA)",
            "compute: the rotary angles",
        ),
        "rope_scaling.hybrid_sliding": (
            "positions of layers with a window, an object (ZAYA)",
            "compute: the rotary angles",
        ),
        "use_rope": (
            "whether attention rotates queries and keys (Solar Open 2)",
            "compute: the rotary angles",
        ),
        "max_position_embeddings": (
            "number of positions it was trained for; the model itself has no limit",
            "cache: of a full context",
        ),
        "learned/max_position_embeddings": (
            "C, rows of the table of learned positions, which limits the context",
            "weights of that table; cache: of a full context",
        ),
        "learned_pos_emb": (
            "whether positions are a learned table, if nothing else encodes them (MPT)",
            "weights of that table",
        ),
        # rotary
        "position_embedding_type": (
            "rope: rotary positions in layers with attention; nope or null: none (Granite 4)",
            _SCORES,
        ),
        "rope_theta": ("base of the rotary angles", "compute: the rotary angles"),
        "swa_rope_theta": (
            "base of the angles in layers with a sliding window (MiMo-V2)",
            "compute: these layers' angles",
        ),
        "rope_local_base_freq": (
            "rope_theta in layers with a sliding window (Gemma 3)",
            "compute: these layers' angles",
        ),
        "layer_rope_theta": (
            "rope_theta of each layer; 0: no rotary positions there (Muse Glimmer)",
            "compute: these layers' angles",
        ),
        "rope_interleave": (
            "whether rotary pairs are adjacent, instead of half a head apart",
            "compute: the order in q and k",
        ),
        "partial_rotary_factors": (
            "fraction of each head that rotates, layer by layer (Step 3.5)",
            _ANGLES,
        ),
        "global_rope_theta": (
            "the base of the rotary angles in layers without a window (ModernBERT)",
            _ANGLES,
        ),
        "local_rope_theta": (
            "the base of the rotary angles in layers with a window (ModernBERT)",
            _ANGLES,
        ),
        "use_mem_rope": (
            "whether attention of shared blocks has rotary positions (Zamba2)",
            _ANGLES,
        ),
        "partial_rotary_factor": ("fraction of each head that rotates", _ANGLES),
        "rope_ratio": ("factor of the base of the angles (ChatGLM)", _ANGLES),
        "rotary_dim": ("size of the part of each head that rotates", _ANGLES),
        "rotary": ("rotary positions, an object (InternLM)", _ANGLES),
        "rotary.type": (
            "dynamic: the base grows with the sequence; origin: it does not (InternLM)",
            "compute: positions beyond the original context",
        ),
        "gptj/rotary": ("whether positions are rotary", "nothing: they always are"),
        "attn_config.rope": (
            "whether positions are rotary (MPT)",
            "weights of a table of positions, if nothing else encodes them; compute: the angles",
        ),
        "no_rope_layers": (
            "for each layer: 1 for rotary positions, 0 for none",
            "compute: the angles; Llama 4: cache, as 1 also means chunks",
        ),
        "no_rope_layer_interval": (
            "n: every nth layer has no rotary positions",
            "compute: the angles; Llama 4: cache, as these see all",
        ),
        # context extension
        "rope_scaling": (
            "scaling of the rotary angles for sequences longer than in training; null: none",
            "compute: positions beyond the original context",
        ),
        "compress_rope_theta": (
            "base of the angles in layers with compressed attention (DeepSeek-V4)",
            _ANGLES,
        ),
        "rope_parameters": ("rotary positions in one object (transformers 5)", _ANGLES),
        "rope_scaling.full_attention": (
            "rotary positions of layers without a sliding window",
            "compute: these layers' angles",
        ),
        "rope_scaling.sliding_attention": (
            "rotary positions of layers with a sliding window",
            "compute: these layers' angles",
        ),
        "rope_scaling.rope_type": (
            "type of scaling: default (none), linear, dynamic, yarn, "
            "llama3, longrope, proportional",
            _ANGLES,
        ),
        "rope_scaling.factor": (
            "factor by which the scaled angles become slower",
            "compute: positions beyond the original context",
        ),
        "rope_scaling.alpha": (
            "factor of the base of all angles, to the power h / (h − 2) (Hunyuan)",
            _ANGLES,
        ),
        "original_max_position_embeddings": (
            "number of positions in training before the context was extended",
            _STRETCHED,
        ),
        "rope_scaling.low_freq_factor": (
            "wavelengths above original context / this are scaled by factor (Llama 3.1)",
            _STRETCHED,
        ),
        "rope_scaling.high_freq_factor": (
            "wavelengths below original context / this are kept; a ramp lies between",
            _STRETCHED,
        ),
        "rope_scaling.beta_fast": (
            "angles with more rotations than this in the original context are kept (YaRN)",
            _STRETCHED,
        ),
        "rope_scaling.beta_slow": (
            "angles with fewer rotations than this are scaled; a ramp lies between",
            _STRETCHED,
        ),
        "rope_scaling.truncate": (
            "whether the ends of YaRN's ramp are rounded outward to whole indices",
            _STRETCHED,
        ),
        "rope_scaling.mscale": (
            "how much rotated queries and keys grow with ln(factor) (YaRN)",
            _SCORES,
        ),
        "rope_scaling.mscale_all_dim": (
            "part of that growth that applies to whole scores instead (DeepSeek)",
            _SCORES,
        ),
        "rope_scaling.attention_factor": (
            "factor of rotated queries and keys; null: derived from factor",
            _SCORES,
        ),
        "rope_scaling.short_factor": (
            "scaling of each angle in sequences within the original context (LongRoPE)",
            _ANGLES,
        ),
        "rope_scaling.long_factor": (
            "scaling of each angle in sequences longer than the original context (LongRoPE)",
            _ANGLES,
        ),
        "rope_scaling.short_mscale": (
            "factor of rotated queries and keys in short sequences (Phi-3.5-MoE)",
            _SCORES,
        ),
        "rope_scaling.long_mscale": (
            "factor of rotated queries and keys in long sequences (Phi-3.5-MoE)",
            _SCORES,
        ),
        "rope_scaling.mrope_section": (
            "division of the angles among time, height and width of an image",
            "nothing: for text these are equal",
        ),
        "rope_scaling.xdrope_section": (
            "division of the angles among position, width, height and number of an image "
            "(Hunyuan-VL)",
            "nothing: for text these are equal",
        ),
        "rope_scaling.mrope_interleaved": (
            "whether the parts of mrope_section alternate",
            "nothing: for text time, height and width are equal",
        ),
        "rope_scaling.max_position_embeddings": (
            "number of positions after scaling",
            "nothing: given outside the object too",
        ),
        "use_dynamic_ntk": (
            "whether the base grows for prompts longer than seq_length (Qwen 1)",
            "compute: positions beyond seq_length",
        ),
        "seq_length": ("number of positions in training", "compute: positions beyond it (Qwen 1)"),
        # query scaling by position
        "use_logn_attn": (
            "whether queries beyond seq_length are scaled by the logarithm of their position "
            "(Qwen 1)",
            "compute: positions beyond seq_length",
        ),
        "attn_temperature_tuning": (
            "whether queries are scaled by their position in layers without rotary positions",
            "compute: far positions",
        ),
        "attn_scale": (
            "how much these queries grow with the logarithm of their position (Llama 4)",
            "compute: far positions",
        ),
        "floor_scale": (
            "number of positions per step of attn_scale's growth",
            "compute: far positions",
        ),
        "rope_scaling.llama_4_scaling_beta": (
            "how much queries grow with the logarithm of their position; 0: not",
            "compute: far positions",
        ),
        # ALiBi
        "alibi": (
            "whether scores decrease linearly with distance (ALiBi) instead of rotary positions",
            _SCORES,
        ),
        "attn_config.alibi": (
            "whether scores decrease linearly with distance (ALiBi); true: no table of positions",
            "weights of that table; compute: the scores",
        ),
        "attn_config.alibi_bias_max": (
            "last ALiBi slope: head i of H has 2^(−this · i / H)",
            _SCORES,
        ),
    },
    "Keys with a fixed or repeated value": {
        "padded_vocab_size": ("V with its padding, as the training code names it", _FIXED),
        "block_dim": ("the width d again", _FIXED),
        "conv_dim": ("the width again, as input of the convolution", _FIXED),
        "conv_dim_out": ("the width again, as output of the convolution", _FIXED),
        "expand": ("the width of all Mamba heads, or channels, over d", _FIXED),
        "num_heads": ("the number of heads again", _FIXED),
        "afn": (
            "activation of the MLP; gelu is gelu_new here (GPT)",
            "compute: no weight depends on it",
        ),
        "attention_layers": ("the type of each layer again (GPT-Neo)", _FIXED),
        "qk_head_dim": ("the size of a query or key head, n + p", _FIXED),
        "nanbeige/qk_layernorm": ("whether heads have norms; they have none (Nanbeige)", _FIXED),
        "ngram_insert_all_layers": ("whether layers read tables of n-grams; none does", _FIXED),
        "insert_ngram_layer_idx": ("layers that read tables of n-grams; none does", _FIXED),
        "emb_neighbor_num": ("tokens of the n-grams in tables of embeddings", _FIXED),
        "enable_double_loop_split": ("whether passes are split; they are not (Nanbeige)", _FIXED),
        "loop_middle_layers": ("layers that run again; all do (Nanbeige)", _FIXED),
        "loop_share_kv": ("whether passes share keys and values; they do not (Nanbeige)", _FIXED),
        "enable_hyper_connection": (
            "whether there are several residual streams (Nanbeige)",
            _FIXED,
        ),
        "enable_mhc": ("whether matrices mix several residual streams (Nanbeige)", _FIXED),
        "enable_h_res_identity": ("whether residual streams are not mixed (Nanbeige)", _FIXED),
        "enable_depth_attention": (
            "whether layers attend to the results of earlier ones; none does (Nanbeige)",
            _FIXED,
        ),
        "attn_logit_softcapping_method": ("the function of that cap: tanh (Grok 2)", _FIXED),
        "attn_output_multiplier": ("factor of the output of attention; 1 (Grok 2)", _FIXED),
        "merge_gate_up": ("whether engines join gate and up; files do not (Grok 2)", _FIXED),
        "rope_rotate_half_dims": ("whether half of a head rotates; all does (Grok 2)", _FIXED),
        "rope_type": ("the kind of positions: original, without YaRN (Grok 2)", _FIXED),
        "grok1/sliding_window_size": ("positions in a window; -1: there is none (Grok 2)", _FIXED),
        "global_attn_every_n": ("how often a layer has no window; all have none (Grok 2)", _FIXED),
        "scaling_factor": ("factor of YaRN, which is off (Grok 2)", _FIXED),
        "extrapolation_factor": ("a factor of YaRN, which is off (Grok 2)", _FIXED),
        "attn_factor": ("factor of the scores in YaRN, which is off (Grok 2)", _FIXED),
        "beta_fast": ("fastest frequency of YaRN, which is off (Grok 2)", _FIXED),
        "beta_slow": ("slowest frequency of YaRN, which is off (Grok 2)", _FIXED),
        "grok1/context_len": ("the context again (Grok 2)", _FIXED),
        "index_kpool_compress": (
            "whether keys of an indexer are pooled; they are (GLM-5.3)",
            _FIXED,
        ),
        "index_share_for_mtp_iteration": (
            "whether layers that predict tokens reuse a choice of keys (GLM-5.3)",
            _FIXED,
        ),
        "mhc": ("whether there are residual streams; there are (GLM-5.3)", _FIXED),
        "moe_router_dtype": ("dtype of the router: float32 (GLM-5.3)", _FIXED),
        "embedding_dim": ("the width d again (xLSTM)", _FIXED),
        "num_blocks": ("the number of layers again (xLSTM)", _FIXED),
        "add_out_norm": ("whether there is a last norm; there is (xLSTM)", _FIXED),
        "weight_mode": ("whether matrices share tensors; each has its own (xLSTM)", _FIXED),
        "norm_reduction_force_float32": ("how norms compute (xLSTM)", _FIXED),
        "chunkwise_kernel": ("the kernel of a chunk of tokens (xLSTM)", _FIXED),
        "sequence_kernel": ("the kernel of a sequence (xLSTM)", _FIXED),
        "step_kernel": ("the kernel of one token (xLSTM)", _FIXED),
        "mode": ("which of the kernels runs (xLSTM)", _FIXED),
        "return_last_states": ("whether the class returns its states (xLSTM)", _FIXED),
        "autocast_kernel_dtype": ("dtype inside of the kernels (xLSTM)", _FIXED),
        "inference_state_dtype": ("dtype of the states of the kernels (xLSTM)", _FIXED),
        "max_inference_chunksize": ("tokens of a chunk at most (xLSTM)", _FIXED),
        "xlstm/eps": ("epsilon of the recurrence's denominator (xLSTM)", _FIXED),
        "zaya/lm_head_bias": ("whether the head has a bias; it has none (ZAYA)", _FIXED),
        "q_head_dim": ("the size of a query head again, n + p (Sarvam)", _FIXED),
        "hc_rate": ("residual streams; there is one (Solar Open 2)", _FIXED),
        "initial_context_length": ("the original context again", _FIXED),
        "block_norm_eps": ("the epsilon of the norms again", _FIXED),
        "ff_factor": ("F / d, judging by its name; not read by transformers (Falcon)", _FIXED),
        "minimax_m2/shared_intermediate_size": (
            "the width of a shared expert, which MiniMax does not have",
            _FIXED,
        ),
        "block_use_swiglu": (
            "whether gate and up share a matrix in files; they are separate (LFM2)",
            _FIXED,
        ),
        "use_pos_enc": ("whether there are positions; there are (LFM2)", _FIXED),
        "cohere2/position_embedding_type": (
            "the type of positions: rotary, in layers with a window (Cohere)",
            _FIXED,
        ),
        "pos_emb": ("the type of positions: rotary (Qwen 1)", _FIXED),
        "layer_switch": (
            "n: every nth layer has no window (Cohere), as in sliding_window_pattern",
            _FIXED,
        ),
        "order_of_interleaved_layers": ("which type of layer comes first (Cohere)", _FIXED),
        "use_embedding_sharing": (
            "whether head and embedding are tied, as in tie_word_embeddings (Cohere)",
            _FIXED,
        ),
        "use_gated_activation": ("whether the MLP has a gate; it has (Cohere)", _FIXED),
        "use_parallel_block": (
            "whether attention and MLP run in parallel; they do (Cohere)",
            _FIXED,
        ),
        "use_parallel_embedding": (
            "whether the embedding was sharded over devices (Cohere)",
            _FIXED,
        ),
        "expert_selection_fn": ("how experts are chosen; there are none (Cohere)", _FIXED),
        "attn_type_list": (
            "the type of each layer as a number; all are full attention (MiniMax)",
            _FIXED,
        ),
        "qk_norm_type": (
            "the type of the norms of queries and keys: over all heads of a layer (MiniMax)",
            _FIXED,
        ),
        "score_func": ("the function from router logits to scores: sigmoid (AFM)", _FIXED),
        "route_norm": ("whether routing weights sum to 1; they do (AFM)", _FIXED),
        "num_expert_groups": ("the number of expert groups: 1 (AFM)", _FIXED),
        "num_limited_groups": (
            "the number of groups from which experts are chosen: 1 (AFM)",
            _FIXED,
        ),
        "post_norm": ("whether norms come after the branches; they do not (Apertus)", _FIXED),
        "qk_norm": (
            "whether each head's queries and keys are normalized; they are (Apertus)",
            _FIXED,
        ),
        "moe_gate": ("the routing: the best scores (ERNIE)", _FIXED),
        "moe_use_aux_free": (
            "whether a learned bias takes part in the choice; it does (ERNIE)",
            _FIXED,
        ),
        "moe_capacity": (
            "the tokens that an expert accepts in training; all, otherwise (ERNIE)",
            _FIXED,
        ),
        "moe_norm_min": ("the smallest divisor of the routing weights (ERNIE)", _FIXED),
        "swa_num_attention_heads": (
            "the number of heads again, in layers with a window (MiMo-V2)",
            _FIXED,
        ),
        "swa_head_dim": ("the size of a key again, in layers with a window (MiMo-V2)", _FIXED),
        "swa_v_head_dim": ("the size of a value again, in layers with a window (MiMo-V2)", _FIXED),
        "hybrid_block_size": (
            "the period of layers with full attention, which are listed otherwise (MiMo-V2)",
            _FIXED,
        ),
        "rms_norm_eps_moe_gate": (
            "epsilon of a norm of the router, which the class does not have (Inkling)",
            _FIXED,
        ),
        "shared_expert_sink": ("whether shared experts take part in the routing (Inkling)", _FIXED),
        "biogpt/layer_norm_eps": (
            "the epsilon of the norms in the config; its class takes 1e-5",
            _FIXED,
        ),
        "original_rope": ("whether half of each head rotates; it does (ChatGLM)", _FIXED),
        "position_encoding_2d": (
            "whether positions have two parts: the first ChatGLM, which is rejected",
            _FIXED,
        ),
        "pre_seq_len": ("the prompt vectors of P-tuning, which are rejected", _FIXED),
        "apply_query_key_layer_scaling": (
            "whether scores are divided and multiplied again by the layer number (ChatGLM)",
            _FIXED,
        ),
        "normalization_layer_name": ("the type of the norms: RMS norms (OpenELM)", _FIXED),
        "num_gqa_groups": ("H / K, given by the two lists of heads (OpenELM)", _FIXED),
        "qkv_multipliers": (
            "the share of the heads in the first and last layer, given by the lists (OpenELM)",
            _FIXED,
        ),
        "rope_max_length": ("the length of a precomputed table of angles (OpenELM)", _FIXED),
        "attention_projection_layout": (
            "whether q, k and v are matrices of their own in files; "
            "only split is supported (MiMo-V2)",
            _FIXED,
        ),
        "mlp_type": ("the type of the MLP: two matrices (StarCoder2)", _FIXED),
        "fc_type": ("the type of the linear layers: plain (MPT)", _FIXED),
        "embedding_fraction": (
            "the fraction of the embedding's gradient that is used (MPT)",
            _FIXED,
        ),
        "offset_alibi": (
            "the start of ALiBi, judging by its name; not read by transformers (BLOOM)",
            _FIXED,
        ),
        "rotary_scaling_factor": (
            "scaling of the rotary angles, judging by its name; 1 in StableLM's files",
            _FIXED,
        ),
        "full_attn_mod": (
            "which layers have full attention, judging by its name; 1 in Phi-4's "
            "files, not read by transformers",
            _FIXED,
        ),
        "interpolate_factor": (
            "context extension, judging by its name; 1 in Phi-4's files, not read by transformers",
            _FIXED,
        ),
        "output_gate_type": (
            "the activation of the gate of linear attention: SiLU, also called swish (Qwen 3.5)",
            _FIXED,
        ),
        "qwen4_exp/output_gate_type": (
            "the activation of the gate of linear attention: SiLU or sigmoid",
            "compute: the gate",
        ),
        "nemotron_h/mamba_proj_bias": (
            "whether Mamba's output projection has a bias; use_bias says it",
            _FIXED,
        ),
        "mamba/time_step_min": ("the lower end of the initial time steps of Mamba", _FIXED),
        "time_step_max": ("the largest initial time step of Mamba", _FIXED),
        "time_step_floor": ("the smallest initial time step of Mamba", _FIXED),
        "d_inner": ("the channels of Mamba again", _FIXED),
        "architecture": (
            "blocks, mixer and MLP of the first Phi models; only parallel blocks are known",
            _FIXED,
        ),
        "architecture.block_cls": ("the blocks of the first Phi models: parallel", _FIXED),
        "architecture.mixer": ("options of attention of the first Phi models: none", _FIXED),
        "architecture.mlp": ("the MLP of the first Phi models", _FIXED),
        "architecture.mlp.mlp_cls": (
            "the MLP of the first Phi models: mlp or fused_mlp, which are the same",
            _FIXED,
        ),
        "embd_layer": (
            "the kind of embedding of the first Phi models; only default is known",
            _FIXED,
        ),
        "attention_hidden_size": (
            "2 · d, the width of hidden states and embeddings together (Zamba)",
            _FIXED,
        ),
        "hybrid_layer_ids": ("the layers with a shared block, again (Zamba)", _FIXED),
        "zamba2/attention_head_dim": ("h, which is always 2 · d / H (Zamba2)", _FIXED),
        "zamba2/kv_channels": ("d / H, half the size of a head (Zamba2)", _FIXED),
        "mamba_headdim": (
            "the size of a head of Mamba-2, which follows from n_mamba_heads (Zamba2)",
            _FIXED,
        ),
        "num_query_groups": ("the number of query heads again (Zamba2)", _FIXED),
        "use_mem_eff_path": ("whether kernels are fused (Zamba2)", _FIXED),
        "use_long_context": (
            "whether the context is 16,384 tokens (Zamba2)",
            "nothing: max_position_embeddings is replaced",
        ),
        "rms_norm": ("whether the norms are RMS norms; they are (Mamba)", _FIXED),
        "pad_vocab_size_multiple": (
            "the vocabulary is padded to a multiple of this; vocab_size "
            "includes the padding (Mamba)",
            _FIXED,
        ),
        "ssm_cfg": (
            "other sizes in the first Mamba code, an object; empty in published files",
            _FIXED,
        ),
        "nemotron_h/time_step_limit": (
            "the range of Mamba's time steps; the lower bound is time_step_min",
            _FIXED,
        ),
        "normalization_function": ("the type of the norms: RMS norms (Granite 4)", _FIXED),
        "norm_before_gate": ("whether the norm precedes the gate; it follows it (Mamba-2)", _FIXED),
        "mamba_use_mlp": ("whether layers have an MLP; they have (Falcon-H1)", _FIXED),
        "mamba_inner_layernorms": (
            "whether time steps, B and C are normalized; they are (Jamba)",
            _FIXED,
        ),
        "mla_use_nope": ("whether latent attention has no positions; it has none (Kimi)", _FIXED),
        "use_grouped_topk": (
            "whether experts are chosen from groups; there are as many as n_group says (Kimi)",
            _FIXED,
        ),
        "attn_rotary_emb": (
            "the size of the rotary part of a head; always half of it (Bamba)",
            _FIXED,
        ),
    },
}
"""Title of a section → its keys."""

CONFIG_KEYS: dict[str, Entry] = {
    key: entry for section in SECTIONS.values() for key, entry in section.items()
}
CONFIG_KEYS |= {
    name: (f"{CONFIG_KEYS[key][0]}; elsewhere {key.rpartition('.')[2]}", CONFIG_KEYS[key][1])
    for name, key in SYNONYMS.items()
}
"""Key → its meaning and its effect; synonyms included."""

MODEL_ARGS: dict[str, Entry] = {
    "dim": ("d, the width of the residual stream", "weights: nearly all; compute"),
    "n_layers": ("L, the number of layers", "weights of all layers; cache; compute"),
    "n_heads": (
        "H, query heads of size dim / n_heads",
        "weights of wk and wv, if n_kv_heads is given; compute",
    ),
    "n_kv_heads": (
        "K, key/value heads shared by groups of query heads; absent: n_heads",
        "weights of wk and wv; cache",
    ),
    "vocab_size": (
        "V, rows of embedding and output; −1: taken from the tokenizer",
        "weights of tok_embeddings and output; compute",
    ),
    "multiple_of": ("F is rounded up to a multiple of this", "weights of w1, w2 and w3; compute"),
    "ffn_dim_multiplier": (
        "factor of F before it is rounded; absent: 1",
        "weights of w1, w2 and w3; compute",
    ),
    "norm_eps": ("epsilon of the norms", "compute: arithmetic of the norms"),
    "rope_theta": ("base of the rotary angles", "compute: the rotary angles"),
    "max_batch_size": (
        "number of sequences for which the reference allocates its cache",
        "cache: its size, not the model",
    ),
    "max_seq_len": (
        "number of positions for which the reference allocates its cache",
        "cache: its size, not the model",
    ),
    "use_scaled_rope": (
        "whether slow rotary angles are scaled by 8, as in Llama 3.1",
        "compute: positions beyond 8,192",
    ),
}
"""Field of Meta's `ModelArgs` → its meaning and its effect."""

_TOWER, _PROJECTOR, _IMAGES = (
    "weights of the tower; compute",
    ("weights of the projector; compute"),
    "compute: the size of images",
)
_TOWER_UNUSED = "nothing: not read for the features of images"

TOWER_KEYS: dict[str, Entry] = {
    "model_type": (
        "the kind of tower, or the type of the whole model",
        "weights of the towers; compute",
    ),
    "vision_config": ("the vision tower, an object; without it, the defaults of the class", _TOWER),
    "audio_config": ("the audio tower, an object", "weights of the tower"),
    "hidden_size": ("the width of the tower: d_v of images, d_a of sound", _TOWER),
    "embed_dim": (
        "d_v, the width of the tower (Qwen2-VL); of others a synonym of hidden_size",
        _TOWER,
    ),
    "intermediate_size": ("F_v, the width of the MLP in each layer of the tower", _TOWER),
    "mlp_ratio": ("F_v over d_v", _TOWER),
    "num_hidden_layers": ("L_v or L_a, the number of layers of the tower", _TOWER),
    "depth": ("L_v, the number of layers of the tower", _TOWER),
    "num_attention_heads": (
        "H_v or H_a, the number of heads",
        "weights of the tower only with a head_dim of its own; compute",
    ),
    "attention_heads": ("H_v, the number of heads", "compute: the heads"),
    "num_heads": ("H_v, the number of heads", "compute: the heads"),
    "num_key_value_heads": ("K_v, the number of key/value heads of the tower", _TOWER),
    "head_dim": (
        "h_v, the size of a head",
        "weights of Gemma 4's tower; elsewhere given by width and heads",
    ),
    "num_channels": ("C_v, the channels of an image", "weights of the patch embedding; compute"),
    "in_channels": ("C_v, the channels of an image", "weights of the patch embedding; compute"),
    "in_chans": ("C_v, the channels of an image", "weights of the patch embedding; compute"),
    "patch_size": (
        "p_v, the side of a patch in pixels",
        "weights of the patch embedding and the positions; compute",
    ),
    "layer_scale_init_value": (
        "factors of the residual branches before training (Step 3.7)",
        "nothing: they are weights",
    ),
    "ls_init_value": ("the same", "nothing: they are weights"),
    "spatial_patch_size": ("p_v, the side of a patch in pixels", "nothing: patch_size says it"),
    "temporal_patch_size": ("the frames of a patch", "weights of the patch embedding; compute"),
    "image_size": (
        "s_v, the side of an image in pixels; of a native tower the longest",
        "weights of the positions; compute",
    ),
    "position_embedding_size": ("N_v, the places of a column or a row", "weights of the positions"),
    "num_position_embeddings": (
        "N_v, the places of the position embedding",
        "weights of the positions",
    ),
    "mm_posemb_size": ("N_v, the places of a column or a row", "weights of the positions"),
    "mm_embed_dim": ("d_v, the width of embedded patches (Gemma 4 12B)", _TOWER),
    "attention_bias": ("whether queries, keys and values have biases", _TOWER),
    "qkv_bias": ("whether queries, keys and values have biases", _TOWER),
    "use_qk_norm": ("whether queries and keys are normalized", _TOWER),
    "qk_normalization": ("whether queries and keys are normalized", _TOWER),
    "norm_type": ("layer_norm or rms_norm", "weights: the biases of norms; compute"),
    "vt_hidden_size": ("d_v, the width of the tower (Kimi K2.5, as published)", _TOWER),
    "vt_intermediate_size": ("F_v, the width of the MLP in each layer of the tower", _TOWER),
    "vt_num_hidden_layers": ("L_v, the number of layers of the tower", _TOWER),
    "vt_num_attention_heads": ("H_v, the number of heads", "compute: the heads"),
    **dict.fromkeys(
        ("pos_emb_height", "pos_emb_width", "init_pos_emb_height", "init_pos_emb_width"),
        (
            "a side of the square grid of learned positions; in Muse Glimmer also of a window",
            "weights of the positions",
        ),
    ),
    **dict.fromkeys(
        ("merge_type", "mm_projector_type", "pos_emb_type", "video_attn_type"),
        (
            "a choice of Kimi K2.5's tower; an unknown one is refused",
            "nothing: only one choice is supported",
        ),
    ),
    "patch_temporal": ("the frames of a patch", "weights of the patch embedding; compute"),
    "num_patches": (
        "N_v, the places of the position embedding, a square number",
        "weights of the positions",
    ),
    "layer_types": (
        "window_attention or full_attention of each layer (Muse Glimmer)",
        "compute: the pairs of patches",
    ),
    "use_mean_pooling": ("whether the tower has no norm after its layers", _TOWER),
    "use_absolute_position_embeddings": (
        "whether patches have learned positions",
        "weights of the positions",
    ),
    "use_mask_token": (
        "a token for training; true is refused",
        "nothing: only one choice is supported",
    ),
    "vision_use_head": (
        "whether the file has SigLIP's pooling head, true if absent",
        "weights of the tower",
    ),
    "use_clipped_linears": (
        "whether linear layers store the limits of inputs and outputs (Gemma 4)",
        "weights: four numbers a layer",
    ),
    "standardize": (
        "whether features are shifted and scaled by stored numbers (Gemma 4)",
        "weights of the tower",
    ),
    "num_global_layers": ("the layers after the others, across tiles (mllama)", _TOWER),
    "max_num_tiles": ("the most tiles of an image", "weights of the positions of tiles; compute"),
    "supported_aspect_ratios": (
        "the shapes of an image in tiles",
        "weights of the positions of tiles",
    ),
    "intermediate_layers_indices": ("the layers whose outputs join the features", _PROJECTOR),
    "deepstack_visual_indexes": (
        "the layers whose outputs are added in the text model, each with a merger (Qwen3-VL)",
        _PROJECTOR,
    ),
    "fullatt_block_indexes": (
        "the layers without windows (Qwen2.5-VL)",
        "compute: the pairs of patches",
    ),
    "window_size": ("the side of a window in pixels", "compute: the pairs of patches"),
    "rope_parameters": ("the rotary embedding of the tower, an object", "compute: the angles"),
    "rope_theta": ("base of the rotary angles of the tower", "compute: the angles"),
    "rope_type": ("the type of the rotary embedding", "nothing: towers have one type"),
    "hidden_act": ("the activation of the MLP", "compute"),
    "hidden_activation": ("the activation of the MLP", "compute"),
    "layer_norm_eps": ("epsilon of the norms", "compute: arithmetic of the norms"),
    "rms_norm_eps": ("epsilon of the norms", "compute: arithmetic of the norms"),
    "norm_eps": ("epsilon of the norms", "compute: arithmetic of the norms"),
    "adapter_layer_norm_eps": (
        "epsilon of the projector's norm",
        "compute: arithmetic of the norms",
    ),
    "projector_layernorm_eps": (
        "epsilon of the projector's norm",
        "compute: arithmetic of the norms",
    ),
    "projector_hidden_act": ("the activation of the projector", "compute"),
    "multimodal_projector_bias": (
        "whether the linear layers of the projector have biases",
        _PROJECTOR,
    ),
    "multi_modal_projector_bias": ("whether the projector has a bias", _PROJECTOR),
    "projection_hidden_size": ("the width that Kimi K2.5's projector normalizes, d_v", _PROJECTOR),
    "mm_hidden_size": ("the width that Kimi K2.5's projector normalizes, d_v", _PROJECTOR),
    "projector_hidden_size": ("F_p, the width inside the projector", _PROJECTOR),
    "projector_bias": ("whether the linear layers of the projector have biases", _PROJECTOR),
    "projector_use_layernorm": ("whether the projector begins with a norm", _PROJECTOR),
    "projection_layer_norm_eps": (
        "epsilon of the projector's norm",
        "compute: arithmetic of the norms",
    ),
    "projector_ln_eps": ("epsilon of the projector's norm", "compute: arithmetic of the norms"),
    "projection_dim": (
        "the outputs of PaliGemma's projector; in a tower, of CLIP's own, which is not stored",
        _PROJECTOR,
    ),
    "projector_input_dim": ("the width of features before the projector (Llama 4)", _PROJECTOR),
    "projector_output_dim": ("the width of features after the adapter (Llama 4)", _PROJECTOR),
    "vision_output_dim": ("the width of all features of a patch", _PROJECTOR),
    "d_model": ("d_a, the width of the audio tower", "weights of the tower"),
    "encoder_layers": ("L_a, the number of layers of the audio tower", "weights of the tower"),
    "encoder_ffn_dim": (
        "F_a, the width of the MLP in each layer of the audio tower",
        "weights of the tower",
    ),
    "num_mel_bins": ("the bands of the spectrogram", "weights of the first convolution"),
    "downsample_hidden_size": (
        "the channels of the convolutions before the layers",
        "weights of the tower",
    ),
    "output_dim": (
        "the outputs of the audio tower, the width of the text model",
        "weights of the tower",
    ),
    "num_cls_tokens": ("the learned tokens before the patches that are features", _TOWER),
    "num_registers": ("the learned tokens before the patches that are no features", _TOWER),
    "max_img_size": ("the longest side of an image in pixels", "weights of the positions"),
    "video_temporal_patch_size": (
        "the frames of a patch of a video",
        "weights of the patch embedding",
    ),
    "vision_hidden_size": ("d_v, the width of the tower's features", _PROJECTOR),
    "summary_idxs": (
        "the numbers of the tokens that sum up the image",
        "weights of the tower: a stored list",
    ),
    "adapter_config": ("the projector, an object (Molmo 2)", _PROJECTOR),
    "vit_config": (
        "the vision tower, an object, whose layers after those that are read are not "
        "stored (Molmo 2)",
        _TOWER,
    ),
    "vit_layers": (
        "the layers whose results are the features (Molmo 2)",
        "weights of the projector, if several; compute",
    ),
    "image_patch_size": (
        "p_v, the side of a patch in pixels (Molmo 2)",
        "weights of the patch embedding; compute",
    ),
    "image_num_pos": (
        "N_v, the places of the position embedding (Molmo 2)",
        "weights of the positions",
    ),
    "image_default_input_size": ("s_v, height and width of a tile in pixels (Molmo 2)", _IMAGES),
    "qkv_hidden_size": ("the width of the attention of the tower (Kimi K3)", _TOWER),
    "activation_func": ("the activation of the tower's MLPs (Kimi K3)", "compute"),
    "pos_emb_interpolation_mode": (
        "how positions are resized to an image; only bilinear is supported (Kimi K3)",
        _FIXED,
    ),
    "sliding_window": ("the window of the text model, again (Unlimited OCR)", _FIXED),
    "encoder_config": ("the second of two towers, an object (Unlimited OCR)", _TOWER),
    "sam_config": ("the first of two towers, an object (Unlimited OCR)", _TOWER),
    "density_router_hidden_size": (
        "the width of a router between two paths; one is refused (Granite Docling)",
        _PROJECTOR,
    ),
    "use_fine_route": ("whether there is a path with more tokens (Granite Docling)", _PROJECTOR),
    "use_swiglu_ffn": ("whether MLPs are gated; true is refused (RADIO)", _TOWER),
    "patch_sizes": (
        "the samples or features that each layer of the audio tower joins",
        "weights of the tower",
    ),
    "hidden_sizes": ("the width of each layer of the audio tower", "weights of the tower"),
    "depths": ("the blocks in each layer of the audio tower", "weights of the tower"),
    "latent_query_num": ("the learned queries, the tokens of an image (Kosmos-2)", _PROJECTOR),
    "projection_intermediate_size": ("F_p, the width inside the projector", _PROJECTOR),
    "swiglu_limit": ("the limit of both factors of gated MLPs", "compute"),
    "out_hidden_size": ("the outputs of the merger, the width of the text model", _PROJECTOR),
    "output_proj_dims": ("the outputs of a tower, which the projector reads", _PROJECTOR),
    "audio_embed_dim": ("d_a, the samples of a frame of sound (Gemma 4 12B)", _PROJECTOR),
    "spatial_merge_size": (
        "k_v, the side of the square of patches that becomes one token",
        _PROJECTOR,
    ),
    "merge_size": ("k_v, the side of the square of patches that becomes one token", _PROJECTOR),
    "merge_kernel_size": (
        "k_v, the side of the square of patches that becomes one token",
        _PROJECTOR,
    ),
    "downsample_factor": (
        "k_v, the side of the square of patches that becomes one token",
        _PROJECTOR,
    ),
    "scale_factor": ("k_v, the side of the square of patches that becomes one token", _PROJECTOR),
    "downsample_ratio": (
        "1 over the side of the square of patches that becomes one token",
        _PROJECTOR,
    ),
    "pixel_shuffle_ratio": (
        "1 over the side of the square of patches that becomes one token",
        _PROJECTOR,
    ),
    "pooling_kernel_size": (
        "k_v, the side of the square of patches that are averaged, or of the patch of Gemma 4 12B",
        _TOWER,
    ),
    "alignment_intermediate_size": (
        "F_p, the width of the projector, its gate included",
        _PROJECTOR,
    ),
    "mm_tokens_per_image": (
        "the tokens of an image in the text",
        "compute: how many patches are averaged",
    ),
    "vision_soft_tokens_per_image": ("the most tokens of an image in the text", _IMAGES),
    "vision_feature_layer": (
        "the hidden states that are the features; several are joined",
        "weights of the projector, if several; compute",
    ),
    "vision_feature_layers": (
        "the hidden states that are the features; several are joined",
        "weights of the projector, if several; compute",
    ),
    "select_layer": ("the hidden state that is the features", "compute"),
    "vision_feature_select_strategy": (
        "default: the features without the class token; full: with it",
        "compute",
    ),
    "image_grid_pinpoints": ("the heights and widths that images are fitted to", _IMAGES),
    "vision_aspect_ratio": ("the most tiles whose features are kept: anyres_max_9", _IMAGES),
    "max_dynamic_patch": ("the most tiles of an image", _IMAGES),
    "use_thumbnail": ("whether the whole image follows its tiles", _IMAGES),
    "subsampling_conv_channels": (
        "the channels of the convolutions before the layers",
        "weights of the tower",
    ),
    "conv_kernel_size": ("the taps of the convolution in each layer", "weights of the tower"),
    "num_blocks": ("L_a, the number of layers of the audio tower (Phi-4)", _TOWER),
    "input_size": (
        "the bands of a frame of sound (Phi-4)",
        "weights after the tower's first convolutions",
    ),
    "time_reduction": (
        "the frames that become one, a power of 2 (Phi-4)",
        "weights: the number of the tower's first convolutions",
    ),
    "nemo_conv_channels": ("the channels of the tower's first convolutions (Phi-4)", _TOWER),
    "bias_max_distance": ("the distances with a learned bias (Phi-4)", _TOWER),
    "bias_symmetric": ("whether distances have no sign (Phi-4)", _TOWER),
    **dict.fromkeys(
        "depthwise_multiplier depthwise_separable_out_channel ext_pw_out_channel "
        "kernel_size".split(),
        ("the convolutions in each layer of the audio tower (Phi-4)", _TOWER),
    ),
    "img_processor": ("the vision tower of Phi-3 Vision, an object", _TOWER),
    "embd_layer": ("how Phi-3 Vision projects images, an object", _PROJECTOR),
    "projection_cls": (
        "the kind of projector; only mlp is supported",
        "nothing: only one choice is supported",
    ),
    "use_hd_transform": (
        "whether images are cut into tiles; only true is supported",
        "nothing: only one choice is supported",
    ),
    "image_dim_out": ("d_v, the width of the features of a patch (Phi-3 Vision)", _PROJECTOR),
    "projector_config": ("the projector, an object (DeepSeek-OCR)", _PROJECTOR),
    "projector_type": (
        "the kind of projector; only linear is supported (DeepSeek-OCR)",
        "nothing: only one choice is supported",
    ),
    "input_dim": ("the width of the features that the projector reads (DeepSeek-OCR)", _PROJECTOR),
    "n_embed": (
        "the outputs of the projector, the width of the text model (DeepSeek-OCR)",
        _PROJECTOR,
    ),
    "width": ("the width of a tower, or an object of towers by name (DeepSeek-OCR)", _TOWER),
    **dict.fromkeys(
        ("clip-l-14-224", "sam_vit_b"), ("one of DeepSeek-OCR's towers, an object", _TOWER)
    ),
    "layers": ("L_v, the number of layers of the tower (DeepSeek-OCR, Step 3.7)", _TOWER),
    "heads": (
        "H_v, the number of heads (DeepSeek-OCR)",
        "weights: learned distances have the width of a head",
    ),
    "downsample_channels": (
        "the widths of the convolutions after SAM's encoder (DeepSeek-OCR)",
        _TOWER,
    ),
    "use_bias": ("whether the linear layers of the tower have biases (dots.ocr)", _TOWER),
    "post_norm": ("whether the tower has a norm after its layers (dots.ocr)", _TOWER),
    "high_res_vision_config": ("the tower for larger images (DeepSeek-VL 7B), an object", _TOWER),
    "mlp_dim": ("F_v, the width of the MLP in each layer of the tower", _TOWER),
    "mlp_bias": ("whether the MLPs of the tower have biases", _TOWER),
    "output_channels": (
        "the channels after the tower's last convolutions (SAM)",
        "weights of the tower and of the projector",
    ),
    "global_attn_indexes": (
        "the layers without windows (SAM)",
        "weights: distances on each side of an image instead of a window",
    ),
    "use_abs_pos": ("whether patches have learned positions (SAM)", "weights of the positions"),
    "use_rel_pos": ("whether attention has learned distances (SAM)", "weights of the tower"),
    "max_image_size": (
        "s_v, the longest side of an image in pixels",
        "weights of the positions of Hunyuan-VL's tower",
    ),
    "window_kernel_size": (
        "rows and columns of patches that become one patch inside the tower (MiniCPM-V 4.6)",
        _TOWER,
    ),
    "merger_times": (
        "the MLPs of the projector, each on squares of four patches (MiniCPM-V 4.6)",
        _PROJECTOR,
    ),
    "hidden_stride": (
        "k_v, the side of the square of patches that becomes one token (Ovis 2)",
        _TOWER,
    ),
    "num_visual_indicator_tokens": (
        "the rows of the visual embedding that no patch chooses (Ovis 2)",
        "weights of the tower's head",
    ),
    "perceiver_config": (
        "the perceiver of the projector of Idefics and Idefics 2, an object",
        _PROJECTOR,
    ),
    "num_nextn_predict_layers": (
        "layers beside which the features of images are normalized (Nemotron 3 Omni)",
        "compute",
    ),
    "use_resampler": ("whether a perceiver reads the features of the tower (Idefics)", _PROJECTOR),
    "qk_layer_norms_perceiver": (
        "whether the perceiver normalizes queries and keys (Idefics)",
        _PROJECTOR,
    ),
    "cross_layer_interval": (
        "n: a layer that attends to images stands before every nth layer (Idefics)",
        "weights of these layers",
    ),
    "alpha_type": (
        "whether a gate of these layers is one number, float, or one for each channel, vector "
        "(Idefics)",
        "weights of these layers",
    ),
    "qk_layer_norms": (
        "whether these layers normalize queries and keys (Idefics)",
        "weights of these layers",
    ),
    "num_image_with_embedding": (
        "the frames of a video with a learned vector each (GIT)",
        "weights of the projector",
    ),
    "patch_embed_hidden_size": ("the pixels of a patch (Kosmos-2.5)", _TOWER),
    "max_num_patches": ("N_v, the rows and columns with learned vectors (Kosmos-2.5)", _TOWER),
    "temporal_merge_size": (
        "the frames that become one; only 2 is supported (ERNIE 4.5 VL)",
        "nothing: only one choice is supported",
    ),
    "resampler_depth": ("the layers of the perceiver", _PROJECTOR),
    "resampler_head_dim": ("the size of a head of the perceiver", _PROJECTOR),
    "resampler_n_heads": ("the heads of the perceiver", _PROJECTOR),
    "resampler_n_latents": ("the learned latents, the tokens of an image", _PROJECTOR),
    "qformer_config": ("BLIP-2's Q-Former, an object", _PROJECTOR),
    "query_num": ("the learned queries, the tokens of a tile (MiniCPM-V 2.6)", _PROJECTOR),
    "num_query_tokens": ("the learned queries, the tokens of an image", _PROJECTOR),
    "cross_attention_frequency": (
        "n: every nth layer of the Q-Former attends to the image",
        _PROJECTOR,
    ),
    "use_qformer_text_input": (
        "whether the Q-Former reads text, too",
        "weights of the Q-Former's MLPs",
    ),
    "encoder_hidden_size": (
        "the width of the features that the Q-Former reads",
        "nothing: it is the width of the tower",
    ),
    "max_position_embeddings": (
        "the positions of the Q-Former's text",
        "weights of InstructBLIP's Q-Former",
    ),
    "vocab_size": (
        "the rows of an embedding: of Ovis 2's visual tokens, of InstructBLIP's words",
        "weights of that embedding",
    ),
    "projector_patch_to_query_dict": (
        "the queries for each number of patches (Aria)",
        "weights of the projector: the most queries; compute",
    ),
    "vq_config": ("the quantizer of images that Janus makes, an object", "weights of the tower"),
    **dict.fromkeys(
        "base_channels channel_multiplier double_latent latent_channels num_res_blocks "
        "out_channels".split(),
        ("the channels and blocks of Janus's quantizer", "weights of the tower"),
    ),
    "num_embeddings": (
        "the rows of Janus's code book",
        "weights of the tower and of the projector",
    ),
    "image_token_embed_dim": ("the width inside the head for images that Janus makes", _PROJECTOR),
    "n_layers": ("L_v, the number of layers of the tower", _TOWER),
    **dict.fromkeys(
        ("n_mel_bins", "num_codebooks"),
        ("the bands of a frame of sound (Inkling)", "weights of the embedding of sound"),
    ),
    **dict.fromkeys(
        ("mel_vocab_size", "codebook_size"),
        ("the levels of a band (Inkling)", "weights of the embedding of sound"),
    ),
    **dict.fromkeys(
        """attention_chunk_size attention_context_left attention_context_right
        attention_invalid_logits_value attention_logit_cap gradient_clipping
        residual_weight""".split(),
        ("arithmetic of the audio tower", "compute"),
    ),
    **dict.fromkeys(
        """default_output_length drop_path_rate dropout dynamic_image_size force_image_size
        global_head_dim image_seq_length hidden_dropout_prob is_composition
        init_pos_emb_time
        attention_probs_dropout_prob downsample_mode drop_vision_last_layer hidden_dropout_rate
        image_text_hidden_size img_max_token_num activation audio_token_id chunk_size
        conv_activation conv_glu_type crop_size downsample_rate dropout_rate feature_layer
        left_chunk nemo_activation nemo_final_size dense_act_fn dropout_rate initializer_factor
        label_smoothing logit_scale_init_value batch_vision_input slice_config slice_mode
        use_image_id version vision_batch_size candidate_resolutions embedding_cls global_view_pos
        hd_transform_order init_merger_std is_causal layer_idx model_name name num_img_tokens
        tile_tag type_feature with_learnable_separator insert_layer_id interpolate_mode
        max_value_projector_patch_to_query_dict max_vit_seq_len min_image_size mtp_config
        num_pos_feats position_embedding_type projection_dropout tokenize_function
        use_decoder_only_language_model visual_indicator_token_ids min_dynamic_patch
        model_patch_size num_image_tokens num_soft_tokens pad2square pos_emb_time text_hidden_size
        projector_dropout ps_version size template tokens_per_second use_flash_attn
        video_seq_length""".split(),
        ("for the processor, for training, or given by other keys", _TOWER_UNUSED),
    ),
}
"""Keys of towers and of the whole configuration of a multimodal model → meaning and effect."""


def describe_tower_key(key: str) -> Entry | None:
    """Return the entry of a key of a tower, dotted if nested; None for an unknown key."""
    return TOWER_KEYS.get(key.rpartition(".")[2])


def describe_key(key: str, *kinds: str) -> Entry | None:
    """Return the entry of a key, dotted if nested: one for these families or kinds if there is
    one; None for an unknown key.
    """
    plain = ".".join(part for part in key.split(".") if not part.isdecimal())
    last = plain.rpartition(".")[2]
    rotary = (
        f"rope_scaling.{last}" if plain.startswith(("rope_scaling.", "rope_parameters.")) else plain
    )
    for name in (plain, rotary, last):
        keys_by_kind = (
            f"{kind}/{word}" for kind in kinds for word in (name, SYNONYMS.get(name, name))
        )
        if entry := next(
            (CONFIG_KEYS[word] for word in (*keys_by_kind, name) if word in CONFIG_KEYS), None
        ):
            return entry
    return None
