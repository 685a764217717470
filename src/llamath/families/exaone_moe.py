"""K-EXAONE: EXAONE 4's attention, a norm before each branch, and DeepSeek-V3's mixture of
experts after the first layers.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer, MoE
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.expr import Expr
from ..core.positions import Rope
from .deepseek_shared import sigmoid_experts
from .exaone4 import order_of_windows
from .layers_shared import mlp_kinds, with_experts
from .registry import family
from .rope_shared import read_rope

NAMES = HF.with_changes(inside={"mlp.correction": "mlp.e_score_correction_bias"})


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="exaone-moe",
    causal_class="ExaoneMoeForCausalLM",
    renames_experts="exaone_moe",
)
def exaone_moe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads, eps, activation = (
        c.heads(d, num_kv_heads=32),
        c.get("rms_norm_eps", 1e-5),
        c.activation("hidden_act"),
    )
    norm, head_norm, rotary = rms(d, eps), rms(heads.head_dim, eps), read_rope(c, heads.head_dim)
    moe, dense, window = (
        _moe(c, d, activation),
        swiglu(d, F, activation),
        c.nullable("sliding_window", 4096),
    )

    def layer(rotary: Rope | None, window: int | None) -> Layer:
        attn = gqa(
            d,
            heads,
            q_norm=head_norm,
            k_norm=head_norm,
            rope=rotary,
            window=AttentionWindow(size=window),
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=dense)

    layers = order_of_windows(c, layer(rotary, window), layer(None if window else rotary, None))
    sparse = mlp_kinds(c, layers.n, first=c.get("first_k_dense_replace", 1))
    layers = with_experts(c, layers, moe, (x == "sparse" for x in sparse))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _moe(c: Config, d: Expr, activation: str) -> MoE:
    E, k, Fe = (
        c.dim("E", "num_experts"),
        c.dim("k", "num_experts_per_tok"),
        c.dim("Fe", "moe_intermediate_size"),
    )
    shared = swiglu(d, c.dim("S", "num_shared_experts", default=1) * Fe, activation)
    return sigmoid_experts(c, d, E, k, swiglu(d, Fe, activation), shared, factor=2.5)
