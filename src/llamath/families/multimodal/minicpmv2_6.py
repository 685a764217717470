"""MiniCPM-V 2.6: SigLIP for images of any shape, whose features learned queries read."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ..counted_towers import Modules, counted_part
from ..multimodal_registry import Assembly, Variant, Wrapper, assemble, declare_wrapper, multimodal
from ..tower_parts import feature_width, part_config
from ..towers import plain_siglip_tower

_IGNORED = (
    "batch_vision_input image_size patch_size slice_mode use_image_id version vision_batch_size"
)

declare_wrapper(Wrapper(types="minicpmv", variants=(Variant("version", 2.6, "minicpmv2_6"),)))


@multimodal(
    Wrapper(
        types="minicpmv2_6",
        text_type="qwen2",
        prefix=("", "llm."),
        flat=True,
        outer_keys=f"{_IGNORED} drop_vision_last_layer query_num",
    )
)
def minicpmv2_6(c: Config, text: Decoder) -> Assembly:
    c.ignore("slice_config", *_IGNORED.split())
    if c.get("drop_vision_last_layer", False):
        raise c.error("drop_vision_last_layer", "is true; only false is supported, as published")
    v = part_config(c, "vision_config")
    v.ignore("model_type")
    tower, d = plain_siglip_tower(v), text.width
    norm = layer_norm(d, 1e-6)
    projector: Modules = {
        "query": weight(c.dim("n_p", "query_num", default=64), d, role="lookup"),
        "kv_proj": linear(d, feature_width(tower.block)),
        "attn.in_proj_weight": weight(3 * d, d),
        "attn.in_proj_bias": weight(3 * d, role="bias"),
        "attn.out_proj": linear(d, d, True),
        **{f"ln_{x}": norm for x in ("q", "kv", "post")},
        "proj": weight(d, d),
    }
    return assemble(text, vision=("vpm.", tower), projector=("resampler.", counted_part(projector)))
