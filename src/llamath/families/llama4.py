"""Llama 4: chunked rotary layers, every fourth global and without positions; experts stored as
stacks, input first.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import Keys, expert_width_keys, rotary_dim_keys
from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF_STACKED
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow, QKPreprocess, ScoreTransform
from ..core.blocks import Decoder, Layer, RMSNorm
from ..core.config import Config
from ..core.constructors import decoder, gqa, mixture, rms, swiglu
from ..core.positions import TemperatureTuning
from ..core.tree import cycle
from .gguf_record import LOCAL_EXPERTS, ROTARY, GGUFMetadata
from .layers_shared import check_listed, layer_numbers
from .registry import family
from .rope_shared import read_rope

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

NAMES = HF_STACKED.with_changes(
    inside={
        "mlp.router": "feed_forward.router",
        **{f"mlp.{x}": f"feed_forward.{x}_proj" for x in ("gate", "up", "down")},
        **{
            f"mlp.shared.{x}": f"feed_forward.shared_expert.{x}_proj"
            for x in ("gate", "up", "down")
        },
        **{
            f"mlp.experts.{{e}}.{x}.weight": "feed_forward.experts.gate_up_proj"
            for x in ("gate", "up")
        },
        "mlp.experts.{e}.down.weight": "feed_forward.experts.down_proj",
    },
)


_MAVERICK_EXPERTS = 128
"""Llama 4 with this many experts (Maverick) has no norms on queries and keys; llama.cpp
recognizes it by that number."""
_KEYS = ROTARY.replace("intermediate_size", "intermediate_size_mlp=intermediate_size")


def _read_gguf(h: GGUFHeader) -> Keys:
    """Return the norms and layer types: with a window of 0, all layers have full attention and
    rotary positions.
    """
    if not h.uniform_integer("expert_count"):
        raise h.unsupported("no experts")
    keys: Keys = {"use_qk_norm": h.uniform_integer("expert_count") != _MAVERICK_EXPERTS}
    if h.uniform_integer("attention.sliding_window") == 0:
        keys |= {"layer_types": ["full_attention"] * h.layers, "no_rope_layers": [1] * h.layers}
    return keys


@family(
    "llama4_text",
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="llama4",
    gguf_metadata=GGUFMetadata(
        keys=f"{_KEYS} intermediate_size=moe_intermediate_size rms_norm_eps {LOCAL_EXPERTS} "
        "attention_bias interleave_moe_layer_step moe_layers",
        constants={"no_rope_layer_interval": 4},
        read=_read_gguf,
        write=lambda f: expert_width_keys(f) | rotary_dim_keys(f),
    ),
    causal_class="Llama4ForCausalLM",
    has_linear_routers=True,
)
def llama4(c: Config) -> Decoder:
    d, V, F, Fe = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size_mlp"),
        c.dim("Fe", "intermediate_size"),
    )
    E, k = c.dim("E", "num_local_experts"), c.dim("k", "num_experts_per_tok")
    heads, eps, activation = (
        c.heads(d, num_kv_heads=8, head_dim=128),
        c.get("rms_norm_eps", 1e-5),
        c.activation("hidden_act"),
    )
    norm, qk_norm = rms(d, eps), RMSNorm(eps=eps) if c.get("use_qk_norm", True) else None
    has_tuning = "attn_temperature_tuning" not in c or c["attn_temperature_tuning"]
    temperature = (
        TemperatureTuning(
            scale=c.get("attn_scale", 0.1), floor=c.get("floor_scale", 8192), offset=1
        )
        if has_tuning
        else None
    )
    nope_attn = gqa(
        d,
        heads,
        bias=c.get("attention_bias", False),
        score_transform=ScoreTransform(temperature=temperature),
    )
    facts = {
        "q_norm": qk_norm,
        "k_norm": qk_norm,
        "qk_preprocess": QKPreprocess(after_rope=True),
        "score_transform": ScoreTransform(),
    }
    rope_attn = nope_attn.replace(rope=read_rope(c, heads.head_dim, 5e5, interleaved=True), **facts)
    expert, chunk = swiglu(d, Fe, activation), c.get("attention_chunk_size", 8192)
    moe = mixture(d, E, k, expert, shared=expert, scoring="sigmoid").replace(routing="input")
    plain = swiglu(d, F, activation)

    def layer(rotates: bool, chunked: bool, sparse: bool) -> Layer:
        attn = (rope_attn if rotates else nope_attn).replace(
            window=AttentionWindow(chunk=chunk if chunked else None)
        )
        return Layer(attn_norm=norm, attn=attn, mlp_norm=norm, mlp=moe if sparse else plain)

    kinds = _kinds(c)
    layer_by_kind = {kind: layer(*kind) for kind in dict.fromkeys(kinds)}
    layers = cycle([layer_by_kind[kind] for kind in kinds], c.dim("L", "num_hidden_layers"))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def _kinds(c: Config) -> list[tuple[bool, bool, bool]]:
    """Return (rotary, chunked, sparse) of every layer, or of one period of layers."""
    L, empty = c.dim("L", "num_hidden_layers"), list[object]()
    step, nope_interval = (
        c.dim("step", "interleave_moe_layer_step", 1),
        c.dim("every", any_name("no_rope_layer_interval"), 4),
    )
    rope_flags, types, moe = (
        c.get("no_rope_layers", empty),
        c.get("layer_types", empty),
        layer_numbers(c, "moe_layers"),
    )
    n = int(L) if rope_flags or types or "moe_layers" in c else min(L, lcm(step, nope_interval))
    check_listed(c, n)
    rotates = [bool(x) for x in rope_flags] or [(i + 1) % nope_interval != 0 for i in range(n)]
    chunked = [x == "chunked_attention" for x in types] or rotates
    sparse = set(moe) if "moe_layers" in c else set(range(step - 1, n, step))
    if too_short := [
        key for key, x in (("no_rope_layers", rotates), ("layer_types", chunked)) if len(x) < n
    ]:
        raise c.error(too_short[0], f"lists {len(c[too_short[0]])} layers, not {L}")
    return [(rotates[i], chunked[i], i in sparse) for i in range(n)]
