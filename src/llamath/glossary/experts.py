"""Keys of mixtures of experts, and of the layers that predict further tokens."""

from __future__ import annotations

EXPERTS: dict[str, tuple[str, str]] = {
    "num_experts": ("E, how many experts a layer has; each token passes k of them", "weights of experts and router"),
    "num_experts_per_tok": ("k, how many experts a token passes", "compute: the active weights, not the total"),
    "moe_intermediate_size": ("Fe, the width inside each expert", "weights of the experts; compute"),
    "n_shared_experts": ("S, how many experts every token passes besides, as one of width S·Fe", "weights of these experts; compute"),
    "shared_expert_intermediate_size": ("Fs, the width inside the expert that every token passes", "weights of this expert; compute"),
    "moe_latent_size": (
        "r, the width that the experts read and write, where it is not d (Nemotron 3 Super)",
        "weights of the experts and of two matrices around them; compute",
    ),
    # which layers
    "enable_moe_block": ("whether every layer has experts beside its feed-forward (Gemma 4)", "weights of experts and router; compute"),
    "first_k_dense_replace": ("how many of the first layers have a plain feed-forward instead of experts", "weights of these layers"),
    "moe_layer_freq": ("n: after the first dense ones, every nth layer has experts", "nothing: only 1 is known, all else is refused"),
    "decoder_sparse_step": ("n: every nth layer has experts, the others a plain feed-forward", "weights of these layers"),
    "mlp_only_layers": ("layers, by number from 0, with a plain feed-forward whatever decoder_sparse_step says", "weights of these layers"),
    "interleave_moe_layer_step": ("n: every nth layer has experts, the others a plain feed-forward (Llama 4)", "weights of these layers"),
    "moe_layers": ("layers, by number from 0, that have experts (Llama 4)", "weights of these layers"),
    # the choice
    "scoring_func": ("how the router's logits become scores: softmax or sigmoid", "compute: each expert's share"),
    "topk_method": (
        "how the router chooses: greedy, from the best groups, or noaux_tc, with a bias for the choice",
        "weights: the E numbers of that bias; compute",
    ),
    "use_routing_bias": ("whether the router's choice has a bias (MiniMax)", "weights: the E numbers of that bias"),
    "n_group": ("how many groups the experts stand in", "compute: which experts can be chosen together"),
    "topk_group": ("from how many of these groups a token may choose", "compute: how scattered a token's experts are"),
    "norm_topk_prob": ("whether the shares of the chosen experts are made to sum to 1", "compute: each expert's share"),
    "routed_scaling_factor": ("what the sum of the chosen experts is multiplied by", "compute: one factor"),
    "router_jitter_noise": (
        "how near the best logit another must be to be weighed against it (Phi-3.5-MoE); elsewhere for training",
        "compute: each expert's share",
    ),
    # further tokens
    "num_nextn_predict_layers": ("how many layers predict tokens after the next one", "apart: weights that files hold and no total counts"),
    "num_mtp_layers": ("how many layers predict tokens further on", "apart: weights beside the model"),
    "mtp_num_hidden_layers": ("how many layers predict the token after the next (Qwen)", "apart: weights beside the model"),
    "mtp_use_dedicated_embeddings": (
        "whether the layers for further tokens have an embedding of their own",
        "apart: weights beside the model",
    ),
    "mtp_hybrid_override_pattern": (
        "what the layers for further tokens are, a letter each (Nemotron 3)",
        "apart: weights beside the model",
    ),
    "mtp_layers_block_type": ("what the layers for further tokens are, a word each (Nemotron 3)", "apart: weights beside the model"),
    "num_mtp_modules": ("how many modules predict tokens further on (MiniMax)", "apart: weights beside the model"),
    "mtp_transformer_layers": ("how many layers each module for further tokens has", "apart: weights beside the model"),
    "use_mtp": ("whether modules for further tokens were trained (MiniMax)", "apart: weights beside the model"),
}
