"""compressed-tensors (llm-compressor): groups of modules with number types, rows of words, and
sparse matrices with a bit for each value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....utils.errors import Argument, UnknownQuantization
from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy, to_float32
from ..matrix_formats import IN, OUT, Axis, MatrixFormat, groups, parts
from ..packed_tensors import SCALE_DTYPES, Detection, Packing
from ..recipes import (
    NOT_LINEAR,
    CacheScales,
    Choice,
    Matrix,
    Recipe,
    cache_format,
    joined_names,
    keep,
)
from ..registry import Keys, PackedLayout, Producer
from ..shared.fp4 import packed_mxfp_format, packed_nvfp4_format
from ..shared.half_steps import WholeNumbers
from ..shared.name_patterns import NamePatterns, marked_regex
from ..shared.recipe_keys import mapping, strings, unknown
from ..shared.scaled_bytes import SCALES, is_block, mxfp8_format, scaled_rows
from ..shared.stored_matrix import Rows, StoredMatrix, per_value, stored_shape, unpack

# Formats


def _format(kind: str, weights: Keys, activations: object, dtype: str) -> MatrixFormat:
    """Return the format of a group's weights."""
    bits, number = weights.get("num_bits", 8), str(weights.get("type", "int"))
    found = weights.get("group_size")
    group = found if type(found) is int and found > 0 else 0
    strategy = str(weights.get("strategy") or ("group" if group else "tensor"))
    inputs = activations if isinstance(activations, Mapping) else None
    if type(bits) is not int or not 1 <= bits <= 8:
        raise unknown(f"compressed-tensors num_bits {bits}")
    if number not in ("int", "float"):
        raise unknown(f"compressed-tensors type {number}")
    if not kind or kind == "fakequant":
        kind = _inferred_format(bits, number, group, weights, activations)
    axes, suffix = _scale_axes(strategy, group, weights)
    title = f"{kind}, {bits} bits, {strategy} scales"
    name = f"{'fp' if number == 'float' else 'int'}{bits}{suffix}"
    is_symmetric = weights.get("symmetric", True) is not False
    is_static = inputs is not None and inputs.get("dynamic", False) is False
    scale = f".weight_scale {dtype} {axes}"
    zero = "" if is_symmetric else f".weight_zero_point I8 {axes}"
    has_zero = is_static and mapping(inputs).get("symmetric") is False
    static = (
        f".input_scale {dtype} 1" if is_static else "",
        ".input_zero_point I8 1" if has_zero else "",
    )
    if kind in ("naive-quantized", "int-quantized", "float-quantized"):
        is_float, rates = number == "float", {"int": "int8", "float": "fp8"}
        values = f".weight {'F8_E4M3' if is_float else 'I8'} out in"
        stored = parts(values, scale, zero, *static)
        rate = rates[number] if inputs is not None else ""
        return MatrixFormat(name=name, title=title, parts=stored, compute_rate=rate)
    if kind == "pack-quantized":
        if zero and strategy in ("group", "channel"):
            zero = f".weight_zero_point I32 out*{bits}/32 {axes.split()[1]}"
        is_ordered = weights.get("actorder") in ("group", True)
        stored = parts(
            f".weight_packed I32 out in*{bits}/32",
            scale,
            zero,
            ".weight_shape I64 2",
            ".weight_g_idx I32 in" if is_ordered else "",
            *static,
        )
        return MatrixFormat(name=name, title=title, parts=stored)
    if kind == "nvfp4-pack-quantized":
        is_scaled = inputs is not None and inputs.get("dynamic", False) is not True
        return packed_nvfp4_format(group or 16, inputs is not None, is_scaled)
    if kind in ("mxfp4-pack-quantized", "mxfp6-pack-quantized"):
        return packed_mxfp_format(bits, group or 32).replace(title=title)
    if kind == "mxfp8-quantized":
        return mxfp8_format()
    if kind == "marlin-24":
        stored = parts(
            f".weight_packed I32 in/32 out*{bits // 2}",
            f".scale_packed F16 {groups(group)} out",
            ".meta I16 in/32 out*2",
        )
        return MatrixFormat(name=f"marlin24-{bits}bit{suffix}", title=title, parts=stored)
    raise unknown(f"compressed-tensors format {kind}")


def _scale_axes(strategy: str, group: int, weights: Keys) -> tuple[str, str]:
    """Return the axes of scales, and what they add to the name of a format."""
    if strategy == "block":
        block: Any = weights.get("block_structure")
        if isinstance(block, str):
            block = [int(n) for n in block.lower().split("x") if n.isdecimal()]
        if not is_block(block):
            raise unknown(f"compressed-tensors block_structure {block}")
        return f"out/{block[0]} in/{block[1]}", f"-{block[0]}x{block[1]}"
    if strategy in ("group", "tensor_group") and group:
        return f"out in/{group}", f"-g{group}"
    if strategy == "channel":
        return "out 1", "-rows"
    if strategy == "tensor":
        return "1", "-tensor"
    raise unknown(f"compressed-tensors strategy {strategy}")


