"""MiniCPM-V 4.6 and 4.7 and MiniCPM-OCR: SigLIP, in which windows of patches become one patch,
and MLPs on squares of patches.
"""

from __future__ import annotations

from math import prod

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear
from ...core.expr import Expr, product
from ...core.tree import sequence
from ..counted_towers import Modules, counted, counted_part
from ..joined_parts import joined_parts
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..tower_parts import part_config
from ..towers import plain_siglip_tower


@multimodal(
    Wrapper(types="minicpmv4_6 minicpmv4_7", text_type="qwen3_5_text", prefix=LANGUAGE_MODEL),
    Wrapper(types="minicpm_ocr", text_type="qwen3_5_text", prefix=LANGUAGE_MODEL, tied=True),
)
def minicpmv4_6(c: Config, text: Decoder) -> Assembly:
    c.ignore(
        "downsample_mode",
        "drop_vision_last_layer",
        "image_size",
        "insert_layer_id",
        "merge_kernel_size",
        "patch_size",
    )
    v = part_config(c, "vision_config", {})
    v.ignore("insert_layer_id")
    tower, d, F = (
        plain_siglip_tower(v, patch=16),
        v.dim("d_v", "hidden_size", default=768),
        v.dim("F_v", "intermediate_size", default=3072),
    )
    places = prod(v.get("window_kernel_size", [2, 2]))
    joined, inner, norm = product((places, d)), product((places, F)), layer_norm(d, 1e-6)
    merger: Modules = {
        **{f"self_attn.{x}_proj": linear(d, d, True) for x in ("k", "v", "q", "out")},
        "layer_norm1": norm,
        "pre_norm": layer_norm(joined, 1e-6),
        "linear_1": linear(inner, joined, True),
        "linear_2": linear(d, inner, True),
    }
    vision = joined_parts(encoder=("", tower), merger=("vit_merger.", counted_part(merger)))
    times = c.dim("n_p", "merger_times", default=1)
    mlps = [counted(_downsample(d, text.width if i == times - 1 else d)) for i in range(times)]
    return assemble(
        text,
        vision=("model.vision_tower.", vision),
        projector=("model.merger.", counted_part({"mlp": sequence(mlps, times)})),
    )


def _downsample(d: Expr, out: Expr | int) -> Modules:
    joined = product((4, d))
    return {
        "pre_norm": layer_norm(joined, 1e-6),
        "linear_1": linear(joined, joined, True),
        "linear_2": linear(out, joined, True),
    }
