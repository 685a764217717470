"""ViP-LLaVA: LLaVA, with features of several layers, normalized."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import mlp_projector
from ..tower_parts import feature_width, with_features
from ..towers import CLIP_LARGE, read_tower


@multimodal(Wrapper(types="vipllava", text_type="llama", prefix=WHOLE), forms=LLAVA_FORMS)
def vipllava(c: Config, text: Decoder) -> Assembly:
    tower = with_features(
        c,
        read_tower(c, "clip_vision_model", CLIP_LARGE),
        default=(-2, -5, -8, -11, 6),
        strategy=None,
    )
    tower = tower._replace(block=tower.block.replace(drops_class_token=True))
    projector = mlp_projector(c, tower.block, text)
    norm = layer_norm(feature_width(tower.block), c.get("projector_layernorm_eps", 1e-5))
    projector = projector._replace(
        block=projector.block.replace(norm=norm),
        names={**projector.names, "norm": "projector_layernorm"},
    )
    return assemble(
        text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector)
    )
