"""Inkling: patches that linear layers fold step by step into one token each, and an embedding of the bins of sound."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import ceil, log
from operator import mul
from typing import NamedTuple

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import linear, rms
from ...core.expr import product
from ...core.multimodal import CountedBlock
from ...core.tree import sequence
from ..counted_towers import counted, counted_part, table
from ..multimodal_registry import Assembly, Part, assemble, multimodal
from ..towers import part_config

_STEP = 64
"""Widths are multiples of this."""
_TIE = 1e-5
"""Differences of distances that the rounding of single precision decides."""


class _Scale(NamedTuple):
    """The region that a vector stands for: frames, pixels on a side, and the width of the vector."""

    times: int
    side: int
    width: int

    @property
    def places(self) -> int:
        return self.times * self.side**2


_EXPERT, _SHARED = "layers.{l}.mlp.experts.{e}.", "layers.{l}.mlp.shared_experts.{e}."
_MODULES = {
    "embed": "model.language_model.embed_tokens",
    "embed_norm": "model.language_model.embed_tokens.embed_norm",
    "norm": "model.language_model.norm",
    "head": "lm_head",
    "layers.{l}.attn_norm": "input_layernorm",
    **{f"layers.{{l}}.attn.{x}": f"self_attn.{x}_proj" for x in "qkvo"},
    **{f"layers.{{l}}.attn.{x}_norm": f"self_attn.{x}_norm" for x in "qk"},
    **{f"layers.{{l}}.attn.{x}_conv": f"self_attn.{x}_sconv.conv1d" for x in "kv"},
    "layers.{l}.attn.relative": "self_attn.r_proj",
    "layers.{l}.attn.distance.weight": "self_attn.rel_logits_proj.proj",
    "layers.{l}.attn_conv": "attn_sconv.conv1d",
    "layers.{l}.mlp_norm": "post_attention_layernorm",
    "layers.{l}.mlp_conv": "mlp_sconv.conv1d",
    **{f"layers.{{l}}.mlp.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")},
    "layers.{l}.mlp.correction": "mlp.gate.e_score_correction_bias",
    **{f"{_EXPERT}{x}.weight": "mlp.experts.gate_up_proj" for x in ("gate", "up")},
    f"{_EXPERT}down.weight": "mlp.experts.down_proj",
    **{f"{_SHARED}{x}.weight": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")},
    "vision.layers.{l}.linear": "model.vision_tower.encoder_layers.{l}.projection",
    "vision.layers.{l}.norm": "model.vision_tower.encoder_layers.{l}.layer_norm",
    "vision.final_norm": "model.vision_tower.final_norm",
    "audio.encoder.weight": "model.audio_tower.embed_audio_tokens.embed_audio_tokens.weight",
    "audio.final_norm.weight": "model.audio_tower.norm.weight",
}
"""Names of modules in memory."""


@multimodal(modules=_MODULES)
def inkling_mm_model(c: Config, text: Decoder) -> Assembly:
    c.ignore("mtp_config")
    v, a, d = part_config(c, "vision_config", {}), part_config(c, "audio_config", {}), text.width
    v.ignore("hidden_size", "initializer_range", "num_attention_heads", "rms_norm_eps", "text_hidden_size")
    a.ignore("initializer_range", "rms_norm_eps", "text_hidden_size")
    L = int(v.dim("L_v", "n_layers|num_hidden_layers", default=24))
    scales = _plan(v, L)
    layers: list[CountedBlock] = []
    for i, (start, end) in enumerate(pairwise(scales)):
        folded, out = start.width * (end.places // start.places), d if i == L - 1 else end.width
        layers.append(counted({"linear": linear(out, folded), "norm": None if i == L - 1 else rms(out, 1e-6)}))
    tower = counted({"layers": sequence(layers, L), "final_norm": rms(d, 1e-6)})
    names = {"layers.{l}.linear": "layers.linear_{l}", "layers.{l}.norm": "layers.norm_{l}", "final_norm": "final_norm"}
    bins = product((a.dim("m_a", "n_mel_bins|num_codebooks", default=80), a.dim("V_a", "mel_vocab_size|codebook_size", default=256)))
    sound = counted_part({"encoder": table(bins, d), "final_norm": rms(d, 1e-6)})
    return assemble(text, vision=("model.visual.", Part(tower, names)), audio=("model.audio.", sound))


def _factors(n: int) -> list[int]:
    """Return the products of the prime factors of a number, the largest factor first."""
    found, x = [], 2
    while x * x <= n:
        if n % x:
            x += 1
        else:
            found.append(x)
            n //= x
    return list(accumulate(reversed([*found, *([n] if n > 1 else [])]), mul))


def _plan(v: Config, layers: int) -> Sequence[_Scale]:
    """Return the scales before and after each layer: those whose sizes are closest to equal ratios."""
    patch, times, channels = v.get("patch_size", 40), v.get("temporal_patch_size", 2), v.get("num_channels", 3)
    if not (2 <= patch <= 4096 and 1 <= times <= 4096 and channels >= 1):
        raise v.error("patch_size", f"should be from 2 to 4096, and temporal_patch_size from 1, not {patch} and {times}")
    sides = _factors(patch)
    scales = [
        _Scale(1, 1, channels),
        *(_Scale(1, x, ceil(x**2 * channels / _STEP) * _STEP) for x in sides),
        *(_Scale(x, patch, patch**2 * channels * x * _STEP) for x in _factors(times)),
    ]
    if layers < len(scales):
        raise v.error("num_hidden_layers", f"is {layers}, fewer than the {len(scales)} scales from a pixel to a patch")
    total = log(patch * patch * times * channels)
    return [scales[0], *(_closest(v, scales, total * i / layers) for i in range(1, layers)), scales[-1]]


def _closest(v: Config, scales: Sequence[_Scale], size: float) -> _Scale:
    """Return the scale whose number of places is closest to a size, given as a logarithm."""
    first, second = sorted(scales, key=lambda x: abs(log(x.places) - size))[:2]
    if abs(abs(log(first.places) - size) - abs(log(second.places) - size)) < _TIE:
        raise v.error("num_hidden_layers", "puts a layer between two scales, equally far from both")
    return first
