"""Nemotron 3 Omni: RADIO, squares of patches joined, a norm and an MLP."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, rms, weight
from ...core.expr import Expr, product
from ..counted_towers import Modules, counted_part, each, stack
from ..multimodal_registry import Assembly, assemble, multimodal
from ..towers import part_config, side

_PUBLISHED = {
    "encoder.layer.": "radio_model.model.blocks.",
    **{f"attention.{x}_proj": "attn.qkv" for x in "qkv"},
    "attention.o_proj": "attn.proj",
    "embeddings.position_embedding": "radio_model.model.patch_generator.pos_embed",
    "embeddings.cls_register_token": "radio_model.model.patch_generator.cls_token.token",
    "embeddings.patch_projection": "radio_model.model.patch_generator.embedder",
    "embeddings.video_patch_projection": "radio_model.model.patch_generator.video_embedder",
    "summary_idxs": "radio_model.summary_idxs",
}
_MODULES = {f"layers.{{l}}.mlp.experts.{{e}}.{x}.weight": f"mixer.experts.{x}_proj" for x in ("up", "down")}
_PROJECTOR = {"layer_norm": "0", "linear_1": "1", "linear_2": "3"}


def radio(c: Config, frames: Expr) -> Modules:
    """Read RADIO: learned tokens before the patches, factors for the channels of each branch."""
    d, L = c.dim("d_v", "hidden_size", default=1280), c.dim("L_v", "num_hidden_layers", default=32)
    F, p = Expr("F_v", int(d * c.get("mlp_ratio", 4.0))), side(c, "p_v", "patch_size", 16)
    first = c.dim("cls", "num_cls_tokens", default=3) + c.dim("reg", "num_registers", default=7)
    places, channels = Expr("N_v", int(c.get("max_img_size", 2048) // p) ** 2), c.dim("C_v", "num_channels", default=Expr.const(3))
    if c.get("use_swiglu_ffn", False):
        raise c.error("use_swiglu_ffn", "asks for gated MLPs, which are not known in this tower")
    norm, qkv_bias = layer_norm(d, 1e-6), c.get("qkv_bias", True)
    layer: Modules = {
        **each("", "norm1 norm2", norm),
        **each("attention.", "q_proj k_proj v_proj", linear(d, d, qkv_bias)),
        "attention.o_proj": linear(d, d, bias=True),
        **each("", "layer_scale1.lambda1 layer_scale2.lambda1", weight(d, role="scale")),
        "mlp.fc1": linear(F, d, bias=True),
        "mlp.fc2": linear(d, F, bias=True),
    }
    pixels = product((channels, p, p))
    return {
        "summary_idxs": weight(len(c.get("summary_idxs", [0, 1])), role="scale").replace(buffer=True),
        "embeddings.position_embedding": weight(1, places, d, role="lookup"),
        "embeddings.cls_register_token": weight(first, d, role="scale"),
        "embeddings.patch_projection": linear(d, pixels),
        "embeddings.video_patch_projection": linear(d, frames * pixels),
        "encoder.layer": stack(L, layer),
    }


@multimodal(forms={"hf-modules": {"language_model.backbone.": "language_model.model."}}, modules=_MODULES)
def nemotron_h_omni(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    if c.data.get("audio_config") is not None:
        raise c.error("audio_config", "describes a tower for sound, which is not known")
    tower = radio(v, c.dim("t_v", "video_temporal_patch_size", default=2))
    k = round(1 / c.get("downsample_ratio", 0.5))
    joined, inner = product((k, k, c.dim("d_p", "vision_hidden_size", default=1280))), c.dim("F_p", "projector_hidden_size", default=4096)
    projector: Modules = {"layer_norm": rms(joined, 1e-5), "linear_1": linear(inner, joined), "linear_2": linear(text.width, inner)}
    return assemble(
        text,
        vision=("vision_model.", counted_part(tower, _PUBLISHED, "vision_model.")),
        projector=("mlp1.", counted_part(projector, _PROJECTOR, "multi_modal_projector.")),
    )
