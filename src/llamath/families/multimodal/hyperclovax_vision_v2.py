"""HyperCLOVA X Vision: the tower and merger of Qwen2.5-VL, whose tokens one more linear layer
brings to the width of the text model.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.blocks import Decoder, Linear
from ...core.config import Config
from ...core.constructors import linear, rms
from ...core.machine import Machine, X
from ...core.tree import Block
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..qwen_towers import qwen2_5_tower, qwen_merger
from ..tower_parts import part_config


class ChainedProjector(Block):
    """linear(merger x): a projector, then a linear layer on its tokens (HyperCLOVA X Vision)."""

    group: ClassVar[str] = "projector"
    merger: Block
    linear: Linear

    def forward(self, m: Machine[X], x: X) -> X:
        return self.linear(m, self.merger(m, x))


_SAVED = {"model.language_model.model.": "model.language_model."}
_MODULES = {
    "model.language_model.lm_head": "lm_head",
    **_SAVED,
    "model.vision_projector": "model.projector",
}


@multimodal(
    Wrapper(
        types="hyperclovax_vision_v2",
        text_type="hyperclovax",
        prefix=("", "model.language_model."),
        tied=True,
    ),
    forms={"hf-5": _SAVED, "hf-modules": _MODULES},
)
def hyperclovax_vision_v2(c: Config, text: Decoder) -> Assembly:
    vision = part_config(c, "vision_config", {})
    tower = qwen2_5_tower(vision)
    width = vision.get("out_hidden_size", 3584)
    merger = qwen_merger(
        vision, tower.block, text, "out_hidden_size", rms(tower.block.patches.weight.shape[0], 1e-6)
    )
    block = ChainedProjector(merger=merger.block, linear=linear(text.width, width, bias=True))
    names = {
        f"merger.{path}": f"vision_model.merger.{name}" for path, name in merger.names.items()
    } | {"linear": "vision_projector"}
    return assemble(
        text, vision=("model.vision_model.", tower), projector=("model.", Part(block, names))
    )
