"""Cohere's Command R7B and Command A: Command R with a window in three layers of four, and no
positions in the fourth.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.hf_names import HF
from ..config_keys import any_name
from ..core.attention_facts import AttentionWindow
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, gqa, layer_norm, swiglu
from ..core.positions import Rope
from .gguf_record import ROTARY, GGUFMetadata
from .gguf_shared import unscaled_positions_keys
from .layers_shared import alternating
from .registry import family
from .rope_shared import read_rope

_KEYS = ROTARY.replace("head_dim", "head_dim=stated_head_dim")


@family(
    hf=HF,
    gguf=GGUF,
    gguf_arch="cohere2",
    gguf_metadata=GGUFMetadata(
        keys=f"{_KEYS} layer_norm_eps attention_bias logit_scale sliding_window "
        "layer_types=sliding_layer_types",
        write=unscaled_positions_keys,
    ),
    causal_class="Cohere2ForCausalLM",
)
def cohere2(c: Config) -> Decoder:
    d, V, F, L = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.dim("F", "intermediate_size"),
        c.dim("L", "num_hidden_layers"),
    )
    heads, bias = c.heads(d), c.get("attention_bias", False)
    norm = layer_norm(d, c.get("layer_norm_eps", 1e-5), bias=False)
    mlp = swiglu(d, F, c.activation("hidden_act"))
    window, positions = (
        c.nullable("sliding_window", 4096),
        read_rope(c, heads.head_dim, interleaved=True),
    )
    c.ignore(
        "rotary_pct",
        "layer_switch",
        "order_of_interleaved_layers",
        "position_embedding_type",
        "cache_implementation",
    )
    c.ignore(
        "use_embedding_sharing",
        "use_gated_activation",
        "use_parallel_block",
        "use_parallel_embedding",
        "expert_selection_fn",
    )

    def layer(window: int | None, rope: Rope | None) -> Layer:
        return Layer(
            attn_norm=norm,
            attn=gqa(d, heads, bias, rope=rope, window=AttentionWindow(size=window)),
            mlp=mlp,
            parallel=True,
        )

    near, far = layer(window, positions if window else None), layer(None, None)
    return decoder(
        V,
        d,
        alternating(c, L, near, far, nth=c.get(any_name("sliding_window_pattern"), 4)),
        norm,
        tied=c.get("tie_word_embeddings", True),
        context=c.positive_int("max_position_embeddings"),
        logit_scale=c.get("logit_scale", 0.0625),
    )
