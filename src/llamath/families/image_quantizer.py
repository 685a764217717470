"""The modules of a quantizer of images, VQGAN, which are counted: an encoder, a code book and a
decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..core.config import Config
from ..core.constructors import layer_norm
from ..core.multimodal import CountedBlock
from ..core.tree import repeat, sequence
from .counted_towers import Modules, conv, counted, table


def image_quantizer(q: Config) -> Modules:
    """Read the encoder, the code book and the decoder of VQGAN."""
    q.ignore("dropout", "hidden_act", "initializer_range", "num_patches")
    base, latent, embedded = (
        q.dim("b_q", "base_channels", default=128),
        q.get("latent_channels", 256),
        q.get("embed_dim", 8),
    )
    factors: Sequence[int] = q.get("channel_multiplier", [1, 1, 2, 2, 4])
    if not factors or not all(type(x) is int and x > 0 for x in factors):
        raise q.error("channel_multiplier", f"should list positive integers, not {factors!r:.60}")
    n, encoded = q.get("num_res_blocks", 2), latent * (2 if q.get("double_latent", False) else 1)
    widths, last = [base * x for x in factors], len(factors) - 1
    down = [
        _level(
            [widths[max(i - 1, 0)] if i else base, *[w] * n],
            w if i == last else None,
            {"downsample.conv": conv(w, w, 3, 3)} if i != last else {},
        )
        for i, w in enumerate(widths)
    ]
    up = [
        _level(
            [widths[min(i + 1, last)], *[w] * (n + 1)],
            w if i == last else None,
            {"upsample.conv": conv(w, w, 3, 3)} if i else {},
        )
        for i, w in reversed(list(enumerate(widths)))
    ]
    top = widths[-1]
    return {
        "encoder.conv_in": conv(base, q.get("in_channels", 3), 3, 3),
        **{f"encoder.down.{i}": x for i, x in enumerate(down)},
        **_middle("encoder", top),
        "encoder.norm_out": layer_norm(top, 1e-6),
        "encoder.conv_out": conv(encoded, top, 3, 3),
        "quantize.embedding": table(q.get("num_embeddings", 16_384), embedded),
        "quant_conv": conv(embedded, latent, 1, 1),
        "post_quant_conv": conv(latent, embedded, 1, 1),
        "decoder.conv_in": conv(top, latent, 3, 3),
        **_middle("decoder", top),
        **{f"decoder.up.{i}": x for i, x in enumerate(up)},
        "decoder.norm_out": layer_norm(widths[0], 1e-6),
        "decoder.conv_out": conv(q.get("out_channels", 3), widths[0], 3, 3),
    }


def _level(widths: Sequence[int], attending: int | None, rest: Modules) -> CountedBlock:
    """Residual blocks from each width to the next, each followed by attention on the smallest
    grid.
    """
    blocks = sequence(_residual(a, b) for a, b in pairwise(widths))
    attention = repeat(_attention(attending), len(widths) - 1) if attending else None
    return counted({"block": blocks, "attn": attention, **rest})


def _middle(name: str, width: int) -> Modules:
    return {
        f"{name}.mid.block_1": _residual(width, width),
        f"{name}.mid.attn_1": _attention(width),
        f"{name}.mid.block_2": _residual(width, width),
    }


def _residual(into: int, out: int) -> CountedBlock:
    return counted(
        {
            "norm1": layer_norm(into, 1e-6),
            "conv1": conv(out, into, 3, 3),
            "norm2": layer_norm(out, 1e-6),
            "conv2": conv(out, out, 3, 3),
            "nin_shortcut": conv(out, into, 1, 1) if into != out else None,
        }
    )


def _attention(width: int) -> CountedBlock:
    return counted(
        {
            "norm": layer_norm(width, 1e-6),
            **{x: conv(width, width, 1, 1) for x in ("q", "k", "v", "proj_out")},
        }
    )
