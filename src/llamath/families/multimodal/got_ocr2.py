"""GOT-OCR 2 and PP-Chart2Table: SAM's encoder, two convolutions that halve the grid of its features, and a linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear
from ...core.towers import ConvolutionProjector
from ..multimodal_registry import Assembly, Part, assemble, multimodal
from ..sam_tower import convolution, sam_tower
from ..tower_parts import part_config
from ..wrappers import LLAVA_FORMS

_NAMES = {"first": "conv_upsampler1", "second": "conv_upsampler2", "linear": "multimodal_projector"}


@multimodal(forms=LLAVA_FORMS)
def got_ocr2(c: Config, text: Decoder) -> Assembly:
    v, d = part_config(c, "vision_config", {}), text.width
    tower, o = sam_tower(v), v.dim("o_v", "output_channels", default=256)
    first, second = convolution(2 * o, o, stride=2), convolution(d, 2 * o, stride=2)
    projector = Part(ConvolutionProjector(first=first, second=second, linear=linear(d, d, True)), _NAMES)
    return assemble(text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector))
