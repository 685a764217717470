"""Granite 4: layers of Mamba-2 and a few of attention, with Granite's multipliers, and a shared
MLP alone or beside experts.
"""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF_LLAMA
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.tree import repeat
from .granite_shared import (
    NAMES_MOE,
    granite_attention,
    granite_decoder,
    granite_experts,
    granite_layer,
    granite_shared_mlp,
)
from .layers_shared import layers_by_type
from .mamba_shared import (
    MAMBA2_GGUF,
    MAMBA2_LAYOUTS,
    MAMBA2_LAYOUTS_GGUF,
    mamba2_layer,
    mamba2_names,
)
from .registry import family
from .rope_shared import read_rope

DENSE = dict.fromkeys(("mlp.gate", "mlp.up"), "shared_mlp.input_linear") | {
    "mlp.down": "shared_mlp.output_linear"
}
NAMES = NAMES_MOE.with_changes(inside=mamba2_names("mamba") | DENSE, layouts=MAMBA2_LAYOUTS)
NAMES_GGUF = GGUF_LLAMA.with_changes(
    inside=MAMBA2_GGUF, layouts={**GGUF_LLAMA.layouts, **MAMBA2_LAYOUTS_GGUF}
)


@family(
    hf=NAMES, gguf=NAMES_GGUF, gguf_arch="granitehybrid", causal_class="GraniteMoeHybridForCausalLM"
)
def granitemoehybrid(c: Config) -> Decoder:
    d = c.dim("d", "hidden_size")
    positions = c.get("position_embedding_type", "nope")
    if positions not in ("rope", "nope"):
        raise c.error("position_embedding_type", f"is {positions!r}; only rope and nope are known")
    rope = read_rope(c, c.heads(d).head_dim) if positions == "rope" else None
    c.ignore(
        "rope_theta", "rope_scaling", "rope_parameters", "intermediate_size", "num_experts_per_tok"
    )
    shared = granite_shared_mlp(c, d, 1024)
    if shared is None:
        raise c.error(
            "shared_intermediate_size", "is 0; every layer of this family has a shared MLP"
        )
    mlp = (
        granite_experts(c, d, shared)
        if c.dim("E", "num_local_experts", default=8, least=0)
        else shared
    )

    recurrent = granite_layer(c, d, mamba2_layer(c, d, c.get("rms_norm_eps", 1e-6)), mlp)
    attention = granite_layer(c, d, granite_attention(c, d, rope), mlp)
    kinds = {
        "mamba": recurrent,
        "attention": attention,
        "linear_attention": recurrent,
        "full_attention": attention,
    }
    L = c.dim("L", "num_hidden_layers")
    c.ignore("mamba_chunk_size", "normalization_function", "init_method")
    return granite_decoder(
        c, d, layers_by_type(c, L, kinds, repeat(recurrent, L), "layer_types|layers_block_type")
    )
