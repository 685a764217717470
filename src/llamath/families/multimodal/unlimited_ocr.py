"""Unlimited OCR: SAM, whose features CLIP's layers read instead of patches, and one linear layer on both."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr
from ...core.tree import Block, sequence
from ..counted_towers import Modules, conv, counted, counted_part, each, stack, table
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side, vit_sizes

_PUBLISHED = {
    **{f"sam_encoder.{x}": f"sam_model.{y}" for x, y in (("layers.{l}.layer_norm", "blocks.{l}.norm"), ("layers.", "blocks."))},
    "sam_encoder.patch_embed.projection": "sam_model.patch_embed.proj",
    "sam_encoder.neck.conv1": "sam_model.neck.0",
    "sam_encoder.neck.layer_norm1": "sam_model.neck.1",
    "sam_encoder.neck.conv2": "sam_model.neck.2",
    "sam_encoder.neck.layer_norm2": "sam_model.neck.3",
    "sam_encoder.proj.conv1": "sam_model.net_2",
    "sam_encoder.proj.conv2": "sam_model.net_3",
    "sam_encoder": "sam_model",
    "vision_tower.sam_model": "sam_model",
    "vision_tower.vision_encoder.encoder": "vision_model.transformer",
    "vision_tower.vision_encoder": "vision_model",
    **{f"transformer.layers.{{l}}.self_attn.{x}_proj": "transformer.layers.{l}.self_attn.qkv_proj" for x in "qkv"},
}
_PROJECTOR = {"multi_modal_projector": "projector.layers", "view_separator": "view_seperator"}


def sam(c: Config) -> Modules:
    """Read SAM's encoder: attention in windows in most layers, with tables of positions by row and column."""
    d, L, H = (
        c.dim("d_s", "hidden_size", default=768),
        c.dim("L_s", "num_hidden_layers", default=12),
        c.dim("H_s", "num_attention_heads", default=12),
    )
    F, p, out = c.dim("F_s", "mlp_dim", default=3072), side(c, "p_s", "patch_size", 16), c.dim("o_s", "output_channels", default=256)
    places, window = int(side(c, "s_s", "image_size", 1024)) // int(p), c.get("window_size", 14)
    first, second = c.get("downsample_channels", [512, 1024])
    norm = layer_norm(d, 1e-6)

    def layer(side: int) -> Block:
        rows = weight(2 * side - 1, Expr("h_s", d // H), role="lookup") if c.get("use_rel_pos", True) else None
        return counted(
            {
                **each("", "layer_norm1 layer_norm2", norm),
                **each("attn.", "rel_pos_h rel_pos_w", rows),
                "attn.qkv": linear(3 * d, d, c.get("qkv_bias", True)),
                "attn.proj": linear(d, d, bias=True),
                "mlp.lin1": linear(F, d, bias=True),
                "mlp.lin2": linear(d, F, bias=True),
            }
        )

    local, whole = layer(window), layer(places)
    numbers = c.get("global_attn_indexes", [2, 5, 8, 11])
    channels = c.dim("C_s", "num_channels", default=Expr.const(3))
    return {
        "pos_embed": weight(1, places, places, d, role="lookup") if c.get("use_abs_pos", True) else None,
        "patch_embed.projection": conv(d, channels, p, p),
        "layers": sequence((whole if i in numbers else local for i in range(L)), L),
        "neck.conv1": conv(out, d, 1, 1, bias=False),
        "neck.conv2": conv(out, out, 3, 3, bias=False),
        **each("neck.", "layer_norm1 layer_norm2", layer_norm(out, 1e-6)),
        "proj.conv1": conv(first, out, 3, 3, bias=False),
        "proj.conv2": conv(second, first, 3, 3, bias=False),
    }


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
    tower = {f"vision_tower.sam_encoder.{x}": y for x, y in sam(features).items()}
    tower |= {f"vision_tower.vision_encoder.{x}": y for x, y in clip_without_patches(encoder).items()}
    row, d = weight(text.width, role="scale"), encoder.dim("d_v", "hidden_size", default=1024)
    width = d + features.get("downsample_channels", [512, 1024])[-1]
    projector: Modules = {"view_separator": row, "image_newline": row, "multi_modal_projector": linear(text.width, width, bias=True)}
    return assemble(
        text,
        vision=("model.", counted_part(tower, _PUBLISHED, "model.")),
        projector=("model.", counted_part(projector, _PROJECTOR, "model.")),
    )
