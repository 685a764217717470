"""GOT-OCR 2 and PP-Chart2Table: SAM's encoder, two convolutions that halve the grid of its
features, and a linear layer.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear
from ..counted_towers import Modules, conv, counted
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Part, Wrapper, assemble, multimodal
from ..sam_tower import SAM_NAMES, sam_tower
from ..tower_parts import part_config

_NAMES = {"first": "conv_upsampler1", "second": "conv_upsampler2", "linear": "multimodal_projector"}


@multimodal(
    Wrapper(types="got_ocr2 pp_chart2table", text_type="qwen2", prefix=WHOLE, tied=True),
    forms=LLAVA_FORMS,
)
def got_ocr2(c: Config, text: Decoder) -> Assembly:
    v, d = part_config(c, "vision_config", {}), text.width
    tower, o = sam_tower(v), v.dim("o_v", "output_channels", default=256)
    modules: Modules = {
        "first": conv(2 * o, o, 3, 3, bias=False),
        "second": conv(d, 2 * o, 3, 3, bias=False),
        "linear": linear(d, d, True),
    }
    vision, projector = Part(tower, SAM_NAMES), Part(counted(modules), _NAMES)
    return assemble(
        text, vision=("vision_tower.", vision), projector=("multi_modal_projector.", projector)
    )
