"""DeepSeek-V3.2: DeepSeek-V3, in which each query attends to the keys that an indexer selects."""

from __future__ import annotations

from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms, swiglu
from .deepseek_shared import deepseek_v3_moe, mtp_layers
from .indexed_shared import HF_INDEXED, indexed_attention
from .layers_shared import dense_or_sparse
from .registry import family
from .rope_shared import read_rope


@family(hf=HF_INDEXED, causal_class="DeepseekV32ForCausalLM", renames_experts="deepseek_v32")
def deepseek_v32(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm, rope = (
        rms(d, c.get("rms_norm_eps", 1e-6)),
        read_rope(c, c.dim("p", "qk_rope_head_dim"), interleaved=True),
    )
    attn = indexed_attention(c, d, rope, rope.replace(interleaved=False), heads=64, q_rank=1536)
    c.ignore("rope_interleave", "mlp_bias", "layer_types")
    moe = deepseek_v3_moe(c, d, factor=2.5, groups=(8, 4))
    dense = Layer(
        attn_norm=norm, attn=attn, mlp_norm=norm, mlp=swiglu(d, F, c.activation("hidden_act"))
    )
    layers = dense_or_sparse(c, dense, dense.replace(mlp=moe), default=3)
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
