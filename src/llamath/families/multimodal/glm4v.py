"""GLM-4.1V, GLM-4.5V, GLM-4.6V and GLM-OCR: a tower with gated MLPs, whose squares of patches
become one token by a convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from ...core.blocks import MLP, Decoder, Linear, Norm
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, swiglu, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PixelBudget
from ...core.machine import Machine, X
from ...core.positions import AxialRope
from ...core.towers import PatchEmbedding, VisionTower
from ...core.tree import Block, repeat
from ..multimodal_registry import (
    LANGUAGE_MODEL,
    Assembly,
    Part,
    Tower,
    Wrapper,
    assemble,
    multimodal,
)
from ..qwen_towers import QWEN_NAMES
from ..tower_parts import encoder_attention, part_config, side, vit_layer


class DownsampleProjector(Block):
    """mlp(gelu(norm(linear x))) on features of side × side patches, of which a convolution makes
    one before (GLM-4V).
    """

    group: ClassVar[str] = "projector"
    downsample: PatchEmbedding
    linear: Linear
    norm: Norm
    mlp: MLP
    merge: int

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.downsample(m, m.merge_patches(x, self.merge, by_channel=True))
        return self.mlp(m, m.act(self.norm(m, self.linear(m, x)), "gelu"))


_NAMES = QWEN_NAMES | {
    **{f"layers.{{l}}.mlp.{x}": f"blocks.{{l}}.mlp.{x}_proj" for x in ("gate", "up", "down")},
    **{f"layers.{{l}}.attn.{x}_norm": f"blocks.{{l}}.attn.{x}_norm" for x in "qk"},
    "patch_norm": "post_conv_layernorm",
    "positions": "embeddings.position_embedding.weight",
    "norm_after": "post_layernorm",
}
_PROJECTOR = {
    "downsample": "downsample",
    "linear": "merger.proj",
    "norm": "merger.post_projection_norm",
    **{f"mlp.{x}": f"merger.{x}_proj" for x in ("gate", "up", "down")},
}

Limit = Callable[[Config, MLP], MLP]


@multimodal(
    Wrapper(types="glm4v glm46v glmga", text_type="glm4v_text", prefix=LANGUAGE_MODEL),
    Wrapper(types="glm4v_moe", text_type="glm4v_moe_text", prefix=LANGUAGE_MODEL),
    Wrapper(types="glm_ocr", text_type="glm_ocr_text", prefix=LANGUAGE_MODEL),
)
def glm4v(c: Config, text: Decoder) -> Assembly:
    return glm_vision(c, text, is_ocr=c.get("model_type", "") == "glm_ocr")


def glm_vision(
    c: Config, text: Decoder, is_ocr: bool, limit: Limit = lambda _, x: x, inner: int = 0
) -> Assembly:
    """Read the tower and projector; in GLM-5.3 Flash `limit` changes their MLPs, and `inner` is
    the default width of the projector.
    """
    v = part_config(c, "vision_config", {})
    v.sub("rope_parameters").ignore("rope_type", "rope_theta")
    v.ignore("attention_dropout", "hidden_dropout_prob", "initializer_range")
    d, out = (
        v.dim("d_v", "hidden_size", default=1024 if is_ocr else 1536),
        v.dim("d_o", "out_hidden_size", default=1536 if is_ocr else 4096),
    )
    F, L = (
        v.dim("F_v", "intermediate_size", default=4096 if is_ocr else 13_696),
        v.dim("L_v", "depth", default=24),
    )
    H, k = v.dim("H_v", "num_heads", default=16 if is_ocr else 12), v.get("spatial_merge_size", 2)
    p, s = side(v, "p_v", "patch_size", 14), side(v, "s_v", "image_size", 336)
    channels, times = (
        v.dim("C_v", "in_channels", default=Expr.const(3)),
        v.dim("t_v", "temporal_patch_size", default=Expr.const(2)),
    )
    bias, eps = v.get("attention_bias", is_ocr), v.get("rms_norm_eps", 1e-5)
    activation, norm = v.activation("hidden_act", "silu"), rms(d, eps)
    rope = AxialRope(theta=1e4, dim=d // H, by_halves=True)
    attention = encoder_attention(v, d, H, bias=bias, rope=rope, o_bias=bias if is_ocr else False)
    if is_ocr:
        attention = attention.replace(
            q_norm=rms(attention.head_dim, eps), k_norm=rms(attention.head_dim, eps)
        )
    feed_forward = limit(
        v, swiglu(d, F, activation, bias=bias) if is_ocr else swiglu(d, out, activation)
    )
    tower = VisionTower(
        patches=PatchEmbedding(
            weight=weight(d, channels, times, p, p), bias=weight(d, role="bias")
        ),
        patch_norm=None if is_ocr else norm,
        positions=None if is_ocr else weight(Expr("N_v", int(s // p) ** 2), d, role="lookup"),
        resizing="bicubic",
        layers=repeat(vit_layer(norm, attention, feed_forward), L),
        norm_after=norm,
        patch_size=p,
        # published limits count two frames
        image_sizes=PixelBudget(patch=p, multiple=p * k, fewest=12_544 // 2, most=9_633_792 // 2),
    )
    joined = product((out, channels)) if is_ocr else F
    if inner:
        joined = v.dim("F_p", "projection_intermediate_size", default=inner)
    projector = DownsampleProjector(
        downsample=PatchEmbedding(weight=weight(out, d, k, k), bias=weight(out, role="bias")),
        linear=linear(out, out),
        norm=layer_norm(out, 1e-5),
        mlp=limit(v, swiglu(out, joined, activation)),
        merge=k,
    )
    return assemble(
        text,
        vision=("model.visual.", Tower(tower, _NAMES)),
        projector=("model.visual.", Part(projector, _PROJECTOR)),
    )
