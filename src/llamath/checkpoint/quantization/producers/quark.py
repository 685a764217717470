"""AMD Quark: a number type for weights, inputs and outputs of each layer, in one stage or two;
MXFP6 and INT4 in words are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....utils.errors import safe
from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, MatrixPart, parts
from ..packed_tensors import SCALE_DTYPES, Detection, PackedWeight, Packing, values_per_scale
from ..recipes import (
    Choice,
    Recipe,
    by_pattern,
    joined_names,
    keep_listed,
    linear_only,
    module_names,
)
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import NextCodes, WholeNumbers, next_fp6
from ..shared.name_patterns import NamePatterns, marked_regex, wildcard
from ..shared.recipe_keys import mapping, strings, unknown
from ..shared.stored_matrix import Rows, StoredMatrix, group_rows, per_value, unpack, unpack_words

if TYPE_CHECKING:
    from ..dequantizers import OpenedPacked

_FP6_MANTISSA_BITS = {"fp6_e2m3": 3, "fp6_e3m2": 2}
"""Types of MXFP6 → their mantissa bits (OCP Microscaling Formats 1.0, section 5.3.2)."""


# Formats


def _stages(found: object) -> list[Any]:
    is_list = isinstance(found, Sequence) and not isinstance(found, str)
    return list(found) if is_list and isinstance(found, Sequence) else [found]


def _scale_dtype(spec: Keys, dtype: str) -> str:
    return "F32" if spec.get("scale_type") == "float32" or spec.get("dtype") == "int8" else dtype


def _static_parts(keys: Keys, dtype: str) -> tuple[MatrixPart, ...]:
    """Return the scales of static inputs and outputs that are stored for a layer."""
    texts: list[str] = []
    for name in ("input", "output"):
        for i, found in enumerate(_stages(keys.get(f"{name}_tensors"))):
            spec, end = mapping(found), f"_{i + 1}" if i else ""
            if spec.get("is_dynamic") is False:
                texts.append(f".{name}_scale{end} {_scale_dtype(spec, dtype)}")
                if spec.get("dtype") == "int8":
                    texts.append(f".{name}_zero_point{end} I8")
    return parts(*texts)


def _weight_parts(stages: Sequence[Keys], dtype: str) -> tuple[str, tuple[str, ...], str]:
    """Return name, tensors and GPU rate of a weight, quantized in one stage or two."""
    kinds = tuple(str(x.get("dtype")) for x in stages)
    schemes = tuple(str(x.get("qscheme")) for x in stages)
    group, first = stages[0].get("group_size"), _scale_dtype(stages[0], dtype)
    last = _scale_dtype(stages[-1], dtype)
    nibbles, words = ".weight U8 out in/2", ".weight I32 out in/8"
    if kinds == ("fp4", "fp8_e4m3") and group == 16:
        scales = ".weight_scale F8_E4M3 out in/16", f".weight_scale_2 {last}"
        return "nvfp4", (nibbles, *scales), "fp4"
    if kinds == ("fp8_e4m3", "int4") and schemes == ("per_tensor", "per_channel"):
        scales = f".weight_scale {first}", f".weight_scale_2 {last} out"
        return "int4-fp8", (words, *scales, ".weight_zero_point_2 I32 out/8"), "fp8"
    error = unknown(
        f"quark dtype {' and '.join(kinds)}, {' and '.join(schemes)}, group_size {group}"
    )
    if len(kinds) > 1:
        raise error
    kind, scheme = kinds[0], schemes[0]
    if kind in ("fp8_e4m3", "int8") and scheme in ("per_tensor", "per_channel"):
        rate, values = ("int8", "I8") if kind == "int8" else ("fp8", "F8_E4M3")
        axes, end = (" out", "rows") if scheme == "per_channel" else ("", "tensor")
        zero = f".weight_zero_point I8{axes}" if kind == "int8" else ""
        texts = f".weight {values} out in", f".weight_scale {first}{axes}", zero
        return f"{rate}-{end}", texts, rate
    if kind in ("int4", "uint4") and scheme == "per_group" and type(group) is int and group > 0:
        scale = f".weight_scale {first} in/{group} out"
        zero = f".weight_zero_point I32 in/{group} out/8"
        return f"int4-g{group}", (".weight I32 in out/8", scale, zero), ""
    if kind in ("int4", "uint4") and scheme == "per_channel":
        scale, zero = f".weight_scale {first} out", ".weight_zero_point I32 out/8"
        return "int4-rows", (words, scale, zero), ""
    is_mx = group == 32 and stages[0].get("scale_format") in (None, "e8m0")
    if kind == "mx":
        kind = str(stages[0].get("mx_element_dtype"))
    exponents = ".weight_scale U8 out in/32"
    if is_mx and kind in ("fp4", "mxfp4"):
        return "mxfp4", (nibbles, exponents), ""
    if is_mx and kind in ("fp6_e3m2", "fp6_e2m3"):
        return "mxfp6", (".weight U8 out in*6/8", exponents), ""
    raise error


def _format(found: object, dtype: str) -> MatrixFormat | None:
    """Return the format of a layer's config."""
    keys = mapping(found)
    listed = _stages(keys.get("weight"))
    stages: list[Keys] = [x for x in listed if isinstance(x, Mapping)]
    if len(stages) < len(listed) or not stages:
        return None
    name, texts, rate = _weight_parts(stages, dtype)
    has_inputs = isinstance(keys.get("input_tensors"), Mapping | Sequence)
    return MatrixFormat(
        name=name,
        title=f"Quark {' and '.join(str(x.get('dtype')) for x in stages)}, "
        f"{stages[0].get('qscheme')}",
        parts=(*parts(*texts), *_static_parts(keys, dtype)),
        compute_rate=rate if has_inputs else "",
    )


