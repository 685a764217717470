"""Mamba-2: a stack of state spaces with one matrix for each head, without attention and MLPs."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..config_keys import any_name
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms
from ..core.mixers import MambaSizes
from ..core.mixers import mamba2 as mamba2_mixer
from ..core.tree import repeat
from .mamba import NAMES as NAMES_MAMBA
from .mamba import UNUSED
from .mamba_shared import (
    MAMBA2_GGUF,
    MAMBA2_LAYOUTS,
    MAMBA2_LAYOUTS_GGUF,
    checked_sizes,
    mamba2_names,
    time_step_limit,
)
from .registry import family

NAMES = NAMES_MAMBA.replace(
    inside={"attn_norm": "norm", **mamba2_names("mixer")}, layouts=MAMBA2_LAYOUTS
)
NAMES_GGUF = GGUF.with_changes(inside=MAMBA2_GGUF, layouts=MAMBA2_LAYOUTS_GGUF)


@family(hf=NAMES, gguf=NAMES_GGUF, gguf_arch="mamba2", causal_class="Mamba2ForCausalLM")
def mamba2(c: Config) -> Decoder:
    d, V, eps = (
        c.dim("d", "hidden_size"),
        c.dim("V", "vocab_size"),
        c.get("layer_norm_epsilon", 1e-5),
    )
    Hm, m = c.dim("Hm", "num_heads", default=128), c.dim("m", "head_dim", default=64)
    G, N = c.dim("G", "n_groups", default=8), c.dim("N", "state_size", default=128)
    mixer = mamba2_mixer(
        d,
        checked_sizes(
            c, MambaSizes(Hm, m, G, N), d.scaled(c.get("expand", 2)), "head_dim", "n_groups"
        ),
        c.dim("c", "conv_kernel", default=4),
        eps,
        bias=c.get("use_bias", False),
        conv_bias=c.get(any_name("use_conv_bias"), True),
        activation=c.activation("hidden_act"),
        dt_limits=time_step_limit(c),
    )
    norm = rms(d, eps)
    layers = repeat(Layer(attn_norm=norm, attn=mixer), c.dim("L", "num_hidden_layers"))
    c.ignore(
        *UNUSED.split(), "time_step_rank", "chunk_size", "norm_before_gate", "intermediate_size"
    )
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", False))
