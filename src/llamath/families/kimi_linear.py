"""Kimi Linear: Kimi's delta attention, latent attention without positions in every fourth layer,
DeepSeek-V3's experts.
"""

from __future__ import annotations

from collections.abc import Callable

from ..checkpoint.naming.gguf_names import GGUF_LATENT
from ..checkpoint.naming.hf_names import HF_LATENT
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import decoder, rms
from ..core.expr import Expr
from ..core.mixers import KimiDeltaAttention, kimi_delta
from .deepseek_shared import latent_attention
from .kimi_shared import DELTA_GGUF, DELTA_LAYOUTS, delta_hybrid, delta_names, kimi_experts
from .layers_shared import listed_layers
from .registry import family

EXPERTS = {
    "mlp.router": "block_sparse_moe.gate",
    "mlp.correction": "block_sparse_moe.gate.e_score_correction_bias",
    **{
        f"mlp.experts.{{e}}.{ours}": f"block_sparse_moe.experts.{{e}}.w{n}"
        for ours, n in (("gate", 1), ("down", 2), ("up", 3))
    },
    **{
        f"mlp.shared.{x}": f"block_sparse_moe.shared_experts.{x}_proj"
        for x in ("gate", "up", "down")
    },
}
NAMES = HF_LATENT.with_changes(
    inside=delta_names("self_attn") | EXPERTS,
    layouts={**HF_LATENT.layouts, **DELTA_LAYOUTS, "attn.a_log": "lead lead"},
)
SAVED = NAMES.with_changes(
    inside={f"mlp.{x}": f"block_sparse_moe.{x}_proj" for x in ("gate", "up", "down")}, name="hf-5"
)
"""The names that transformers saves: those of the dense layers are in the module of the experts,
too."""
NAMES_GGUF = GGUF_LATENT.with_changes(inside=DELTA_GGUF)


@family(
    hf=NAMES,
    hf_forms=(SAVED,),
    gguf=NAMES_GGUF,
    gguf_arch="kimi-linear",
    causal_class="KimiLinearForCausalLM",
)
def kimi_linear(c: Config) -> Decoder:
    d, V, eps = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.get("rms_norm_eps", 1e-5)
    full, moe = (
        latent_attention(c, d, None, q_rank=None),
        kimi_experts(c, d, groups=1, kept=1, factor=2.446),
    )
    layers = delta_hybrid(c, d, eps, _delta(c, d, eps), full, moe, first=1, is_full=full_layers(c))
    c.sub("linear_attn_config").ignore("full_attn_layers", "kda_layers")
    c.require("mla_use_nope", True, "latent attention of this family has no positions")
    c.ignore(
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "tie_word_embeddings",
        "num_nextn_predict_layers",
    )
    return decoder(
        V,
        d,
        layers,
        rms(d, eps),
        tied=False,
        context=c.positive_int("model_max_length|max_position_embeddings"),
    )


def _delta(c: Config, d: Expr, eps: float) -> KimiDeltaAttention:
    """Read delta attention; published configs have its sizes in an object."""
    s = c.sub("linear_attn_config")

    def size(letter: str, nested: str, key: str, default: int) -> Expr:
        return s.dim(letter, nested) if nested in s else c.dim(letter, key, default=default)

    H, h = (
        size("Hk", "num_heads", "linear_num_heads", 32),
        size("hk", "head_dim", "linear_head_dim", 128),
    )
    c.ignore("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")
    return kimi_delta(
        d,
        H,
        h,
        size("c", "short_conv_kernel_size", "linear_conv_kernel_dim", 4),
        eps,
        c.activation("hidden_act"),
    )


def full_layers(c: Config) -> Callable[[int], bool]:
    """Return which layers have full attention: those listed, counted from 1, or every fourth."""
    s = c.sub("linear_attn_config")
    if "layer_types" in c or ("full_attn_layers" not in s and "kda_layers" not in s):
        return lambda i: i > 0 and i % 4 == 0
    full, recurrent = s["full_attn_layers"], s["kda_layers"]
    L = c.dim("L", "num_hidden_layers")
    listed = [*full, *recurrent] if isinstance(full, list) and isinstance(recurrent, list) else []
    if sorted(x for x in listed if type(x) is int) != [i + 1 for i in listed_layers(c, L)]:
        raise s.error(
            "full_attn_layers",
            f"and kda_layers should list each of the {L} layers once, counted from 1",
        )
    numbers = frozenset(full)
    return lambda i: i + 1 in numbers
