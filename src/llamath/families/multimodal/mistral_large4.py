"""Mistral Large 4: Pixtral and the projector of Mistral 3, with the names of Mistral's own
files.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..mistral_large4 import NAMES
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..projectors import merging_projector
from ..tower_parts import with_features, with_merged_patches
from ..towers import PIXTRAL_NAMES, read_tower

_TOWER = {
    "model_type": "pixtral", "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 30, "num_attention_heads": 16,
    "patch_size": 14, "image_size": 1540, "hidden_act": "silu",
}  # fmt: skip
_PUBLISHED = {
    **PIXTRAL_NAMES,
    **{f"layers.{{l}}.attn.{x}": f"transformer.layers.{{l}}.attention.w{x}" for x in "qkvo"},
    **{
        f"layers.{{l}}.mlp.{x}": f"transformer.layers.{{l}}.feed_forward.{y}"
        for x, y in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
    },
}
_PROJECTOR = {
    "patch_norm": "pre_mm_projector_norm",
    "merger": "patch_merger.merging_layer",
    "linear_1": "vision_language_adapter.w_in",
    "linear_2": "vision_language_adapter.w_out",
}
_IN_LAYERS = {
    "attention_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attention.wq": "self_attn.q_proj",
    "attention.wkv_a_with_mqa": "self_attn.kv_a_proj_with_mqa",
    "attention.wkv_b": "self_attn.kv_b_proj",
    "attention.kv_a_norm": "self_attn.kv_a_layernorm",
    "attention.wo": "self_attn.o_proj",
    "attention.": "self_attn.",
    "feed_forward.": "mlp.",
    "gate": "mlp.gate",
    "experts.": "mlp.experts.",
    "shared_experts.": "mlp.shared_experts.",
}
"""Beginnings of published names in a layer → of those in memory."""
_ENDS = {
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "ssmax_scaling.s": "softmax_scaling.scale",
    "ssmax_scaling.b": "softmax_scaling.bias",
}


def _in_memory(name: str) -> str:
    old = next(
        x
        for x in _IN_LAYERS
        if name == x or (name.startswith(x) and (x.endswith(".") or name[len(x)] == "."))
    )
    name = _IN_LAYERS[old] + name[len(old) :]
    end = next((x for x in _ENDS if name.endswith(x)), "")
    return name.removesuffix(end) + _ENDS.get(end, "")


_MODULES = {
    **{f"layers.{{l}}.{path}": _in_memory(name) for path, name in NAMES.inside.items()},
    "embed": "model.language_model.embed_tokens",
    "norm": "model.language_model.norm",
    "head": "lm_head",
    "rope_factors": "model.language_model.rotary_emb.alpha",
    **{f"vision.{path}": f"model.vision_tower.{name}" for path, name in PIXTRAL_NAMES.items()},
    "projector.patch_norm": "model.multi_modal_projector.norm",
    "projector.merger": "model.multi_modal_projector.patch_merger.merging_layer",
    **{f"projector.linear_{i}": f"model.multi_modal_projector.linear_{i}" for i in (1, 2)},
}


@multimodal(
    Wrapper(types="mistral_large4", text_type="mistral_large4_text", tied=False),
    forms={"hf-modules": {"layers.": "model.language_model.layers."}},
    modules=_MODULES,
)
def mistral_large4(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, read_tower(c, "pixtral", _TOWER), default=-1, strategy=None)
    projector = merging_projector(c, tower.block, text)._replace(names=_PROJECTOR)
    tower = with_merged_patches(tower, c.get("spatial_merge_size", 2))
    layouts = dict.fromkeys(("layers.{l}.attn.q", "layers.{l}.attn.k"), "rotary")
    return assemble(
        text,
        vision=("vision_encoder.", tower._replace(names=_PUBLISHED, layouts=layouts)),
        projector=("", projector),
    )
