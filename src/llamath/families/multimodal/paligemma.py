"""PaliGemma: SigLIP and one linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import LLAVA_FORMS, WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import linear_projector
from ..towers import PALIGEMMA_TOWER, read_tower

_NOTE = (
    "in PaliGemma the tokens of a prompt attend to all of it; here each attends to those before it"
)


@multimodal(
    Wrapper(types="paligemma", text_type="gemma", prefix=WHOLE, tied=True, note=_NOTE),
    forms=LLAVA_FORMS,
)
def paligemma(c: Config, text: Decoder) -> Assembly:
    tower = read_tower(c, "siglip_vision_model", PALIGEMMA_TOWER)
    projector = linear_projector(
        True, c.dim("d_p", "projection_dim", default=text.embed.weight.shape[1]), tower.block
    )
    return assemble(
        text, vision=("vision_tower.", tower), projector=("multi_modal_projector.", projector)
    ).seeing_later("prompt")
