"""GGUF's architectures: which family each is, and which facts that family reads.

A word of `keys` is a fact of `facts.py`; `own=fact` where the family calls it otherwise, and a `?` says null where the header has nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.record_type import Record
from .gguf_extra_keys import falcon, gemma4, gpt_oss, growing, latent_rope, llama4, minicpm, mpt, nemotron, one_key_head, queries, two_bases
from .gguf_header import Header

Extra = Callable[[Header], Mapping[str, Any]]


class Arch(Record):
    """How one architecture is said in Hugging Face's keys."""

    model_type: str
    keys: str
    fixed: Mapping[str, Any] = {}  # what llama.cpp takes for granted and the family does not
    extra: Extra | None = None  # what no single fact says
    lost: str = ""  # what the metadata does not hold, though it moves results


SHAPE = "hidden_size num_hidden_layers num_attention_heads vocab_size tie_word_embeddings"
BASE = f"{SHAPE} num_key_value_heads head_dim max_position_embeddings intermediate_size"
TURNED = f"{BASE} rope_theta rope_scaling"
LLAMA = f"{TURNED} rms_norm_eps"
LOCAL_EXPERTS = "num_local_experts=num_experts num_experts_per_tok"
LATENT = f"""{SHAPE} max_position_embeddings intermediate_size rms_norm_eps q_lora_rank? kv_lora_rank qk_nope_head_dim qk_rope_head_dim
    v_head_dim attention_bias=latent_bias"""
MIXTURE = """n_routed_experts=num_experts num_experts_per_tok moe_intermediate_size n_shared_experts first_k_dense_replace norm_topk_prob"""
CHOICE = "topk_method scoring_func"
GROUPS = "routed_scaling_factor n_group topk_group"
QWEN_MIXTURE = "num_experts num_experts_per_tok moe_intermediate_size"
SHARED = f"{QWEN_MIXTURE} shared_expert_intermediate_size"
DELTA = """layer_types=mixers partial_rotary_factor linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads
    linear_value_head_dim attention_bias"""
HYBRID = f"{SHAPE} max_position_embeddings num_key_value_heads head_dim"
CLASSIC = f"{SHAPE} head_dim layer_norm_epsilon=layer_norm_eps"
SCALES = "attention_multiplier embedding_multiplier residual_multiplier logits_scaling=logit_scale"
NORMED = {"norm_topk_prob": True}
QUERIES = "how the scores are scaled (query_pre_attn_scalar): taken as llama.cpp takes it"

