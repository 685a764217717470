"""DeepSeek-VL2: SigLIP on an image and its tiles, squares of 2 × 2 patches joined, padded where
they are not full, and two linear layers.

The names are those of timm's vision transformer.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, weight
from ...core.expr import Expr, product
from ...core.image_sizes import WholeAndTiles
from ...core.towers import MLPProjector
from ...utils.errors import UnknownModel, safe
from ..multimodal_registry import Assembly, Part, Tower, Variant, Wrapper, assemble, multimodal
from ..tower_parts import feature_width
from ..towers import siglip_tower

_NAMES = {
    "layers.{l}.attn_norm": "blocks.{l}.norm1",
    **{f"layers.{{l}}.attn.{x}": "blocks.{l}.attn.qkv" for x in "qkv"},
    "layers.{l}.attn.o": "blocks.{l}.attn.proj",
    "layers.{l}.mlp_norm": "blocks.{l}.norm2",
    "layers.{l}.mlp.up": "blocks.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "blocks.{l}.mlp.fc2",
    "patches": "patch_embed.proj",
    "positions": "pos_embed",
    "norm_after": "norm",
    "pooling.probe": "attn_pool.latent",
    "pooling.q": "attn_pool.q",
    **dict.fromkeys(("pooling.k", "pooling.v"), "attn_pool.kv"),
    "pooling.o": "attn_pool.proj",
    "pooling.norm": "attn_pool.norm",
    "pooling.mlp.up": "attn_pool.mlp.fc1",
    "pooling.mlp.down": "attn_pool.mlp.fc2",
}


@multimodal(
    Wrapper(
        types="deepseek_vl_v2",
        text_type="deepseek_v2",
        prefix=("", "language."),
        variants=(Variant("architectures", ["DeepseekOCRForCausalLM"], "deepseek_ocr"),),
    )
)
def deepseek_vl_v2(c: Config, text: Decoder) -> Assembly:
    if (tag := c.get("tile_tag", "2D")) != "2D":
        raise c.error("tile_tag", f"should be 2D, not {safe(repr(tag), 40)}")
    c.ignore("global_view_pos")
    tower = _siglip(c, c.sub("vision_config"))
    p, d = c.sub("projector_config"), feature_width(tower.block)
    p.ignore("model_type")
    if (kind := p.get("projector_type", "downsample_mlp_gelu")) != "downsample_mlp_gelu" or p.get(
        "depth", 2
    ) != 2:
        raise p.error(
            "projector_type",
            f"should be downsample_mlp_gelu of two layers, not {safe(repr(kind), 40)}",
        )
    into, out = p.get("input_dim", 1152), p.dim("d_p", "n_embed", default=2048)
    if (into, out) != (d, text.width):
        hint = f"the features have {d} channels, and the text model reads {text.width}"
        raise p.error("n_embed", f"is {out}, and input_dim {into}", hint)
    k, inner, token = (
        p.dim("k_v", "downsample_ratio", default=2),
        p.get("mlp_ratio", 1) * out,
        weight(out, role="scale"),
    )
    block = MLPProjector(
        linear_1=linear(inner, product((k, k, d)), True),
        linear_2=linear(out, inner, True),
        newline=token,
        separator=token,
        activation="gelu",
        merge=k,
        by_channel=True,
        padded=True,
    )
    names = {
        "linear_1": "projector.layers.0",
        "linear_2": "projector.layers.2",
        "newline": "image_newline",
        "separator": "view_seperator",
    }
    return assemble(text, vision=("vision.", tower), projector=("", Part(block, names)))


def _siglip(c: Config, v: Config) -> Tower:
    """Read the tower, whose sizes have other keys than SigLIP's in transformers."""
    name = v.get("model_name", "siglip_so400m_patch14_384")
    if not isinstance(name, str) or "siglip" not in name:
        raise UnknownModel(
            f"{c.source}: vision_config.model_name is {safe(repr(name), 60)}",
            hint="known: siglip_so400m_patch14_384",
        )
    v.ignore(
        "model_type",
        "weight_init",
        "ignore_head",
        "use_checkpoint",
        "num_classes",
        "deterministic",
        "num_recomputing_layers",
    )
    if v.get("class_token", False) or v.get("global_pool", "map") != "map":
        raise v.error("global_pool", "should be map, without a class token")
    width, size = v.dim("d_v", "width", default=1024), v.get("image_size", 384)
    keys = {
        "hidden_size": int(width),
        "intermediate_size": int(width * v.get("mlp_ratio", 4.0)),
        "num_hidden_layers": int(v.dim("L_v", "layers", default=24)),
        "num_attention_heads": int(v.dim("H_v", "heads", default=16)),
        "patch_size": int(v.dim("p_v", "patch_size", default=16)),
        "image_size": size,
    }
    block = siglip_tower(Config(keys, v.source, "vision_config.")).block
    found = c.get("candidate_resolutions", [[size, size]])
    if not all(
        isinstance(x, list) and len(x) == 2 and all(type(y) is int and y > 0 for y in x)
        for x in found
    ):
        raise c.error(
            "candidate_resolutions", "should be a list of widths and heights, like [[384, 768]]"
        )
    sizes = WholeAndTiles(
        patch=keys["patch_size"], size=size, resolutions=tuple((h, w) for w, h in found)
    )
    positions = weight(1, Expr("N_v", (size // keys["patch_size"]) ** 2), width, role="lookup")
    return Tower(block.replace(image_sizes=sizes, positions=positions), _NAMES)
