"""Jamba: Mamba with normed time steps, b and c, attention without positions in every eighth
layer, experts in every second.
"""

from __future__ import annotations

from functools import cache
from math import lcm

from ..checkpoint.naming.gguf_names import GGUF
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.tree import cycle
from .bamba import NAMES_FEED_FORWARD
from .mamba_shared import (
    MAMBA_GGUF,
    MAMBA_LAYOUTS,
    MAMBA_LAYOUTS_GGUF,
    mamba_names,
    selective_mixer,
)
from .qwen_shared import MAX_PERIOD
from .registry import family

EXPERTS = {
    f"mlp.experts.{{e}}.{x}": f"feed_forward.experts.{{e}}.{x}_proj" for x in ("gate", "up", "down")
}
NAMES = NAMES_FEED_FORWARD.with_changes(
    inside={"mlp.router": "feed_forward.router", **EXPERTS, **mamba_names("mamba")},
    layouts=MAMBA_LAYOUTS,
)
NAMES_GGUF = GGUF.with_changes(inside=MAMBA_GGUF, layouts=MAMBA_LAYOUTS_GGUF)


@family(hf=NAMES, gguf=NAMES_GGUF, gguf_arch="jamba", causal_class="JambaForCausalLM")
def jamba(c: Config) -> Decoder:
    d, V, L = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("L", "num_hidden_layers")
    E, k = (
        c.dim("E", any_name("num_experts"), default=16),
        c.dim("k", "num_experts_per_tok", default=2),
    )
    norm, attention = rms(d, c.get("rms_norm_eps", 1e-6)), gqa(d, c.heads(d, num_kv_heads=8))
    mixer = selective_mixer(c, d)
    mlp = swiglu(d, c.dim("F", "intermediate_size"), c.activation("hidden_act"))
    moe = mixture(d, E, k, mlp, norm_topk_prob=False)

    @cache
    def layer(attends: bool, sparse: bool) -> Layer:
        return Layer(
            attn_norm=norm,
            attn=attention if attends else mixer,
            mlp_norm=norm,
            mlp=moe if sparse else mlp,
        )

    (every, first), (nth, start) = _period(c, "attn_layer", 8, 4), _period(c, "expert_layer", 2, 1)
    pattern = [
        layer(i % every == first, E > 1 and i % nth == start)
        for i in range(min(lcm(every, nth), L))
    ]
    c.ignore(
        "layer_types",
        "layers_block_type",
        "num_logits_to_keep",
        "mamba_inner_layernorms",
        "n_ctx",
        "sliding_window",
    )
    return decoder(
        V,
        d,
        cycle(pattern, L),
        norm,
        c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _period(c: Config, key: str, period: int, offset: int) -> tuple[int, int]:
    """Read every how many layers there is one of a kind, and the number of the first."""
    period, offset = c.get(f"{key}_period", period), c.get(f"{key}_offset", offset)
    if not 1 <= period <= MAX_PERIOD:
        raise c.error(f"{key}_period", f"should be from 1 to {MAX_PERIOD}, not {period}")
    if not 0 <= offset < period:
        raise c.error(
            f"{key}_offset",
            f"should be from 0 to {period - 1}, not {offset}",
            f"{key}_period is {period}",
        )
    return period, offset
