"""Keys and readers of GGUF metadata that several families share.

The readers of headers are imported inside functions: most models that are loaded are no GGUF files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys, rotary_dim_keys
from ..core.positions import LongRope, YarnRope

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

QUERY_SCALE_UNSTATED = "the scale of the scores (query_pre_attn_scalar); using llama.cpp's"


def query_scale(unscaled_layers: int) -> Callable[[GGUFHeader], Keys]:
    """Return how `query_pre_attn_scalar` is read: Gemma divides its scores by the square root.

    The 27B model, recognized by its number of layers, scales scores by the embedding length per
    head, in llama.cpp as in Google's code.
    """

    def read(h: GGUFHeader) -> Keys:
        from ..checkpoint.gguf_metadata.gguf_keys import head_dim

        width, heads = h.required("embedding_length"), h.required("attention.head_count")
        size = width // heads if h.layers == unscaled_layers else head_dim(h)
        return {"query_pre_attn_scalar": size} if size else {}

    return read


def read_ministral_rope(h: GGUFHeader) -> Keys:
    """Return the positions of Ministral and Mistral 4: YaRN, with a temperature that grows with
    the position.
    """
    from ..checkpoint.gguf_metadata.gguf_rope import read_rope_parameters

    rope = read_rope_parameters(h)
    if rope["rope_type"] == "yarn":
        is_mla = h.arch == "mistral4"
        rope |= (
            mscale(h)
            if is_mla
            else {
                "mscale": 1.0,
                "mscale_all_dim": h.real("rope.scaling.yarn_log_multiplier") or 0.0,
            }
        )
        rope |= {"beta_fast": 32.0, "beta_slow": 1.0} | {
            key: x for key, x in rope.items() if key.startswith("beta")
        }
        temperature = h.real("attention.temperature_scale")
        rope |= (
            {"llama_4_scaling_beta": temperature} if temperature is not None or not is_mla else {}
        )
    return {"rope_parameters": {key: x for key, x in rope.items() if x is not None}}


def read_mla_rope(h: GGUFHeader) -> Keys:
    """Return DeepSeek's positions, whose scaling also scales the scores."""
    from ..checkpoint.gguf_metadata.gguf_rope import read_rope_scaling, rope_theta

    scaling = read_rope_scaling(h)
    return {"rope_theta": rope_theta(h)} | (
        {"rope_scaling": scaling | mscale(h)} if scaling else {}
    )


def mscale(h: GGUFHeader) -> Keys:
    """Return DeepSeek's two multipliers, which are equal in every published model: llama.cpp
    stores a tenth of them as one number.
    """
    value = h.real("rope.scaling.yarn_log_multiplier")
    return (
        {}
        if value is None
        else dict.fromkeys(("mscale", "mscale_all_dim"), float(f"{value / 0.1:.6g}"))
    )


def mla_keys(f: GGUFFacts) -> Keys:
    """Return the positions of latent attention: YaRN's multipliers are stored as one number."""
    from ..checkpoint.gguf_metadata.gguf_rope import rope_scaling_keys

    groups = f.moe.expert_groups if f.moe is not None else None
    if groups is not None and groups.top_scores == 1:
        f.notes.append(
            "llama.cpp chooses groups of experts by their two best scores, and this "
            "model by the best one"
        )
    rope = f.rope
    keys: Keys = {"rope.freq_base": rope.theta if rope else None} | rope_scaling_keys(f)
    if isinstance(rope, YarnRope):
        keys["rope.scaling.yarn_log_multiplier"] = (
            None if rope.mscale_all_dim is None else 0.1 * rope.mscale_all_dim
        )
    return keys


def rope_keys(f: GGUFFacts) -> Keys:
    """Return the base and the scaling of positions, for families that read them together."""
    from ..checkpoint.gguf_metadata.gguf_rope import rope_scaling_keys

    return {"rope.freq_base": f.rope.theta if f.rope else None} | rope_scaling_keys(f)


def fused_heads_keys(f: GGUFFacts) -> Keys:
    """Return the number of key/value heads, which a fused matrix of q, k and v does not tell."""
    return {"attention.head_count_kv": int(f.first.kv_heads)}


def unscaled_positions_keys(f: GGUFFacts) -> Keys:
    """Return that positions are not scaled, where they are not."""
    from ..checkpoint.gguf_metadata.gguf_rope import rope_scaling_keys

    return {} if rope_scaling_keys(f) else {"rope.scaling.type": "none"}


def windowed_phi_keys(f: GGUFFacts) -> Keys:
    """Phi-3: llama.cpp assumes a window where none is written."""
    from ..checkpoint.gguf_metadata.gguf_keys import window_keys

    rope = f.rope
    original = (
        rope.original_context
        if isinstance(rope, LongRope)
        else f.resolved("original_max_position_embeddings") or f.tree.context
    )
    return {
        "attention.sliding_window": 0,
        **window_keys(f),
        "rope.scaling.original_context_length": original,
    }


def rotary_sections(*default: int) -> Callable[[GGUFFacts], Keys]:
    """Return what writes the numbers of rotary pairs for time, height and width, which are the
    same position in a text.
    """

    def keys(f: GGUFFacts) -> Keys:
        scaling = f.config.rope().data
        sections = scaling.get("mrope_section") or default
        return {"rope.dimension_sections": [*sections, 0, 0, 0, 0][:4], **rotary_dim_keys(f)}

    return keys
