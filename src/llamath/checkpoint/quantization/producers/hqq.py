"""HQQ: groups of the flat matrix, packed along the first axis, with the settings of each matrix in
tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....utils.dotted_names import DottedNames
from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import SCALE_DTYPES, Detection, Packing
from ..recipes import Choice, Matrix, Recipe, joined_names, keep_listed, linear_only
from ..registry import Keys, PackedLayout, Producer
from ..shared.half_steps import WholeNumbers
from ..shared.name_patterns import NamePatterns, inside_name
from ..shared.recipe_keys import bits_of, group_of, integer, mapping, strings, unknown
from ..shared.stored_matrix import Rows, StoredMatrix, stored_shape

if TYPE_CHECKING:
    from ..dequantizers import OpenedPacked
    from ..shared.stored_matrix import Array

_NUMBERS, _TEXTS = (
    ("nbits", "group_size", "axis"),
    ("packing", "unpack_view_dtype", "compute_dtype"),
)
_FLAGS = (
    *("view_as_float", "quant_scale", "quant_zero", "encoded_state_dict", "stores_quant_config"),
    *("channel_wise", "optimize", "round_zero"),
)


# Formats and recipe


def _format(bits: int, group: int, axis: int, dtype: str) -> MatrixFormat:
    """Return groups as rows (axis 1) or columns of what is stored."""
    count, words, groups = _per_word(bits), "I32" if bits == 3 else "U8", f"out·in/{group}"
    if axis == 1:
        values, scale = f"out·in/{group * count} {group}", f"{groups} 1"
    else:
        values, scale = f"{-(-group // count)} {groups}", f"1 {groups}"
    torch_name = {"BF16": "torch.bfloat16", "F16": "torch.float16", "F32": "torch.float32"}[dtype]
    lengths = map(len, ("4bit_u8", "torch.uint8", torch_name))
    return MatrixFormat(
        name=f"hqq-{bits}bit-g{group}",
        title=f"HQQ with {bits} bits, groups of {group}",
        parts=parts(
            f".W_q {words} {values}",
            f".scale {dtype} {scale}",
            f".zero {dtype} {scale}",
            ".shape I64 2",
            *(f".{x} I32" for x in _NUMBERS),
            *(f".{x} U8 {n}" for x, n in zip(_TEXTS, lengths, strict=True)),
            *(f".{x} U8" for x in _FLAGS),
        ),
    )


def _read(config: Keys, dtype: str) -> Recipe:
    inner = config.get("quant_config")
    inner = inner if isinstance(inner, Mapping) else config
    common = inner.get("weight_quant_params")
    is_common = isinstance(common, Mapping)
    layers = {} if is_common else {k: v for k, v in inner.items() if isinstance(v, Mapping)}
    skip = NamePatterns(strings(config, "skip_modules") or ("lm_head",), inside_name)

    def format_of(keys: Keys) -> MatrixFormat:
        params = mapping(keys.get("weight_quant_params", keys))
        bits, group = bits_of(params, (1, 2, 3, 4, 8), "nbits", 4), group_of(params, 64)
        if params.get("view_as_float") or group < 1 or group % 8:
            raise unknown(f"hqq with view_as_float or group_size {group}")
        return _format(bits, group, integer(params, "axis", 1), dtype)

    uniform = format_of(mapping(common)) if is_common else None
    by_name = {name: format_of(keys) for name, keys in layers.items()}
    formats, ends = list(by_name.values()), DottedNames(by_name, from_end=True)
    if uniform is None and not by_name:
        raise unknown("hqq without weight_quant_params")

    def choose(x: Matrix) -> Choice:
        if uniform is not None:
            return Choice(uniform)
        found = [i for own in x.names for i in ends.along(own)]
        to = formats[min(found)] if found else None
        return Choice(to, "" if to is not None else "in no entry of quant_config")

    return Recipe(
        method="hqq",
        name=joined_names([uniform, *formats]),
        rules=(linear_only, keep_listed(skip, "in skip_modules"), choose),
        patterns=(*by_name, *skip.patterns),
    )


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    """Detect `X.W_q`, whose shape is a tensor; the number of bits follows from the scales."""
    base = x.name.removesuffix("W_q")
    scale, shape = d.get(f"{base}scale", *SCALE_DTYPES), d.get(f"{base}shape", "I64")
    if base == x.name or scale is None or shape is None or not scale.elements:
        return
    if len(x.shape) != 2 or len(scale.shape) != 2:
        return
    count, (packed, group) = scale.shape[0], x.shape
    has_bits = scale.shape[1] == 1 and x.dtype == "U8" and packed and count % packed == 0
    if has_bits and count // packed in (1, 2, 4, 8):
        values = Packing("hqq", f"{base}weight", "values", None, count * group)
    else:
        values = Packing.of_unknown_length("hqq", f"{base}weight", x)
    roles = {f"{base}{name}": "meta" for name in ("shape", *_NUMBERS, *_TEXTS, *_FLAGS)}
    d.record(x, values, roles | {scale.name: "scale", f"{base}zero": "zero"})


# Values


def _open(m: StoredMatrix) -> Rows:
    """Groups of the flat matrix, less a zero and times a scale; pieces of the groups are packed
    from the highest bits down.
    """
    np = require_numpy()
    words, scale, zero = m.raw("values"), m.floats("scale"), m.floats("zero")
    bits, axis = m.number("nbits"), m.number("axis")
    if bits not in (1, 2, 3, 4, 8) or (m.find("view_as_float") and m.number("view_as_float")):
        raise m.error(f"expected 1, 2, 3, 4 or 8 bits as integers, found {bits} bits")
    count = _per_word(bits)
    pieces = [words >> bits * (count - 1 - i) & (1 << bits) - 1 for i in range(count)]
    numbers = np.concatenate(pieces).astype(np.float32)
    groups = scale.size
    whole = numbers[:groups] if axis else numbers[: m.out * m.into // groups]
    if whole.size != m.out * m.into:
        raise m.error(f"expected {m.out * m.into:,} values, found {whole.size:,}")
    values = ((whole - zero) * scale).reshape(m.out, m.into)
    return lambda first, last: values[first:last]


def _per_word(bits: int) -> int:
    return 10 if bits == 3 else 8 // bits


def _bits(x: OpenedPacked) -> int:
    return int(x.arrays["nbits"][1].reshape(-1)[0])


def _constant(words: Array, bits: int, step: int) -> Any:
    ones = sum(1 << bits * i for i in range(_per_word(bits))) if step > 0 else 0
    return require_numpy().full_like(words, ones)


PRODUCER = Producer(
    read=_read,
    recognized=("hqq",),
    detect=_detect,
    layouts={
        "hqq": PackedLayout(
            open=_open,
            steps=WholeNumbers(bits=_bits, constant=_constant),
            stored_shape=stored_shape,
        )
    },
)
