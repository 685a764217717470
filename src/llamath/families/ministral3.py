"""Ministral 3 and Devstral 2: Mistral's layers with YaRN, and queries scaled by their position."""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys, rotary_dim_keys
from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow, ScoreTransform
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.positions import Rope, TemperatureTuning, YarnRope
from ..core.tree import repeat
from .gguf_record import BASE, GGUFMetadata
from .gguf_shared import read_ministral_rope
from .registry import family
from .rope_shared import read_rope


def _write_gguf(f: GGUFFacts) -> Keys:
    """Return the positions, and the temperature that grows with them."""
    from ..checkpoint.gguf_metadata.gguf_rope import rope_scaling_keys

    rope = f.rope
    keys: Keys = (
        {"rope.freq_base": rope.theta if rope else None} | rope_scaling_keys(f) | rotary_dim_keys(f)
    )
    temperature = f.first.score_transform.temperature
    if isinstance(rope, YarnRope):
        keys["rope.scaling.yarn_log_multiplier"] = rope.mscale_all_dim or 0.0
    return keys | {
        "attention.temperature_scale": temperature.scale
        if isinstance(temperature, TemperatureTuning)
        else 0.0
    }


@family(
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="mistral3",
    gguf_metadata=GGUFMetadata(
        keys=f"{BASE} rms_norm_eps sliding_window=window_without_effect",
        read=read_ministral_rope,
        write=_write_gguf,
    ),
    causal_class="Ministral3ForCausalLM",
)
def ministral3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d, num_kv_heads=8, head_dim=128)
    norm, context = rms(d, c.get("rms_norm_eps", 1e-5)), c.get("max_position_embeddings", 262144)
    rotary: Rope = YarnRope(
        theta=1e6,
        dim=heads.head_dim,
        factor=16.0,
        original_context=16384,
        mscale=1.0,
        mscale_all_dim=1.0,
    )
    growth, floor = 0.1, 16384
    if "rope_parameters|rope_scaling" in c:
        s = c.rope()
        rotary, growth = read_rope(c, heads.head_dim), s.get("llama_4_scaling_beta", 0.0)
        floor = s.get("original_max_position_embeddings", context)
        s.ignore("max_position_embeddings")
    window = AttentionWindow(size=c.get("sliding_window", 0) or None)
    temperature = TemperatureTuning(scale=growth, floor=floor) if growth else None
    layer = Layer(
        attn_norm=norm,
        attn=gqa(
            d,
            heads,
            rope=rotary,
            window=window,
            score_transform=ScoreTransform(temperature=temperature),
        ),
        mlp_norm=norm,
        mlp=swiglu(d, F, c.activation("hidden_act")),
    )
    layers = repeat(layer, c.dim("L", "num_hidden_layers"))
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False), context=context)
