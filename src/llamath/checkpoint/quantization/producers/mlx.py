"""MLX: rows packed densely, with scales and biases of groups, or with the 8-bit scales of its FP4
and FP8 modes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import float8_table, require_numpy, to_float32
from ..matrix_formats import MatrixFormat, group_title, parts
from ..packed_tensors import GROUP_ROLES, Detection, Packing, bits_of_config, values_per_scale
from ..recipes import NOT_LINEAR, Choice, Matrix, Recipe, joined_names
from ..registry import Keys, PackedLayout, Producer
from ..shared.fp4 import E2M1
from ..shared.half_steps import WholeNumbers
from ..shared.packed_cut import cut_in_order
from ..shared.recipe_keys import bits_of, group_of, unknown
from ..shared.stored_matrix import Rows, StoredMatrix, per_value, unpack
from ..weight_format import WeightFormat

_MODES = {"affine": (4, 64), "mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}
"""Mode → its usual bits and group size."""
_EXPERTS = ".switch_mlp."
_EXPERT_NUMBER = re.compile(r"\.experts\.\d+\.")
_TOWERS = frozenset({"vision_model", "vision_tower", "visual", "audio_model", "audio_tower"})
"""Modules that mlx-vlm leaves unquantized unless a config names what is in them."""


# Formats and recipe


def _format(bits: int, group: int, dtype: str = "BF16", mode: str = "affine") -> MatrixFormat:
    values, is_affine = f".weight U32 out in*{bits}/32", mode == "affine"
    scales = (
        (f".scales {dtype} out in/{group}", f".biases {dtype} out in/{group}")
        if is_affine
        else (f".scales U8 out in/{group}",)
    )
    return MatrixFormat(
        name=f"mlx-{bits}bit-g{group}" if is_affine else f"mlx-{mode}",
        title=group_title("MLX" if is_affine else f"MLX {mode}", bits, group),
        parts=parts(values, *scales),
        divides=group,
    )


def _format_of(keys: Keys, dtype: str) -> MatrixFormat:
    mode = str(keys.get("mode", "affine"))
    if mode not in _MODES:
        raise unknown(f"MLX mode {mode}", "quantization")
    bits, group = _MODES[mode]
    bits, group = bits_of(keys, (2, 3, 4, 5, 6, 8), default=bits), group_of(keys, group)
    if group < 0:
        raise unknown(f"MLX group_size {group}", "quantization")
    return _format(bits, group, dtype, mode)


def _read(config: Keys, dtype: str) -> Recipe:
    to = _format_of(config, dtype)
    whole = {key: config.get(key) for key in ("bits", "group_size")}
    whole["mode"] = config.get("mode", "affine")
    overrides: dict[str, MatrixFormat | None] = {}
    for name, keys in config.items():
        if isinstance(keys, Mapping):
            own = {"mode": "affine", **keys} if "bits" in keys else keys
            overrides[name] = _format_of(own if "mode" in keys else {**whole, **own}, dtype)
        elif keys is False and "." in name:
            overrides[name] = None

    def choose(x: Matrix) -> Choice:
        experts = (_EXPERT_NUMBER.sub(_EXPERTS, y) for y in x.names if x.kind == "expert")
        found = next((y for y in (*x.names, *experts) if y in overrides), "")
        if found:
            own = overrides[found]
            return Choice(own, "" if own is not None else "false in quantization")
        if x.kind == "other" or x.in_gate_class:
            return Choice(None, "router" if x.in_gate_class else NOT_LINEAR)
        is_tower = not _TOWERS.isdisjoint(x.names[0].split("."))
        return Choice(None, "tower") if is_tower else Choice(to)

    others = sorted((x for x in overrides.values() if x is not None), key=lambda x: x.name)
    name = joined_names([to, *others])
    return Recipe(
        method="mlx",
        name=name,
        rules=(choose,),
        patterns=tuple(overrides),
        expert_stack=_EXPERTS,
        is_seen=True,
    )


def _named(word: str) -> WeightFormat | None:
    """Return what mlx_lm.convert writes by default: linear layers and embeddings in groups, and
    gates that are linear layers in 8 bits.
    """
    match = re.fullmatch(r"mlx-([234568])bit(?:-g(32|64|128))?", word)
    if match is None:
        return None
    recipe = _read({"bits": int(match[1]), "group_size": int(match[2] or 64)}, "BF16")
    gates = _format(8, 64)

    def of_gate(x: Matrix) -> Choice | None:
        is_gate = x.kind == "router" or x.names[0].endswith("shared_expert_gate")
        return Choice(gates) if is_gate and not x.in_gate_class else None

    return WeightFormat(name=word, recipe=recipe.replace(rules=(of_gate, *recipe.rules)))


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    """Detect rows packed densely; without biases (FP4, FP8) the scales determine the number of
    bits, else the configuration does.
    """
    base = x.name.removesuffix("weight")
    scale, bias = d.get(f"{base}scales"), d.get(f"{base}biases")
    if scale is None or base == x.name or (bias is not None and bias.shape != scale.shape):
        return
    if not (per_scale := values_per_scale(x, scale)):
        return
    if bias is not None:
        layer_config = d.config.get(base.rstrip("."))
        declared = bits_of_config(layer_config if isinstance(layer_config, dict) else d.config)
        group = next((g for b, g in declared if g and b * g == 32 * per_scale), 0)
    else:
        group = {2: 16, 4: 32, 8: 32}.get(per_scale, 0) if scale.dtype == "U8" else 0
    values = Packing.of_unknown_length("mlx", x.name, x)
    if group:
        values = Packing.of_values("mlx", x.name, (*x.shape[:-1], scale.shape[-1] * group))
    d.record(x, values, {base + end: role for end, role in GROUP_ROLES.items()})


# Values


def _open(m: StoredMatrix) -> Rows:
    """A scale and a bias for each group, or FP4 and FP8 with 8-bit scales."""
    np = require_numpy()
    words = m.raw("values")
    bits = words.shape[-1] * 32 // m.into
    if not m.find("biases"):
        exponents = m.into // m.raw("scales").shape[-1] != 16
        raw = m.raw("scales").reshape(m.out, -1)
        scale = to_float32(raw, "F8_E8M0" if exponents else "F8_E4M3")
        table = np.array(E2M1, np.float32) if bits == 4 else float8_table("F8_E4M3")
        return lambda first, last: (
            table[unpack(words[first:last], bits, m.into)] * per_value(scale[first:last], m.into)
        )
    scale, bias = m.floats("scales"), m.floats("biases")

    def rows(first: int, last: int) -> Any:
        q = unpack(words[first:last], bits, m.into).astype(np.float32)
        return q * per_value(scale[first:last], m.into) + per_value(bias[first:last], m.into)

    return rows


PRODUCER = Producer(
    read=_read,
    recognized=("mlx",),
    detect=_detect,
    layouts={"mlx": PackedLayout(open=_open, steps=WholeNumbers(), cut=cut_in_order, by_rows=True)},
    named=_named,
)
