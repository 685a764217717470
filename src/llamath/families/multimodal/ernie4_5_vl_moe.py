"""ERNIE 4.5 VL: Qwen2-VL's tower with a norm at its end, squares of patches joined, then pairs
of frames, of which an image is both.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.blocks import Decoder, Linear, Norm
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, rms, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PixelBudget
from ...core.machine import Machine, X
from ...core.positions import AxialRope
from ...core.towers import PatchEmbedding, VisionTower
from ...core.tree import Block, repeat
from ..multimodal_registry import Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..qwen_towers import FC_NAMES, QWEN_NAMES
from ..tower_parts import encoder_attention, part_config, side, vit_layer


class FramesProjector(Block):
    """norm(linear(temporal [y; y])) with y = spatial x, an MLP and a norm each: features of
    squares, then of two frames (ERNIE 4.5 VL).

    Both frames of an image are the image.
    """

    group: ClassVar[str] = "projector"
    spatial_first: Linear
    spatial_second: Linear
    spatial_norm: Norm
    temporal_first: Linear
    temporal_second: Linear
    temporal_norm: Norm
    linear: Linear
    norm: Norm
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = m.act(self.spatial_first(m, m.merge_patches(x, self.merge)), "gelu")
        x = self.spatial_norm(m, self.spatial_second(m, x))
        x = self.temporal_second(m, m.act(self.temporal_first(m, m.concat(x, x)), "gelu"))
        return self.norm(m, self.linear(m, self.temporal_norm(m, x)))


_STEPS = {"first": "0", "second": "2", "norm": "3"}
_PROJECTOR = {
    **{
        f"{part}_{path}": f"{part}_linear.{i}"
        for part in ("spatial", "temporal")
        for path, i in _STEPS.items()
    },
    "linear": "mlp",
    "norm": "after_norm",
}
_IN_MEMORY = {
    "model.vision_model.": "model.vision_tower.",
    **{f"model.resampler_model.{x}_linear.{i}": f"model.resampler_model.{x}_linear.{name}"
       for x in ("spatial", "temporal") for i, name in (("0", "fc1"), ("2", "fc2"), ("3", "ln"))},
    "model.resampler_model.": "model.resampler_model.",
    "model.": "model.language_model.",
}  # fmt: skip
_MOE = {"text": "", "vision": "vision_"}
_MODULES = {
    **{f"layers.{{l}}.mlp.{ours}router.weight": f"mlp.{x}_moe.gate.weight"
       for x, ours in _MOE.items()},
    **{f"layers.{{l}}.mlp.{ours}correction":
       f"mlp.{x}_moe.gate.moe_statics.e_score_correction_bias" for x, ours in _MOE.items()},
    **{f"layers.{{l}}.mlp.{ours}experts.{{e}}.{y}.weight": f"mlp.{x}_moe.experts.gate_up_proj"
       for x, ours in _MOE.items() for y in ("gate", "up")},
    **{f"layers.{{l}}.mlp.{ours}experts.{{e}}.down.weight": f"mlp.{x}_moe.experts.down_proj"
       for x, ours in _MOE.items()},
}  # fmt: skip


_ROUTERS = frozenset(f"mlp.{x}router.weight" for x in _MOE.values())


@multimodal(
    Wrapper(types="ernie4_5_vl_moe", text_type="ernie4_5_vl_moe_text", tied=True),
    forms={"hf-modules": _IN_MEMORY},
    modules=_MODULES,
    plain=_ROUTERS,
)
def ernie4_5_vl_moe(c: Config, text: Decoder) -> Assembly:
    v, out = part_config(c, "vision_config", {}), text.width
    d, F = (
        v.dim("d_v", "hidden_size", default=1280),
        v.dim("F_v", "intermediate_size", default=5120),
    )
    H, p, k = (
        v.dim("H_v", "num_heads", default=16),
        side(v, "p_v", "patch_size", 14),
        v.get("spatial_merge_size", 2),
    )
    if (frames := v.get("temporal_merge_size", 2)) != 2:
        raise v.error("temporal_merge_size", f"is {frames}; pairs of frames are joined")
    rope, eps = v.sub("rope_parameters"), v.get("rms_norm_eps", 1e-6)
    rope.ignore("rope_type")
    axial = AxialRope(theta=rope.get("rope_theta", 1e4), dim=d // H, by_halves=True)
    norm, feed_forward = (
        layer_norm(d, eps),
        mlp(d, F, v.activation("hidden_act", "quick_gelu"), bias=True),
    )
    layer = vit_layer(norm, encoder_attention(v, d, H, bias=True, rope=axial), feed_forward)
    tower = VisionTower(
        patches=PatchEmbedding(
            weight=weight(d, product((v.dim("C_v", "in_channels", default=Expr.const(3)), p, p)))
        ),
        layers=repeat(layer, v.dim("L_v", "depth", default=32)),
        norm_after=norm,
        patch_size=p,
        image_sizes=PixelBudget(patch=p, multiple=p * k, fewest=56 * 56, most=28 * 28 * 6177),
    )
    joined, pair = product((k, k, d)), product((2, k, k, d))
    inner, step = linear(joined, joined, True), layer_norm(joined, eps)
    projector = FramesProjector(
        spatial_first=inner,
        spatial_second=inner,
        spatial_norm=step,
        temporal_first=linear(joined, pair, True),
        temporal_second=inner,
        temporal_norm=step,
        linear=linear(out, joined, True),
        norm=rms(out, text.norm.eps if text.norm is not None else 1e-5),
        merge=k,
    )
    names = QWEN_NAMES | FC_NAMES | {"norm_after": "ln"}
    return assemble(
        text,
        vision=("model.vision_model.", Tower(tower, names)),
        projector=("model.resampler_model.", Part(projector, _PROJECTOR)),
    )