ARCHS: Mapping[str, Arch] = {
    "llama": Arch(model_type="llama", keys=f"{LLAMA} attention_bias mlp_bias sliding_window"),
    "llama with experts": Arch(model_type="mixtral", keys=f"{LLAMA} sliding_window {LOCAL_EXPERTS}"),
    "granite": Arch(model_type="granite", keys=f"{LLAMA} attention_bias mlp_bias {SCALES}"),
    "granitemoe": Arch(model_type="granitemoe", keys=f"{LLAMA} attention_bias {SCALES} {LOCAL_EXPERTS}"),
    "minicpm": Arch(
        model_type="minicpm",
        keys=f"{LLAMA} attention_bias scale_emb=embedding_multiplier num_experts_per_tok",
        extra=minicpm,
    ),
    "smollm3": Arch(
        model_type="smollm3", keys=f"{LLAMA} attention_bias mlp_bias", lost="which layers do not rotate: every fourth is taken"
    ),
    "mistral3": Arch(model_type="ministral3", keys=f"{BASE} rms_norm_eps sliding_window", extra=growing),
    "mistral4": Arch(
        model_type="mistral4",
        keys=f"{LATENT} {MIXTURE} {GROUPS}",
        extra=growing,
        lost="how queries grow with position: the family's own is taken",
    ),
    "internlm2": Arch(model_type="internlm2", keys=f"{LLAMA} bias=attention_bias"),
    "orion": Arch(model_type="orion", keys=f"{TURNED} rms_norm_eps=layer_norm_eps"),
    "olmo": Arch(model_type="olmo", keys=f"{TURNED} attention_bias clip_qkv"),
    "olmo2": Arch(model_type="olmo2", keys=f"{LLAMA} attention_bias"),
    "olmo2 with windows": Arch(
        model_type="olmo3", keys=f"{BASE} rms_norm_eps attention_bias sliding_window layer_types=windowed", extra=two_bases
    ),
    "olmoe": Arch(model_type="olmoe", keys=f"{LLAMA} attention_bias clip_qkv num_experts num_experts_per_tok"),
    "stablelm": Arch(
        model_type="stablelm",
        keys=f"""{TURNED} layer_norm_eps partial_rotary_factor use_qkv_bias=attention_bias qk_layernorm=use_qk_norm
            use_parallel_residual=without_mlp_norm""",
    ),
    "starcoder2": Arch(model_type="starcoder2", keys=f"{TURNED} norm_epsilon=layer_norm_eps use_bias=attention_bias sliding_window"),
    "command-r": Arch(model_type="cohere", keys=f"{TURNED} layer_norm_eps attention_bias use_qk_norm logit_scale"),
    "cohere2": Arch(model_type="cohere2", keys=f"{TURNED} layer_norm_eps attention_bias logit_scale sliding_window layer_types=windowed"),
    "exaone4": Arch(model_type="exaone4", keys=f"{LLAMA} sliding_window? layer_types=windowed"),
    "qwen": Arch(
        model_type="qwen",
        keys=f"""{SHAPE} max_position_embeddings intermediate_size kv_channels=head_dim layer_norm_epsilon=rms_norm_eps
            rotary_emb_base=rope_theta rotary_pct=partial_rotary_factor no_bias""",
        lost="whether positions past the trained length are stretched (use_dynamic_ntk, use_logn_attn): the family's defaults are taken",
    ),
    "qwen2": Arch(model_type="qwen2", keys=LLAMA),
    "qwen2vl": Arch(model_type="qwen2_vl_text", keys=LLAMA),
    "qwen2moe": Arch(model_type="qwen2_moe", keys=f"{LLAMA} {SHARED} qkv_bias=attention_bias mlp_only_layers=dense_layers"),
    "qwen3": Arch(model_type="qwen3", keys=f"{LLAMA} attention_bias"),
    "qwen3vl": Arch(model_type="qwen3_vl_text", keys=f"{LLAMA} attention_bias"),
    "qwen3moe": Arch(model_type="qwen3_moe", keys=f"{LLAMA} {QWEN_MIXTURE} attention_bias mlp_only_layers=dense_layers", fixed=NORMED),
    "qwen3next": Arch(model_type="qwen3_next", keys=f"{LLAMA} {SHARED} {DELTA} mlp_only_layers=dense_layers", fixed=NORMED),
    "qwen35": Arch(model_type="qwen3_5_text", keys=f"{LLAMA} {DELTA}"),
    "qwen35moe": Arch(model_type="qwen3_5_moe_text", keys=f"{LLAMA} {SHARED} {DELTA}"),
    "gemma": Arch(model_type="gemma", keys=f"{LLAMA} attention_bias use_bidirectional_attention=bidirectional"),
    "gemma2": Arch(
        model_type="gemma2",
        keys=f"{LLAMA} attention_bias attn_logit_softcapping final_logit_softcapping sliding_window layer_types=windowed",
        extra=queries,
        lost=QUERIES,
    ),
    "gemma3": Arch(
        model_type="gemma3_text",
        keys=f"{LLAMA} attention_bias rope_local_base_freq final_logit_softcapping sliding_window? layer_types=windowed",
        extra=queries,
        lost=QUERIES,
    ),
    "gemma4": Arch(
        model_type="gemma4_text",
        keys=f"{SHAPE} max_position_embeddings rms_norm_eps attention_bias final_logit_softcapping sliding_window",
        extra=gemma4,
    ),
    "glm4": Arch(model_type="glm4", keys=f"{LLAMA} attention_bias partial_rotary_factor"),
    "glm4moe": Arch(
        model_type="glm4_moe",
        keys=f"{LLAMA} {MIXTURE} {GROUPS} attention_bias partial_rotary_factor use_qk_norm topk_method",
        fixed={"scoring_func": "sigmoid"},
    ),
    "minimax-m2": Arch(model_type="minimax_m2", keys=f"{LLAMA} {LOCAL_EXPERTS} rotary_dim use_qk_norm use_routing_bias"),
    "gpt-oss": Arch(
        model_type="gpt_oss",
        keys=f"{BASE} rms_norm_eps {LOCAL_EXPERTS} attention_bias sliding_window layer_types=windowed",
        extra=gpt_oss,
        lost="where the experts' gates are clamped (swiglu_limit): 7 is taken",
    ),
    "llama4": Arch(
        model_type="llama4_text",
        keys=f"""{TURNED.replace("intermediate_size", "intermediate_size_mlp=intermediate_size")} intermediate_size=moe_intermediate_size
            rms_norm_eps {LOCAL_EXPERTS} attention_bias interleave_moe_layer_step moe_layers=sparse_layers""",
        fixed={"no_rope_layer_interval": 4},
        extra=llama4,
    ),
    "phi2": Arch(model_type="phi", keys=f"{TURNED} layer_norm_eps rotary_dim qk_layernorm=use_qk_norm"),
    "phi2 as Microsoft wrote it": Arch(model_type="phi-msft", keys=f"{TURNED} layer_norm_eps rotary_dim"),
    "phi3": Arch(model_type="phi3", keys=f"{LLAMA} partial_rotary_factor sliding_window"),
    "phimoe": Arch(model_type="phimoe", keys=f"{LLAMA} {LOCAL_EXPERTS} attention_bias lm_head_bias sliding_window"),
    "deepseek": Arch(model_type="deepseek", keys=f"{LLAMA} {MIXTURE} attention_bias"),
    "deepseek2": Arch(model_type="deepseek_v2", keys=f"{LATENT} {MIXTURE} {GROUPS} {CHOICE}", extra=latent_rope),
    "deepseek2 by sigmoid": Arch(model_type="deepseek_v3", keys=f"{LATENT} {MIXTURE} {GROUPS} {CHOICE}", extra=latent_rope),
    "lfm2": Arch(
        model_type="lfm2",
        keys=f"{BASE} norm_eps=rms_norm_eps rope_theta rope_scaling conv_L_cache conv_bias layer_types=convolutions",
        fixed={"block_auto_adjust_ff_dim": False},
    ),
    "nemotron_h": Arch(model_type="nemotron_h", keys=HYBRID, extra=nemotron),
    "nemotron_h_moe": Arch(
        model_type="nemotron_h",
        keys=f"""{HYBRID} n_routed_experts=num_experts num_experts_per_tok moe_intermediate_size moe_latent_size norm_topk_prob {GROUPS}
            moe_shared_expert_intermediate_size=shared_expert_intermediate_size""",
        extra=nemotron,
    ),
    "gpt2": Arch(model_type="gpt2", keys=f"{CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size"),
    "starcoder": Arch(
        model_type="gpt_bigcode",
        keys=f"{CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size",
        extra=one_key_head,
    ),
    "gptj": Arch(model_type="gptj", keys=f"{CLASSIC} n_positions=max_position_embeddings n_inner=intermediate_size rotary_dim"),
    "gptneox": Arch(
        model_type="gpt_neox",
        keys=f"""{SHAPE} head_dim max_position_embeddings intermediate_size layer_norm_eps use_parallel_residual attention_bias rope_theta
            rope_scaling rotary_pct=partial_rotary_factor""",
    ),
    "bloom": Arch(model_type="bloom", keys=CLASSIC),
    "falcon": Arch(
        model_type="falcon",
        keys=f"{CLASSIC} max_position_embeddings ffn_hidden_size=intermediate_size bias=attention_bias rope_theta rope_scaling",
        extra=falcon,
    ),
    "mpt": Arch(
        model_type="mpt",
        keys="""d_model=hidden_size n_layers=num_hidden_layers n_heads=num_attention_heads max_seq_len=max_position_embeddings vocab_size
            tie_word_embeddings layer_norm_epsilon=layer_norm_eps head_dim""",
        extra=mpt,
    ),
}
"""`general.architecture` → what it is; those with more words are what an architecture is if `variant` finds them."""


def variant(h: Header) -> str:
    """Which of several families an architecture stands for here."""
    if h.arch == "llama" and h.number("expert_count"):
        return "llama with experts"
    if h.arch == "olmo2" and h.number("attention.sliding_window"):
        return "olmo2 with windows"
    if h.arch == "phi2" and h.has(".attn_qkv.weight"):
        return "phi2 as Microsoft wrote it"
    if h.arch == "deepseek2" and h.number("expert_gating_func") == 2:
        return "deepseek2 by sigmoid"
    return h.arch