def _inferred_format(bits: int, number: str, group: int, weights: Keys, activations: object) -> str:
    """Return the format that compressed-tensors infers from a group without one."""
    if number == "float" and bits == 4:
        return "mxfp4-pack-quantized" if group == 32 else "nvfp4-pack-quantized"
    if number == "float":
        is_mx = group == 32 and "uint8" in str(weights.get("scale_dtype"))
        return "mxfp8-quantized" if is_mx else "float-quantized"
    return "pack-quantized" if activations is None or bits < 8 else "int-quantized"


def _sparse_24_format(dense: MatrixFormat | None, dtype: str) -> MatrixFormat:
    """Return 2:4 sparsity of a matrix in a plain dtype, or in a format of 8 bits: of four values
    in a row, two are stored.
    """
    values, *rest = dense.parts if dense is not None else parts(f".weight {dtype} out in")
    if values.suffix != ".weight" or values.axes != (OUT, IN):
        raise UnknownQuantization(
            "quantization_config: sparse-24-bitmask of "
            f"{dense.title if dense is not None else dtype} is unknown",
            hint=f"{Argument('dtype')} sets the format of the weights",
        )
    texts = f".compressed {values.dtype} out in/2", ".bitmask U8 out in/8", ".shape I64 2 1"
    return MatrixFormat(
        name="sparse-24" + (f"-{dense.name}" if dense is not None else ""),
        title="2:4 sparsity, half of the values and a bit for each",
        parts=(*parts(*texts), *rest),
    )


# Recipe


def _read(config: Keys, dtype: str) -> Recipe:
    if isinstance(inner := config.get("quantization_config"), Mapping):
        config = inner
    found = config.get("config_groups")
    _refuse_online_transforms(config.get("transform_config"))
    sparsity = mapping(config.get("sparsity_config"))
    kind = sparsity.get("format") or "dense"
    if kind == "sparse-24-bitmask":
        return _sparse_24(config, sparsity, dtype)
    if kind != "dense":
        raise unknown(f"sparse format {kind}, whose size depends on the values")
    if not isinstance(found, Mapping) or not found:
        raise unknown("compressed-tensors without config_groups")
    ignored = NamePatterns(strings(config, "ignore") or (), marked_regex)
    formats: list[MatrixFormat | None] = []
    by_target: dict[str, MatrixFormat | None] = {}
    for group in found.values():
        if not isinstance(group, Mapping):
            raise unknown("compressed-tensors group")
        kind = group.get("format") or config.get("format")
        if kind == "mixed-precision":
            kind = None
        weights, to = group.get("weights"), None
        if isinstance(weights, Mapping):
            to = _format(str(kind or ""), weights, group.get("input_activations"), dtype)
        elif weights is not None:
            raise unknown("compressed-tensors weights that are no object")
        formats.append(to)
        by_target |= dict.fromkeys(strings(group, "targets") or (), to)
    if not any(formats):
        raise unknown("compressed-tensors without quantized weights")
    plain = frozenset(x for x in by_target if not x.startswith("re:"))
    patterns = NamePatterns(sorted(by_target.keys() - plain), marked_regex)

    def choose(x: Matrix) -> Choice:
        """Choose by an exact name, then a regular expression, then a class."""
        if _is_listed(ignored, x):
            return Choice(None, "in ignore")
        classes = ("Embedding",) if x.kind == "embedding" else ("Linear", "LinearBase")
        target = next((y for y in x.names if y in plain), "") or patterns.find_special(x.names)
        target = target or next((y for y in classes if y in plain), "")
        if not target:
            return Choice(None, "no target")
        to = by_target[target]
        return Choice(to, "" if to is not None else "its group has no weights")

    scheme = config.get("kv_cache_scheme")
    return Recipe(
        method="compressed-tensors",
        name=joined_names(formats),
        rules=(keep("router", "router"), keep(NOT_LINEAR, "other"), choose),
        patterns=(*ignored.patterns, *by_target),
        kv_cache=cache_format(scheme),
        cache_scales=_cache_scales(scheme, dtype),
    )


_FUSED = ("weight_input", "weight_output")
"""Where compressed-tensors multiplies a transform into the weights, so that nothing of it is
stored."""


