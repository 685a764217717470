"""GLM-5: DeepSeek-V3.2's attention to selected keys; from GLM-5.2 on, most layers use the
selection of an earlier one.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .deepseek_shared import deepseek_v3_moe, mtp_layers
from .indexed_shared import HF_INDEXED, indexed_attention, layers_with_indexers, without_indexer
from .layers_shared import dense_or_sparse, listed_layers, read_layer_types
from .registry import family
from .rope_shared import read_rope

GGUF_INDEXED = GGUF_LATENT.with_changes(
    inside={
        "attn.indexer.q": "indexer.attn_q_b",
        "attn.indexer.k": "indexer.attn_k",
        "attn.indexer.k_norm": "indexer.k_norm",
        "attn.indexer.head_weights": "indexer.proj",
    }
)


@family(
    hf=HF_INDEXED,
    gguf=GGUF_INDEXED,
    gguf_arch="glm-dsa",
    causal_class="GlmMoeDsaForCausalLM",
    renames_experts="glm_moe_dsa",
)
def glm_moe_dsa(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm, rope = (
        rms(d, c.get("rms_norm_eps", 1e-5)),
        read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=True),
    )
    attn = indexed_attention(c, d, rope, rope, heads=32, q_rank=2048)
    c.ignore("rope_interleave", "mlp_bias", "layer_types")
    moe = deepseek_v3_moe(c, d, factor=2.5)
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe), default=3)
    layers = layers_with_indexers(c, layers, indexer_types(c, len(layers)), without_indexer)
    mtp = mtp_layers(c, V, d, dense.replace(mlp=moe))
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
        mtp=mtp,
    )


def indexer_types(c: Config, n: int) -> list[str]:
    """Read the schedule of indexers: a pattern of F and S, or every `index_topk_freq`th layer
    from an offset on.
    """
    every, offset = max(c.get("index_topk_freq", 1), 1), c.get("index_skip_topk_offset", 2)
    pattern: object = c.get("index_topk_pattern", None)
    if pattern is None:
        return ["shared" if max(i - offset + 1, 0) % every else "full" for i in listed_layers(c, n)]
    if isinstance(pattern, list):
        return read_layer_types(c, n, ("full", "shared"), "index_topk_pattern")
    if not isinstance(pattern, str) or len(pattern) != n or not set(pattern) <= {"F", "S"}:
        raise c.error(
            "index_topk_pattern",
            f"should have {n} letters, F for layers with an indexer and S for layers without one",
        )
    return ["full" if x == "F" else "shared" for x in pattern]
