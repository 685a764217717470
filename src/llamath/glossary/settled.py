"""Keys that a family knows and has no use for: what they could say is settled by it, or said by another key."""

from __future__ import annotations

SETTLED: dict[str, tuple[str, str]] = {
    key: (says, "nothing: said elsewhere, or settled in the family")
    for says, keys in {
        "V with its padding, in the words of the code that trained it": "padded_vocab_size",
        "the width once more": "block_dim",
        "the width once more, of what enters the convolution": "conv_dim",
        "the width once more, of what leaves the convolution": "conv_dim_out",
        "the width of Mamba's heads together, over d": "expand",
        "the number of heads once more": "num_heads",
        "the size of a head's query and key, n + p": "qk_head_dim",
        "the context before the stretch once more": "initial_context_length",
        "the norms' epsilon once more": "block_norm_eps",
        "F / d, going by its name; not read by transformers (Falcon)": "ff_factor",
        "the width of a shared expert, of which MiniMax has none": "shared_intermediate_size",
        "whether gate and up share a matrix in files; they are three matrices (LFM2)": "block_use_swiglu",
        "whether there are positions; there are (LFM2)": "use_pos_enc",
        "the kind of positions: rotary, where there is a window (Cohere)": "position_embedding_type",
        "the kind of positions: rotary (Qwen 1)": "pos_emb",
        "n: every nth layer has no window (Cohere), as sliding_window_pattern says": "layer_switch",
        "which kind of layer comes first (Cohere)": "order_of_interleaved_layers",
        "whether the head is the embedding, as tie_word_embeddings says (Cohere)": "use_embedding_sharing",
        "whether the feed-forward has a gate; it has (Cohere)": "use_gated_activation",
        "whether attention and feed-forward stand side by side; they do (Cohere)": "use_parallel_block",
        "whether the embedding was cut among devices (Cohere)": "use_parallel_embedding",
        "how experts are chosen, of which there are none (Cohere)": "expert_selection_fn",
        "the kind of each layer, a number each: all are full (MiniMax)": "attn_type_list",
        "how queries and keys are normalised: all heads of a layer as one vector (MiniMax)": "qk_norm_type",
        "the kind of feed-forward: two matrices (StarCoder2)": "mlp_type",
        "the kind of linear layer: the plain one (MPT)": "fc_type",
        "which share of the embedding's gradient counts (MPT)": "embedding_fraction",
        "where ALiBi begins to count, going by its name; not read by transformers (BLOOM)": "offset_alibi",
        "how many times slower the angles turn, going by its name; 1 in StableLM's files": "rotary_scaling_factor",
        "which layers attend in full, going by its name; 1 in Phi-4's files, and not read by transformers": "full_attn_mod",
        "how far the context is stretched, going by its name; 1 in Phi-4's files, and not read by transformers": "interpolate_factor",
        "the curve of the gate on linear attention: SiLU, also called swish (Qwen 3.5)": "output_gate_type",
        "whether Mamba's matrix out adds a bias; use_bias says it": "mamba_proj_bias",
        "the largest step of Mamba's state before training": "time_step_max",
        "the least step of Mamba's state before training": "time_step_floor",
        "between what the steps of Mamba's state are kept; from time_step_min on": "time_step_limit",
    }.items()
    for key in keys.split()
}
