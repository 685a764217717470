"""Rotary positions of written files."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def rope(
    x: Tensor,
    pos: Tensor,
    theta: float,
    *,
    dim: int | None = None,
    scaling: str = "",
    factor: float = 1.0,
    original_context: int = 0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 1.0,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    attention_factor: float | None = None,
    short_factor: tuple[float, ...] = (),
    long_factor: tuple[float, ...] = (),
    interleaved: bool = False,
    reverse: bool = False,
    prompt: int = 0,
) -> Tensor:
    """Rotate each pair of channels of a head by the angle pos · theta^(−2 · pair / size)."""
    if scaling == "proportional":
        dim = dim or x.shape[-1]
        angle = theta ** (torch.arange(0, dim, 2, device=x.device).float() / x.shape[-1])
        frequencies = 1 / angle
        if factor != 1:
            frequencies = frequencies / factor
        still = frequencies.new_zeros((x.shape[-1] - dim) // 2)  # pairs that do not turn
        frequencies = torch.cat((frequencies, still))
    else:
        if dim is not None:
            x, rest = x[..., :dim], x[..., dim:]  # the other channels stay
        size = x.shape[-1]
        if scaling == "dynamic":
            context = max(int(pos.max()) + 1, original_context)  # longer ones turn slower
            stretch = factor * context / original_context - (factor - 1)
            theta = theta * stretch ** (size / (size - 2))
        elif scaling == "qwen_dynamic":
            context = max(prompt, original_context)  # after a longer prompt pairs turn slower
            times = math.ceil(math.log2(context / original_context) + 1)
            stretch = 2**times - 1 if context > original_context else 1
            theta = theta * stretch ** (size / (size - 2))
        powers = torch.arange(0, size, 2, device=x.device).float() / size  # float32
        frequencies = 1 / theta**powers  # (size / 2,), of each pair
        if scaling == "linear":
            frequencies = frequencies / factor
        elif scaling == "llama3":
            turns = original_context * frequencies / (2 * math.pi)  # in the context of pretraining
            span = high_freq_factor - low_freq_factor or 2.0**-100
            kept = ((turns - low_freq_factor) / span).clamp(0, 1)  # 1: turns often, stays as it is
            frequencies = (1 - kept) * frequencies / factor + kept * frequencies
        elif scaling == "yarn":
            first, last = (  # YaRN: pairs that turn beta_fast and beta_slow times in that context
                size * math.log(original_context / (beta * 2 * math.pi)) / (2 * math.log(theta))
                for beta in (beta_fast, beta_slow)
            )
            if truncate:
                first, last = math.floor(first), math.ceil(last)
            first, last = max(first, 0), min(last, size - 1)
            pair = torch.arange(size // 2, device=x.device).float()
            span = last - first or 0.001  # no division by 0
            slow = ((pair - first) / span).clamp(0, 1)  # 1: factor times slower
            frequencies = frequencies / factor * slow + frequencies * (1 - slow)
        elif scaling == "long":
            is_long = int(pos.max()) >= original_context
            divisors = long_factor if is_long else short_factor
            frequencies = frequencies / frequencies.new_tensor(divisors)
    angles = pos[:, None, None] * frequencies  # (T, 1, size / 2)
    cos, sin = angles.cos(), angles.sin()
    if attention_factor is not None:
        cos, sin = cos * attention_factor, sin * attention_factor
    if reverse:
        sin = -sin
    if interleaved:
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)  # a pair is two neighbours
        y = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).type_as(x)
    else:
        a, b = x.float().chunk(2, -1)  # a pair has a channel of each half
        y = torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)
    if scaling != "proportional" and dim is not None:
        y = torch.cat((y, rest), -1)
    return y


def add_sinusoids(x: Tensor, pos: Tensor, steps: int) -> Tensor:
    """x + [sin(pos · ω), cos(pos · ω)], with frequencies ω from 1 to 1/10000."""
    channel = torch.arange(x.shape[-1] // 2, device=x.device).float()
    rates = torch.exp(channel * (-math.log(10000) / steps))
    angles = pos[:, None] * rates
    return x + torch.cat((angles.sin(), angles.cos()), -1).type_as(x)


def alibi_slopes(heads: int, max_bias: float) -> Tensor:
    """2^(−max_bias · head / base), base the power of 2 up to the heads; then those between."""
    base = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-max_bias * i / base) for i in range(1, base + 1)]
    between = [2 ** (-max_bias * i / (2 * base)) for i in range(1, 2 * (heads - base) + 1, 2)]
    return torch.tensor(slopes + between, dtype=torch.float32)
