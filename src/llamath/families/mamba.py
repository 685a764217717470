"""Mamba: a stack of selective state spaces without attention and MLPs."""

from __future__ import annotations

from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms
from ..core.mixers import mamba as mamba_mixer
from ..core.tree import repeat
from .mamba_shared import MAMBA_GGUF, MAMBA_LAYOUTS, MAMBA_LAYOUTS_GGUF, auto_dim, mamba_names
from .registry import family

NAMES = Scheme(
    name="hf",
    layer="backbone.layers.{l}.",
    outside={"embed": "backbone.embeddings", "norm": "backbone.norm_f", "head": "lm_head"},
    inside={"attn_norm": "norm", **mamba_names("mixer")},
    layouts=MAMBA_LAYOUTS,
)
NAMES_GGUF = GGUF.with_changes(inside=MAMBA_GGUF, layouts=MAMBA_LAYOUTS_GGUF)

UNUSED = """d_inner d_model expand fused_add_norm n_layer pad_vocab_size_multiple
    rescale_prenorm_residual residual_in_fp32 rms_norm ssm_cfg time_step_floor time_step_init_scheme
    time_step_max time_step_min time_step_scale use_associative_scan use_mambapy"""
"""Keys of the published configurations that repeat others or have no effect."""


@family(hf=NAMES, gguf=NAMES_GGUF, gguf_arch="mamba", causal_class="MambaForCausalLM")
def mamba(c: Config) -> Decoder:
    return selective_decoder(c)


def selective_decoder(c: Config, norm_eps: float | None = None) -> Decoder:
    """A decoder of Mamba layers; with `norm_eps`, time steps, b and c are normalized."""
    d, V = c.dim("d", "hidden_size"), c.dim("V", "vocab_size")
    norm = rms(d, c.get("layer_norm_epsilon", 1e-5))
    mixer = mamba_mixer(
        d,
        c.dim("i", "intermediate_size"),
        c.dim("N", "state_size"),
        auto_dim(c, "R", "time_step_rank", -(-d // 16)),
        c.dim("c", "conv_kernel"),
        bias=c.get("use_bias", False),
        conv_bias=c.get("use_conv_bias", True),
        activation=c.activation("hidden_act"),
        norm_eps=norm_eps,
    )
    layers = repeat(Layer(attn_norm=norm, attn=mixer), c.dim("L", "num_hidden_layers"))
    c.ignore(*UNUSED.split())
    return decoder(V, d, layers, norm, tied=c.get("tie_word_embeddings", True))
