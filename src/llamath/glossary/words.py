"""All entries together, the words that mean the same, and how a key finds its entry."""

from __future__ import annotations

from .experts import EXPERTS
from .mixers import MIXERS
from .positions import POSITIONS
from .settled import SETTLED
from .sizes import SIZES
from .steps import STEPS

Entry = tuple[str, str]
GROUPS = ("weights", "cache", "compute", "apart", "nothing")
"""What a key can move, the heaviest first."""

SAME = {
    word: key
    for key, words in {
        "hidden_size": "n_embd n_embed d_model",
        "num_hidden_layers": "n_layer n_layers",
        "num_attention_heads": "n_head n_heads",
        "num_key_value_heads": "num_kv_heads n_head_kv attn_config.kv_n_heads",
        "head_dim": "attention_head_dim",
        "intermediate_size": "n_inner ffn_dim ffn_hidden_size",
        "max_position_embeddings": "n_positions max_seq_len max_sequence_length model_max_length",
        "tie_word_embeddings": "tie_embedding",
        "rms_norm_eps": "norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon",
        "hidden_act": "hidden_activation activation_function activation",
        "embedding_multiplier": "scale_emb",
        "qkv_bias": "use_qkv_bias",
        "use_conv_bias": "mamba_conv_bias",
        "num_experts": "num_local_experts n_routed_experts",
        "num_experts_per_tok": "experts_per_token top_k_experts",
        "moe_intermediate_size": "expert_intermediate_size",
        "shared_expert_intermediate_size": "moe_shared_expert_intermediate_size",
        "sliding_window": "sliding_window_attention_size sliding_window_size",
        "sliding_window_pattern": "_sliding_window_pattern",
        "layers_block_type": "hybrid_override_pattern",
        "no_rope_layer_interval": "nope_layer_interval",
        "rope_theta": "rotary_emb_base rotary.base",
        "rope_scaling.rope_type": "rope_scaling.type",
        "rope_scaling.factor": "rotary.scaling_factor",
        "partial_rotary_factor": "rotary_pct rope_pct",
        "rope_interleave": "rope_interleaved",
        "n_groups": "mamba_n_groups",
        "conv_kernel": "mamba_d_conv",
        "time_step_min": "mamba_dt_min",
    }.items()
    for word in words.split()
}
"""Other words for a key → the key whose entry they share."""

GLOSSARY: dict[str, Entry] = {**SIZES, **MIXERS, **EXPERTS, **STEPS, **POSITIONS, **SETTLED}
GLOSSARY |= {word: (f"{GLOSSARY[key][0]}; elsewhere {key.rpartition('.')[2]}", GLOSSARY[key][1]) for word, key in SAME.items()}
"""Key → what it says, and which weights, cache or compute it moves."""


def entry(key: str, *kinds: str) -> Entry | None:
    """What is known of a key, a dotted one if nested: what one of these families or kinds says, else all; at last of its last part."""
    plain = ".".join(part for part in key.split(".") if not part.isdecimal())
    last = plain.rpartition(".")[2]
    rotary = f"rope_scaling.{last}" if plain.startswith(("rope_scaling.", "rope_parameters.")) else plain
    for name in (plain, rotary, last):
        own = (f"{kind}/{word}" for kind in kinds for word in (name, SAME.get(name, name)))
        if found := next((GLOSSARY[word] for word in (*own, name) if word in GLOSSARY), None):
            return found
    return None
