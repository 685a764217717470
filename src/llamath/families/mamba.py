"""Mamba: a stack of selective state spaces without attention and MLPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..checkpoint.gguf_metadata.gguf_facts import GGUFFacts, Keys
from ..checkpoint.naming.gguf_names import GGUF
from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder, Layer
from ..core.config import Config
from ..core.constructors import decoder, rms
from ..core.mixers import Mamba
from ..core.mixers import mamba as mamba_mixer
from ..core.tree import repeat
from .gguf_record import GGUFMetadata
from .mamba_shared import MAMBA_GGUF, MAMBA_LAYOUTS, MAMBA_LAYOUTS_GGUF, auto_dim, mamba_names
from .registry import family

if TYPE_CHECKING:
    from ..checkpoint.gguf_metadata.gguf_header import GGUFHeader

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


GGUF_KEYS = "hidden_size num_hidden_layers vocab_size tie_word_embeddings"
_UNLIMITED_CONTEXT = 1 << 20
"""The context length that llama.cpp's converter writes for models without a limit."""


def read_gguf(h: GGUFHeader) -> Keys:
    """Return the sizes of Mamba."""
    from ..checkpoint.gguf_metadata.gguf_keys import rms_norm_eps

    return {
        "layer_norm_epsilon": rms_norm_eps(h),
        "intermediate_size": h.uniform_integer("ssm.inner_size"),
        "state_size": h.uniform_integer("ssm.state_size"),
        "conv_kernel": h.uniform_integer("ssm.conv_kernel"),
        "time_step_rank": h.uniform_integer("ssm.time_step_rank"),
        "use_bias": h.has_tensor(".ssm_in.bias"),
        "use_conv_bias": h.has_tensor(".ssm_conv1d.bias"),
    }


def write_gguf(f: GGUFFacts) -> Keys:
    mixer = f.mixer(Mamba)
    return {
        "context_length": _UNLIMITED_CONTEXT,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.layer_norm_rms_epsilon": f.eps,
        "ssm.conv_kernel": int(mixer.conv.weight.shape[-1]),
        "ssm.inner_size": int(mixer.x.weight.shape[0]),
        "ssm.state_size": int(mixer.b.weight.shape[0]),
        "ssm.time_step_rank": int(mixer.dt_down.weight.shape[0]),
        "ssm.dt_b_c_rms": mixer.dt_norm is not None,
    }


@family(
    hf=NAMES,
    gguf=NAMES_GGUF,
    gguf_arch="mamba",
    gguf_metadata=GGUFMetadata(
        keys=GGUF_KEYS, read=read_gguf, write=write_gguf, tried_first="falcon_mamba"
    ),
    causal_class="MambaForCausalLM",
)
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
