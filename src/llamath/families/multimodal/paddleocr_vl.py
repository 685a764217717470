"""PaddleOCR-VL: SigLIP for images of any shape, with rotary positions as well, then a norm and an MLP on squares of patches."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import product
from ..counted_towers import Modules, counted_part, counted_tower
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import paddleocr_tower, part_config

_PARTS = {"visual.": "model.visual.", "mlp_AR.": "model.projector."}


@multimodal(forms={"hf-modules": {**_PARTS, "model.": "model.language_model."}})
def paddleocr_vl(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    tower = paddleocr_tower(v)
    d, k = tower.block.patches.weight.shape[0], v.get("spatial_merge_size", 2)
    joined = product((k, k, d))
    projector: Modules = {
        "pre_norm": layer_norm(d, 1e-5),
        "linear_1": linear(joined, joined, True),
        "linear_2": linear(text.width, joined, True),
    }
    return assemble(text, vision=("visual.", counted_tower(tower)), projector=("mlp_AR.", counted_part(projector)))
