"""EXAONE 4: OLMo 2's norms around the branches, a norm for each head, and no rotary positions in
the layers without a window.
"""

from __future__ import annotations

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys
from ..checkpoint.naming.gguf_names import GGUF
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, rms, swiglu
from ..core.positions import Rope
from ..core.tree import Stack, cycle
from ..utils.errors import ConvertError, safe
from .gguf_record import LLAMA, GGUFMetadata
from .layers_shared import alternating, layers_by_type
from .olmo2 import NAMES
from .registry import family
from .rope_shared import read_rope

_LAYERS_WITH_WINDOWS = 64


def _write_gguf(f: GGUFFacts) -> Keys:
    """Refuse windows where llama.cpp has none: it recognizes the 32B by its number of layers."""
    from ..checkpoint.gguf_metadata.gguf_keys import windows_of_layers_keys

    if f.sliding is not None and len(f.layers) != _LAYERS_WITH_WINDOWS:
        raise ConvertError(
            f"{safe(f.name)}: llama.cpp's exaone4 architecture has windows only in models "
            f"of {_LAYERS_WITH_WINDOWS} layers, "
            f"and this one has {len(f.layers)} layers",
            hint="the file would be a different model, so it is not written",
        )
    return windows_of_layers_keys(f)


@family(
    "exaone4 exaone4_5_text",
    hf=NAMES,
    gguf=GGUF,
    gguf_arch="exaone4",
    gguf_metadata=GGUFMetadata(
        keys=f"{LLAMA} sliding_window? layer_types=sliding_layer_types", write=_write_gguf
    ),
    causal_class="Exaone4ForCausalLM",
)
def exaone4(c: Config) -> Decoder:
    d, V, F = c.dim("d", "hidden_size"), c.dim("V", "vocab_size"), c.dim("F", "intermediate_size")
    heads = c.heads(d, num_kv_heads=32)
    eps, window, rotary = (
        c.get("rms_norm_eps", 1e-5),
        c.nullable("sliding_window", 4096),
        read_rope(c, heads.head_dim),
    )
    norm, head_norm, mlp = (
        rms(d, eps),
        rms(heads.head_dim, eps),
        swiglu(d, F, c.activation("hidden_act")),
    )

    def layer(rotary: Rope | None, window: int | None) -> Layer:
        attention = gqa(
            d,
            heads,
            q_norm=head_norm,
            k_norm=head_norm,
            rope=rotary,
            window=AttentionWindow(size=window),
        )
        return Layer(attn=attention, attn_out_norm=norm, mlp=mlp, mlp_out_norm=norm)

    layers = order_of_windows(c, layer(rotary, window), layer(None if window else rotary, None))
    return decoder(
        V,
        d,
        layers,
        norm,
        tied=c.get("tie_word_embeddings", False),
        context=c.positive_int("max_position_embeddings"),
    )


def order_of_windows(c: Config, windowed: Layer, full: Layer) -> Stack:
    """Return the layers by `layer_types` or `sliding_window_pattern`: n (every nth has no
    window), or letters, the last a G.
    """
    L = c.dim("L", "num_hidden_layers")
    if not isinstance(c.data.get("sliding_window_pattern"), str):
        # transformers saves 0 where there is no window
        return alternating(c, L, windowed, full, c.get("sliding_window_pattern", 4) or 4)
    letters, pattern = {"L": windowed, "G": full}, c.get("sliding_window_pattern", "LLLG")
    if not pattern or set(pattern) - set(letters):
        raise c.error(
            "sliding_window_pattern", f"should be letters L and G, not {safe(repr(pattern), 60)}"
        )
    order = cycle([letters[x] for x in pattern], L - 1)
    return layers_by_type(
        c,
        L,
        {"sliding_attention": windowed, "full_attention": full},
        Stack(*order.runs, ((full,), 1)),
    )
