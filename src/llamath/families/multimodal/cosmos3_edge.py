"""Cosmos 3 Edge as a model that reads images: SigLIP 2, a norm and an MLP on squares of patches."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import product
from ...core.image_sizes import PixelBudget
from ...core.towers import MLPProjector
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config
from ..towers import cosmos3_edge_tower
from .cosmos3_omni import DIFFUSERS

_MODULES = {f"layers.{{l}}.mlp.{x}": f"mlp.fc{i}" for i, x in ((1, "up"), (2, "down"))} | {
    f"layers.{{l}}.attn.{x}": f"self_attn.{x}_proj" for x in "qkvo"
}
_SAVED = {f"layers.{{l}}.mlp.{x}": f"encoder.layers.{{l}}.mlp.{x}_proj" for x in ("up", "down")} | {
    f"layers.{{l}}.attn.{x}": f"encoder.layers.{{l}}.self_attn.to_{x}" for x in "qkv"
}
"""Names of the tower that transformers saves."""
_TEXT = {x: f"model.language_model.{x}" for x in ("embed_tokens", "layers.", "norm")}


@multimodal(
    Wrapper(types="cosmos3_edge", text_type="cosmos3_edge_text", prefix=("model.", "")),
    inside={x: DIFFUSERS[x] for x in ("attn.q", "attn.k", "attn.v", "attn.o")},
    modules=_MODULES,
    forms={"hf-modules": _TEXT},
)
def cosmos3_edge(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    tower = cosmos3_edge_tower(v)
    in_memory = {path: name.removeprefix("vision_model.") for path, name in tower.names.items()}
    names = {path: _SAVED.get(path, name) for path, name in in_memory.items()}
    d, k, p = (
        tower.block.patches.weight.shape[0],
        v.get("spatial_merge_size", 2),
        int(tower.block.patch_size),
    )
    inner, joined = c.dim("F_p", "projector_hidden_size", default=11_520), product((k, k, d))
    sizes = PixelBudget(patch=p, multiple=p * k, fewest=256**2, most=4096**2, enlarges_both=True)
    projector = MLPProjector(
        patch_norm=layer_norm(d, 1e-6),
        linear_1=linear(inner, joined, True),
        linear_2=linear(text.width, inner, True),
        activation="gelu",
        merge=k,
    )
    of_modules = {path: f"model.visual.{name}" for path, name in in_memory.items()}
    vision = Part(tower.block.replace(image_sizes=sizes), names, in_memory=of_modules)
    steps = {"patch_norm": "norm", "linear_1": "linear_fc1", "linear_2": "linear_fc2"}
    return assemble(
        text,
        vision=("model.visual.", vision),
        projector=("model.projector.", Part(projector, steps)),
    )
