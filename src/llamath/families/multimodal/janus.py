"""Janus: a vision transformer and an MLP to read images, and a quantizer, an embedding and a
head to make them.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.attention_facts import QKPreprocess
from ...core.blocks import Decoder, Linear
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr
from ...core.image_sizes import FixedImage
from ...core.machine import Machine, X
from ...core.towers import VisionTower
from ...core.tree import Block, Stack, repeat
from ..counted_towers import Modules, table, with_unread
from ..image_quantizer import image_quantizer
from ..multimodal_registry import (
    LANGUAGE_MODEL,
    Assembly,
    Part,
    Tower,
    Wrapper,
    assemble,
    multimodal,
)
from ..tower_parts import (
    encoder_attention,
    part_config,
    patch_embedding,
    side,
    vit_layer,
    without_images,
)


class DeepMLPProjector(Block):
    """A linear layer, then others, each after an activation (Janus)."""

    group: ClassVar[str] = "projector"
    linear: Linear
    hidden: Stack
    activation: str
    unread: Block | None = None  # of the model's other direction, which makes images

    def forward(self, m: Machine[X], x: X) -> X:
        x = self.linear(m, x)
        for layer in self.hidden:
            x = layer(m, m.act(x, self.activation))
        return x


_LAYER = "vision_model.encoder.layers.{l}."
_TOWER = {
    "patches": "vision_model.embeddings.patch_embedding",
    "positions": "vision_model.embeddings.position_embedding.weight",
    "layers.{l}.attn_norm": f"{_LAYER}layer_norm1",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER}self_attn.{x}_proj" for x in "qkv"},
    **{f"layers.{{l}}.attn.{x}_norm": f"{_LAYER}self_attn.{x}_norm" for x in "qk"},
    "layers.{l}.attn.o": f"{_LAYER}self_attn.projection_layer",
    "layers.{l}.mlp_norm": f"{_LAYER}layer_norm2",
    "layers.{l}.mlp.up": f"{_LAYER}mlp.fc1",
    "layers.{l}.mlp.down": f"{_LAYER}mlp.fc2",
    "norm_after": "vision_model.post_layernorm",
}


@multimodal(Wrapper(types="janus", text_type="llama", prefix=LANGUAGE_MODEL, tied=True))
def janus(c: Config, text: Decoder) -> Assembly:
    v, q = part_config(c, "vision_config", {}), part_config(c, "vq_config", {})
    d, out = v.dim("d_v", "hidden_size", default=1024), v.dim("d_p", "projection_dim", default=2048)
    activation = v.activation("hidden_act", "gelu")
    tower = with_unread(
        _tower(v, d, activation), {f"vqmodel.{name}": x for name, x in image_quantizer(q).items()}
    )
    rows, embedded = (
        q.dim("V_q", "num_embeddings", default=16_384),
        q.dim("d_q", "embed_dim", default=8),
    )
    made, inner = (
        q.dim("d_g", "projection_dim", default=2048),
        q.dim("d_h", "image_token_embed_dim", default=2048),
    )
    aligner = _mlp(embedded, made, q.dim("n_g", "num_hidden_layers", default=2))
    making: Modules = {
        "generation_embeddings": table(rows, embedded),
        **{f"generation_aligner.{name}": x for name, x in aligner.items()},
        "generation_head.proj_out": linear(made, inner, True),
        "generation_head.vision_head": linear(rows, made, True),
    }
    hidden = repeat(linear(out, out, True), v.dim("n_p", "depth", default=2) - 1)
    reader = DeepMLPProjector(linear=linear(out, d, True), hidden=hidden, activation=activation)
    projector = with_unread(
        Part(reader, {"linear": "aligner.fc1", "hidden.{l}": "aligner.hidden_layers.{l}"}), making
    )
    return assemble(text, vision=("model.", tower), projector=("model.", projector))


def _mlp(d: Expr, out: Expr, depth: Expr) -> Modules:
    return {"fc1": linear(out, d, True), "hidden_layers": repeat(linear(out, out, True), depth - 1)}


def _tower(v: Config, d: Expr, activation: str) -> Tower:
    v.ignore(
        "attention_dropout",
        "hidden_dropout_rate",
        "initializer_range",
        "projection_dropout",
        "num_image_tokens",
    )
    F, norm = (
        Expr("F_v", int(d * v.get("mlp_ratio", 4.0))),
        layer_norm(d, v.get("layer_norm_eps", 1e-6)),
    )
    p, s, H = (
        side(v, "p_v", "patch_size", 16),
        side(v, "s_v", "image_size", 384),
        v.dim("H_v", "num_attention_heads", default=16),
    )
    attention = encoder_attention(v, d, H, v.get("attention_bias", True), o_bias=True)
    if normed := v.get("use_qk_norm", False):
        whole = layer_norm(d, 1e-5)
        attention = attention.replace(
            q_norm=whole, k_norm=whole, qk_preprocess=QKPreprocess(across_heads=True)
        )
    tower = VisionTower(
        patches=patch_embedding(v, d, p, bias=True),
        positions=weight(Expr("N_v", (s // p) ** 2), d, role="lookup"),
        layers=repeat(
            vit_layer(norm, attention, mlp(d, F, activation, bias=True)),
            v.dim("L_v", "num_hidden_layers", default=24),
        ),
        norm_after=norm,
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    found = Tower(tower, _TOWER)
    if normed and H > 1:
        return without_images(
            found, "use_qk_norm has norms as wide as all heads, which its class applies to one head"
        )
    return found
