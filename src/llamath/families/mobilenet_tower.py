"""The modules of MobileNet-V5, which are counted: convolutions, inverted bottlenecks and attention
with one key for all heads.

Its sizes are those of its name, `mobilenetv5_300m_enc`.
"""

from __future__ import annotations

from itertools import chain

from ..core.constructors import rms, weight
from ..core.multimodal import CountedBlock
from ..core.tree import sequence
from .counted_towers import Modules, conv, counted

FEATURES = 2048
"""Channels of its result."""


def mobilenet() -> Modules:
    """The convolutions of three stages, attention and MLPs by turns in the last two, and an MLP
    on the features of both.
    """
    pairs = (
        [_attention(640, 768, 64, reduced=True), _inverted(640, 640, 1280)],
        [_attention(1280, 1536, 96), _inverted(1280, 1280, 2560)],
    )
    stages = (
        [_edge(64, 128, 256), *[_edge(128, 128, 512)] * 2],
        [
            _inverted(128, 256, 768, 3, 5),
            *(_inverted(256, 256, 1024, side) for side in (5, 3, 5, 3)),
        ],
        [
            _inverted(256, 640, 1536, 5, 5),
            *[_inverted(640, 640, 2560, 5)] * 7,
            _inverted(640, 640, 640),
            *chain(*[pairs[0]] * 14),
        ],
        [_inverted(640, 1280, 3840, 5, 5), *chain(*[pairs[1]] * 19)],
    )
    return {
        "conv_stem.conv": conv(64, 3, 3, 3),
        "conv_stem.bn": rms(64, 1e-6),
        **{f"blocks.{i}": sequence(blocks) for i, blocks in enumerate(stages)},
        "msfa.ffn": _inverted(640 + 1280, FEATURES, 3840, scaled=False),
        "msfa.norm": rms(FEATURES, 1e-6),
    }


def _edge(into: int, out: int, inner: int) -> CountedBlock:
    convolutions = {
        "conv_exp": conv(inner, into, 3, 3, bias=False),
        "conv_pwl": conv(out, inner, 1, 1, bias=False),
    }
    return counted({**convolutions, "bn1": rms(inner, 1e-6), "bn2": rms(out, 1e-6)})


def _inverted(
    into: int, out: int, inner: int, start: int = 0, middle: int = 0, scaled: bool = True
) -> CountedBlock:
    """A universal inverted bottleneck: convolutions of single channels with sides `start` and
    `middle`, 0 for none (arXiv:2404.10518).
    """
    parts = {
        "dw_start": (into, 1, start),
        "pw_exp": (inner, into, 1),
        "dw_mid": (inner, 1, middle),
        "pw_proj": (out, inner, 1),
    }
    modules = {
        f"{name}.{part}": module
        for name, (rows, columns, side) in parts.items()
        if side
        for part, module in (
            ("conv", conv(rows, columns, side, side, bias=False)),
            ("bn", rms(rows, 1e-6)),
        )
    }
    return counted({**modules, "layer_scale.gamma": weight(out, role="scale") if scaled else None})


def _attention(d: int, heads: int, head_dim: int, reduced: bool = False) -> CountedBlock:
    """Attention with one key and value for all heads; `reduced`: of a grid whose sides a
    convolution has halved.
    """
    keys: Modules = {
        "down_conv": conv(d, 1, 3, 3, bias=False) if reduced else None,
        "norm": rms(d, 1e-6) if reduced else None,
        "proj": conv(head_dim, d, 1, 1, bias=False),
    }
    return counted(
        {
            "norm": rms(d, 1e-6),
            "attn.query.proj": conv(heads, d, 1, 1, bias=False),
            **{
                f"attn.{x}.{name}": module
                for x in ("key", "value")
                for name, module in keys.items()
            },
            "attn.output.proj": conv(d, heads, 1, 1, bias=False),
            "layer_scale.gamma": weight(d, role="scale"),
        }
    )
