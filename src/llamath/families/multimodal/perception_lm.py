"""Perception LM: the Perception Encoder, a vision transformer of timm, and an MLP of two layers
on the features of each patch.
"""

from __future__ import annotations

from typing import Any

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr
from ...utils.errors import UnknownModel, safe
from ...utils.named_tuple import NamedTuple
from ..counted_towers import Modules, conv, counted_part, each, stack
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..tower_parts import part_config


class _Sizes(NamedTuple):
    width: int
    mlp_width: int
    classed: bool  # whether a class token stands before the patches


_PATCH = 14
_ENCODERS = {
    "vit_pe_core_large_patch14_336": _Sizes(1024, 4096, True),
    "vit_pe_core_gigantic_patch14_448": _Sizes(1536, 8960, False),
}
"""What the name of an architecture fixes."""
_ARGUMENTS = (
    "depth",
    "embed_dim",
    "global_pool",
    "img_size",
    "init_values",
    "ref_feat_shape",
    "use_post_transformer_norm",
)


@multimodal(Wrapper(types="perception_lm", text_type="llama", prefix=LANGUAGE_MODEL))
def perception_lm(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config")
    name, given = v.get("architecture", ""), v.sub("model_args")
    args: dict[str, Any] = dict(given.data)
    sizes = _ENCODERS.get(name)
    if (
        sizes is None
        or args.keys() - set(_ARGUMENTS)
        or args.get("global_pool") != ""
        or args.get("embed_dim") != sizes.width
    ):
        raise UnknownModel(
            f"{c.source}: vision_config describes another tower: {safe(repr(name), 60)} with "
            f"{safe(repr(args), 200)}",
            hint=f"known: {', '.join(_ENCODERS)}, of their width, with global_pool empty",
        )
    given.ignore(*_ARGUMENTS)
    v.ignore(
        "do_pooling",
        "initializer_range",
        "label_names",
        "model_type",
        "num_classes",
        "num_features",
        "pretrained_cfg",
    )
    c.ignore("vision_use_cls_token", "projector_pooling_ratio", "image_token_id", "video_token_id")
    sides = given.get("img_size", [0, 0])
    if len(sides) != 2 or not all(type(x) is int and x >= _PATCH for x in sides):
        raise given.error(
            "img_size", f"should be a height and a width in pixels, not {safe(repr(sides), 40)}"
        )
    d, F = Expr("d_v", sizes.width), Expr("F_v", sizes.mlp_width)
    places = Expr("N_v", sides[0] // _PATCH * (sides[1] // _PATCH) + sizes.classed)
    norm, factors = layer_norm(d, 1e-5), weight(d, role="scale")
    layer: Modules = {
        **(each("", "gamma_1 gamma_2", factors) if args.get("init_values") is not None else {}),
        **each("", "norm1 norm2", norm),
        "attn.qkv": linear(3 * d, d, bias=True),
        "attn.proj": linear(d, d, bias=True),
        "mlp.fc1": linear(F, d, bias=True),
        "mlp.fc2": linear(d, F, bias=True),
    }
    tower: Modules = {
        "cls_token": weight(1, 1, d, role="scale") if sizes.classed else None,
        "pos_embed": weight(1, places, d, role="lookup"),
        "patch_embed.proj": conv(d, 3, _PATCH, _PATCH, bias=False),
        "norm_pre": norm,
        "blocks": stack(given.dim("L_v", "depth"), layer),
        "norm": norm if given.get("use_post_transformer_norm", True) else None,
    }
    out = text.width
    projector: Modules = {
        "linear_1": linear(out, d, bias=True),
        "linear_2": linear(out, out, bias=True),
    }
    return assemble(
        text,
        vision=("model.vision_tower.timm_model.", counted_part(tower)),
        projector=("model.multi_modal_projector.", counted_part(projector)),
    )