# Recipe


def _like_quark(key: str) -> str:
    """Translate a wildcard, or `re:` and a regular expression."""
    return marked_regex(key) or wildcard(key)


def _read(config: Keys, dtype: str) -> Recipe:
    to = _format(config.get("global_quant_config"), dtype)
    layers = mapping(config.get("layer_quant_config"))
    overrides = {name: _format(keys, dtype) for name, keys in layers.items()}
    types = config.get("layer_type_quant_config") or {}
    if to is None and not overrides:
        raise unknown("quark without quantized weights")
    if types:
        raise unknown(f"quark layer_type_quant_config {', '.join(map(str, types))}")
    excluded = NamePatterns(strings(config, "exclude") or (), _like_quark)
    unquantized = "no weights in its config"
    return Recipe(
        method="quark",
        name=joined_names([to, *overrides.values()]),
        rules=(
            linear_only,
            keep_listed(excluded, "in exclude"),
            by_pattern(overrides, wildcard, unquantized),
            lambda _: Choice(to, "" if to is not None else unquantized),
        ),
        patterns=(*excluded.patterns, *overrides),
        kv_cache="fp8" if config.get("kv_cache_quant_config") else "",
    )


_last_names: list[tuple[Keys, NamePatterns]] = []
"""The overrides of the config that was read last, as the number types of all its matrices are
asked one by one."""


def _number_types(config: Keys, weight: str) -> tuple[str, ...]:
    """Return the number types of a weight, one for each stage; none if it is not told."""
    layers = config.get("layer_quant_config")
    overrides = mapping(layers)
    if not _last_names or _last_names[0][0] is not layers:
        _last_names[:] = [(overrides, NamePatterns(overrides, wildcard))]
    found = _last_names[0][1].find(module_names(weight.removesuffix(".weight")))
    keys = overrides[found] if found else config.get("global_quant_config")
    declared = mapping(keys).get("weight")
    stages = declared if isinstance(declared, list) else [declared]
    return tuple(str(x.get("dtype")) for x in stages if isinstance(x, Mapping))


def _type_of(m: StoredMatrix, i: int, known: Sequence[str]) -> str:
    """Return one of the number types of a weight, which the tensors do not tell."""
    types = _number_types(m.config, m.weight.name)
    if not types or types[i] not in known:
        raise m.error(
            f"expected {' or '.join(known)} in the config's global_quant_config, found "
            f"{safe(', '.join(types) or 'nothing', 60)}"
        )
    return types[i]


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    if x.name.endswith(".weight") and len(x.shape) == 2:
        (_detect_mxfp6 if x.dtype == "U8" else _detect_int4)(d, x)


def _detect_mxfp6(d: Detection, x: Tensor) -> None:
    """Detect MXFP6: 32 values in 24 bytes, with an 8-bit exponent."""
    scale = d.get(f"{x.name}_scale", "U8")
    if scale is not None and values_per_scale(x, scale) == 24:
        shape = (x.shape[0], 32 * scale.shape[1])
        d.record_with_companions(x, Packing.of_values("mxfp6", x.name, shape))


