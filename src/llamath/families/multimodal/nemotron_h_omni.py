"""Nemotron 3 Omni: RADIO, squares of patches joined, a norm and an MLP."""

from __future__ import annotations

from ...core.blocks import Decoder, LayerNorm, apply_optional
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, rms, weight
from ...core.expr import Expr, product
from ...core.image_sizes import PatchRange
from ...core.machine import Machine, X
from ...core.towers import LayerScale, MLPProjector, PatchEmbedding, VisionTower
from ...core.tree import Weight, repeat
from ..counted_towers import Modules, with_unread
from ..multimodal_registry import WHOLE, Assembly, Names, Part, Tower, Wrapper, assemble, multimodal
from ..tower_parts import encoder_attention, part_config, side, vit_layer


class RegisterTower(VisionTower):
    """A vision transformer with learned tokens before the patches, which get no positions and
    are left out of the result (RADIO).
    """

    class_token: Weight
    positions: Weight
    registers: int  # learned tokens

    def forward(self, m: Machine[X], pixels: X) -> X:
        x = m.add_positions(self.patches(m, pixels), self.positions, self.resizing)
        x = m.layers(self.layers, m.prepend(x, self.class_token))
        return apply_optional(self.norm_after, m, m.drop_tokens(x, self.registers))


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
_MODULES = {
    f"layers.{{l}}.mlp.experts.{{e}}.{x}.weight": f"mixer.experts.{x}_proj" for x in ("up", "down")
}
_PROJECTOR = {"norm": "0", "linear_1": "1", "linear_2": "3"}
_LAYER = "encoder.layer.{l}."
_IN_MEMORY = {
    "positions": "embeddings.position_embedding",
    "class_token": "embeddings.cls_register_token",
    "patches": "embeddings.patch_projection",
    "layers.{l}.attn_norm": f"{_LAYER}norm1",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER}attention.{x}_proj" for x in "qkvo"},
    "layers.{l}.attn_out_norm.weight": f"{_LAYER}layer_scale1.lambda1",
    "layers.{l}.mlp_norm": f"{_LAYER}norm2",
    "layers.{l}.mlp.up": f"{_LAYER}mlp.fc1",
    "layers.{l}.mlp.down": f"{_LAYER}mlp.fc2",
    "layers.{l}.mlp_out_norm.weight": f"{_LAYER}layer_scale2.lambda1",
}


def radio(c: Config, frames: Expr) -> Tower:
    """Read RADIO: learned tokens before the patches, factors for the channels of each branch."""
    d, L, H = (
        c.dim("d_v", "hidden_size", default=1280),
        c.dim("L_v", "num_hidden_layers", default=32),
        c.dim("H_v", "num_attention_heads", default=16),
    )
    F, p = Expr("F_v", int(d * c.get("mlp_ratio", 4.0))), side(c, "p_v", "patch_size", 16)
    first = c.dim("cls", "num_cls_tokens", default=3) + c.dim("reg", "num_registers", default=7)
    places, channels = (
        Expr("N_v", int(c.get("max_img_size", 2048) // p) ** 2),
        c.dim("C_v", "num_channels", default=Expr.const(3)),
    )
    if c.get("use_swiglu_ffn", False):
        raise c.error("use_swiglu_ffn", "asks for gated MLPs, which are not known in this tower")
    norm, scaled = (
        layer_norm(d, c.get("layer_norm_eps", 1e-6)),
        LayerScale(weight=weight(d, role="scale")),
    )
    attention = encoder_attention(c, d, H, c.get("qkv_bias", True), o_bias=True)
    layer = vit_layer(norm, attention, mlp(d, F, c.activation("hidden_act", "gelu"), bias=True))
    pixels = product((channels, p, p))
    tower = RegisterTower(
        positions=weight(1, places, d, role="lookup"),
        class_token=weight(first, d, role="scale"),
        patches=PatchEmbedding(weight=weight(d, pixels)),
        layers=repeat(layer.replace(attn_out_norm=scaled, mlp_out_norm=scaled), L),
        patch_size=p,
        image_sizes=PatchRange(patch=p, side=1, fewest=1024, most=13_312),
        resizing="cropped",
        registers=int(first),
    )
    unread: Modules = {
        "summary_idxs": weight(len(c.get("summary_idxs", [0, 1])), role="scale").replace(
            buffer=True
        ),
        "embeddings.video_patch_projection": linear(d, frames * pixels),
    }
    return with_unread(Tower(tower, _IN_MEMORY), unread)


@multimodal(
    Wrapper(types="nemotron_h_omni", text_type="nemotron_h", prefix=WHOLE),
    forms={"hf-modules": {"language_model.backbone.": "language_model.model."}},
    modules=_MODULES,
)
def nemotron_h_omni(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    if c.data.get("audio_config") is not None:
        raise c.error("audio_config", "describes a tower for sound, which is not known")
    tower = radio(v, c.dim("t_v", "video_temporal_patch_size", default=2))
    k = round(1 / c.get("downsample_ratio", 0.5))
    joined, inner = (
        product((k, k, c.dim("d_p", "vision_hidden_size", default=1280))),
        c.dim("F_p", "projector_hidden_size", default=4096),
    )
    # by a norm whose factors no file stores: they are 1
    normed = c.sub("text_config").get("num_nextn_predict_layers", 0) > 0
    projector = MLPProjector(
        patch_norm=LayerNorm(eps=v.get("layer_norm_eps", 1e-6)) if normed else None,
        norm=rms(joined, 1e-5),
        linear_1=linear(inner, joined),
        linear_2=linear(text.width, inner),
        activation="relu2",
        merge=k,
    )
    sizes, names = tower.block.image_sizes, dict(tower.names)
    for old, new in _PUBLISHED.items():
        names = {path: name.replace(old, new) for path, name in names.items()}
    vision = Part(
        tower.block.replace(image_sizes=sizes.replace(side=k)),
        names,
        in_memory=_with_prefix("vision_model.", tower.names),
    )
    read = Part(
        projector,
        _PROJECTOR,
        in_memory=_with_prefix(
            "multi_modal_projector.", {x: x.replace("norm", "layer_norm") for x in _PROJECTOR}
        ),
    )
    return assemble(text, vision=("vision_model.", vision), projector=("mlp1.", read))


def _with_prefix(prefix: str, names: Names) -> Names:
    return {path: prefix + name for path, name in names.items()}
