"""LFM2-MoE: LFM2's convolutions and attention; after the first layers, experts chosen by sigmoid
scores with a learned bias.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.mixers import short_conv
from ..core.tree import sequence
from .layers_shared import read_layer_types
from .lfm2 import CONV
from .lfm2 import NAMES as LFM2
from .registry import family
from .rope_shared import read_rope

NAMES = LFM2.with_changes(
    inside={
        "mlp.router": "feed_forward.gate",
        "mlp.correction": "feed_forward.expert_bias",
        "mlp.experts.{e}.gate": "feed_forward.experts.{e}.w1",
        "mlp.experts.{e}.down": "feed_forward.experts.{e}.w2",
        "mlp.experts.{e}.up": "feed_forward.experts.{e}.w3",
    }
)
NAMES_GGUF = GGUF.with_changes(
    outside={"norm": "token_embd_norm"},
    inside={path: f"short{name}" for path, name in CONV.items()},
)


@family(hf=NAMES, gguf=NAMES_GGUF, gguf_arch="lfm2moe", causal_class="Lfm2MoeForCausalLM")
def lfm2_moe(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    heads, eps = c.heads(d, num_kv_heads=8), c.get("norm_eps", 1e-5)
    norm, head_norm = rms(d, eps), rms(heads.head_dim, eps)
    attn = gqa(d, heads, rope=read_rope(c, heads.head_dim, 1e6), q_norm=head_norm, k_norm=head_norm)
    conv = short_conv(d, c.dim("c", "conv_L_cache", default=3), c.get("conv_bias", False))
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    corrected, summed, factor = (
        c.get("use_expert_bias", True),
        c.get("norm_topk_prob", True),
        c.get("routed_scaling_factor", 1.0),
    )
    moe = mixture(
        d,
        E,
        k,
        swiglu(d, Fe),
        corrected=corrected,
        scoring="sigmoid",
        norm_topk_prob=summed,
        routed_scaling_factor=factor,
    )
    dense = swiglu(d, c.dim("F", "intermediate_size"))
    mixers = {"full_attention": attn, "conv": conv}
    kinds = {
        (x, y): Layer(attn_norm=norm, attn=mixers[x], mlp_norm=norm, mlp=y)
        for x in mixers
        for y in (dense, moe)
    }
    first = int(c.dim("dense", "num_dense_layers", default=2, least=0))
    types = read_layer_types(c, L, mixers)
    layers = sequence(
        (kinds[x, dense if i < first else moe] for i, x in enumerate(types)), count_dim=L
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        c.get("tie_embedding|tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
    )