def _detect_int4(d: Detection, x: Tensor) -> None:
    """Detect INT4 in words: inputs first with scales of groups; or rows with a scale for each, also
    with one for FP8.
    """
    scale, zero = d.get(f"{x.name}_scale", *SCALE_DTYPES), d.get(f"{x.name}_zero_point", "I32")
    if zero is None:
        scale = d.get(f"{x.name}_scale_2", *SCALE_DTYPES)
        zero = d.get(f"{x.name}_zero_point_2", "I32")
    if scale is None or zero is None:
        return
    (first, words), scales = x.shape, scale.shape
    if len(scales) == 2 and -(-scales[1] // 8) == words and zero.shape[-1:] == (words,):
        if scales[0] and not first % scales[0]:
            values = Packing.of_values("quark-int4", x.name, (scales[1], first))
            d.record_with_companions(x, values)
    elif scales == (first,) and zero.shape == (-(-first // 8),):
        d.record_with_companions(x, Packing.of_values("quark-int4", x.name, (first, 8 * words)))


# Values


def _open_mxfp6(m: StoredMatrix) -> Rows:
    """Four numbers in three bytes, lowest bits first, with an exponent for 32 of them."""
    np = require_numpy()
    octets, bits = m.raw("values"), _FP6_MANTISSA_BITS[_type_of(m, 0, list(_FP6_MANTISSA_BITS))]
    m.check("values", octets.shape, (m.out, m.into // 4 * 3))
    scale = m.floats("weight_scale")
    m.check("scales", scale.shape, (m.out, m.into // 32))
    codes, bias = np.arange(32), (1 << 4 - bits) - 1
    exponents, fractions = codes >> bits, (codes & (1 << bits) - 1) / (1 << bits)
    sizes = np.where(
        exponents, (1 + fractions) * 2.0 ** (exponents - bias), fractions * 2.0 ** (1 - bias)
    )
    table = np.concatenate((sizes, -sizes)).astype(np.float32)
    return lambda first, last: (
        table[unpack(octets[first:last], 6, m.into)] * per_value(scale[first:last], m.into)
    )


def _open_int4(m: StoredMatrix) -> Rows:
    """Words of eight numbers: inputs first with scales of groups of them, or rows with a scale
    for each, perhaps with one for FP8.
    """
    np = require_numpy()
    words, is_signed = m.raw("values"), _type_of(m, -1, ("int4", "uint4")) == "int4"
    is_interleaved = mapping(m.config.get("export")).get("pack_method") != "order"
    scale = m.floats("weight_scale_2", "weight_scale")
    zero = m.raw("weight_zero_point_2", "weight_zero_point")
    whole = m.floats("weight_scale").reshape(-1)[0] if m.find("weight_scale_2") else np.float32(1)

    def unpacked(part: Any) -> Any:
        numbers = unpack_words(part, is_interleaved).astype(np.float32)
        return np.where(numbers > 7, numbers - 16, numbers) if is_signed else numbers

    if scale.ndim == 2:
        m.check("values", words.shape, (m.into, -(-m.out // 8)))
        m.check("scales", scale.shape, (len(scale), m.out))
        m.check("zeros", zero.shape, (len(scale), -(-m.out // 8)))
        return group_rows(unpacked, words, zero, scale, m.into)
    m.check("values", words.shape, (m.out, m.into // 8))
    m.check("scales", scale.shape, (m.out,))
    zeros = unpacked(zero.reshape(1, -1))[0, : m.out, None]
    return lambda first, last: (
        (unpacked(words[first:last]) - zeros[first:last]) * scale[first:last, None] * whole
    )


def _why_not(x: PackedWeight, config: Keys) -> str:
    is_mx = config.get("quant_method") == "quark" and x.kind in ("mxfp4", "mxfp6")
    is_old = is_mx and "mx" in _number_types(config, x.name)
    return "Quark's older dtype mx has no dequantization" if is_old else ""


def _codes(x: OpenedPacked, _: int) -> tuple[int, int]:
    is_unsigned = _number_types(x.config, x.weight.name)[-1:] == ("uint4",)
    return (0, 15) if is_unsigned else (-8, 7)


def _rounding(x: OpenedPacked, value: Any, _: Any, half: Any) -> Any:
    """With a scale for FP8, Quark rounds to FP8 first, in bfloat16."""
    np = require_numpy()
    is_two_stages = "weight_scale_2" in x.arrays
    return np.float32(2**-4 + 2**-8) * (np.abs(value) + half) if is_two_stages else np.float32(0)


_INT4_STEPS = WholeNumbers(bits=lambda _: 4, codes=_codes, rounding=_rounding)
PRODUCER = Producer(
    read=_read,
    recognized=("quark-int4", "fp8", "int8", "mxfp4", "mxfp6", "nvfp4"),
    detect=_detect,
    layouts={
        "mxfp6": PackedLayout(open=_open_mxfp6, steps=NextCodes(next_codes=next_fp6)),
        "quark-int4": PackedLayout(open=_open_int4, steps=_INT4_STEPS),
    },
    why_not=_why_not,
)
