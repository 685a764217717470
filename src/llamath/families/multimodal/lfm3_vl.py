"""LFM3-VL: convolutions over the grid of patches in most layers, attention in the others, and an
MLP on squares of patches.
"""

from __future__ import annotations

from ...core.attention_facts import AttentionWindow
from ...core.blocks import Decoder, Layer
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, swiglu, weight
from ...core.expr import Expr, product
from ...core.image_sizes import UnsupportedImage
from ...core.multimodal import CountedBlock
from ...core.positions import AxialRope
from ...core.towers import EncoderAttention, MLPProjector, PatchEmbedding, VisionTower
from ...core.tree import Block, sequence
from ..counted_towers import conv, counted_tower
from ..layers_shared import layer_kinds
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import part_config, side

_TOWER = {
    "patches": "patchifier",
    "norm_before": "embedding_norm",
    "layers.{l}.attn_norm": "layers.{l}.operator_norm",
    "layers.{l}.attn.into": "layers.{l}.conv.in_proj",
    "layers.{l}.attn.conv": "layers.{l}.conv.spatial_conv",
    "layers.{l}.attn.out": "layers.{l}.conv.out_proj",
    **{f"layers.{{l}}.attn.{x}": f"layers.{{l}}.self_attn.{x}_proj" for x in "qkv"},
    **{f"layers.{{l}}.attn.{x}_norm": f"layers.{{l}}.self_attn.{x}_layernorm" for x in "qk"},
    "layers.{l}.attn.o": "layers.{l}.self_attn.out_proj",
    "layers.{l}.mlp_norm": "layers.{l}.ffn_norm",
    **{
        f"layers.{{l}}.mlp.{x}": f"layers.{{l}}.feed_forward.{name}"
        for x, name in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
    },
}
_PROJECTOR = {"patch_norm": "layer_norm", "linear_1": "linear_1", "linear_2": "linear_2"}
_MODULES = {
    "layers.{l}.attn.gate": "self_attn.g_proj",
    "vision.patches": "model.vision_tower.patch_embed",
    **{
        f"vision.layers.{{l}}.attn.{x}_norm": f"model.vision_tower.layers.{{l}}.self_attn.{x}_norm"
        for x in "qk"
    },
}
_NO_LIMITS = "the limits on the size of its images are in no published file"


@multimodal(
    Wrapper(types="lfm3_vl", text_type="lfm3", prefix=LANGUAGE_MODEL, tied=True), modules=_MODULES
)
def lfm3_vl(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    v.ignore("initializer_range")
    d, F = (
        v.dim("d_v", "hidden_size", default=1024),
        v.dim("F_v", "intermediate_size", default=2560),
    )
    L, H = (
        v.dim("L_v", "num_hidden_layers", default=14),
        v.dim("H_v", "num_attention_heads", default=16),
    )
    K, taps = (
        v.dim("K_v", "num_key_value_heads", default=8),
        v.dim("k_v", "conv_kernel_size", default=3),
    )
    p, channels = (
        side(v, "p_v", "patch_size", 16),
        v.dim("C_v", "in_channels", default=Expr.const(3)),
    )
    times, k = (
        v.dim("t_v", "temporal_patch_size", default=Expr.const(2)),
        v.get("spatial_merge_size", 2),
    )
    h, eps, ropes = Expr("h_v", d // H), v.get("norm_eps", 1e-5), v.sub("rope_parameters")
    ropes.ignore("rope_type")
    norm, head_norm, kv = rms(d, eps), rms(h, eps), linear(K * h, d)
    attention = EncoderAttention(
        q=linear(H * h, d),
        k=kv,
        v=kv,
        o=linear(d, H * h),
        q_norm=head_norm,
        k_norm=head_norm,
        heads=H,
        kv_heads=K,
        head_dim=h,
        window=AttentionWindow(causal=False),
        rope=AxialRope(theta=ropes.get("rope_theta", 1e6), dim=h, by_halves=True),
    )
    short = {
        "into": linear(3 * d, d),
        "conv": conv(d, 1, taps, taps, bias=False),
        "out": linear(d, d),
    }
    mixers: dict[str, Block] = {
        "conv": CountedBlock(kind="attention", parts=short),
        "full_attention": attention,
    }
    order = layer_kinds(v, L, mixers, lambda i: "conv" if i < 2 or i % 2 else "full_attention")
    kinds = {
        x: Layer(attn_norm=norm, attn=mixer, mlp_norm=norm, mlp=swiglu(d, F))
        for x, mixer in mixers.items()
    }
    tower = VisionTower(
        patches=PatchEmbedding(weight=weight(d, product((channels, times, p, p)))),
        norm_before=norm,
        layers=sequence((kinds[x] for x in order), L),
        patch_size=p,
        image_sizes=UnsupportedImage(patch=int(p), reason=_NO_LIMITS),
    )
    inner, bias = c.dim("F_p", "projector_hidden_size", default=4096), c.get("projector_bias", True)
    projector = MLPProjector(
        patch_norm=layer_norm(d, 1e-6),
        linear_1=linear(inner, product((k, k, d)), bias),
        linear_2=linear(text.width, inner, bias),
        activation=c.activation("projector_hidden_act", "gelu"),
        merge=k,
    )
    return assemble(
        text,
        vision=("model.vision_tower.", counted_tower(Part(tower, _TOWER), merge=k)),
        projector=("model.multi_modal_projector.", Part(projector, _PROJECTOR)),
    )
