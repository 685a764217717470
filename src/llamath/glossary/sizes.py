"""Keys of the whole model: its family, its width and depth, and its two ends."""

from __future__ import annotations

SIZES: dict[str, tuple[str, str]] = {
    "model_type": ("the family: which builder reads the other keys", "weights: every shape; cache; compute"),
    "architectures": ("which class was saved: with a head, without one, or with a classifier", "weights of the head"),
    "num_labels": ("n, how many classes a classifier tells apart", "weights of the classifier, in place of a head"),
    "id2label": ("names of a classifier's n classes; where num_labels is absent, it counts them", "weights of the classifier"),
    # width and depth
    "hidden_size": ("d, the width of the residual stream that every layer reads and writes", "weights: nearly all; compute"),
    "num_hidden_layers": ("L, how many layers stand one after another", "weights of all layers, as many times; cache; compute"),
    "intermediate_size": (
        "F, the width inside the feed-forward, or inside each of the experts",
        "weights of the feed-forward; compute",
    ),
    "qwen/intermediate_size": ("2·F, the widths of gate and up together: F is half of it", "weights of the feed-forward; compute"),
    "llama4/intermediate_size": ("Fe, the width inside each expert, the shared one too", "weights of the experts; compute"),
    "lfm2/intermediate_size": ("F before it is cut to two thirds and rounded; block_ff_dim goes first", "weights of the feed-forward"),
    "intermediate_size_mlp": (
        "F, the width inside the feed-forward of layers without experts (Llama 4)",
        "weights of these layers; compute",
    ),
    "expansion_ratio": ("r, how many times as wide as d the feed-forward is: F = r · d (MPT)", "weights of the feed-forward; compute"),
    "block_ff_dim": ("F before LFM2 takes two thirds of it, stretches and rounds it up", "weights of the feed-forward; compute"),
    "block_auto_adjust_ff_dim": ("whether block_ff_dim is cut and rounded; false: it is F itself", "weights of the feed-forward; compute"),
    "block_multiple_of": ("LFM2's F is rounded up to a multiple of this", "weights of the feed-forward; compute"),
    "block_ffn_dim_multiplier": ("what LFM2's F is multiplied by before it is rounded up", "weights of the feed-forward; compute"),
    "use_double_wide_mlp": (
        "whether layers that borrow their keys and values have 2·F inside the feed-forward (Gemma 4)",
        "weights of the feed-forward in these layers; compute",
    ),
    "ffn_config": ("MPT's feed-forward, an object", "nothing: its one choice is already made"),
    "ffn_config.ffn_type": ("MPT's kind of feed-forward: mptmlp, two matrices", "nothing: another kind is refused"),
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
    "tie_word_embeddings": ("whether the head is the embedding's matrix; if so, it is counted once", "weights of the head"),
}
