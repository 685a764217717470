"""PaddleOCR-VL: SigLIP for images of any shape, with rotary positions as well, then a norm and
an MLP on squares of patches.
"""

from __future__ import annotations

from ...core.blocks import Decoder, Layer
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import product
from ...core.image_sizes import PixelBudget
from ...core.positions import AxialRope
from ...core.towers import EncoderAttention, MLPProjector
from ...core.tree import repeat
from ..multimodal_registry import Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import part_config
from ..towers import paddleocr_tower

_PARTS = {"visual.": "model.visual.", "mlp_AR.": "model.projector."}


@multimodal(
    Wrapper(types="paddleocr_vl", text_type="paddleocr_vl_text", tied=True),
    forms={"hf-modules": {**_PARTS, "model.": "model.language_model."}},
)
def paddleocr_vl(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    tower, k = paddleocr_tower(v), v.dim("k_v", "spatial_merge_size", default=2)
    d = tower.block.patches.weight.shape[0]
    joined = product((k, k, d))
    projector = MLPProjector(
        patch_norm=layer_norm(d, 1e-5),
        linear_1=linear(joined, joined, True),
        linear_2=linear(text.width, joined, True),
        activation="gelu",
        merge=k,
    )
    names = {"patch_norm": "pre_norm", "linear_1": "linear_1", "linear_2": "linear_2"}
    vision = _with_rotary_positions(v, tower, int(k))
    return assemble(text, vision=("visual.", vision), projector=("mlp_AR.", Part(projector, names)))


def _with_rotary_positions(c: Config, tower: Tower, merge: int) -> Tower:
    """Return SigLIP with positions resized to each image, and with rotary ones."""
    settings, layer, patch = (
        c.sub("rope_parameters"),
        tower.block.layers[0],
        int(tower.block.patch_size),
    )
    settings.ignore("rope_type")
    assert isinstance(layer, Layer) and isinstance(layer.attn, EncoderAttention)
    rope = AxialRope(theta=settings.get("rope_theta", 1e4), dim=layer.attn.head_dim, by_halves=True)
    sizes = PixelBudget(
        patch=patch, multiple=patch * merge, fewest=384**2, most=1536**2, enlarges=True
    )
    layers = repeat(layer.replace(attn=layer.attn.replace(rope=rope)), tower.block.layers.n)
    return tower._replace(
        block=tower.block.replace(layers=layers, resizing="centers", image_sizes=sizes)
    )
