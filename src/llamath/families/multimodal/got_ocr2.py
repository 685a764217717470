"""GOT-OCR 2 and PP-Chart2Table: SAM's encoder, two convolutions that halve the grid of its features, and a linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear
from ..counted_towers import conv, counted_part
from ..multimodal_registry import Assembly, assemble, multimodal
from ..sam_tower import sam_tower
from ..towers import part_config
from ..wrappers import LLAVA_FORMS


@multimodal(forms=LLAVA_FORMS)
def got_ocr2(c: Config, text: Decoder) -> Assembly:
    v, d = part_config(c, "vision_config", {}), text.width
    tower, o = sam_tower(v), v.dim("o_v", "output_channels", default=256)
    projector = counted_part(
        {
            "conv_upsampler1": conv(2 * o, o, 3, 3, bias=False),
            "conv_upsampler2": conv(d, 2 * o, 3, 3, bias=False),
            "multimodal_projector": linear(d, d, True),
        }
    )
    return assemble(text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector))
