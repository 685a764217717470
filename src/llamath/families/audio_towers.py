"""Readers of audio towers like Whisper's encoder, which are counted but not computed."""

from __future__ import annotations

from ..core.config import Config
from ..core.constructors import layer_norm, linear, weight
from ..core.expr import Expr
from ..core.multimodal import CountedBlock
from .counted_towers import Modules, conv, counted_part, each, stack
from .multimodal_registry import Part


def whisper_layers(d: Expr, F: Expr, n: Expr, key_bias: bool = False) -> Modules:
    """The layers of Whisper's encoder, whose keys have no bias unless `key_bias`."""
    norm, square = layer_norm(d, 1e-5), linear(d, d, bias=True)
    layer: Modules = {
        "self_attn.k_proj": linear(d, d, key_bias),
        **each("self_attn.", "v_proj q_proj out_proj", square),
        **each("", "self_attn_layer_norm final_layer_norm", norm),
        "fc1": linear(F, d, bias=True),
        "fc2": linear(d, F, bias=True),
    }
    return {"layers": stack(n, layer)}


def _sizes(c: Config) -> tuple[Expr, Expr, Expr, Expr]:
    d, F = c.dim("d_a", "d_model", default=1280), c.dim("F_a", "encoder_ffn_dim", default=5120)
    return (
        d,
        F,
        c.dim("L_a", "encoder_layers", default=32),
        c.dim("out_a", "output_dim", default=3584),
    )


def qwen2_5_omni_audio(c: Config) -> Part:
    """Read the audio tower of Qwen2.5-Omni: two convolutions over time, the layers, a linear
    layer.
    """
    d, F, n, out = _sizes(c)
    mels = c.dim("mel", "num_mel_bins", default=128)
    tower: Modules = {
        "conv1": conv(d, mels, 3),
        "conv2": conv(d, d, 3),
        "audio_bos_eos_token": CountedBlock(parts={"weight": weight(2, out, role="lookup")}),
        **whisper_layers(d, F, n),
        "ln_post": layer_norm(d, 1e-5),
        "proj": linear(out, d, bias=True),
    }
    return counted_part(tower)


def qwen3_omni_audio(c: Config) -> Part:
    """Read the audio tower of Qwen3-Omni: three convolutions over time and frequency, the
    layers, two linear layers.
    """
    d, F, n, out = _sizes(c)
    h, mels = (
        c.dim("h_a", "downsample_hidden_size", default=480),
        c.dim("mel", "num_mel_bins", default=128),
    )
    for _ in range(3):  # each convolution halves the bands
        mels = Expr("mel", (int(mels) + 1) // 2)
    tower: Modules = {
        **whisper_layers(d, F, n, key_bias=True),
        "ln_post": layer_norm(d, 1e-5),
        "conv2d1": conv(h, 1, 3, 3),
        **each("", "conv2d2 conv2d3", conv(h, h, 3, 3)),
        "conv_out": linear(d, h * mels),
        "proj1": linear(d, d, bias=True),
        "proj2": linear(out, d, bias=True),
    }
    return counted_part(tower)
