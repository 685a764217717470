"""PaliGemma: SigLIP and one linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import Assembly, assemble, multimodal
from ..projectors import linear_projector
from ..towers import PALIGEMMA_TOWER, read_tower
from ..wrappers import LLAVA_FORMS


@multimodal(forms=LLAVA_FORMS)
def paligemma(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "siglip_vision_model", PALIGEMMA_TOWER)
    projector = linear_projector(
        True, c.dim("d_p", "projection_dim", default=text.embed.weight.shape[1]), tower.block
    )
    return assemble(
        text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector)
    ).seeing_later("prompt")
