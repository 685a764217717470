"""InternVL, as converted to transformers: InternViT, squares of patches joined, a norm and an MLP of two layers."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import product
from ..multimodal_registry import Assembly, Part, assemble, multimodal
from ..towers import feature_width, internvit_tower, mlp_projector, part_config, with_features
from ..wrappers import LLAVA_FORMS


@multimodal(forms=LLAVA_FORMS)
def internvl(c: Config, text: Decoder) -> Assembly:
    tower = with_features(c, internvit_tower(part_config(c, "vision_config", {})), default=-1)
    if tower.block.feature_layers == (-1,):  # after the norm
        tower = tower._replace(block=tower.block.replace(feature_layers=()))
    side = round(1 / c.get("downsample_ratio", 0.5))
    joined = product((side, side, feature_width(tower.block)))
    projector = mlp_projector(c, tower.block, text)
    block = projector.block.replace(norm=layer_norm(joined, 1e-5), merge=side)
    block = block.replace(linear_1=linear(text.embed.weight.shape[1], joined, True))
    projector = Part(block, {**projector.names, "norm": "layer_norm"})
    return assemble(text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector))
