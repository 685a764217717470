"""OpenELM: in each layer its own number of heads and width of the MLP, norms on the heads of q
and k, tied head.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..checkpoint.naming.gguf_names import GGUF_QKV
from ..checkpoint.naming.scheme import Scheme
from ..core.attention_facts import Heads
from ..core.blocks import Attention, Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mlp, rms, swiglu
from ..core.positions import Rope
from .layers_shared import check_listed, layers_from, numbered
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="transformer.layers.{l}.",
    outside={
        "embed": "transformer.token_embeddings",
        "norm": "transformer.norm",
        "head": "lm_head",
    },
    inside={
        "attn_norm": "attn_norm",
        **dict.fromkeys(("attn.q", "attn.k", "attn.v"), "attn.qkv_proj"),
        "attn.o": "attn.out_proj",
        "attn.q_norm": "attn.q_norm",
        "attn.k_norm": "attn.k_norm",
        "mlp_norm": "ffn_norm",
        **dict.fromkeys(("mlp.gate", "mlp.up"), "ffn.proj_1"),
        "mlp.down": "ffn.proj_2",
    },
)


@family(hf=NAMES, gguf=GGUF_QKV, gguf_arch="openelm")
def openelm(c: Config) -> Decoder:
    d, V, L, h = (
        c.dim("d", "model_dim"),
        c.dim("V", "vocab_size"),
        c.dim("L", "num_transformer_layers"),
        c.dim("h", "head_dim"),
    )
    check_listed(c, L, "num_transformer_layers")
    c.require("normalization_layer_name", "rms_norm", "every published model has it")
    norm, head_norm = (
        rms(d, 1e-6),
        rms(h, 1e-6) if c.get("normalize_qk_projections", True) else None,
    )
    rotary, activation = (
        Rope(theta=c.get("rope_freq_constant", 1e4), dim=h),
        c.activation("activation_fn_name", "swish"),
    )
    widths = [_width(c, x, d) for x in _per_layer(c, "ffn_multipliers", L, float)]
    queries, groups = (
        _per_layer(c, "num_query_heads", L, int),
        _per_layer(c, "num_kv_heads", L, int),
    )
    letters = {
        name: numbered(name, values)
        for name, values in (("H", queries), ("K", groups), ("F", widths))
    }
    gated = c.get("ffn_with_glu", True)

    @cache
    def attention(H: int, K: int) -> Attention:
        heads = Heads(letters["H"][H], letters["K"][K], h)
        return gqa(d, heads, q_norm=head_norm, k_norm=head_norm, rope=rotary)

    def layer(H: int, K: int, F: int) -> Layer:
        if H % K:
            raise c.error(
                "num_kv_heads", f"has {K}, which does not divide the {H} heads of its layer"
            )
        width = letters["F"][F]
        return Layer(
            attn_norm=norm,
            attn=attention(H, K),
            mlp_norm=norm,
            mlp=swiglu(d, width, activation) if gated else mlp(d, width, activation),
        )

    layers = layers_from(layer, queries, groups, widths, count_dim=L)
    c.ignore("num_gqa_groups", "qkv_multipliers", "rope_max_length")
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("share_input_output_layers", True),
        context=c.positive_int("max_context_length"),
    )


def _per_layer(c: Config, key: str, n: int, kind: type) -> list[Any]:
    """Read a positive number for each layer."""
    values: list[Any] = c[key]
    if (
        not isinstance(values, list)
        or len(values) != n
        or any(type(x) not in (int, kind) or not 0 < x < 2**31 for x in values)
    ):
        raise c.error(key, f"should be a list with a positive number for each of {n} layers")
    return values


def _width(c: Config, multiplier: float, d: int) -> int:
    """Return the width of an MLP: a multiple of `ffn_dim_divisor` near multiplier · d."""
    divisor = c.dim("divisor", "ffn_dim_divisor", default=256)
    width = max(int(divisor), int(multiplier * d + divisor / 2) // int(divisor) * int(divisor))
    return width + int(divisor) if width < 0.9 * multiplier * d else width
