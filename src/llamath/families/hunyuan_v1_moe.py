"""Hunyuan-A13B: Hunyuan's attention, with experts and a shared one in every layer."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, mixture, rms, swiglu
from ..core.tree import repeat
from .hunyuan_v1_dense import NAMES as DENSE
from .hunyuan_v1_dense import hunyuan_attention
from .registry import family

NAMES = DENSE.with_changes(
    inside={
        "mlp.router": "mlp.gate.wg",
        "mlp.shared.gate": "mlp.shared_mlp.gate_proj",
        "mlp.shared.up": "mlp.shared_mlp.up_proj",
        "mlp.shared.down": "mlp.shared_mlp.down_proj",
    }
)


@family(
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="hunyuan-moe",
    causal_class="HunYuanMoEV1ForCausalLM",
    has_linear_routers=True,
    renames_experts="hunyuan_v1_moe",
)
def hunyuan_v1_moe(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    norm, attn, activation = (
        rms(d, c.get("rms_norm_eps", 1e-5)),
        hunyuan_attention(c, d),
        c.activation("hidden_act"),
    )
    plain = Config(
        {key: _one_value(c, key) for key in ("num_experts", "moe_topk") if key in c}, c.source
    )
    for key, only in (("num_shared_expert", 1), ("moe_intermediate_size", F.plain())):
        if key in c and _one_value(c, key) != only:
            raise c.error(
                key,
                f"should be {only} in every layer, which is all that transformers' class builds",
            )
    E, k = plain.dim("E", "num_experts", default=1), plain.dim("k", "moe_topk", default=1)
    expert = swiglu(d, F, activation)
    moe = mixture(d, E, k, expert, shared=expert, fp32_router=True)
    layers = repeat(
        Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe), c.dim("L", "num_hidden_layers")
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _one_value(c: Config, key: str) -> object:
    """Return a value that may be listed layer by layer."""
    value = c[key]
    if not isinstance(value, list):
        return value
    if len(set(map(repr, value))) != 1:
        raise c.error(key, "should be the same in every layer")
    return value[0]
