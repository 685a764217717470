"""DeepSeek-VL 7B: SigLIP and, for a larger image, SAM's encoder, whose features are projected
together.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, weight
from ..counted_towers import Modules, conv, counted_part
from ..joined_parts import joined_parts
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Part, Wrapper, assemble, multimodal
from ..sam_tower import NECK_NAMES, SAM_NAMES, sam_neck, sam_tower
from ..tower_parts import feature_width, part_config
from ..towers import read_tower


@multimodal(
    Wrapper(types="deepseek_vl_hybrid", text_type="llama", prefix=LANGUAGE_MODEL, tied=True),
    forms={"hf-5": {"model.vision_model.vision_model.": "model.vision_model."}},
)
def deepseek_vl_hybrid(c: Config, text: Decoder) -> Assembly:
    d, low, v = (
        text.width,
        read_tower(c, "siglip_vision_model", {}),
        part_config(c, "high_res_vision_config", {}),
    )
    o = v.dim("o_s", "output_channels", default=256)
    after: Modules = {
        "high_res_vision_alpha": weight(1, role="scale"),
        "high_res_vision_proj.conv1": conv(2 * o, o, 3, 3, bias=False),
        "high_res_vision_proj.conv2": conv(4 * o, 2 * o, 3, 3, bias=False),
    }
    tower = joined_parts(
        high=("high_res_vision_model.vision_encoder.", Part(sam_tower(v, "s"), SAM_NAMES)),
        neck=("high_res_vision_neck.", Part(sam_neck(v, "s"), NECK_NAMES)),
        after=("", counted_part(after)),
        low=("vision_model.", low),
    )
    projector = {
        "vision_proj": linear(d // 2, feature_width(low.block), True),
        "high_res_vision_proj": linear(d // 2, 4 * o, True),
        "proj": linear(d, d, True),
    }
    return assemble(
        text, vision=("model.", tower), projector=("model.aligner.", counted_part(projector))
    )
