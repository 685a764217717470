"""`GGUFMetadata`: how the metadata of a family's GGUF files express its config, for reading and for
writing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..utils.record_type import Record

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader


class GGUFMetadata(Record):
    """The metadata of one architecture and the config of one model type, each made from the other.

    What llama.cpp fixes for an architecture is not written.
    """

    # names in `checkpoint.gguf_metadata.gguf_keys`; `key=name` if the family's key has another
    # name; a final `?` reads null for a missing value
    keys: str
    arch: str = ""  # `general.architecture`; empty: the family's
    model_type: str = ""  # empty: the first of the family
    constants: Mapping[str, Any] = {}  # keys that are fixed in llama.cpp and not in the family
    # config keys that follow from several metadata keys or tensors, and the reverse
    read: Callable[[GGUFHeader], dict[str, Any]] | None = None
    write: Callable[[GGUFFacts], dict[str, Any]] | None = None
    applies: Callable[[GGUFHeader], bool] | None = None  # None: to every header
    # model types of other families with this architecture, whose records apply to some headers
    tried_first: str = ""
    is_written: Callable[[GGUFFacts], bool] | None = None  # None: for every tree
    unstated: str = ""  # a setting that changes results and is not in the metadata


SHAPE = "hidden_size num_hidden_layers num_attention_heads vocab_size tie_word_embeddings"
BASE = f"{SHAPE} num_key_value_heads head_dim max_position_embeddings intermediate_size"
ROTARY = f"{BASE} rope_theta rope_scaling"
LLAMA = f"{ROTARY} rms_norm_eps"
LOCAL_EXPERTS = "num_local_experts=num_experts num_experts_per_tok"
MLA = f"""{SHAPE} max_position_embeddings intermediate_size rms_norm_eps q_lora_rank? kv_lora_rank
    qk_nope_head_dim qk_rope_head_dim v_head_dim attention_bias=mla_bias"""
DEEPSEEK_MOE = (
    "n_routed_experts=num_experts num_experts_per_tok moe_intermediate_size n_shared_experts "
    "first_k_dense_replace norm_topk_prob"
)
GROUPED_ROUTING = "routed_scaling_factor n_group topk_group"
QWEN_MOE = "num_experts num_experts_per_tok moe_intermediate_size"
QWEN_SHARED_MOE = f"{QWEN_MOE} shared_expert_intermediate_size"
GATED_DELTA = """layer_types=delta_layer_types partial_rotary_factor linear_conv_kernel_dim
    linear_key_head_dim linear_num_key_heads linear_num_value_heads linear_value_head_dim
    attention_bias"""
CLASSIC = f"{SHAPE} head_dim layer_norm_epsilon=layer_norm_eps"
GRANITE_SCALES = (
    "attention_multiplier embedding_multiplier residual_multiplier logits_scaling=logit_scale"
)