def _refuse_online_transforms(config: object) -> None:
    """Refuse transforms of activations by name: their matrices are stored beside the weights,
    and the model computes with them.
    """
    if not config:
        return
    schemes = mapping(config).get("config_groups")
    for scheme in schemes.values() if isinstance(schemes, Mapping) else (None,):
        applied = mapping(scheme).get("apply")
        for x in applied if isinstance(applied, Sequence) else (None,):
            where = mapping(x).get("location")
            if where not in _FUSED:
                kind = mapping(scheme).get("type")
                raise unknown(
                    f"compressed-tensors transform_config with {kind} at {where}, "
                    "whose matrices are stored, too"
                )


def _sparse_24(config: Keys, sparsity: Keys, dtype: str) -> Recipe:
    """Read 2:4 sparsity, which may be that of matrices which `config_groups` quantize: half of
    the values, and a bit for each.
    """
    dense = {key: x for key, x in config.items() if key != "sparsity_config"}
    quantized = _read(dense, dtype) if config.get("config_groups") else None
    ignored = NamePatterns(strings(sparsity, "ignore") or (), marked_regex)
    targets = NamePatterns(strings(sparsity, "targets") or ("Linear",), marked_regex)

    def choose(x: Matrix) -> Choice:
        choice = Choice(None, "not in the targets of sparsity_config")
        if quantized is not None:
            choice = quantized.choose(x)
        is_linear = x.kind not in ("router", "other", "embedding")
        if not is_linear or _is_listed(ignored, x) or not _is_listed(targets, x):
            return choice
        return Choice(_sparse_24_format(choice.format, dtype))

    return Recipe(
        method="compressed-tensors",
        name="sparse-24" + (f"+{quantized.name}" if quantized is not None else ""),
        rules=(choose,),
        patterns=(
            *ignored.patterns,
            *targets.patterns,
            *(quantized.patterns if quantized is not None else ()),
        ),
    )


def _cache_scales(scheme: object, dtype: str) -> CacheScales | None:
    """Return the scales that are stored for a static KV cache."""
    if not isinstance(scheme, Mapping) or scheme.get("dynamic", False) is not False:
        return None
    one = Axis("")
    by_head = scheme.get("strategy") == "attn_head"
    return CacheScales(dtype, False, (OUT, one, one) if by_head else (one,))


def _is_listed(names: NamePatterns, x: Matrix) -> bool:
    """Whether a list has a module: by its own name or class, not by its parents'."""
    kind = "Embedding" if x.kind == "embedding" else "Linear"
    is_named = kind in names.exact or any(name in names.exact for name in x.names)
    return is_named or bool(names.find_special(x.names))


# Detection


def _detect(d: Detection, x: Tensor) -> None:
    if x.name.endswith("bitmask"):
        _detect_sparse(d, x)
    elif x.name.endswith("weight_packed"):
        _detect_packed(d, x)


