"""SmolLM3: Llama's layers, every fourth without rotary positions."""

from __future__ import annotations

from collections.abc import Callable

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..checkpoint.naming.hf_names import HF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.positions import Rope
from ..core.tree import Stack, sequence
from .gguf_record import LLAMA, GGUFMetadata
from .layers_shared import every_nth
from .registry import family
from .rope_shared import read_rope


@family(
    hf=HF,
    gguf=GGUF_LLAMA,
    gguf_arch="smollm3",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} attention_bias mlp_bias",
        unstated="which layers have no rotary positions; using every fourth layer",
    ),
    causal_class="SmolLM3ForCausalLM",
)
def smollm3(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d, num_kv_heads=4)
    norm, mlp = (
        rms(d, c.get("rms_norm_eps", 1e-6)),
        swiglu(d, F, c.activation("hidden_act"), bias=c.get("mlp_bias", False)),
    )
    bias, rotary = c.get("attention_bias", False), read_rope(c, heads.head_dim, theta=2e6)
    window = (c.get("sliding_window", 0) or None) if c.get("use_sliding_window", False) else None
    c.ignore("sliding_window", "max_window_layers")

    def layer(rotary: Rope | None, window: int | None) -> Layer:
        return Layer(
            attn_norm=norm,
            attn=gqa(d, heads, bias=bias, rope=rotary, window=AttentionWindow(size=window)),
            mlp_norm=norm,
            mlp=mlp,
        )

    layers = _order(
        c,
        lambda has_rope, is_sliding: layer(
            rotary if has_rope else None, window if is_sliding else None
        ),
    )
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
    )


def _order(c: Config, layer: Callable[[bool, bool], Layer]) -> Stack:
    """Return the layers: every nth has no rotary positions, and those have the window if there
    is one.
    """
    L, nth = c.dim("L", "num_hidden_layers"), c.positive_int("no_rope_layer_interval", 4)
    rope_flags, types = c.get("no_rope_layers", [1][:0]), c.get("layer_types", [""][:0])
    if not rope_flags and not types:
        return every_nth(nth, layer(False, True), layer(True, False), L)
    for key, values in (("no_rope_layers", rope_flags), ("layer_types", types)):
        if values and len(values) < L:
            raise c.error(key, f"lists {len(values)} layers, not {L}")
    has_rope = [bool(x) for x in rope_flags[:L]] or [(i + 1) % nth != 0 for i in range(L)]
    is_sliding = [x == "sliding_attention" for x in types[:L]] or [not x for x in has_rope]
    kinds = {(x, y): layer(x, y) for x in (True, False) for y in (True, False)}
    return sequence(kinds[pair] for pair in zip(has_rope, is_sliding, strict=True))
