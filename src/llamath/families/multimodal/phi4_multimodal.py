"""Phi-4 Multimodal: SigLIP for images, a Conformer with learned distances for sound, and two
linear layers for each.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, weight
from ...core.image_sizes import FixedImage
from ..conformer_towers import phi4_conformer
from ..counted_towers import Modules, counted_part
from ..multimodal_registry import Assembly, Wrapper, assemble, multimodal
from ..tower_parts import part_config
from ..towers import SIGLIP_NAMES, siglip_tower

_SIGLIP = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
    "num_attention_heads": 16, "patch_size": 14, "image_size": 448,
}  # fmt: skip
_IMAGES, _SOUND = "model.embed_tokens_extend.image_embed.", "model.embed_tokens_extend.audio_embed."


@multimodal(
    Wrapper(
        types="phi4_multimodal", text_type="phi3", flat=True, outer_keys="embd_layer img_processor"
    )
)
def phi4_multimodal(c: Config, text: Decoder) -> Assembly:
    v, a, d = part_config(c, "vision_config", {}), part_config(c, "audio_config", {}), text.width
    v.ignore(
        "crop_size",
        "feature_layer",
        "image_token_id",
        "attention_dropout",
        "initializer_range",
        "model_type",
    )
    given = Config(
        {**_SIGLIP, **{key: x for key, x in v.data.items() if x is not None}},
        c.source,
        "vision_config.",
    )
    v.ignore(*_SIGLIP, "num_channels", "layer_norm_eps", "hidden_act")
    tower = siglip_tower(given)
    width = tower.block.patches.weight.shape[0]
    assert isinstance(tower.block.image_sizes, FixedImage)
    images: Modules = {
        "img_projection_up": linear(d, width, True),
        "img_projection_down": linear(d, d, True),
        "global_img_feature_extensor": weight(1, 1, width, role="scale"),
        "sub_img_feature_extensor": weight(1, 1, 1, width, role="scale"),
    }
    sound = a.dim("d_a", "hidden_size", default=1024)
    names = {path: name.removeprefix("vision_model.") for path, name in SIGLIP_NAMES.items()}
    return assemble(
        text,
        vision=(f"{_IMAGES}img_processor.", tower._replace(names=names)),
        projector=(_IMAGES, counted_part(images)),
        audio=(f"{_SOUND}encoder.", counted_part(phi4_conformer(a, sound))),
        audio_projector=(
            _SOUND,
            counted_part(
                {
                    **{
                        f"up_proj_for_{x}": linear(d, sound, True)
                        for x in ("speech", "vision_speech")
                    },
                    **{
                        f"down_proj_for_{x}": linear(d, d, True)
                        for x in ("speech", "vision_speech")
                    },
                }
            ),
        ),
    )
