"""Idefics 2: SigLIP for images of any shape, a gated MLP, and a perceiver whose learned latents
read the features.
"""

from __future__ import annotations

from ...core.blocks import MLP, Decoder
from ...core.config import Config
from ...core.constructors import linear, rms, swiglu, weight
from ...core.image_sizes import BoundedImage
from ...core.multimodal import CrossAttention
from ..counted_towers import Modules, counted, counted_tower, stack
from ..multimodal_registry import TEXT_MODEL, Assembly, Part, Wrapper, assemble, multimodal
from ..tower_parts import feature_width, part_config
from ..towers import plain_siglip_tower

_MLP = ("gate", "up", "down")
_LAYER = "perceiver_resampler.layers.{l}."
_PROJECTOR = {
    **{f"inner.{x}": f"modality_projection.{x}_proj" for x in _MLP},
    "latents": "perceiver_resampler.latents",
    "layers.{l}.attn_norm": f"{_LAYER}input_latents_norm",
    "layers.{l}.feature_norm": f"{_LAYER}input_context_norm",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER}self_attn.{x}_proj" for x in "qkvo"},
    "layers.{l}.mlp_norm": f"{_LAYER}post_attention_layernorm",
    **{f"layers.{{l}}.mlp.{x}": f"{_LAYER}mlp.{x}_proj" for x in _MLP},
    "norm": "perceiver_resampler.norm",
}


@multimodal(Wrapper(types="idefics2", text_type="mistral", prefix=TEXT_MODEL))
def idefics2(c: Config, text: Decoder) -> Assembly:
    tower, r, d = (
        plain_siglip_tower(part_config(c, "vision_config", {})),
        part_config(c, "perceiver_config", {}),
        text.width,
    )
    r.ignore("hidden_size", "attention_dropout", "initializer_range", "model_type")
    H, h = (
        r.dim("H_p", "resampler_n_heads", default=16),
        r.dim("h_p", "resampler_head_dim", default=96),
    )
    K, n = (
        r.dim("K_p", "num_key_value_heads", default=4),
        r.dim("n_p", "resampler_n_latents", default=64),
    )
    mlp, dv, norm = (
        text.layers[0].child("mlp"),
        feature_width(tower.block),
        rms(d, r.get("rms_norm_eps", 1e-6)),
    )
    assert isinstance(mlp, MLP)
    F = mlp.up.weight.shape[0]
    layer: Modules = {
        "attn_norm": norm,
        "attn": CrossAttention(
            q=linear(H * h, d),
            k=linear(K * h, d),
            v=linear(K * h, d),
            o=linear(d, H * h),
            heads=H,
            kv_heads=K,
            head_dim=h,
        ),
        "mlp_norm": norm,
        "mlp": swiglu(d, 4 * d, r.activation("hidden_act", "silu")),
        "feature_norm": norm,
    }
    projector: Modules = {
        "inner": MLP(
            gate=linear(F, dv), up=linear(F, dv), down=linear(d, F), activation=mlp.activation
        ),
        "latents": weight(n, d, role="lookup"),
        "layers": stack(r.dim("L_p", "resampler_depth", default=3), layer),
        "norm": norm,
    }
    p = int(tower.block.patch_size)
    tower = tower._replace(
        block=tower.block.replace(image_sizes=BoundedImage(patch=p, shortest=378, longest=980))
    )
    vision = counted_tower(tower, per_tile=int(n))
    return assemble(
        text,
        vision=("model.vision_model.", vision),
        projector=("model.connector.", Part(counted(projector), _PROJECTOR)),
    )
