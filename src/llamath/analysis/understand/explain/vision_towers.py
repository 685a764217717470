"""The vision towers of published multimodal models, with their projectors: parameters that a text
model does not have.

Counts are those of transformers 5.23 for the published configurations; projectors depend on the
width of the text model.
"""

from __future__ import annotations

from typing import NamedTuple

Linears = tuple[tuple[int, int, int], ...]
"""Linear layers as (outputs, inputs, copies)."""


class VisionTower(NamedTuple):
    """A vision tower and its projector into a text model of width d: `fixed + per_width·d +
    per_square·d²` parameters.
    """

    name: str
    families: tuple[str, ...]  # of the text models that are published with it
    fixed: int
    per_width: int
    per_square: int = 0
    linears: Linears = ()
    widening: tuple[tuple[int, int], ...] = ()  # inputs and copies of the linear layers to width d
    squares: int = 0  # linear layers from width d to width d

    def parameters(self, width: int) -> int:
        """The parameters of the tower and its projector."""
        return self.fixed + self.per_width * width + self.per_square * width * width

    def adapter_parameters(self, width: int) -> int:
        """The parameters of LoRA adapters of rank 1 on all linear layers."""
        inner = (
            sum((out + inputs) * n for out, inputs, n in self.linears) + 2 * width * self.squares
        )
        return inner + sum((width + inputs) * n for inputs, n in self.widening)


def _encoder(layers: int, width: int, hidden: int, fused: bool = False) -> Linears:
    """The linear layers of a plain encoder: query, key, value and output, and two of the MLP."""
    attention: Linears = (
        ((3 * width, width, layers), (width, width, layers))
        if fused
        else ((width, width, 4 * layers),)
    )
    return (*attention, (hidden, width, layers), (width, hidden, layers))


VISION_TOWERS = (
    VisionTower(
        *("LLaVA's vision tower (CLIP ViT-L/14, 336 px)", ("llama", "mistral", "qwen2")),
        *(303_507_456, 1024 + 2, 1),
        linears=_encoder(24, 1024, 4096),
        widening=((1024, 1),),
        squares=1,
    ),
    VisionTower(
        "Gemma 3's vision tower (SigLIP)",
        ("gemma3",),
        416_866_032 + 1152,
        1152,
        linears=_encoder(27, 1152, 4304),
    ),
    VisionTower(
        *("Gemma 4's vision tower", ("gemma4",), 569_548_080, 1152),
        linears=((1152, 768, 1), (1152, 1152, 108), (4304, 1152, 54), (1152, 4304, 27)),
        widening=((1152, 1),),
    ),
    VisionTower(
        *("Qwen2-VL's vision tower", ("qwen2",), 657_405_440, 5121),
        linears=(*_encoder(32, 1280, 5120, fused=True), (5120, 5120, 1)),
        widening=((5120, 1),),
    ),
    VisionTower(
        *("Qwen2.5-VL's vision tower", ("qwen2",), 658_196_480, 5121),
        linears=(
            (3840, 1280, 32),
            (1280, 1280, 32),
            (3420, 1280, 64),
            (1280, 3420, 32),
            (5120, 5120, 1),
        ),
        widening=((5120, 1),),
    ),
    VisionTower(
        *("the vision tower of Qwen2.5-VL 32B and 72B", ("qwen2",), 662_622_464, 5121),
        linears=(
            (3840, 1280, 32),
            (1280, 1280, 32),
            (3456, 1280, 64),
            (1280, 3456, 32),
            (5120, 5120, 1),
        ),
        widening=((5120, 1),),
    ),
    VisionTower(
        *("Qwen3-VL's vision tower", ("qwen3", "qwen3_moe"), 500_874_480, 4 * 4609),
        linears=(*_encoder(27, 1152, 4304, fused=True), (4608, 4608, 4)),
        widening=((4608, 4),),
    ),
    VisionTower(
        *("Qwen3.5's vision tower", ("qwen3_5", "qwen3_5_moe"), 437_132_016, 4609),
        linears=(*_encoder(27, 1152, 4304, fused=True), (4608, 4608, 1)),
        widening=((4608, 1),),
    ),
    VisionTower(
        *("Mistral's vision tower (Pixtral)", ("mistral", "ministral3", "mistral4")),
        *(403_305_472 + 1024 + 4 * 1024 * 1024, 1024, 1),
        linears=((1024, 1024, 96), (4096, 1024, 48), (1024, 4096, 24), (1024, 4096, 1)),
        widening=((1024, 1),),
        squares=1,
    ),
    VisionTower("Llama 4's vision tower", ("llama4",), 850_960_896, 4096),
)
