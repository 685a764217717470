"""Keys of attention, its heads, windows and latent vectors, and of the mixers that keep a state instead of a cache."""

from __future__ import annotations

MIXERS: dict[str, tuple[str, str]] = {
    # heads
    "num_attention_heads": (
        "H, query heads; each compares h numbers of its own",
        "weights of q and o if head_dim is given, else of k and v unless K = H; compute",
    ),
    "latent/num_attention_heads": (
        "H, heads; each unpacks a key and a value of its own from the latent vector",
        "weights of q, k, v and o; compute",
    ),
    "num_key_value_heads": ("K, key/value heads, each shared by H / K query heads", "weights of k and v; cache"),
    "head_dim": ("h, how many numbers one head has; need not be d / H", "weights of q, k, v and o; cache; compute"),
    "kv_channels": ("h, how many numbers one head has; here always d / H", "nothing: another size is refused"),
    "multi_query": ("whether all query heads share one key/value head; false: each has its own", "weights of k and v; cache"),
    "new_decoder_architecture": (
        "whether layers are those of Falcon 40B: K key/value heads, and a norm for each branch",
        "weights of k, v and the norms; cache",
    ),
    "attn_config": ("MPT's attention, an object", "weights of attention; cache; compute"),
    "attn_config.attn_type": ("who shares key/value heads: multihead, multiquery or grouped_query_attention", "weights of k and v; cache"),
    "global_head_dim": (
        "hg, how many numbers one head has in layers without a window (Gemma 4)",
        "weights of q, k, v and o in these layers; cache; compute",
    ),
    "num_global_key_value_heads": (
        "Kg, key/value heads in layers without a window, where attention_k_eq_v (Gemma 4)",
        "weights of k in these layers; cache",
    ),
    "attention_k_eq_v": ("whether keys serve as values too in layers without a window: no v there", "weights of k and v in these layers"),
    "num_kv_shared_layers": (
        "how many of the last layers use the keys and values of an earlier one (Gemma 4)",
        "weights of k and v in these layers; cache",
    ),
    "per_layer_config": ("what some layers have of their own, by number (transformers 5)", "weights of attention in these layers; cache"),
    "use_qk_norm": ("whether queries and keys are normalised before they are compared", "weights: the scales of these norms"),
    "llama4/use_qk_norm": ("whether rotated queries and keys are normalised, without any scale", "compute: the scores"),
    "qk_layernorm": ("whether each head's queries and keys pass a layer norm", "weights of these norms"),
    "attn_config.qk_ln": ("whether queries and keys pass a layer norm, all heads as one vector (MPT)", "weights of these norms"),
    "attn_output_gate": ("whether a sigmoid gate multiplies what the heads give", "weights of the gate, as many as of q; false is refused"),
    # scores
    "query_pre_attn_scalar": ("scores are divided by the root of this instead of √h (Gemma)", "compute: one factor"),
    "attention_multiplier": ("what scores are multiplied by instead of 1 / √h (Granite)", "compute: one factor"),
    "attn_config.softmax_scale": ("what scores are multiplied by; null: by 1 / √h (MPT)", "compute: one factor"),
    "qk_scale_factor": ("what scores are multiplied by besides 1 / √h (Muse Glimmer)", "compute: one factor"),
    "scale_attn_weights": ("whether scores are divided by √h", "compute: one factor"),
    "scale_attn_by_inverse_layer_idx": ("whether scores are divided by the layer's number too, counted from 1", "compute: one factor"),
    "attn_logit_softcapping": ("the cap of the scores, which become cap · tanh(score / cap); null: none", "compute: the scores"),
    "clip_qkv": ("queries, keys and values are cut off beyond ± this; null: not", "compute: rare values"),
    "use_bidirectional_attention": ("whether a token also sees those after it; Gemma 4: all, or within an image", "compute: who sees whom"),
    "attn_config.prefix_lm": ("whether a prompt sees itself both ways (MPT)", "nothing: taken as false"),
    # windows, and kinds of layers
    "sliding_window": (
        "how many positions, its own included, a token sees in a window; null: all",
        "cache: these layers keep no more; compute",
    ),
    "use_sliding_window": ("whether sliding_window holds at all", "cache; compute"),
    "max_window_layers": ("the layer at which the window begins (Qwen2-MoE: ends), if use_sliding_window", "cache; compute"),
    "sliding_window_pattern": ("n: every nth layer has no window; or a word of L (window) and G (none)", "cache; compute"),
    "global_local_attention_pattern": ("the kind of each layer, as the files of one tool say it", "cache; compute"),
    "attention_chunk_size": (
        "how long the chunks are that chunked layers attend inside of (Llama 4)",
        "cache: these layers keep no more; compute",
    ),
    "layer_types": ("the kind of each layer: with a window, in chunks, full, linear, convolution", "cache; compute"),
    "gemma4/layer_types": ("the kind of each layer: with a window, or full with heads of its own", "weights of attention; cache; compute"),
    "hybrid/layer_types": ("the kind of each layer: full attention, or one that keeps a state", "weights of the mixers; cache; compute"),
    "full_attn_idxs": (
        "which layers have attention, where layer_types is absent; the others convolve",
        "weights of the mixers; cache; compute",
    ),
    "full_attention_interval": ("n: every nth layer has full attention, the others linear (Qwen)", "weights of the mixers; cache; compute"),
    "layers_block_type": (
        "what each layer is: mamba M, attention *, feed-forward -, experts E (Nemotron-H)",
        "weights: which layers there are; cache; compute",
    ),
    # latent attention
    "use_mla": ("whether attention is latent (DeepSeek-V2); false: of Llama's kind", "weights of attention; cache; compute"),
    "q_lora_rank": ("s, the size of the latent vector that queries are unpacked from; null: none", "weights of q; compute"),
    "kv_lora_rank": ("r, the size of the latent vector that keys and values are unpacked from", "weights of k and v; cache; compute"),
    "qk_nope_head_dim": ("n, how many numbers of a head's query and key do not rotate", "weights of q and k; compute"),
    "qk_rope_head_dim": ("p, how many numbers of a query rotate; of a key, once for all heads", "weights of q and k; cache; compute"),
    "v_head_dim": ("v, how many numbers one head's value has", "weights of v and o; compute"),
    # states
    "linear_num_key_heads": ("Hk, key heads of linear attention", "weights of linear attention; compute"),
    "linear_key_head_dim": ("hk, how many numbers its keys have", "weights of linear attention; cache: its state; compute"),
    "linear_num_value_heads": (
        "Hv, value heads of linear attention, each with a state [hk, hv]",
        "weights of linear attention; cache: its state; compute",
    ),
    "linear_value_head_dim": ("hv, how many numbers its values have", "weights of linear attention; cache: its state; compute"),
    "linear_conv_kernel_dim": ("c, how many positions the convolution before it sees", "weights of the convolution; cache: c positions"),
    "mamba_num_heads": ("Hm, heads of Mamba, each with a state [m, N]", "weights of Mamba; cache: its state; compute"),
    "mamba_head_dim": ("m, how many numbers one head of Mamba has", "weights of Mamba; cache: its state; compute"),
    "n_groups": ("G, groups of Mamba's heads that share what enters and leaves the state", "weights of Mamba; compute"),
    "ssm_state_size": ("N, how many numbers of state each number of a head has", "weights of Mamba; cache: its state; compute"),
    "conv_kernel": ("c, how many positions Mamba's convolution sees", "weights of the convolution; cache: c positions"),
    "use_conv_bias": ("whether Mamba's convolution adds a bias", "weights: a bias of the convolution"),
    "mamba_hidden_act": ("the curve after Mamba's convolution", "compute: no weight depends on it"),
    "time_step_min": ("the least step of Mamba's state", "compute: the state"),
    "conv_L_cache": ("c, how many positions the short convolution sees (LFM2)", "weights of the convolution; cache: c positions"),
    "conv_bias": ("whether the short convolution and its matrices add biases", "weights: biases of the convolution"),
}
