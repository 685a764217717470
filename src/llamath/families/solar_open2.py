"""Solar Open 2: Kimi's delta attention with steps up to 2, gated attention without positions in
every fourth layer, Solar Open's experts.
"""

from __future__ import annotations

from collections.abc import Callable

from ..checkpoint.naming.hf_names import HF
from ..core.blocks import Attention, Decoder, Linear
from ..core.config import Config
from ..core.constructors import decoder, gqa, linear, rms
from ..core.expr import Expr
from ..core.mixers import KimiDeltaAttention, LowRank, kimi_delta
from .deepseek_shared import deepseek_v3_moe
from .kimi_shared import DELTA_LAYOUTS, delta_hybrid, delta_names
from .layers_shared import layer_numbers
from .registry import family
from .rope_shared import read_rope, rotary_dim

_PROJECTIONS = {"forget": "f", "gate": "g"}
NAMES = HF.with_changes(
    inside={
        **delta_names("self_attn", forget="f_proj", gate="g_proj"),
        "attn.o": "self_attn.o_proj",
        **{
            f"attn.{ours}.{x}": f"self_attn.{theirs}_{y}_proj"
            for ours, theirs in _PROJECTIONS.items()
            for x, y in (("down", "a"), ("up", "b"))
        },
    },
    layouts={**DELTA_LAYOUTS, "attn.a_log": "lead lead"},
)


@family(hf=NAMES)
def solar_open2(c: Config) -> Decoder:
    d, V, eps = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.get("rms_norm_eps", 1e-5)
    c.require("hc_rate", 0, "no published model has hyper-connections")
    full, moe = _attention(c, d, eps), deepseek_v3_moe(c, d)
    layers = delta_hybrid(c, d, eps, _delta(c, d, eps), full, moe, first=0, is_full=_full_layers(c))
    return decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _attention(c: Config, d: Expr, eps: float) -> Attention:
    heads = c.heads(d, num_kv_heads=8, head_dim=128)
    H, _, h = heads
    rope = None
    if c.get("use_rope", False):
        rope = read_rope(c, rotary_dim(c, h))
    c.ignore("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    norm = rms(h, eps) if c.get("use_qk_norm", False) else None
    bias = c.get("use_gqa_gate_bias", False)
    gate = linear(H * h, d, bias) if c.get("use_gqa_gate", True) else None
    return gqa(
        d,
        heads,
        c.get("attention_bias", False),
        False,
        rope=rope,
        gate=gate,
        q_norm=norm,
        k_norm=norm,
    )


def _delta(c: Config, d: Expr, eps: float) -> KimiDeltaAttention:
    s, c_heads = c.sub("linear_attn_config"), c.heads(d, num_kv_heads=8, head_dim=128)
    H, h = (
        s.dim("Hk", "num_heads", default=c_heads.num_heads),
        s.dim("hk", "head_dim", default=c_heads.head_dim),
    )
    if s.get("num_kv_heads", int(H)) != H:
        raise s.error(
            "num_kv_heads",
            f"is {s['num_kv_heads']!r}, but there are {H} heads",
            "every published model has as many keys as queries",
        )
    kernel = s.dim("c", "short_conv_kernel_size", default=4)
    whole = c.get("kda_use_full_proj", False)

    def projection() -> Linear | LowRank:
        if whole:
            return linear(H * h, d)
        return LowRank(down=linear(h, d), up=linear(H * h, h), heads=H)

    found = kimi_delta(d, H, h, kernel, eps, c.activation("hidden_act"), low_rank=False)
    return found.replace(
        forget=projection(),
        gate=projection(),
        beta_factor=2.0 if c.get("kda_allow_neg_eigval", True) else 1.0,
    )


def _full_layers(c: Config) -> Callable[[int], bool]:
    """Return which layers have full attention: those listed, counted from 0, or the first of each
    `gqa_interval` + 1.
    """
    every = c.positive_int("gqa_interval", 3) + 1
    if "gqa_layers" not in c:
        return lambda i: i % every == 0
    listed, n = frozenset(layer_numbers(c, "gqa_layers")), c.dim("L", "num_hidden_layers")
    if not listed or not all(0 <= i < n for i in listed):
        raise c.error("gqa_layers", f"should list some of the layers 0 to {n - 1}")
    return lambda i: i in listed
