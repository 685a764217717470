"""Unlimited OCR: SAM, whose features CLIP's layers read instead of patches, and one linear layer on both."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr
from ..counted_towers import Modules, conv, counted, counted_part, each, stack, table
from ..joined_parts import joined_parts
from ..multimodal_registry import Assembly, Part, assemble, multimodal
from ..sam_tower import ORIGINAL_SAM_NAMES, sam_tower
from ..towers import part_config, side, vit_sizes

_CLIP = {
    "vision_tower.vision_encoder.encoder": "vision_model.transformer",
    "vision_tower.vision_encoder": "vision_model",
    **{f"transformer.layers.{{l}}.self_attn.{x}_proj": "transformer.layers.{l}.self_attn.qkv_proj" for x in "qkv"},
}
_PROJECTOR = {"multi_modal_projector": "projector.layers", "view_separator": "view_seperator"}
_SAM = "model.vision_tower.sam_encoder."


def sam_parts(c: Config) -> dict[str, tuple[str, Part]]:
    """Read SAM's encoder, with two convolutions after it."""
    tower, o = sam_tower(c, "s"), c.dim("o_s", "output_channels", default=256)
    first, second = c.get("downsample_channels", [512, 1024])
    names = {"conv1": "net_2", "conv2": "net_3"}
    after = counted({"conv1": conv(first, o, 3, 3, bias=False), "conv2": conv(second, first, 3, 3, bias=False)})
    encoder = Part(tower.block, ORIGINAL_SAM_NAMES, in_memory={path: _SAM + name for path, name in tower.names.items()})
    halves = Part(after, names, in_memory={path: f"{_SAM}proj.{path}" for path in names})
    return {"sam": ("sam_model.", encoder), "sam_after": ("sam_model.", halves)}


def clip_without_patches(c: Config) -> Modules:
    """Read CLIP's layers, which read the features of another tower."""
    d, F, L, _ = vit_sizes(c, 1024, 4096, 24, 16)
    places = (int(side(c, "s_v", "image_size", 224)) // int(side(c, "p_v", "patch_size", 14))) ** 2 + 1
    norm = layer_norm(d, 1e-5)
    layer: Modules = {
        **each("self_attn.", "q_proj k_proj v_proj out_proj", linear(d, d, bias=True)),
        **each("", "layer_norm1 layer_norm2", norm),
        "mlp.fc1": linear(F, d, bias=True),
        "mlp.fc2": linear(d, F, bias=True),
    }
    return {
        "embeddings.class_embedding": weight(d, role="scale"),
        "embeddings.position_embedding": table(Expr("N_v", places), d),
        "pre_layrnorm": norm,
        "encoder.layers": stack(L, layer),
    }


@multimodal(forms={"hf-modules": {"model.": "model.language_model."}})
def unlimited_ocr(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    encoder, features = part_config(v, "encoder_config", {}), part_config(v, "sam_config", {})
    clip = {f"vision_tower.vision_encoder.{x}": y for x, y in clip_without_patches(encoder).items()}
    tower = joined_parts(**sam_parts(features), clip=("", counted_part(clip, _CLIP, "model.")))
    row, d = weight(text.width, role="scale"), encoder.dim("d_v", "hidden_size", default=1024)
    width = d + features.get("downsample_channels", [512, 1024])[-1]
    projector: Modules = {"view_separator": row, "image_newline": row, "multi_modal_projector": linear(text.width, width, bias=True)}
    return assemble(
        text,
        vision=("model.", tower),
        projector=("model.", counted_part(projector, _PROJECTOR, "model.")),
    )
