"""OLMo Hybrid: three layers of linear attention, with norms on their inputs, to one of OLMo 2's
attention.
"""

from __future__ import annotations

from ..core.attention_facts import QKPreprocess
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.expr import Expr
from ..core.mixers import DeltaHeads, GatedDeltaNet, split_gated_delta
from ..core.tree import sequence
from .kimi_shared import DELTA_LAYOUTS, delta_names
from .layers_shared import layer_kinds
from .olmo2 import NAMES as OLMO2
from .registry import family
from .rope_shared import read_rope

NAMES = OLMO2.with_changes(
    inside={
        **delta_names("linear_attn", z="g_proj", alpha="a_proj"),
        "attn_norm": "attention_layer_norm",
        "mlp_norm": "feedforward_layer_norm",
    },
    layouts=DELTA_LAYOUTS,
)

SAVED = NAMES.with_changes(
    inside={"attn_out_norm": "feedforward_layer_norm"},
    name="hf-5",
    chunked=tuple(f"attn.{x}_conv.weight" for x in ("query", "key", "value")),
)
"""The names that transformers saves: the norm of both kinds of layers has one name, and the
three convolutions are cut into thirds."""


@family(hf=NAMES, hf_forms=(SAVED,), causal_class="OlmoHybridForCausalLM")
def olmo_hybrid(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = H, K, h = c.heads(d)
    eps, facts, positions = (
        c.get("rms_norm_eps", 1e-6),
        QKPreprocess(across_heads=True),
        c.sub("rope_parameters").data,
    )
    rope = None if positions.get("rope_theta", 0) is None else read_rope(c, h)
    q_norm, k_norm, bias = rms(H * h, eps), rms(K * h, eps), c.get("attention_bias", False)
    attn = gqa(d, heads, bias, q_norm=q_norm, k_norm=k_norm, qk_preprocess=facts, rope=rope)
    norm, mlp, L = (
        rms(d, eps),
        swiglu(d, F, c.activation("hidden_act")),
        c.dim("L", "num_hidden_layers"),
    )
    layers = {
        "linear_attention": Layer(attn_norm=norm, attn=_delta(c, d, H), mlp_norm=norm, mlp=mlp),
        "full_attention": Layer(attn=attn, attn_out_norm=norm, mlp=mlp, mlp_out_norm=norm),
    }
    kinds = layer_kinds(
        c,
        L,
        layers,
        lambda i: "full_attention" if i % 4 == 3 or (L < 4 and i == L - 1) else "linear_attention",
    )
    if missing := sorted(layers.keys() - set(kinds)):
        key = "layer_types" if "layer_types" in c else "num_hidden_layers"
        raise c.error(key, f"leaves no layer of {missing[0]}; the class needs both kinds")
    c.ignore(
        "linear_a_log_min",
        "linear_a_log_max",
        "linear_dt_min",
        "linear_dt_max",
        "linear_dt_init_floor",
    )
    tied, context = c.get("tie_word_embeddings", False), c.positive_int("max_position_embeddings")
    return decoder(
        V, d, sequence((layers[x] for x in kinds), count_dim=L), norm, tied, context=context
    )


def _delta(c: Config, d: Expr, H: Expr) -> GatedDeltaNet:
    """Read linear attention; in the class its keys have three quarters of the width in all, and
    its values twice as many numbers.
    """
    Hk, Hv = (
        c.dim("Hk", "linear_num_key_heads", default=H),
        c.dim("Hv", "linear_num_value_heads", default=H),
    )
    hk = c.dim("hk", "linear_key_head_dim", default=3 * int(d) // (4 * int(Hk)))
    hv = c.dim("hv", "linear_value_head_dim", default=2 * int(hk))
    if Hv % Hk:
        raise c.error(
            "linear_num_key_heads", f"is {Hk}, which does not divide the {Hv} value heads"
        )
    kernel, factor = (
        c.dim("c", "linear_conv_kernel_dim", default=4),
        2.0 if c.get("linear_allow_neg_eigval", True) else 1.0,
    )
    return split_gated_delta(
        d, DeltaHeads(Hk, hk, Hv, hv), kernel, 1e-5, c.activation("hidden_act")
    ).replace(beta_factor=factor)
