"""VideoLLaMA 3: SigLIP with rotary positions for images of any shape, then an MLP of two layers
on the features of each patch.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp
from ...core.image_sizes import PixelBudget
from ...core.positions import AxialRope
from ...core.towers import MLPProjector, VisionTower
from ...core.tree import repeat
from ..multimodal_registry import (
    LANGUAGE_MODEL,
    Assembly,
    Part,
    Tower,
    Wrapper,
    assemble,
    multimodal,
)
from ..tower_parts import (
    encoder_attention,
    feature_width,
    part_config,
    patch_embedding,
    side,
    vit_layer,
    vit_sizes,
)
from ..towers import SIGLIP_NAMES

_NAMES = {path: name.removeprefix("vision_model.") for path, name in SIGLIP_NAMES.items()}


@multimodal(Wrapper(types="video_llama_3", text_type="qwen2", prefix=LANGUAGE_MODEL))
def video_llama_3(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    d, F, L, H = vit_sizes(v)
    p, eps, theta = (
        side(v, "p_v", "patch_size", 16),
        v.get("layer_norm_eps", 1e-6),
        v.sub("rope_parameters").get("rope_theta", 1e4),
    )
    v.sub("rope_parameters").ignore("rope_type")
    norm, rope = layer_norm(d, eps), AxialRope(theta=theta, dim=d // H, by_halves=True)
    feed_forward = mlp(d, F, v.activation("hidden_act", "gelu_pytorch_tanh"), bias=True)
    tower = VisionTower(
        patches=patch_embedding(v, d, p, bias=True),
        layers=repeat(
            vit_layer(norm, encoder_attention(v, d, H, bias=True, rope=rope), feed_forward), L
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=PixelBudget(patch=p, multiple=p, fewest=56 * 56, most=28 * 28 * 1280),
    )
    first, second = (
        linear(text.width, feature_width(tower), True),
        linear(text.width, text.width, True),
    )
    projector = Part(
        MLPProjector(linear_1=first, linear_2=second, activation="gelu"),
        {"linear_1": "readout.0", "linear_2": "readout.2"},
    )
    return assemble(
        text,
        vision=("model.vision_model.", Tower(tower, _NAMES)),
        projector=("model.projector.", projector),
    )
