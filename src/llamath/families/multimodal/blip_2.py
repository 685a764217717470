"""BLIP-2 and InstructBLIP: a vision transformer, whose features learned queries read in a Q-Former, and a linear layer."""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.expr import Expr
from ...core.multimodal import CountedBlock
from ...core.tree import repeat, sequence
from ..counted_towers import Modules, conv, counted, counted_part, table
from ..multimodal_registry import Assembly, Part, assemble, multimodal
from ..towers import part_config, side, vit_sizes


@multimodal()
def blip_2(c: Config, text: Decoder) -> Assembly:
    c.ignore("image_text_hidden_size", "use_decoder_only_language_model", "initializer_factor")
    v, q = part_config(c, "vision_config", {}), part_config(c, "qformer_config", {})
    tower, d = _tower(v), q.dim("d_q", "hidden_size", default=768)
    projector: Modules = {
        "query_tokens": weight(1, c.dim("n_q", "num_query_tokens", default=32), d, role="lookup"),
        "qformer": _qformer(q, v.dim("d_v", "hidden_size", default=1408), embedded=c.get("model_type", "") != "blip-2"),
        "language_projection": linear(text.width, d, True),
    }
    return assemble(text, vision=("vision_model.", tower), projector=("", counted_part(projector)))


def _tower(v: Config) -> Part:
    v.ignore("attention_dropout", "hidden_act", "initializer_range", "layer_norm_eps")
    d, F, L, _ = vit_sizes(v, width=1408, mlp_width=6144, layers=39, heads=16)
    p, s, norm = side(v, "p_v", "patch_size", 14), side(v, "s_v", "image_size", 224), layer_norm(d, 1e-6)
    layer: Modules = {
        "self_attn.qkv": linear(3 * d, d, v.get("qkv_bias", True)),
        "self_attn.projection": linear(d, d, True),
        "layer_norm1": norm,
        "mlp.fc1": linear(F, d, True),
        "mlp.fc2": linear(d, F, True),
        "layer_norm2": norm,
    }
    return counted_part(
        {
            "embeddings.class_embedding": weight(1, 1, d, role="scale"),
            "embeddings.position_embedding": weight(1, Expr("N_v", (s // p) ** 2 + 1), d, role="lookup"),
            "embeddings.patch_embedding": conv(d, 3, p, p),
            "encoder.layers": repeat(counted(layer), L),
            "post_layernorm": norm,
        }
    )


def _qformer(q: Config, features: Expr, *, embedded: bool) -> CountedBlock:
    """Read BERT's layers, some of which attend to an image; InstructBLIP's read the instruction, too, which is embedded inside."""
    q.ignore(
        "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "initializer_range", "pad_token_id", "encoder_hidden_size"
    )
    q.ignore("layer_norm_eps", "num_attention_heads", "position_embedding_type")
    reads_text = q.get("use_qformer_text_input", False) or embedded
    d, F, L = (
        q.dim("d_q", "hidden_size", default=768),
        q.dim("F_q", "intermediate_size", default=3072),
        q.dim("L_q", "num_hidden_layers", default=12),
    )
    norm, every = layer_norm(d, 1e-12), q.dim("every", "cross_attention_frequency", default=2)
    own = _attention("attention", d, d)
    rest = {**(_mlp("", d, F) if reads_text else {}), **_mlp("_query", d, F)}
    alone, crossing = counted({**own, **rest}), counted({**own, **_attention("crossattention", d, features), **rest})
    embeddings: Modules = {
        "embeddings.word_embeddings": table(q.dim("V_q", "vocab_size", default=30_522), d),
        "embeddings.position_embeddings": table(q.dim("T_q", "max_position_embeddings", default=512), d),
        "embeddings.layernorm": norm,
    }
    layers = sequence((alone if i % every else crossing for i in range(L)), L)
    return counted({**(embeddings if embedded else {"layernorm": norm}), "encoder.layer": layers})


def _attention(name: str, d: Expr, features: Expr) -> Modules:
    return {
        f"{name}.attention.query": linear(d, d, True),
        f"{name}.attention.key": linear(d, features, True),
        f"{name}.attention.value": linear(d, features, True),
        f"{name}.output.dense": linear(d, d, True),
        f"{name}.output.LayerNorm": layer_norm(d, 1e-12),
    }


def _mlp(suffix: str, d: Expr, F: Expr) -> Modules:
    return {
        f"intermediate{suffix}.dense": linear(F, d, True),
        f"output{suffix}.dense": linear(d, F, True),
        f"output{suffix}.LayerNorm": layer_norm(d, 1e-12),
    }
