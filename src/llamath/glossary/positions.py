"""Keys of positions: learned tables, rotary angles and their stretching, ALiBi, and queries that grow with the position."""

from __future__ import annotations

POSITIONS: dict[str, tuple[str, str]] = {
    "max_position_embeddings": ("how many positions it is meant for; the model has no limit built in", "cache: of a full context"),
    "learned/max_position_embeddings": (
        "C, rows of the table of learned positions: there are no others",
        "weights of that table; cache: of a full context",
    ),
    "learned_pos_emb": ("whether positions have a table of rows, if nothing else gives them (MPT)", "weights of that table"),
    # rotary
    "rope_theta": ("the base of the rotary angles: the larger, the slower the slowest turns", "compute: how far positions are told apart"),
    "rope_local_base_freq": ("rope_theta in layers with a window (Gemma 3)", "compute: these layers' angles"),
    "layer_rope_theta": ("rope_theta layer by layer; 0: no rotary positions there (Muse Glimmer)", "compute: these layers' angles"),
    "rope_interleave": (
        "whether the numbers that rotate together are neighbours, not halves of a head apart",
        "compute: the order in q and k",
    ),
    "partial_rotary_factor": ("which share of a head's numbers rotates", "compute: the angles"),
    "rotary_dim": ("how many of a head's numbers rotate", "compute: the angles"),
    "rotary": ("rotary positions, an object (InternLM)", "compute: the angles"),
    "rotary.type": (
        "dynamic: the base grows with the text; origin: it does not (InternLM)",
        "compute: positions past the original context",
    ),
    "gptj/rotary": ("whether positions are rotary", "nothing: they always are"),
    "attn_config.rope": (
        "whether positions are rotary (MPT)",
        "weights of a table of positions, if nothing else gives them; compute: the angles",
    ),
    "no_rope_layers": ("layer by layer: 1 for rotary positions, 0 for none", "compute: the angles; Llama 4: cache, as 1 also means chunks"),
    "no_rope_layer_interval": ("n: every nth layer has no rotary positions", "compute: the angles; Llama 4: cache, as these see all"),
    # stretched
    "rope_scaling": (
        "how the angles are stretched for texts longer than trained on; null: not",
        "compute: positions past the original context",
    ),
    "rope_parameters": ("the rotary positions in one object (transformers 5)", "compute: the angles"),
    "rope_scaling.full_attention": ("the rotary positions of layers without a window", "compute: these layers' angles"),
    "rope_scaling.sliding_attention": ("the rotary positions of layers with a window", "compute: these layers' angles"),
    "rope_scaling.rope_type": ("how: default (not), linear, dynamic, yarn, llama3, longrope, proportional", "compute: the angles"),
    "rope_scaling.factor": ("how many times slower the stretched angles turn", "compute: positions past the original context"),
    "original_max_position_embeddings": ("how many positions it was trained on before the stretch", "compute: which angles are stretched"),
    "rope_scaling.low_freq_factor": (
        "waves longer than original / this are slowed by factor (Llama 3.1)",
        "compute: which angles are stretched",
    ),
    "rope_scaling.high_freq_factor": ("waves shorter than original / this stay; between is a ramp", "compute: which angles are stretched"),
    "rope_scaling.beta_fast": (
        "angles that turn more often than this in the original context stay (YaRN)",
        "compute: which angles are stretched",
    ),
    "rope_scaling.beta_slow": (
        "angles that turn less often than this are slowed; between is a ramp",
        "compute: which angles are stretched",
    ),
    "rope_scaling.truncate": ("whether the ends of YaRN's ramp are rounded outward to whole angles", "compute: which angles are stretched"),
    "rope_scaling.mscale": ("how much rotated queries and keys grow with ln(factor) (YaRN)", "compute: the scores"),
    "rope_scaling.mscale_all_dim": ("the share of that growth that goes to whole scores instead (DeepSeek)", "compute: the scores"),
    "rope_scaling.attention_factor": ("what rotated queries and keys are multiplied by; null: follows from factor", "compute: the scores"),
    "rope_scaling.short_factor": ("what slows each angle in texts within the original context (LongRoPE)", "compute: the angles"),
    "rope_scaling.long_factor": ("what slows each angle in texts longer than the original context (LongRoPE)", "compute: the angles"),
    "rope_scaling.short_mscale": ("what rotated queries and keys are multiplied by in short texts (Phi-3.5-MoE)", "compute: the scores"),
    "rope_scaling.long_mscale": ("what rotated queries and keys are multiplied by in long texts (Phi-3.5-MoE)", "compute: the scores"),
    "rope_scaling.mrope_section": ("how the angles are shared among time, height and width of a picture", "nothing: in text these are one"),
    "rope_scaling.mrope_interleaved": ("whether the shares of mrope_section alternate", "nothing: in text time, height and width are one"),
    "rope_scaling.max_position_embeddings": ("how many positions there are after the stretch", "nothing: said outside the object too"),
    "use_dynamic_ntk": ("whether the base grows for prompts longer than seq_length (Qwen 1)", "compute: positions past seq_length"),
    "seq_length": ("how many positions it was trained on", "compute: positions past it (Qwen 1)"),
    # growing with the position
    "use_logn_attn": (
        "whether queries past seq_length grow with the logarithm of their position (Qwen 1)",
        "compute: positions past seq_length",
    ),
    "attn_temperature_tuning": ("whether queries grow with their position in layers without rotary positions", "compute: far positions"),
    "attn_scale": ("how much these queries grow with the logarithm of their position (Llama 4)", "compute: far positions"),
    "floor_scale": ("how many positions one step of attn_scale's growth takes; before the first there is none", "compute: far positions"),
    "rope_scaling.llama_4_scaling_beta": ("how much queries grow with the logarithm of their position; 0: not", "compute: far positions"),
    # ALiBi
    "alibi": ("whether scores fall with the distance, head by head at a slope (ALiBi), instead of rotary positions", "compute: the scores"),
    "attn_config.alibi": (
        "whether scores fall with the distance, head by head at a slope; true: no table of positions",
        "weights of that table; compute: the scores",
    ),
    "attn_config.alibi_bias_max": ("where the slopes end: head i of H has 2^(−this · i / H)", "compute: the scores"),
}
