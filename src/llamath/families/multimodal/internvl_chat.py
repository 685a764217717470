"""InternVL, as its authors publish it: the same model under other names, with queries, keys and
values in one matrix.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ..multimodal_registry import WHOLE, Assembly, Wrapper, assemble, multimodal
from ..projectors import internvl_projector
from ..tower_parts import part_config, with_crops
from ..towers import internvit_tower

VISION = {
    "class_token": "embeddings.class_embedding",
    "patches": "embeddings.patch_embedding",
    "positions": "embeddings.position_embedding",
    "layers.{l}.attn_norm": "encoder.layers.{l}.norm1",
    **{f"layers.{{l}}.attn.{x}": "encoder.layers.{l}.attn.qkv" for x in "qkv"},
    **{f"layers.{{l}}.attn.{x}_norm": f"encoder.layers.{{l}}.attn.{x}_norm" for x in "qk"},
    "layers.{l}.attn.o": "encoder.layers.{l}.attn.proj",
    "layers.{l}.attn_out_norm.weight": "encoder.layers.{l}.ls1",
    "layers.{l}.mlp_norm": "encoder.layers.{l}.norm2",
    "layers.{l}.mlp.up": "encoder.layers.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "encoder.layers.{l}.mlp.fc2",
    "layers.{l}.mlp_out_norm.weight": "encoder.layers.{l}.ls2",
}
REQUIRED = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads qkv_bias "
    "qk_normalization norm_type"
).split()
"""Keys of the tower whose defaults are those of another size."""
PROJECTOR = {"norm": "mlp1.0", "linear_1": "mlp1.1", "linear_2": "mlp1.3"}


@multimodal(Wrapper(types="internvl_chat", prefix=WHOLE))
def internvl_chat(c: Config, text: Decoder) -> Assembly:
    c.ignore(
        "ps_version",
        "template",
        "hidden_size",
        "force_image_size",
        "dynamic_image_size",
        "min_dynamic_patch",
        "pad2square",
    )
    own = part_config(c, "vision_config")
    for key in REQUIRED:
        if key not in own:
            raise own.error(key, "is missing", "every published config of such a model has it")
    tower = internvit_tower(own)
    if (layer := c.get("select_layer", -1)) != -1:
        tower = tower._replace(block=tower.block.replace(feature_layers=(layer,)))
    tower = tower._replace(block=tower.block.replace(drops_class_token=True), names=VISION)
    tiles = c.get("max_dynamic_patch", 6) if c.get("dynamic_image_size", False) else 1
    tower = with_crops(tower, max_tiles=tiles, thumbnail=c.get("use_thumbnail", False))
    projector = internvl_projector(c, tower.block, text)._replace(names=PROJECTOR)
    return assemble(text, vision=("vision_model.", tower), projector=("", projector))