def _detect_sparse(d: Detection, bits: Tensor) -> None:
    """Detect 2:4 sparsity: half of the values of each row, and a bit for each value; and all
    values but zeros, one after the other, with the shape in a tensor.
    """
    base = bits.name.removesuffix("bitmask")
    x, shape = d.get(f"{base}compressed"), d.get(f"{base}shape", "I64")
    rows = d.get(f"{base}row_offsets", "I64")
    if x is None or shape is None or bits.dtype != "U8":
        return
    scales = dict.fromkeys((f"{base}weight_scale", f"{base}input_scale"), "scale")
    roles = {bits.name: "index", shape.name: "meta", **scales}
    if len(x.shape) == 2 and bits.shape == (x.shape[0], -(-x.shape[1] // 4)):
        of_weight = (x.shape[0], 2 * x.shape[1])
        d.record(x, Packing.of_values("sparse-24", f"{base}weight", of_weight), roles)
    elif len(x.shape) == 1 and len(bits.shape) == 2 and rows is not None:
        values = Packing.of_unknown_length("sparse-bitmask", f"{base}weight", x)
        d.record(x, values, roles | {rows.name: "index"})


def _detect_packed(d: Detection, x: Tensor) -> None:
    """Detect rows packed densely, where group index, packed zeros or configuration determine the
    number of bits; and 2:4 sparsity in Marlin's tiles, with scales in as many columns as there are
    outputs.
    """
    base, weight = x.name.removesuffix("weight_packed"), x.name.removesuffix("_packed")
    scale, meta = d.get(f"{base}scale_packed", *SCALE_DTYPES), d.get(f"{base}meta", "I16")
    if x.dtype == "I32" and scale is not None and meta is not None and len(x.shape) == 2:
        outputs = scale.shape[-1] if len(scale.shape) == 2 else -1
        if x.shape[1] in (2 * outputs, 4 * outputs):
            values = Packing.of_values("marlin-24", f"{base}weight", (outputs, 32 * x.shape[0]))
            d.record(x, values, {scale.name: "scale", meta.name: "index"})
            return
    scale = d.get(f"{weight}_scale", *SCALE_DTYPES)
    is_packed = x.dtype in ("I16", "I32", "I64") and x.name.endswith(".weight_packed")
    if not is_packed or scale is None or len(x.shape) < 2 or scale.shape[:-1] != x.shape[:-1]:
        return
    lengths = _row_lengths(d, x, weight)
    if lengths is None:
        lengths = {
            y
            for bits, group in d.declared_bits()
            if (y := _row_length(x.shape[-1], scale.shape[-1], bits, group))
        }
    values = Packing.of_unknown_length("compressed-int", weight, x)
    if len(lengths) == 1 and (length := lengths.pop()):
        kind = f"compressed-int{32 * x.shape[-1] // length}"
        values = Packing.of_values(kind, weight, (*x.shape[:-1], length))
    d.record_with_companions(x, values)


def _row_lengths(d: Detection, x: Tensor, weight: str) -> set[int] | None:
    """Return the row lengths that agree with group index or packed zeros; None without them."""
    words = x.shape[-1]
    if (index := d.get(f"{weight}_g_idx", "I32", "I64")) is not None:
        is_possible = any(-(-index.elements * b // 32) == words for b in range(1, 9))
        return {index.elements} if is_possible else set()
    zero = d.get(f"{weight}_zero_point", "I32")
    if zero is not None and len(zero.shape) == len(x.shape):
        bits = [b for b in range(1, 9) if -(-x.shape[-2] * b // 32) == zero.shape[-2]]
        return {words * 32 // bits[0]} if len(bits) == 1 and 8 % bits[0] == 0 else None
    return None


def _row_length(packed: int, scales: int, bits: int, group: int | None) -> int:
    """Return the length of a row with this many words and scales; 0 if these bits and this group
    size do not produce one.
    """
    if group is not None:
        length = scales * group
        return length if packed in (-(-length * bits // 32), -(-length // (32 // bits))) else 0
    return packed * 32 // bits if scales == 1 and 8 % bits == 0 else 0


# Values


def _open_packed(m: StoredMatrix) -> Rows:
    """Rows packed densely, plus half the range; zero points are packed along the outputs."""
    np = require_numpy()
    words, scale = m.raw("values"), m.floats("weight_scale")
    bits = int(re.sub(r"\D", "", m.weight.kind))
    offset = 1 << bits - 1
    scale = scale.reshape(m.out, -1)
    index = m.raw("weight_g_idx").reshape(-1) if m.find("weight_g_idx") else None
    zero: Any = 0
    if m.find("weight_zero_point"):
        packed = m.raw("weight_zero_point")
        if packed.dtype.itemsize == 4:
            zero = unpack(np.ascontiguousarray(packed.T), bits, m.out).T.astype(np.float32) - offset
        else:
            zero = packed.astype(np.float32).reshape(scale.shape)

    def per_input(x: Any) -> Any:
        return per_value(x, m.into) if index is None else x[:, index]

    def rows(first: int, last: int) -> Any:
        q = unpack(words[first:last], bits, m.into).astype(np.float32) - offset
        if not isinstance(zero, int):
            q = q - per_input(zero[first:last])
        return q * per_input(scale[first:last])

    return rows


def _open_sparse(m: StoredMatrix) -> Rows:
    """The values that are not zero, perhaps quantized, and a bit for each, the lowest first."""
    np = require_numpy()
    numbers, bits, dtype = m.raw("values").reshape(-1), m.raw("bitmask"), m.dtype("values")
    m.check("a bitmask", bits.shape, (m.out, -(-m.into // 8)))
    octets = np.ascontiguousarray(bits).view(np.uint8)
    mask = np.unpackbits(octets, axis=1, bitorder="little")[:, : m.into].astype(bool)
    count = int(np.count_nonzero(mask))
    if count != numbers.size:
        raise m.error(
            f"expected {count:,} values, the number of bits that are set, found {numbers.size:,}"
        )
    dense = np.zeros((m.out, m.into), numbers.dtype)
    dense[mask] = numbers
    if m.find(*SCALES):
        return scaled_rows(m, dense, dtype)
    return lambda first, last: to_float32(dense[first:last], dtype)


_STEPS = WholeNumbers(bits=lambda x: int(re.sub(r"\D", "", x.weight.kind)))
PRODUCER = Producer(
    read=_read,
    recognized=("compressed-int", "fp8", "int8", "nvfp4", "mxfp4", "sparse-24", "marlin-24"),
    detect=_detect,
    layouts={
        "compressed-int": PackedLayout(open=_open_packed, steps=_STEPS),
        "sparse-24": PackedLayout(open=_open_sparse),
        "sparse-bitmask": PackedLayout(open=_open_sparse, stored_shape=stored_shape),
    },
)
