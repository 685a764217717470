"""Keys of the whole model, its two ends, its widths, norms, biases and activations."""

from __future__ import annotations

SIZES: dict[str, tuple[str, str]] = {
    "model_type": ("the family: which builder reads the other keys", "weights: every shape; cache; compute"),
    "architectures": ("which class was saved: with a head, without one, or with a classifier", "weights of the head"),
    "num_labels": ("n, how many classes a classifier tells apart", "weights of the classifier, in place of a head"),
    "id2label": ("names of a classifier's n classes; where num_labels is absent, it counts them", "weights of the classifier"),
    # the two ends
    "vocab_size": ("V, rows of the embedding and of the head; often padded past the tokenizer", "weights of embedding and head; compute"),
    "vocab_size_per_layer_input": ("Vp, rows of the second embedding, which every layer reads (Gemma 4)", "weights of that embedding"),
    "hidden_size_per_layer_input": (
        "p, how many numbers a second embedding gives a token for each layer; 0: there is none",
        "weights of that embedding and of a third branch in each layer; compute",
    ),
    "word_embed_proj_dim": (
        "w, numbers in a row of the embedding; a matrix widens them to d where they are fewer (OPT-350m)",
        "weights of embedding, head and the matrices between",
    ),
    "tie_word_embeddings": ("whether the head is the embedding's own matrix: true means one matrix, counted once", "weights of the head"),
    "embedding_multiplier": ("what a row of the embedding is multiplied by when it is read", "compute: one factor"),
    "logit_scale": ("what the logits are multiplied by; inv_sqrt_d_model: by 1 / √d", "compute: one factor"),
    "logits_scaling": ("what the logits are divided by", "compute: one factor"),
    "output_multiplier": ("what the logits are multiplied by before their cap (Muse Glimmer)", "compute: one factor"),
    "dim_model_base": ("b, a width: the logits are multiplied by b / d (MiniCPM)", "compute: one factor"),
    "final_logit_softcapping": ("the cap of the logits, which become cap · tanh(logit / cap); null: none", "compute: the logits"),
    "lm_head_bias": ("whether the head adds a bias", "weights: V numbers of the head's bias"),
    # width and depth
    "hidden_size": ("d, the width of the residual stream that every layer reads and writes", "weights: nearly all; compute"),
    "num_hidden_layers": ("L, how many layers stand one after another", "weights of all layers, as many times; cache; compute"),
    "intermediate_size": (
        "F, the width inside the feed-forward, or inside each expert where all are experts",
        "weights of the feed-forward; compute",
    ),
    "qwen/intermediate_size": ("2·F, the widths of gate and up together: F is half of it", "weights of the feed-forward; compute"),
    "qwen/ffn_hidden_size": ("2·F, as intermediate_size: gate and up together", "weights of the feed-forward; compute"),
    "llama4/intermediate_size": ("Fe, the width inside each expert, the shared one too", "weights of the experts; compute"),
    "lfm2/intermediate_size": ("F before it is cut to two thirds and rounded; block_ff_dim goes first", "weights of the feed-forward"),
    "intermediate_size_mlp": (
        "F, the width inside the feed-forward of layers without experts (Llama 4)",
        "weights of these layers; compute",
    ),
    "expansion_ratio": ("r, how many times as wide as d the feed-forward is: F = r · d (MPT)", "weights of the feed-forward; compute"),
    "block_ff_dim": ("F before LFM2 takes two thirds of it, stretches and rounds it up", "weights of the feed-forward; compute"),
    "block_auto_adjust_ff_dim": ("whether LFM2 does that at all; false: F is block_ff_dim itself", "weights of the feed-forward; compute"),
    "block_multiple_of": ("LFM2's F is rounded up to a multiple of this", "weights of the feed-forward; compute"),
    "block_ffn_dim_multiplier": ("what LFM2's F is multiplied by before it is rounded up", "weights of the feed-forward; compute"),
    "use_double_wide_mlp": (
        "whether layers that borrow their keys and values have 2·F inside the feed-forward (Gemma 4)",
        "weights of the feed-forward in these layers; compute",
    ),
    "ffn_config": ("MPT's feed-forward, an object", "nothing: its one choice is already made"),
    "ffn_config.ffn_type": ("MPT's kind of feed-forward: mptmlp, two matrices", "nothing: another kind is refused"),
    # norms
    "rms_norm_eps": ("what is added to the mean square before its root is taken", "compute: arithmetic of the norms"),
    "layer_norm_eps": ("what is added to the variance before its root is taken", "compute: arithmetic of the norms"),
    "post_norm_eps": ("what is added under the root in the norms after attention and feed-forward", "compute: arithmetic of the norms"),
    "norms": ("whether there are norms; false leaves them out, as a textbook's count does (classic)", "weights of the norms"),
    "norm_type": ("which norm: a layer norm", "nothing: another one is refused or unheard of"),
    "layer_norm_elementwise_affine": ("whether the norms have a scale and a shift for each of the d numbers", "weights of the norms"),
    "do_layer_norm_before": (
        "whether norms stand before attention and feed-forward, and once more at the end, or after them",
        "weights of the last norm; compute: the order",
    ),
    "_remove_final_layer_norm": ("whether the norm before the head is left out", "weights of the last norm"),
    "num_ln_in_parallel_attn": ("1: attention and feed-forward share a norm; 2: each has its own (Falcon)", "weights of the norms"),
    "apply_residual_connection_post_layernorm": (
        "whether a branch is added to the normed numbers that it read, not to the stream",
        "compute: the order of the additions",
    ),
    "parallel_attn": (
        "whether attention and feed-forward read the same numbers side by side, through one norm (Falcon)",
        "weights of the second norm; compute: the order",
    ),
    "use_parallel_residual": ("whether attention and feed-forward read the stream side by side", "compute: the order"),
    "stablelm/use_parallel_residual": (
        "whether attention and feed-forward read the stream side by side, through one norm",
        "weights of the second norm; compute: the order",
    ),
    "residual_multiplier": ("what each branch is multiplied by before it is added to the stream", "compute: one factor"),
    "scale_depth": ("what each branch is multiplied by, over √L (MiniCPM)", "compute: one factor"),
    "use_res_clamp": ("whether the stream is kept within what float16 can hold", "compute: rare values"),
    # biases
    "attention_bias": ("whether q, k and v add a bias; in most families o too", "weights: biases of attention"),
    "qkv_bias": ("whether q, k and v add a bias; o has none", "weights: biases of q, k and v"),
    "bias": ("whether the matrices of the layers add a bias", "weights: biases of attention and feed-forward"),
    "internlm/bias": ("whether q, k, v and o add a bias", "weights: biases of attention"),
    "internlm2/bias": ("whether q, k, v and o add a bias each", "weights: biases of attention"),
    "no_bias": ("whether the matrices of the layers, and MPT's norms, do without biases", "weights: biases"),
    "qwen/no_bias": ("whether o and the feed-forward do without biases; q, k and v have them", "weights: biases"),
    "enable_bias": ("whether attention and feed-forward add biases (OPT)", "weights: biases of attention and feed-forward"),
    "use_bias": ("whether attention and feed-forward add biases (StarCoder2)", "weights: biases of attention and feed-forward"),
    "nemotron_h/use_bias": ("whether Mamba's matrices in and out add biases", "weights: biases of Mamba"),
    "mlp_bias": ("whether gate, up and down add biases", "weights: biases of the feed-forward"),
    # activations
    "hidden_act": ("the curve between the feed-forward's matrices", "compute: no weight depends on it"),
    "mlp_hidden_act": ("the curve between the feed-forward's matrices (Nemotron-H)", "compute: no weight depends on it"),
    "swiglu_limit": ("the gate is cut off above this, up beyond ± this (GPT-OSS)", "compute: the feed-forward"),
    "swiglu_alpha": ("how steep the gate is: g · sigmoid(alpha · g) (GPT-OSS)", "compute: the feed-forward"),
}
