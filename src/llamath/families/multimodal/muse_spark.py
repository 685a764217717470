"""Muse Spark: the tower of Muse Glimmer, and convolutions of sound at four rates."""

from __future__ import annotations

from math import prod

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms
from ...core.tree import sequence
from ..counted_towers import Modules, conv, counted, counted_part, stack
from ..multimodal_registry import (
    LANGUAGE_MODEL,
    Assembly,
    Part,
    Tower,
    Wrapper,
    assemble,
    multimodal,
)
from ..tower_parts import part_config
from .muse_glimmer import glimmer_parts


@multimodal(Wrapper(types="muse_spark", text_type="muse_spark_text", prefix=LANGUAGE_MODEL))
def muse_spark(c: Config, text: Decoder) -> Assembly:
    audio, parts = _audio(part_config(c, "audio_config", {})), glimmer_parts(c, text)
    prefix, tower = parts["vision"]
    assert isinstance(tower, Tower)
    vision = (prefix, tower._replace(block=tower.block.replace(resizing="transposed")))
    return assemble(
        text, vision=vision, projector=parts["projector"], audio=("model.audio_tower.", audio)
    )


def _audio(c: Config) -> Part:
    """Read the audio tower: each layer joins samples or features to fewer, wider ones, then
    mixes them over time.
    """
    patches, widths = (
        c.get("patch_sizes", [16, 6, 5, 4]),
        c.get("hidden_sizes", [256, 512, 1024, 2048]),
    )
    depths, ratio, taps = (
        c.get("depths", [2, 2, 2, 2]),
        c.get("mlp_ratio", 4.0),
        c.dim("taps", "conv_kernel_size", default=7),
    )
    if not len(patches) == len(widths) == len(depths):
        raise c.error("hidden_sizes", f"should have an entry for each of the {len(patches)} layers")
    layers, before = [], 1
    for patch, width, depth in zip(patches, widths, depths, strict=True):
        block: Modules = {
            "conv": conv(width, 1, taps),
            "norm": rms(width, 1e-6),
            "mlp.fc1": linear(int(width * ratio), width, bias=True),
            "mlp.fc2": linear(width, int(width * ratio), bias=True),
        }
        embedder: Modules = {
            "patch_embedder.proj": linear(width, prod((patch, before)), bias=True),
            "patch_embedder.norm": rms(width, 1e-6),
        }
        layers.append(counted({**embedder, "conv_blocks": stack(depth, block)}))
        before = width
    out = c.dim("out_a", "out_hidden_size", default=8192)
    tower: Modules = {
        "layers": sequence(layers),
        "norm": rms(before, 1e-6),
        "proj": linear(out, before, bias=True),
        "post_proj_norm": rms(out, 1e-6),
    }
    return counted_part(tower)
