"""dots.ocr: a tower with gated MLPs for images of any shape, and Qwen2-VL's projector after a
layer norm.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, swiglu, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PixelBudget
from ...core.positions import AxialRope
from ...core.towers import MLPProjector, PatchEmbedding, VisionTower
from ...core.tree import repeat
from ..multimodal_registry import Assembly, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer, without_images

_FC = {"gate": "fc1", "up": "fc3", "down": "fc2"}
_NAMES = {
    "patches": "patch_embed.patchifier.proj",
    "patch_norm": "patch_embed.patchifier.norm",
    "layers.{l}.attn_norm": "blocks.{l}.norm1",
    **{f"layers.{{l}}.attn.{x}": "blocks.{l}.attn.qkv" for x in "qkv"},
    "layers.{l}.attn.o": "blocks.{l}.attn.proj",
    "layers.{l}.mlp_norm": "blocks.{l}.norm2",
    **{f"layers.{{l}}.mlp.{x}": f"blocks.{{l}}.mlp.{name}" for x, name in _FC.items()},
    "norm_after": "post_trunk_norm",
}
_PROJECTOR = {"patch_norm": "ln_q", "linear_1": "mlp.0", "linear_2": "mlp.2"}


@multimodal(Wrapper(types="dots_ocr", text_type="qwen2", flat=True))
def dots_ocr(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config")
    v.ignore(
        "attn_implementation",
        "init_merger_std",
        "initializer_range",
        "is_causal",
        "gradient_checkpointing",
    )
    d, F = v.dim("d_v", "embed_dim", default=1536), v.dim("F_v", "intermediate_size", default=4224)
    L, H = (
        v.dim("L_v", "num_hidden_layers", default=42),
        v.dim("H_v", "num_attention_heads", default=12),
    )
    p, k, bias = (
        side(v, "p_v", "patch_size", 14),
        v.get("spatial_merge_size", 2),
        v.get("use_bias", False),
    )
    channels, norm = (
        v.dim("C_v", "num_channels", default=Expr.const(3)),
        rms(d, v.get("rms_norm_eps", 1e-5)),
    )
    if (times := v.get("temporal_patch_size", 1)) != 1:
        raise v.error("temporal_patch_size", f"is {times}; only 1 is supported")
    if (width := v.get("hidden_size", 1536)) != text.width:
        raise v.error(
            "hidden_size",
            f"is {width}, unlike the width {text.width} of the text model, which reads the tokens",
        )
    rope = AxialRope(theta=1e4, dim=d // H, by_halves=True)
    tower = VisionTower(
        patches=PatchEmbedding(weight=weight(d, channels, p, p), bias=weight(d, role="bias")),
        patch_norm=norm,
        layers=repeat(
            vit_layer(
                norm, encoder_attention(v, d, H, bias=bias, rope=rope), swiglu(d, F, "silu", bias)
            ),
            L,
        ),
        norm_after=norm if v.get("post_norm", True) else None,
        patch_size=p,
        image_sizes=PixelBudget(patch=p, multiple=p * k, fewest=3136, most=11_289_600),
    )
    joined = product((k, k, d))
    projector = MLPProjector(
        patch_norm=layer_norm(d, 1e-6),
        linear_1=linear(joined, joined, True),
        linear_2=linear(text.width, joined, True),
        activation="gelu",
        merge=k,
    )
    vision = without_images(Tower(tower, _NAMES), "no other implementation has confirmed its pass")
    return assemble(
        text,
        vision=("vision_tower.", vision),
        projector=("vision_tower.merger.", Part(projector, _PROJECTOR)),
    )
