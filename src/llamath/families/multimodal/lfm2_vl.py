"""LFM2-VL: SigLIP 2 for images of any shape, squares of patches joined, a norm and an MLP of two
layers.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import product
from ...core.image_sizes import SplitBudget
from ...core.towers import MLPProjector
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import feature_width, part_config
from ..towers import siglip2_tower


@multimodal(
    Wrapper(
        types="lfm2_vl",
        text_type="lfm2",
        prefix=LANGUAGE_MODEL,
        tied=True,
        tied_keys=("tie_embedding", "tie_word_embeddings"),
    ),
    forms={"hf-5": {"model.vision_tower.vision_model.": "model.vision_tower."}},
)
def lfm2_vl(c: Config, text: Decoder) -> Assembly:
    tower, k = siglip2_tower(part_config(c, "vision_config", {})), c.get("downsample_factor", 2)
    p, d, inner = (
        int(tower.block.patch_size),
        text.width,
        c.dim("F_p", "projector_hidden_size", default=2560),
    )
    square = (p * k) ** 2
    sizes = SplitBudget(
        patch=p,
        multiple=p * k,
        fewest=64 * square,
        most=256 * square,
        size=32 * p,
        min_tiles=2,
        max_tiles=10,
    )
    tower = tower._replace(block=tower.block.replace(image_sizes=sizes))
    joined, bias = product((k, k, feature_width(tower.block))), c.get("projector_bias", True)
    block = MLPProjector(
        norm=layer_norm(joined, 1e-5) if c.get("projector_use_layernorm", True) else None,
        linear_1=linear(inner, joined, bias),
        linear_2=linear(d, inner, bias),
        activation=c.activation("projector_hidden_act", "gelu"),
        merge=k,
    )
    projector = Part(block, {"norm": "layer_norm", "linear_1": "linear_1", "linear_2": "linear_2"})
    return assemble(
        text,
        vision=("model.vision_tower.", tower),
        projector=("model.multi_modal_projector.", projector),
    )
