"""ERNIE 4.5, mixture: the dense model's attention, and experts chosen with a learned bias in
some of its layers.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu, unembedding
from ..core.expr import Expr
from ..core.tree import repeat
from .layers_shared import with_experts
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(
    inside={"mlp.correction": "mlp.moe_statics.e_score_correction_bias"},
    layouts={"mlp.correction": "lead"},
)
_UNUSED = "moe_capacity moe_gate moe_use_aux_free moe_norm_min num_nextn_predict_layers"


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="ernie4_5-moe",
    causal_class="Ernie4_5_MoeForCausalLM",
    renames_experts="ernie4_5_moe",
)
def ernie4_5_moe(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, norm, bias = (
        c.heads(d, num_kv_heads=4),
        rms(d, c.get("rms_norm_eps", 1e-5)),
        c.get("use_bias", False),
    )
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d, heads, bias=bias, rope=read_rope(c, heads.head_dim, theta=5e5, interleaved=True)
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act"), bias=bias),
    )
    first, last, every = (
        c.get("moe_layer_start_index", 1),
        c.get("moe_layer_end_index", -1),
        c.positive_int("moe_layer_interval", 1),
    )
    sparse = (
        first <= i <= (L - 1 if last == -1 else last) and (i + 1) % every == 0 for i in range(L)
    )
    layers = with_experts(c, repeat(layer, L), _moe(c, d, bias), sparse)
    c.ignore(*_UNUSED.split())
    tied, context = c.get("tie_word_embeddings", True), c.positive_int("max_position_embeddings")
    return decoder(V, d, layers, norm, tied, head=unembedding(V, d, tied, bias), context=context)


def _moe(c: Config, d: Expr, bias: bool) -> MoE:
    E, k, Fe = (
        c.dim("E", "moe_num_experts|num_experts"),
        c.dim("k", "moe_k|num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    S, activation = (
        c.dim("S", "moe_num_shared_experts", default=2, least=0),
        c.activation("hidden_act"),
    )
    shared = swiglu(d, S * Fe, activation, bias) if S else None
    return mixture(
        d, E, k, swiglu(d, Fe, activation), corrected=True, shared=shared, fp32_router=True
    )
