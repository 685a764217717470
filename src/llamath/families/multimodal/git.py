"""GIT: CLIP, all of whose features, the class token's too, are projected and stand before the
text.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.towers import LinearProjector
from ..counted_towers import with_unread
from ..multimodal_registry import Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import feature_width, part_config
from ..towers import clip_tower


@multimodal(
    Wrapper(types="git", text_type="git_text", flat=True, outer_keys="num_image_with_embedding")
)
def git(c: Config, text: Decoder) -> Assembly:
    v, d = part_config(c, "vision_config", {}), text.width
    tower = clip_tower(v, patch=16)
    width = feature_width(tower.block)
    block = LinearProjector(
        linear=linear(d, width, bias=True), out_norm=layer_norm(d, v.get("layer_norm_eps", 1e-5))
    )
    projector = Part(
        block,
        {
            "linear": "visual_projection.visual_projection.0",
            "out_norm": "visual_projection.visual_projection.1",
        },
    )
    if frames := c.get("num_image_with_embedding", 0):
        of_frames = {
            f"img_temporal_embedding.{i}": weight(1, 1, width, role="scale") for i in range(frames)
        }
        projector = with_unread(projector, of_frames)
    return assemble(
        text, vision=("git.image_encoder.", tower), projector=("git.", projector)
    ).seeing_later("images")
