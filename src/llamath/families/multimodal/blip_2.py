"""BLIP-2 and InstructBLIP: a vision transformer, whose features learned queries read in a Q-Former, and a linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, mlp, weight
from ...core.expr import Expr
from ...core.image_sizes import FixedImage
from ...core.multimodal import CrossAttention, UnreadBlock
from ...core.towers import QueryLayer, Resampler, VisionTower
from ...core.tree import repeat, sequence
from ..counted_towers import Modules, counted, table
from ..multimodal_registry import Assembly, Part, Tower, assemble, multimodal
from ..towers import check_class, encoder_attention, part_config, patch_embedding, side, vit_layer, vit_sizes, without_images

_TOWER = {
    "class_token": "embeddings.class_embedding",
    "patches": "embeddings.patch_embedding",
    "positions": "embeddings.position_embedding",
    "layers.{l}.attn_norm": "encoder.layers.{l}.layer_norm1",
    **{f"layers.{{l}}.attn.{x}": "encoder.layers.{l}.self_attn.qkv" for x in "qkv"},
    "layers.{l}.attn.o": "encoder.layers.{l}.self_attn.projection",
    "layers.{l}.mlp_norm": "encoder.layers.{l}.layer_norm2",
    "layers.{l}.mlp.up": "encoder.layers.{l}.mlp.fc1",
    "layers.{l}.mlp.down": "encoder.layers.{l}.mlp.fc2",
    "norm_after": "post_layernorm",
}
_LAYER, _WORDS = "qformer.encoder.layer.{l}.", {"q": "query", "k": "key", "v": "value"}
_QFORMER = {
    "latents": "query_tokens",
    "linear": "language_projection",
    **{f"layers.{{l}}.attn.{x}": f"{_LAYER}attention.attention.{name}" for x, name in _WORDS.items()},
    "layers.{l}.attn.o": f"{_LAYER}attention.output.dense",
    "layers.{l}.attn_norm": f"{_LAYER}attention.output.LayerNorm",
    **{f"layers.{{l}}.cross_attn.{x}": f"{_LAYER}crossattention.attention.{name}" for x, name in _WORDS.items()},
    "layers.{l}.cross_attn.o": f"{_LAYER}crossattention.output.dense",
    "layers.{l}.cross_norm": f"{_LAYER}crossattention.output.LayerNorm",
    "layers.{l}.mlp.up": f"{_LAYER}intermediate_query.dense",
    "layers.{l}.mlp.down": f"{_LAYER}output_query.dense",
    "layers.{l}.mlp_norm": f"{_LAYER}output_query.LayerNorm",
    "layers.{l}.unread.up": f"{_LAYER}intermediate.dense",
    "layers.{l}.unread.down": f"{_LAYER}output.dense",
    "layers.{l}.unread.norm": f"{_LAYER}output.LayerNorm",
    "unread.words": "qformer.embeddings.word_embeddings",
    "unread.positions": "qformer.embeddings.position_embeddings",
}


@multimodal()
def blip_2(c: Config, text: Decoder) -> Assembly:
    c.ignore("image_text_hidden_size", "use_decoder_only_language_model", "initializer_factor")
    check_class(c, "Blip2ForConditionalGeneration", *(f"InstructBlip{x}ForConditionalGeneration" for x in ("", "Video")))
    v, q = part_config(c, "vision_config", {}), part_config(c, "qformer_config", {})
    instructed = c.get("model_type", "") != "blip-2"
    tower = blip_tower(v, 1408, 6144, 39, 16)
    if instructed:
        tower = without_images(tower, "the queries of the Q-Former read the instruction, too")
    projector = _qformer(c, q, tower.block.patches.weight.shape[0], text.width, instructed)
    names = _QFORMER | {"norm_before": "qformer.embeddings.layernorm" if instructed else "qformer.layernorm"}
    return assemble(text, vision=("vision_model.", tower), projector=("", Part(projector, names)))


def blip_tower(v: Config, *sizes: int, patch: int = 14, size: int = 224, eps: float = 1e-6) -> Tower:
    """Read the vision transformer, whose queries, keys and values are one matrix; the arguments are defaults."""
    d, F, L, H = vit_sizes(v, *sizes)
    p, s, norm = side(v, "p_v", "patch_size", patch), side(v, "s_v", "image_size", size), layer_norm(d, v.get("layer_norm_eps", eps))
    attention = encoder_attention(v, d, H, v.get("qkv_bias", True), o_bias=True)
    tower = VisionTower(
        class_token=weight(1, 1, d, role="scale"),
        patches=patch_embedding(v, d, p, bias=True),
        positions=weight(1, Expr("N_v", (s // p) ** 2 + 1), d, role="lookup"),
        layers=repeat(vit_layer(norm, attention, mlp(d, F, v.activation("hidden_act", "gelu"), bias=True)), L),
        norm_after=norm,
        patch_size=p,
        image_sizes=FixedImage(patch=p, size=s),
    )
    return Tower(tower, _TOWER)


def _qformer(c: Config, q: Config, features: Expr, out: int, instructed: bool) -> Resampler:
    """Read BERT's layers, some of which attend to an image; InstructBLIP's read the instruction, too, which is embedded inside."""
    q.ignore("pad_token_id", "encoder_hidden_size", "position_embedding_type")
    d, F = q.dim("d_q", "hidden_size", default=768), q.dim("F_q", "intermediate_size", default=3072)
    L, H = q.dim("L_q", "num_hidden_layers", default=12), q.dim("H_q", "num_attention_heads", default=12)
    norm, every = layer_norm(d, q.get("layer_norm_eps", 1e-12)), q.dim("every", "cross_attention_frequency", default=2)
    attention, feed_forward = encoder_attention(q, d, H, bias=True), mlp(d, F, q.activation("hidden_act", "gelu"), bias=True)
    into, h = linear(d, features, True), attention.head_dim
    texts: Modules = {"up": feed_forward.up, "down": feed_forward.down, "norm": norm}
    reads_text = q.get("use_qformer_text_input", False) or instructed
    unread = UnreadBlock(parts=counted(texts).parts) if reads_text else None
    alone = QueryLayer(attn_norm=norm, attn=attention, mlp_norm=norm, mlp=feed_forward, unread=unread)
    cross = CrossAttention(q=attention.q, k=into, v=into, o=attention.o, heads=H, kv_heads=H, head_dim=h)
    crossing = alone.replace(cross_attn=cross, cross_norm=norm)
    embeddings: Modules = {
        "words": table(q.dim("V_q", "vocab_size", default=30_522), d),
        "positions": table(q.dim("T_q", "max_position_embeddings", default=512), d),
    }
    return Resampler(
        latents=weight(1, c.dim("n_q", "num_query_tokens", default=32), d, role="lookup"),
        norm_before=norm,
        layers=sequence((alone if i % every else crossing for i in range(L)), L),
        linear=linear(out, d, True),
        unread=UnreadBlock(parts=counted(embeddings).parts) if instructed else None,
    )
