"""Unlimited OCR: SAM, whose features CLIP's layers read instead of patches, and one linear layer
on both.
"""

from __future__ import annotations

from ...core.blocks import Attention, Decoder, Layer
from ...core.config import Config
from ..deep_encoder import DEEP_NAMES, deep_projector, deep_tower, feature_encoder
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..sam_tower import SAM_NAMES, sam_tower
from ..tower_parts import part_config, side, vit_sizes

_TILES = 32
"""Tiles of an image, in its processor."""
_SAM, _CLIP = "model.vision_tower.sam_encoder.", "model.vision_tower.vision_encoder."
_LAYER = f"{_CLIP}encoder.layers.{{l}}."
_IN_MEMORY = {
    **{path: _SAM + name for path, name in SAM_NAMES.items()},
    "first": f"{_SAM}proj.conv1",
    "second": f"{_SAM}proj.conv2",
    "encoder.class_token": f"{_CLIP}embeddings.class_embedding",
    "encoder.positions": f"{_CLIP}embeddings.position_embedding.weight",
    "encoder.norm_before": f"{_CLIP}pre_layrnorm",
    "encoder.layers.{l}.attn_norm": f"{_LAYER}layer_norm1",
    **{f"encoder.layers.{{l}}.attn.{x}": f"{_LAYER}self_attn.{x}_proj" for x in "qkv"},
    "encoder.layers.{l}.attn.o": f"{_LAYER}self_attn.out_proj",
    "encoder.layers.{l}.mlp_norm": f"{_LAYER}layer_norm2",
    "encoder.layers.{l}.mlp.up": f"{_LAYER}mlp.fc1",
    "encoder.layers.{l}.mlp.down": f"{_LAYER}mlp.fc2",
}

_PROJECTOR_IN_MEMORY = {
    "linear": "model.multi_modal_projector",
    "newline": "model.image_newline",
    "separator": "model.view_separator",
}


_NOTE = (
    "in Unlimited OCR the last tokens after the prompt alone are kept; "
    "here all tokens of a context count as the prompt"
)


@multimodal(
    Wrapper(types="unlimited_ocr", text_type="unlimited_ocr_text", note=_NOTE),
    forms={"hf-modules": {"model.": "model.language_model."}},
)
def unlimited_ocr(c: Config, text: Decoder) -> Assembly:
    windows = {
        x.attn.window.after_prompt
        for x, _ in text.layers.distinct()
        if isinstance(x, Layer) and isinstance(x.attn, Attention)
    }
    if (window := c.positive_int("sliding_window")) is not None and window not in windows:
        raise c.error(
            "sliding_window", f"is {window}, unlike that of the text model", "give both the same"
        )
    v = part_config(c, "vision_config", {})
    own, sam = part_config(v, "encoder_config", {}), part_config(v, "sam_config", {})
    places = (
        int(side(own, "s_v", "image_size", 224)) // int(side(own, "p_v", "patch_size", 14))
    ) ** 2
    sizes = vit_sizes(own, 1024, 4096, 24, 16)
    tower = deep_tower(
        sam, sam_tower(sam, "s"), feature_encoder(own, sizes, places), sizes[0], _TILES
    )
    return assemble(
        text,
        vision=("model.", Part(tower, DEEP_NAMES, in_memory=_IN_MEMORY)),
        projector=(
            "model.",
            deep_projector(sizes[0], text)._replace(in_memory=_PROJECTOR_IN_MEMORY),
        ),
    )
