"""Keys of what stands between the matrices: norms, biases, curves and factors."""

from __future__ import annotations

STEPS: dict[str, tuple[str, str]] = {
    # norms
    "rms_norm_eps": ("what is added under the root by which a norm divides", "compute: arithmetic of the norms"),
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
    "use_res_clamp": ("whether the stream is kept within what float16 can hold", "compute: rare values"),
    # biases
    "attention_bias": ("whether attention's matrices add a bias; o does not in every family", "weights: biases of attention"),
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
    "lm_head_bias": ("whether the head adds a bias", "weights: V numbers of the head's bias"),
    # curves and factors
    "hidden_act": ("the curve between the feed-forward's matrices", "compute: no weight depends on it"),
    "mlp_hidden_act": ("the curve between the feed-forward's matrices (Nemotron-H)", "compute: no weight depends on it"),
    "swiglu_limit": ("the gate is cut off above this, up beyond ± this (GPT-OSS)", "compute: the feed-forward"),
    "swiglu_alpha": ("how steep the gate is: g · sigmoid(alpha · g) (GPT-OSS)", "compute: the feed-forward"),
    "embedding_multiplier": ("what a row of the embedding is multiplied by when it is read", "compute: one factor"),
    "logit_scale": ("what the logits are multiplied by; inv_sqrt_d_model: by 1 / √d", "compute: one factor"),
    "logits_scaling": ("what the logits are divided by", "compute: one factor"),
    "output_multiplier": ("what the logits are multiplied by before their cap (Muse Glimmer)", "compute: one factor"),
    "dim_model_base": ("b, a width: the logits are multiplied by b / d (MiniCPM)", "compute: one factor"),
    "final_logit_softcapping": ("the cap of the logits, which become cap · tanh(logit / cap); null: none", "compute: the logits"),
    "residual_multiplier": ("what each branch is multiplied by before it is added to the stream", "compute: one factor"),
    "scale_depth": ("what each branch is multiplied by, over √L (MiniCPM)", "compute: one factor"),
}
