"""Idefics 2: SigLIP for images of any shape, a gated MLP, and a perceiver whose learned latents read the features."""

from __future__ import annotations

from ...core.blocks import MLP, Decoder, Linear
from ...core.config import Config
from ...core.constructors import linear, rms, weight
from ...core.tree import repeat
from ..counted_towers import Modules, counted, counted_part
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import feature_width, part_config, plain_siglip_tower


@multimodal()
def idefics2(c: Config, text: Decoder) -> Assembly:
    tower, r, d = plain_siglip_tower(part_config(c, "vision_config", {})), part_config(c, "perceiver_config", {}), text.width
    r.ignore("hidden_size", "hidden_act", "attention_dropout", "initializer_range", "model_type", "rms_norm_eps")
    H, h = r.dim("H_p", "resampler_n_heads", default=16), r.dim("h_p", "resampler_head_dim", default=96)
    K, n = r.dim("K_p", "num_key_value_heads", default=4), r.dim("n_p", "resampler_n_latents", default=64)
    mlp, dv, norm = text.layers[0].child("mlp"), feature_width(tower.block), rms(d, 1e-6)
    assert isinstance(mlp, MLP)
    F = mlp.up.weight.shape[0]
    layer = counted(
        {
            "input_latents_norm": norm,
            "input_context_norm": norm,
            "self_attn.q_proj": linear(H * h, d),
            "self_attn.k_proj": linear(K * h, d),
            "self_attn.v_proj": linear(K * h, d),
            "self_attn.o_proj": linear(d, H * h),
            "post_attention_layernorm": norm,
            **{f"mlp.{name}": x for name, x in _gated(d, 4 * d, d).items()},
        }
    )
    connector: Modules = {
        **{f"modality_projection.{name}": x for name, x in _gated(dv, F, d).items()},
        "perceiver_resampler.latents": weight(n, d, role="lookup"),
        "perceiver_resampler.layers": repeat(layer, r.dim("L_p", "resampler_depth", default=3)),
        "perceiver_resampler.norm": norm,
    }
    return assemble(text, vision=("model.vision_model.", tower), projector=("model.connector.", counted_part(connector)))


def _gated(d: int, F: int, out: int) -> dict[str, Linear]:
    return {"gate_proj": linear(F, d), "up_proj": linear(F, d), "down_proj": linear(out, F)}
