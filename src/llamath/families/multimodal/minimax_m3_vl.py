"""MiniMax-M3: a tower with rotary positions in time, rows and columns, then one MLP on patches
and one on squares of them.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.blocks import Decoder, Linear
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PixelBudget
from ...core.machine import Machine, X
from ...core.positions import AxialRope
from ...core.towers import PatchEmbedding, VisionTower
from ...core.tree import Block, repeat
from ..multimodal_registry import WHOLE, Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer, vit_sizes
from ..towers import CLIP_NAMES


class TwoStepProjector(Block):
    """An MLP of two layers on the features of each patch, then another on those of side × side
    patches joined (MiniMax-M3).
    """

    group: ClassVar[str] = "projector"
    linear_1: Linear
    linear_2: Linear
    joined_1: Linear
    joined_2: Linear
    activation: str
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.linear_2(m, m.act(self.linear_1(m, x), self.activation))
        x = m.act(self.joined_1(m, m.merge_patches(x, self.merge)), self.activation)
        return self.joined_2(m, x)


_PROJECTOR = {
    "linear_1": "multi_modal_projector.linear_1",
    "linear_2": "multi_modal_projector.linear_2",
    "joined_1": "patch_merge_mlp.linear_1",
    "joined_2": "patch_merge_mlp.linear_2",
}
_MODULES = {
    **{
        f"vision.{path}": name.replace("vision_model.encoder", "model.vision_tower")
        for path, name in CLIP_NAMES.items()
        if "layers." in path
    },
    "vision.patches": "model.vision_tower.embeddings.proj",
    "vision.norm_before": "model.vision_tower.pre_layrnorm",
    "projector.linear_1": "model.multi_modal_projector.linear_1",
    "projector.linear_2": "model.multi_modal_projector.linear_2",
    "projector.joined_1": "model.multi_modal_projector.merge_linear_1",
    "projector.joined_2": "model.multi_modal_projector.merge_linear_2",
    **dict.fromkeys(("layers.{l}.mlp.gate", "layers.{l}.mlp.up"), "mlp.gate_up_proj"),
    **dict.fromkeys(
        ("layers.{l}.mlp.shared.gate", "layers.{l}.mlp.shared.up"),
        "mlp.shared_experts.gate_up_proj",
    ),
    "layers.{l}.mlp.correction": "mlp.gate.e_score_correction_bias",
    **{f"layers.{{l}}.attn.indexer.{x}": f"self_attn.indexer.{x}_proj" for x in "qk"},
    **{f"layers.{{l}}.attn.indexer.{x}_norm": f"self_attn.indexer.{x}_norm" for x in "qk"},
}


@multimodal(
    Wrapper(types="minimax_m3_vl", text_type="minimax_m3_vl_text", prefix=WHOLE), modules=_MODULES
)
def minimax_m3_vl(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    v.ignore("image_size")
    d, F, L, H = vit_sizes(v, width=1280, mlp_width=5120, layers=32, heads=16)
    p, k = side(v, "p_v", "patch_size", 14), v.get("spatial_merge_size", 2)
    channels, times = (
        v.dim("C_v", "num_channels", default=Expr.const(3)),
        v.dim("t_v", "temporal_patch_size", default=Expr.const(2)),
    )
    theta, eps = (
        v.sub("rope_parameters").get("rope_theta", v.get("rope_theta", 1e4)),
        v.get("layer_norm_eps", 1e-5),
    )
    v.sub("rope_parameters").ignore("rope_type")
    # of each of time, rows and columns; the rest of a head does not turn
    pairs = int(d // H) // 3 // 2
    norm, rope = (
        layer_norm(d, eps),
        AxialRope(theta=theta, dim=4 * pairs, by_halves=True, still=pairs),
    )
    feed_forward = mlp(d, F, v.activation("hidden_act", "gelu"), bias=True)
    tower = VisionTower(
        patches=PatchEmbedding(weight=weight(d, channels, times, p, p)),
        norm_before=norm,
        layers=repeat(
            vit_layer(norm, encoder_attention(v, d, H, bias=True, rope=rope), feed_forward), L
        ),
        patch_size=p,
        image_sizes=PixelBudget(patch=p, multiple=p * k, fewest=4 * 28 * 28, most=451_584),
    )
    inner, out = c.dim("F_p", "projector_hidden_size", default=6144), text.width
    projector = TwoStepProjector(
        linear_1=linear(inner, d, True),
        linear_2=linear(out, inner, True),
        joined_1=linear(inner, product((k, k, out)), True),
        joined_2=linear(out, inner, True),
        activation="gelu",
        merge=k,
    )
    return assemble(
        text,
        vision=("vision_tower.", Tower(tower, CLIP_NAMES)),
        projector=("", Part(projector, _PROJECTOR)),
    )
