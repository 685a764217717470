"""Dequantization: the values of packed weights as float32, from their stored tensors, for every
scheme whose layout is known.

`DEQUANTIZERS` has a row for each kind of packing. A row opens the stored tensors of one matrix
[out, in] and returns a function from a range of outputs to their values, so that a matrix of any
size is dequantized in pieces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...utils.errors import LlamathError, safe
from ..formats.number_arrays import StoredArray, as_array, float8_table, require_numpy, to_float32
from .packed_tensors import Packing, Shape
from .recipes import quark_number_types

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    Values = NDArray[float32]
    Array = NDArray[Any]

_CHUNK_ELEMENTS = 1 << 20
"""Elements dequantized at once; a multiple of rows."""
_ROW_MULTIPLE = 64
"""Outputs are read in multiples of this many, so that no packed word is cut."""
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""Values of E2M1 (OCP Microscaling Formats 1.0, section 5.3.3)."""
_FP6_MANTISSA_BITS = {"fp6_e2m3": 3, "fp6_e3m2": 2}
"""Types of MXFP6 → their mantissa bits (OCP Microscaling Formats 1.0, section 5.3.2)."""
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The column, of eight, that each half byte of a word holds in AWQ's GEMM layout, and in
Quark's."""


class PackedWeight(NamedTuple):
    """A packed weight, and the names of the tensors that are stored for it."""

    name: str  # that it would have if it were not quantized
    kind: str
    shape: Shape | None  # (…, out, in); None: it is in the tensors, or nowhere
    values: str
    companions: tuple[str, ...] = ()


def packed_weights(packings: Mapping[str, Packing]) -> dict[str, PackedWeight]:
    """Return the packed weights of a checkpoint by name."""
    companions: dict[str, list[str]] = {}
    for name, x in packings.items():
        if x.role != "values":
            companions.setdefault(x.weight, []).append(name)
    return {
        x.weight: PackedWeight(
            x.weight,
            x.kind,
            x.shape if x.known else None,
            name,
            tuple(companions.get(x.weight, ())),
        )
        for name, x in packings.items()
        if x.role == "values"
    }


class _Matrix:
    """The stored tensors of one matrix, by the last part of their names, with their bytes as
    arrays.
    """

    def __init__(
        self, x: PackedWeight, arrays: Mapping[str, tuple[str, Array]], config: Mapping[str, Any]
    ) -> None:
        self.weight, self.config, self._arrays = x, config, arrays
        self.out, self.into = x.shape[-2:] if x.shape is not None and len(x.shape) > 1 else (0, 0)

    def find(self, *ends: str) -> str:
        """Return the first of these ends that a stored tensor has, or an empty string."""
        return next((end for end in ends if end in self._arrays), "")

    def raw(self, *ends: str) -> Any:
        """Return the stored numbers of the tensor with one of these ends."""
        end = self.find(*ends)
        if not end:
            raise self.error(
                f"expected a tensor {ends[0]}, found {', '.join(sorted(self._arrays))}"
            )
        return self._arrays[end][1]

    def floats(self, *ends: str) -> Any:
        """Return the tensor with one of these ends as float32; bytes of scales are exponents."""
        raw, end = self.raw(*ends), self.find(*ends)
        dtype = self._arrays[end][0]
        return to_float32(raw, "F8_E8M0" if dtype == "U8" else dtype)

    def dtype(self, end: str) -> str:
        """Return the stored dtype of the tensor with this end."""
        return self._arrays[end][0]

    def error(self, problem: str) -> LlamathError:
        """Return an error about this weight."""
        return LlamathError(f"{safe(self.weight.name)} ({safe(self.weight.kind, 40)}): {problem}")

    def check(self, what: str, found: Sequence[int], *expected: Sequence[int]) -> None:
        """Raise unless a shape is one of those expected."""
        if tuple(found) not in {tuple(x) for x in expected}:
            wanted = " or ".join(str(list(x)) for x in expected)
            raise self.error(f"expected {what} of shape {wanted}, found {list(found)}")


_Rows = Callable[[int, int], Any]
"""The values of the outputs from one to another, and not including the other: float32 [n, in]."""


def dequantize(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any] | None = None
) -> Any:
    """Return a packed weight as float32, of its shape; `config` is the `quantization_config`."""
    np = require_numpy()
    shape, pieces = iter_dequantized(x, read, config)
    result = np.empty((prod(shape[:-1]), shape[-1]), np.float32)
    at = 0
    for piece in pieces:
        result[at : at + len(piece)] = piece
        at += len(piece)
    return result.reshape(shape)


def iter_dequantized(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any] | None = None
) -> tuple[Shape, Iterator[Values]]:
    """Return the shape (…, out, in) of a packed weight, and its rows in order, some at a time,
    as float32 [n, in].
    """
    opened = open_packed(x, read, config)
    out, into = opened.shape[-2:]
    step = max(_ROW_MULTIPLE, _CHUNK_ELEMENTS // max(into, 1) // _ROW_MULTIPLE * _ROW_MULTIPLE)
    spans = ((i, first) for i in range(prod(opened.shape[:-2])) for first in range(0, out, step))
    return opened.shape, (opened.rows(i, first, min(first + step, out)) for i, first in spans)


def open_packed(
    x: PackedWeight, read: Callable[[str], StoredArray], config: Mapping[str, Any] | None = None
) -> OpenedPacked:
    """Read the stored tensors of a packed weight."""
    config = config or {}
    if problem := why_not_dequantized(x, config):
        raise LlamathError(
            f"{safe(x.name)} cannot be dequantized: {problem}",
            hint="use the checkpoint that it was quantized from",
        )
    arrays = {
        _end(name, x): (stored.dtype, as_array(stored))
        for name in (x.values, *x.companions)
        for stored in (read(name),)
    }
    if x.kind in ("bnb-nf4", "bnb-fp4"):
        x = x._replace(shape=_shape_of_bnb_state(x, arrays))
    elif x.kind in ("hqq", "sparse-bitmask"):
        x = x._replace(shape=_stored_shape(x, arrays))
    return OpenedPacked(x, arrays, config)


class OpenedPacked:
    """The stored tensors of a packed weight, a matrix or a stack of matrices."""

    def __init__(
        self, x: PackedWeight, arrays: Mapping[str, tuple[str, Array]], config: Mapping[str, Any]
    ) -> None:
        assert x.shape is not None
        self.shape: Shape = x.shape
        self._weight, self._arrays, self._config = x, arrays, config
        self._kind = x.kind.rstrip("12345678") if x.kind.startswith("compressed-int") else x.kind
        self._matrix = -1
        self._rows: dict[int, _Rows] = {}

    def rows(self, matrix: int, first: int, last: int) -> Any:
        """Return outputs of one matrix as float32 [n, in]; `first` is a multiple of 64."""
        try:
            found = self._open(matrix, 0)(first, last)
        except (ValueError, IndexError, TypeError, ArithmeticError):
            found = None
        if found is None or found.shape != (last - first, self.shape[-1]):
            shapes = ", ".join(
                f"{end} {list(array.shape)}" for end, (_, array) in self._arrays.items()
            )
            name = f"{safe(self._weight.name)} ({safe(self._weight.kind, 40)})"
            raise LlamathError(f"{name}: its tensors do not match each other: {shapes}")
        return found

    @property
    def has_half_steps(self) -> bool:
        """Whether codes are the nearest ones, so that values have bounds."""
        return self._kind in _NEIGHBORS or self._kind in _INTEGERS or self._kind in _TABLES

    @property
    def error_limit(self) -> float:
        """The largest relative error of a matrix that quantizers cause which move values beyond
        half a step; 0 if none does.
        """
        return _MOVED_ERRORS[self._bits] if self._kind in ("awq", "gptq") else 0.0

    def half_steps(self, matrix: int, first: int, last: int) -> tuple[Any, Any]:
        """Return half the distance of each value to the next one towards 0, and away from it; a
        whole distance beyond the last value.

        A table of bitsandbytes ends at the largest value of a block, so nothing lies beyond it.
        """
        np = require_numpy()
        with np.errstate(invalid="ignore", over="ignore"):
            value, less, more = (self._open(matrix, step)(first, last) for step in (0, -1, 1))
        if self._kind in _INTEGERS:
            step, (low, high) = np.abs(more - less), self._codes
            code = (value - less) / np.where(step, step, 1)
            half = step * np.where(
                (code < low + 0.5) | (code > high - 0.5), np.float32(1), np.float32(0.5)
            )
            if self._kind == "awq":  # AutoAWQ divides by the scale in float16
                half += np.float32(2**-9) * (np.abs(value) + high * step)
            elif self._kind == "gptq":  # it stores the scale in float16 after it chose the codes
                half += np.float32(2**-11) * np.abs(value)
            # Quark rounds to FP8 first, in bfloat16
            elif "weight_scale_2" in self._arrays and self._kind == "quark-int4":
                half += np.float32(2**-4 + 2**-8) * (np.abs(value) + half)
            return half, half
        inward, outward = np.abs(value - less) / 2, np.abs(more - value) / 2
        if self._kind in _TABLES:
            error = (
                self._open(matrix, _SCALE_ERROR)(first, last)
                if "nested_absmax" in self._arrays
                else np.float32(0)
            )
            return inward + error, outward + error
        ends = ~((outward > 0) & np.isfinite(outward))
        inward, outward = np.where(inward > 0, inward, outward), np.where(ends, 2 * inward, outward)
        if self._kind in _IN_SIXTEEN_BITS:
            error = np.float32(_IN_SIXTEEN_BITS[self._kind]) * np.abs(value)
            return inward + error, outward + error
        return inward, outward

    @property
    def _codes(self) -> tuple[int, int]:
        """The lowest and the highest code of an integer."""
        is_unsigned = self._kind == "quark-int4" and quark_number_types(
            self._config, self._weight.name
        )[-1:] == ("uint4",)
        return (0, 15) if is_unsigned else _INTEGERS[self._kind](self._bits)

    @property
    def _bits(self) -> int:
        words = self._arrays["values"][1]
        if self._kind == "compressed-int":
            return int(re.sub(r"\D", "", self._weight.kind))
        if self._kind == "gptq":
            return int(words.shape[-2] * words.dtype.itemsize * 8 // self.shape[-1])
        if self._kind == "hqq":
            return int(self._arrays["nbits"][1].reshape(-1)[0])
        return (
            4
            if self._kind in ("awq", "int4-awq", "quark-int4")
            else int(words.shape[-1]) * 32 // self.shape[-1]
        )

    def _open(self, matrix: int, step: int) -> _Rows:
        """Open one matrix, with the codes as they are, or those a step further; of integers in
        words, all codes 0 (−1) or 1.

        With the step `_SCALE_ERROR`, the values are how far the rounding of scales may have moved
        them.
        """
        if matrix != self._matrix:
            self._rows, self._matrix = {}, matrix
        if step not in self._rows:
            outer = self.shape[:-2]
            own = {
                end: (dtype, _matrix_of(array, outer, matrix))
                for end, (dtype, array) in self._arrays.items()
            }
            if step and self._kind in _TABLES:
                own |= _other_tables(own, step)
            elif step:
                dtype, codes = own["values"]
                own["values"] = (
                    dtype,
                    self._constant(codes, step)
                    if self._kind in _INTEGERS
                    else _NEIGHBORS[self._kind](codes, step),
                )
            self._rows[step] = DEQUANTIZERS[self._kind](_Matrix(self._weight, own, self._config))
        return self._rows[step]

    def _constant(self, words: Array, step: int) -> Any:
        """Return words of the same shape whose codes are all 1 (step 1) or 0."""
        if self._kind == "gptq":
            return _constant_codes(words.T, self._bits, step).T
        if self._kind == "hqq":
            count = 10 if self._bits == 3 else 8 // self._bits
            return require_numpy().full_like(
                words, sum(1 << self._bits * i for i in range(count)) if step > 0 else 0
            )
        return _constant_codes(words, self._bits, step)


def _other_tables(own: Mapping[str, tuple[str, Array]], step: int) -> dict[str, tuple[str, Array]]:
    """Return tables of bitsandbytes with the values next to those of the codes, or with the
    errors that rounded scales cause.
    """
    np = require_numpy()
    table = to_float32(own["quant_map"][1], own["quant_map"][0]).reshape(-1)
    if step != _SCALE_ERROR:
        return {"quant_map": ("F32", _next_in_table(table, step))}
    nested = to_float32(own["nested_quant_map"][1], own["nested_quant_map"][0]).reshape(-1)
    gaps = np.maximum(*(np.abs(_next_in_table(nested, x) - nested) for x in (-1, 1))) * np.float32(
        0.5 + 2**-10
    )
    state = json.loads(bytes(own["state"][1].tobytes()[:10_000])) | {"nested_offset": 0.0}
    half = np.maximum(*(np.abs(_next_in_table(table, x) - table) for x in (-1, 1))) / 2
    return {
        "quant_map": ("F32", np.abs(table) + half),
        "nested_quant_map": ("F32", gaps),
        "state": ("U8", np.frombuffer(json.dumps(state).encode(), np.uint8)),
    }


def _next_in_table(table: Array, step: int) -> Any:
    """Return the next value of each away from 0 (1) or towards it (−1), itself if there is none;
    of 0, the one above (−1) or below.
    """
    np = require_numpy()
    values = np.unique(table)
    at = np.searchsorted(values, table)
    upward = np.where(table == 0, step < 0, (table > 0) == (step > 0))
    return values[np.clip(at + np.where(upward, 1, -1), 0, len(values) - 1)].astype(np.float32)


def _constant_codes(words: Array, bits: int, step: int) -> Any:
    """Return words of the same shape whose codes are all 1 (step 1) or 0."""
    np = require_numpy()
    if step < 0:
        return np.zeros_like(words)
    size = words.dtype.itemsize * 8
    ones = np.zeros((words.shape[-1] * size // bits, bits), np.uint8)
    ones[:, 0] = 1
    padded = np.zeros(words.shape[-1] * size, np.uint8)
    padded[: ones.size] = ones.reshape(-1)
    row = np.packbits(padded, bitorder="little").view(words.dtype)
    return np.broadcast_to(row, words.shape)


def _next_float8(codes: Array, step: int) -> Any:
    """Return the next codes of an 8-bit float; those of 0 and of the largest value stay."""
    np = require_numpy()
    size = codes.view(np.uint8) & 127
    stays = (size == 0) if step < 0 else (size >= 0x7E)
    return np.where(stays, codes, codes + codes.dtype.type(step % 256))


def _next_int8(codes: Array, step: int) -> Any:
    np = require_numpy()
    signed = codes.view(np.int8)
    stays = signed == (-128 if step < 0 else 127)
    return np.where(stays, signed, signed + np.int8(step)).astype(np.int8)


def _next_fp4(codes: Array, step: int) -> Any:
    """Return the next codes of both halves of each byte."""
    np = require_numpy()
    half = np.arange(16)
    stays = (half & 7) == (0 if step < 0 else 7)
    table = np.where(stays, half, half + step)
    octets = np.arange(256)
    both = (table[octets & 15] | table[octets >> 4] << 4).astype(np.uint8)
    return both[np.ascontiguousarray(codes).view(np.uint8)]


def _next_fp6(codes: Array, step: int) -> Any:
    """Return the next codes of the four numbers in each three bytes."""
    np = require_numpy()
    found = _unpack(codes, 6, codes.shape[-1] // 3 * 4).astype(np.int8)
    stays = (found & 31) == (0 if step < 0 else 31)
    moved = np.where(stays, found, found + step).astype(np.uint8)
    bits = np.unpackbits(moved[..., None], axis=-1, bitorder="little")[..., :6]
    return np.packbits(bits.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")


def _next_torchao(codes: Array, step: int) -> Any:
    """Return the next codes of either of torchao's types."""
    return (_next_int8 if codes.dtype.kind == "i" else _next_float8)(codes, step)


_NEIGHBORS: Mapping[str, Callable[[Array, int], Any]] = {
    "fp8": _next_float8,
    "torchao": _next_torchao,
    "int8": _next_int8,
    "bnb-int8": _next_int8,
    "eetq": _next_int8,
    "mxfp4": _next_fp4,
    "nvfp4": _next_fp4,
    "mxfp6": _next_fp6,
}
"""Kinds of packing → the codes a step away from zero (1) or towards it (−1)."""
_INTEGERS: Mapping[str, Callable[[int], tuple[int, int]]] = {
    **dict.fromkeys(
        ("compressed-int", "mlx", "awq", "gptq", "hqq"), lambda bits: (0, (1 << bits) - 1)
    ),
    **dict.fromkeys(("int4-awq", "quark-int4"), lambda _: (-8, 7)),
}
"""Kinds that pack whole numbers, each with a scale for its group → the lowest and the highest
code."""
_IN_SIXTEEN_BITS = {"fp8": 2.0**-8, "int8": 2.0**-8, "torchao": 2.0**-8}
"""Kinds whose quantizers divide by the scale in the dtype of the weights → the relative error of
that in bfloat16."""
_TABLES = frozenset(("bnb-nf4", "bnb-fp4"))
"""Kinds whose codes are positions in a table."""
_SCALE_ERROR = 2
_MOVED_ERRORS = {2: 0.8, 3: 0.45, 4: 0.35, 8: 0.03}
"""Bits → the largest relative error (root mean square) that AWQ and GPTQ cause, which move
values to reduce the error of a layer."""


def _matrix_of(array: Array, outer: Shape, i: int) -> Any:
    """Return the part of a stack's tensor that belongs to one matrix; a tensor without the outer
    axes is shared.
    """
    if not outer or array.shape[: len(outer)] != outer:
        return array
    return array.reshape(-1, *array.shape[len(outer) :])[i]


def why_not_dequantized(x: PackedWeight, config: Mapping[str, Any] | None = None) -> str:
    """Return the reason why a packed weight cannot be dequantized, or an empty string."""
    config = config or {}
    kind = x.kind.rstrip("12345678") if x.kind.startswith("compressed-int") else x.kind
    if kind not in DEQUANTIZERS:
        return f"the layout of {safe(x.kind, 40)} has no dequantization"
    if kind in ("hqq", "sparse-bitmask"):
        return "" if any(name.endswith(".shape") for name in x.companions) else "it has no shape"
    if kind.startswith("bnb-") and kind != "bnb-int8":
        return (
            "" if any(_STATE in name for name in x.companions) else ("it has no quantization state")
        )
    if x.shape is None or len(x.shape) < 2:
        return "its shape is not in the headers"
    if (
        kind in ("mxfp4", "mxfp6")
        and config.get("quant_method") == "quark"
        and "mx" in quark_number_types(config, x.name)
    ):
        return "Quark's older dtype mx has no dequantization"
    if kind == "gptq" and (x.values.endswith(".B") or config.get("checkpoint_format") == "marlin"):
        return "Marlin's tiles have no dequantization"
    return ""


_STATE = ".quant_state.bitsandbytes__"


def _end(name: str, x: PackedWeight) -> str:
    """Return what a stored tensor adds to the name of its weight: `values`, `weight_scale`,
    `scales`, `absmax`, `state`.
    """
    if name == x.values:
        return "values"
    if _STATE in name:
        return "state"
    if name.startswith(f"{x.name}."):
        return name[len(x.name) + 1 :]
    stem = x.name.removesuffix("weight")
    if name.startswith(x.name) and not x.name.endswith("weight"):
        return "weight" + name[len(x.name) :]  # of a stack of experts, which is no module
    return name.removeprefix(stem)


# Numbers


def _unpack(words: Array, bits: int, count: int) -> Any:
    """Return the first `count` values of each row of words, of which each has this many bits,
    the lowest first.
    """
    np = require_numpy()
    octets = np.ascontiguousarray(words).view(np.uint8).reshape(*words.shape[:-1], -1)
    if bits == 8:
        values = octets
    elif 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        values = ((octets[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*octets.shape[:-1], -1)
    else:
        all_bits = np.unpackbits(octets, axis=-1, bitorder="little")
        whole = all_bits.shape[-1] // bits
        values = np.packbits(
            all_bits[..., : whole * bits].reshape(*octets.shape[:-1], whole, bits),
            axis=-1,
            bitorder="little",
        )[..., 0]
    return values[..., :count]


def _per_value(factors: Array, n: int, group: int = 0) -> Any:
    """Repeat the factors of groups along the last axis, for n values."""
    np = require_numpy()
    groups = factors.shape[-1]
    if groups in (1, n):
        return factors
    return np.repeat(factors, group or -(-n // groups), -1)[..., :n]


# Layouts


def _scaled(m: _Matrix, values: Array, dtype: str) -> _Rows:
    """Multiply numbers by scales of the tensor, of rows, of groups of a row, or of blocks of
    rows and columns.
    """
    np = require_numpy()
    m.check("values", values.shape, (m.out, m.into))
    scale = m.floats(*_SCALES)
    zero = m.raw("weight_zero_point") if m.find("weight_zero_point") else None
    if scale.ndim == 4 and scale.shape[1::2] == (1, 1):  # as ModelOpt stores blocks
        scale = scale.reshape(scale.shape[::2])
    if scale.size == 1:
        scale = scale.reshape(1, 1)
    elif scale.ndim == 1 and len(scale) == m.out:
        scale = scale[:, None]
    if scale.ndim != 2:
        raise m.error(
            f"expected scales of the tensor, of rows or of blocks, found shape {list(scale.shape)}"
        )
    tall, wide = (
        _block_length(m, axis, n, of)
        for axis, n, of in ((0, m.out, scale.shape[0]), (1, m.into, scale.shape[1]))
    )
    if zero is not None:
        zero = zero.reshape(scale.shape)

    def rows(first: int, last: int) -> Any:
        of_row = np.arange(first, last) // tall
        found = to_float32(values[first:last], dtype)
        if zero is not None:
            found = found - _per_value(zero[of_row].astype(np.float32), m.into, wide)
        return found * _per_value(scale[of_row], m.into, wide)

    return rows


def _block_length(m: _Matrix, axis: int, n: int, of: int) -> int:
    """Return the number of rows or columns that share a scale."""
    if of == 1:
        return max(n, 1)
    declared = _declared_block(m.config)
    if len(declared) == 2 and -(-n // declared[axis]) == of:
        return declared[axis]
    if not of or n % of:
        raise m.error(
            f"expected a number of scales that divides {n:,}, found {of:,}, and the "
            "config declares no block size"
        )
    return n // of


def _declared_block(config: Mapping[str, Any]) -> Sequence[int]:
    """Return the rows and columns that share a scale, as a `quantization_config` declares them."""
    blocks = [config.get("weight_block_size")]
    groups = config.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        blocks.append(weights.get("block_structure") if isinstance(weights, Mapping) else None)
    known = {
        tuple(x)
        for x in blocks
        if isinstance(x, list) and len(x) == 2 and all(type(n) is int and n > 0 for n in x)
    }
    return known.pop() if len(known) == 1 else ()


_SCALES = (
    "weight_scale_inv",
    "weight_scale",
    "scale_inv",
    "scale",
    "qscale_weight",
    "scale_weight",
)


def _open_8_bits(m: _Matrix) -> _Rows:
    rows = _scaled(m, m.raw("values"), m.dtype("values"))
    if not m.find("pre_quant_scale"):
        return rows
    inputs = m.floats("pre_quant_scale")
    return lambda first, last: rows(first, last) * inputs


def _open_bnb_int8(m: _Matrix) -> _Rows:
    np = require_numpy()
    values, scale = m.raw("values"), m.floats("SCB")
    if m.find("weight_format") and int(m.raw("weight_format").reshape(-1)[0]) != 0:
        raise m.error("expected weight_format 0, which is in rows")
    return lambda first, last: (
        values[first:last].astype(np.float32) * scale[first:last, None] * np.float32(1 / 127)
    )


def _shape_of_bnb_state(x: PackedWeight, arrays: Mapping[str, tuple[str, Array]]) -> Shape:
    state = _bnb_state(x, arrays)
    shape = state.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) != 2
        or not all(type(n) is int and 0 < n < 1 << 40 for n in shape)
    ):
        raise LlamathError(
            f"{safe(x.name)}: expected a shape of two integers in its "
            f"quantization state, found {safe(repr(shape), 60)}"
        )
    if -(-shape[0] * shape[1] // 2) != arrays["values"][1].nbytes:
        raise LlamathError(
            f"{safe(x.name)}: its quantization state has the shape {shape}, its "
            f"values {arrays['values'][1].nbytes:,} bytes"
        )
    return tuple(shape)


def _stored_shape(x: PackedWeight, arrays: Mapping[str, tuple[str, Array]]) -> Shape:
    """Return the shape that is stored next to a matrix; it cannot have more values than there
    are stored, or bits in a bitmask.
    """
    shape = tuple(map(int, arrays["shape"][1].reshape(-1))) if "shape" in arrays else ()
    most = 8 * arrays["bitmask"][1].size if "bitmask" in arrays else 10 * arrays["values"][1].size
    if len(shape) != 2 or not all(0 < n < 1 << 40 for n in shape) or shape[0] * shape[1] > most:
        raise LlamathError(
            f"{safe(x.name)}: expected a shape of two integers that fits its "
            f"values, found {list(shape)}"
        )
    return shape


def _bnb_state(x: PackedWeight, arrays: Mapping[str, tuple[str, Array]]) -> dict[str, Any]:
    try:
        state = json.loads(bytes(arrays["state"][1].tobytes()[:10_000]))
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise LlamathError(f"{safe(x.name)}: expected its quantization state as JSON")
    return state


def _open_bnb_4bit(m: _Matrix) -> _Rows:
    """Half bytes, the high one first, are positions in a table of 16 values; blocks of the flat
    matrix have a scale.
    """
    np = require_numpy()
    state = _bnb_state(m.weight, m._arrays)
    octets = np.ascontiguousarray(m.raw("values")).view(np.uint8).reshape(-1)
    table, block = m.floats("quant_map").reshape(-1), state.get("blocksize")
    absmax = m.raw("absmax").reshape(-1)
    if m.find("nested_absmax"):
        outer, offset = state.get("nested_blocksize"), state.get("nested_offset")
        if type(outer) is not int or outer < 1 or not isinstance(offset, float):
            raise m.error("expected nested_blocksize and nested_offset in its quantization state")
        scale = (
            m.floats("nested_quant_map").reshape(-1)[absmax]
            * np.repeat(m.floats("nested_absmax").reshape(-1), outer)[: len(absmax)]
        )
        scale = scale + np.float32(offset)
    else:
        scale = m.floats("absmax").reshape(-1)
    if (
        type(block) is not int
        or block < 1
        or -(-m.out * m.into // block) != len(scale)
        or len(table) != 16
    ):
        raise m.error(
            f"expected a scale for each block of {block} values and a table of 16, "
            f"found {len(scale):,} and {len(table)}"
        )

    def rows(first: int, last: int) -> Any:
        start, end = first * m.into, last * m.into
        part = octets[start // 2 : -(-end // 2)]
        halves = np.stack((part >> 4, part & 15), -1).reshape(-1)[start % 2 :][: end - start]
        return (table[halves] * scale[np.arange(start, end) // block]).reshape(last - first, m.into)

    return rows


def _open_fp4(m: _Matrix) -> _Rows:
    """Half bytes, the low one first, in E2M1, with a scale for 16 (NVFP4) or 32 (MXFP4) of them,
    and one for the matrix in NVFP4.
    """
    np = require_numpy()
    # gpt-oss has an axis of blocks
    octets = np.ascontiguousarray(m.raw("values")).view(np.uint8).reshape(m.out, -1)
    m.check("values", octets.shape, (m.out, m.into // 2))
    scale = m.floats("weight_scale", "weight_scales", "scales", "scale")
    scale = scale.reshape(m.out, -1)
    table = np.array(_E2M1, np.float32)
    whole = np.float32(1)
    if m.find("weight_scale_2"):
        whole = m.floats("weight_scale_2").reshape(-1)[0]
    elif m.find("weight_global_scale"):
        whole = np.float32(1) / m.floats("weight_global_scale").reshape(-1)[0]
    elif m.weight.kind == "nvfp4":
        raise m.error("expected a scale of the matrix, weight_scale_2 or weight_global_scale")
    inputs = m.floats("pre_quant_scale") if m.find("pre_quant_scale") else None

    def rows(first: int, last: int) -> Any:
        part = octets[first:last]
        values = table[np.stack((part & 15, part >> 4), -1).reshape(last - first, m.into)]
        values = values * (_per_value(scale[first:last], m.into) * whole)
        return values if inputs is None else values * inputs

    return rows


def _open_bitnet(m: _Matrix) -> _Rows:
    """A byte holds the values of four rows, which are quarters of the matrix apart, as 2 bits
    each, plus 1.
    """
    np = require_numpy()
    values = m.raw("values")
    m.check("values", values.shape, (-(-m.out // 4), m.into))
    scale = m.floats("weight_scale").reshape(-1)[0]
    if m.config.get("linear_class", "bitlinear") != "autobitlinear":
        scale = np.float32(1) / scale  # BitLinear divides by its scale

    def rows(first: int, last: int) -> Any:
        at = np.arange(first, last)
        found = values[at % len(values)] >> (2 * (at // len(values))).astype(np.uint8)[:, None]
        return ((found & 3).astype(np.float32) - 1) * scale

    return rows


def _open_awq(m: _Matrix) -> _Rows:
    """4 bits, times a scale for each group of inputs, less a zero point: the layouts GEMM, GEMV
    and GEMV-fast.
    """
    np = require_numpy()
    if m.find("scaled_zeros"):
        return _open_awq_fast(m)
    words, scale, zero = m.raw("values"), m.floats("scales"), m.raw("qzeros")
    if words.shape == (m.into, m.out // 8):
        groups = len(scale)
        m.check("scales", scale.shape, (groups, m.out))
        m.check("zeros", zero.shape, (groups, m.out // 8))
        group = np.arange(m.into) // -(-m.into // groups)

        def unpacked(part: Array) -> Any:
            found = _unpack(part, 4, 8 * part.shape[-1]).reshape(*part.shape, 8)
            ordered = np.empty_like(found)
            ordered[..., _AWQ_ORDER] = found
            return ordered.reshape(len(part), -1)

        def rows(first: int, last: int) -> Any:
            q, z = (
                unpacked(x[:, first // 8 : -(-last // 8)]).astype(np.float32)[:, : last - first]
                for x in (words, zero)
            )
            return np.ascontiguousarray(((q - z[group]) * scale[group, first:last]).T)

        return rows
    m.check("values", words.shape, (m.out, m.into // 8))
    size = m.config.get("group_size", m.config.get("q_group_size"))
    if type(size) is not int or (size > 0 and -(-m.into // size) > scale.shape[1]):
        raise m.error(
            "expected the config's group_size, which AWQ's GEMV layout needs, found "
            f"{safe(repr(size), 40)}"
        )
    group = np.arange(m.into) // (size if size > 0 else m.into)

    def rows_of_gemv(first: int, last: int) -> Any:
        q, z = (_unpack(x[first:last], 4, 8 * x.shape[1]).astype(np.float32) for x in (words, zero))
        return (q - z[:, group]) * scale[first:last][:, group]

    return rows_of_gemv


def _open_awq_fast(m: _Matrix) -> _Rows:
    """Four rows in 16-bit words, in pieces of 64 inputs whose order suits the kernel; zeros are
    multiplied by the scales.
    """
    np = require_numpy()
    words, scale, zero = m.raw("values"), m.floats("scales"), m.floats("scaled_zeros")
    m.check("values", words.shape, (m.out // 4, m.into))
    size = m.config.get("group_size", m.config.get("q_group_size"))
    if type(size) is not int or m.into % 64 or (size > 0 and -(-m.into // size) > len(scale)):
        raise m.error(
            "expected the config's group_size, which AWQ's fast layout needs, found "
            f"{safe(repr(size), 40)}"
        )
    group = np.arange(m.into) // (size if size > 0 else m.into)
    order = (
        np.arange(32)
        .reshape(4, 4, 2)
        .transpose(1, 0, 2)
        .reshape(4, 4, 2)
        .transpose(0, 2, 1)
        .reshape(32)
    )

    def rows(first: int, last: int) -> Any:
        part = np.ascontiguousarray(words[first // 4 : -(-last // 4)]).view(np.uint16)
        halves = (part[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & 15  # [rows / 4, in, 4]
        halves = (
            halves.reshape(len(part), m.into // 64, 4, 64)
            .transpose(0, 2, 1, 3)
            .reshape(-1, m.into // 32, 32)
        )
        q = np.empty_like(halves)
        q[..., order] = halves
        found = q.reshape(-1, m.into)[: last - first].astype(np.float32)
        return found * scale[group, first:last].T + zero[group, first:last].T

    return rows


def _open_gptq(m: _Matrix) -> _Rows:
    """Values packed along the inputs, with a scale and a zero point for each group; `g_idx` is
    the group of each input.
    """
    np = require_numpy()
    words, scale = m.raw("values"), m.floats("scales")
    bits = len(words) * words.dtype.itemsize * 8 // m.into
    if bits not in (2, 3, 4, 8) or words.shape[1] != m.out or words.dtype.itemsize != 4:
        raise m.error(f"expected 2, 3, 4 or 8 bits in 32-bit words, found {bits} bits")
    groups = len(scale)
    m.check("scales", scale.shape, (groups, m.out))
    group = (
        m.raw("g_idx").reshape(-1) if m.find("g_idx") else np.arange(m.into) // -(-m.into // groups)
    )
    if len(group) != m.into or group.min() < 0 or group.max() >= groups:
        raise m.error(f"expected the groups of {m.into:,} inputs, below {groups:,}, in g_idx")
    if m.find("qzeros"):
        zero = _unpack(m.raw("qzeros"), bits, m.out).astype(np.float32)
        if m.config.get("checkpoint_format") != "gptq_v2":
            zero = (zero + 1) % (1 << bits)  # the first format stores them less 1
    else:
        zero = np.full((groups, m.out), 1 << bits - 1, np.float32)

    def rows(first: int, last: int) -> Any:
        q = _unpack(np.ascontiguousarray(words[:, first:last].T), bits, m.into)
        return (q.astype(np.float32) - zero[group, first:last].T) * scale[group, first:last].T

    return rows


def _open_compressed(m: _Matrix) -> _Rows:
    """Rows packed densely with an offset of half the range; zero points are packed along the
    outputs.
    """
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
            zero = (
                _unpack(np.ascontiguousarray(packed.T), bits, m.out).T.astype(np.float32) - offset
            )
        else:
            zero = packed.astype(np.float32).reshape(scale.shape)

    def per_input(x: Values) -> Any:
        return _per_value(x, m.into) if index is None else x[:, index]

    def rows(first: int, last: int) -> Any:
        q = _unpack(words[first:last], bits, m.into).astype(np.float32) - offset
        if not isinstance(zero, int):
            q = q - per_input(zero[first:last])
        return q * per_input(scale[first:last])

    return rows


def _open_mlx(m: _Matrix) -> _Rows:
    """Rows packed densely: a scale and a bias for each group, or FP4 and FP8 with 8-bit scales."""
    np = require_numpy()
    words = m.raw("values")
    bits = words.shape[-1] * 32 // m.into
    if not m.find("biases"):
        exponents = m.into // m.raw("scales").shape[-1] != 16
        raw = m.raw("scales").reshape(m.out, -1)
        scale = to_float32(raw, "F8_E8M0" if exponents else "F8_E4M3")
        table = np.array(_E2M1, np.float32) if bits == 4 else float8_table("F8_E4M3")
        return lambda first, last: (
            table[_unpack(words[first:last], bits, m.into)] * _per_value(scale[first:last], m.into)
        )
    scale, bias = m.floats("scales"), m.floats("biases")

    def rows(first: int, last: int) -> Any:
        q = _unpack(words[first:last], bits, m.into).astype(np.float32)
        return q * _per_value(scale[first:last], m.into) + _per_value(bias[first:last], m.into)

    return rows


def _open_int4_awq(m: _Matrix) -> _Rows:
    """ModelOpt's INT4: two outputs in a byte, the even one in the low half, a scale for each
    group, and one for each input.
    """
    np = require_numpy()
    octets, scale = m.raw("values"), m.floats("weight_scale")
    m.check("values", octets.shape, (-(-m.out // 2), m.into))
    m.check("scales", scale.shape, (m.out, scale.shape[-1]))
    if m.find("weight_scale_2"):
        scale = scale * m.floats("weight_scale_2").reshape(-1)[0]
    inputs = m.floats("pre_quant_scale") if m.find("pre_quant_scale") else np.float32(1)

    def rows(first: int, last: int) -> Any:
        part = octets[first // 2 : -(-last // 2)]
        halves = (
            np.stack((part & 15, part >> 4), 1).reshape(-1, m.into)[: last - first].astype(np.int8)
        )
        signed = np.where(halves > 7, halves - 16, halves).astype(np.float32)
        return signed * _per_value(scale[first:last], m.into) * inputs

    return rows


def _open_quark_int4(m: _Matrix) -> _Rows:
    """Words of eight numbers: inputs first with scales of groups of them, or rows with a scale
    for each, perhaps with one for FP8.
    """
    np = require_numpy()
    words, types = m.raw("values"), quark_number_types(m.config, m.weight.name)
    if not types or types[-1] not in ("int4", "uint4"):
        raise m.error(
            "expected int4 or uint4 in the config's global_quant_config, found "
            f"{safe(', '.join(types) or 'nothing', 60)}"
        )
    is_signed, export = types[-1] == "int4", m.config.get("export")
    is_ordered = isinstance(export, Mapping) and export.get("pack_method") == "order"
    scale, zero = (
        m.floats("weight_scale_2", "weight_scale"),
        m.raw("weight_zero_point_2", "weight_zero_point"),
    )
    whole = m.floats("weight_scale").reshape(-1)[0] if m.find("weight_scale_2") else np.float32(1)

    def unpacked(part: Array) -> Any:
        found = _unpack(part, 4, 8 * part.shape[-1]).reshape(*part.shape, 8)
        ordered = np.empty_like(found)
        ordered[..., slice(None) if is_ordered else _AWQ_ORDER] = found
        numbers = ordered.reshape(*part.shape[:-1], -1).astype(np.float32)
        return np.where(numbers > 7, numbers - 16, numbers) if is_signed else numbers

    if scale.ndim == 2:
        groups = len(scale)
        m.check("values", words.shape, (m.into, -(-m.out // 8)))
        m.check("scales", scale.shape, (groups, m.out))
        m.check("zeros", zero.shape, (groups, -(-m.out // 8)))
        group = np.arange(m.into) // -(-m.into // groups)

        def rows(first: int, last: int) -> Any:
            q, z = (
                unpacked(x[:, first // 8 : -(-last // 8)])[:, : last - first] for x in (words, zero)
            )
            return np.ascontiguousarray(((q - z[group]) * scale[group, first:last]).T)

        return rows
    m.check("values", words.shape, (m.out, m.into // 8))
    m.check("scales", scale.shape, (m.out,))
    zeros = unpacked(zero.reshape(1, -1))[0, : m.out, None]
    return lambda first, last: (
        (unpacked(words[first:last]) - zeros[first:last]) * scale[first:last, None] * whole
    )


def _open_mxfp6(m: _Matrix) -> _Rows:
    """Four numbers in three bytes, the lowest bits first, in E2M3 or E3M2, with an exponent for
    32 of them.
    """
    np = require_numpy()
    octets, types = m.raw("values"), quark_number_types(m.config, m.weight.name)
    if not types or types[0] not in _FP6_MANTISSA_BITS:
        raise m.error(
            "expected fp6_e2m3 or fp6_e3m2 in the config's global_quant_config, found "
            f"{safe(', '.join(types) or 'nothing', 60)}"
        )
    m.check("values", octets.shape, (m.out, m.into // 4 * 3))
    scale, bits = m.floats("weight_scale"), _FP6_MANTISSA_BITS[types[0]]
    m.check("scales", scale.shape, (m.out, m.into // 32))
    codes, bias = np.arange(32), (1 << 4 - bits) - 1
    exponents, fractions = codes >> bits, (codes & (1 << bits) - 1) / (1 << bits)
    sizes = np.where(
        exponents, (1 + fractions) * 2.0 ** (exponents - bias), fractions * 2.0 ** (1 - bias)
    )
    table = np.concatenate((sizes, -sizes)).astype(np.float32)
    return lambda first, last: (
        table[_unpack(octets[first:last], 6, m.into)] * _per_value(scale[first:last], m.into)
    )


def _open_eetq(m: _Matrix) -> _Rows:
    """INT8 with inputs first, times a scale for each output."""
    np = require_numpy()
    values, scale = m.raw("values"), m.floats("weight_scales")
    m.check("values", values.shape, (m.into, m.out))
    return lambda first, last: (
        np.ascontiguousarray(values[:, first:last].T).astype(np.float32) * scale[first:last, None]
    )


def _open_torchao(m: _Matrix) -> _Rows:
    """Numbers less their zero point, times a scale for each row or for the matrix."""
    np = require_numpy()
    values, scale, dtype = (
        m.raw("values"),
        m.floats("_weight_scale").reshape(-1, 1),
        m.dtype("values"),
    )
    zero = (
        m.raw("_weight_zero_point").reshape(-1, 1).astype(np.float32)
        if m.find("_weight_zero_point")
        else np.zeros_like(scale)
    )

    def rows(first: int, last: int) -> Any:
        of_row = slice(first, last) if len(scale) > 1 else slice(None)
        return (to_float32(values[first:last], dtype) - zero[of_row]) * scale[of_row]

    return rows


def _open_hqq(m: _Matrix) -> _Rows:
    """Groups of the flat matrix, less a zero and times a scale; pieces of the groups are packed
    from the highest bits down.
    """
    np = require_numpy()
    words, scale, zero = m.raw("values"), m.floats("scale"), m.floats("zero")
    bits, axis = (int(m.raw(x).reshape(-1)[0]) for x in ("nbits", "axis"))
    if bits not in (1, 2, 3, 4, 8) or (
        m.find("view_as_float") and int(m.raw("view_as_float").reshape(-1)[0])
    ):
        raise m.error(f"expected 1, 2, 3, 4 or 8 bits as integers, found {bits} bits")
    count = 10 if bits == 3 else 8 // bits
    pieces = [words >> bits * (count - 1 - i) & (1 << bits) - 1 for i in range(count)]
    numbers = np.concatenate(pieces).astype(np.float32)
    groups = scale.size
    whole = numbers[:groups] if axis else numbers[: m.out * m.into // groups]
    if whole.size != m.out * m.into:
        raise m.error(f"expected {m.out * m.into:,} values, found {whole.size:,}")
    values = ((whole - zero) * scale).reshape(m.out, m.into)
    return lambda first, last: values[first:last]


def _open_sparse(m: _Matrix) -> _Rows:
    """The values that are not zero, and a bit for each value, the lowest first; the values may
    be quantized.
    """
    np = require_numpy()
    numbers, bits, dtype = m.raw("values").reshape(-1), m.raw("bitmask"), m.dtype("values")
    m.check("a bitmask", bits.shape, (m.out, -(-m.into // 8)))
    mask = np.unpackbits(np.ascontiguousarray(bits).view(np.uint8), axis=1, bitorder="little")[
        :, : m.into
    ].astype(bool)
    if int(np.count_nonzero(mask)) != numbers.size:
        raise m.error(
            f"expected {int(np.count_nonzero(mask)):,} values, the number of bits that "
            f"are set, found {numbers.size:,}"
        )
    dense = np.zeros((m.out, m.into), numbers.dtype)
    dense[mask] = numbers
    return (
        _scaled(m, dense, dtype)
        if m.find(*_SCALES)
        else lambda first, last: to_float32(dense[first:last], dtype)
    )


DEQUANTIZERS: Mapping[str, Callable[[_Matrix], _Rows]] = {
    "fp8": _open_8_bits,
    "int8": _open_8_bits,
    "bnb-int8": _open_bnb_int8,
    "bnb-nf4": _open_bnb_4bit,
    "bnb-fp4": _open_bnb_4bit,
    "mxfp4": _open_fp4,
    "nvfp4": _open_fp4,
    "int4-awq": _open_int4_awq,
    "quark-int4": _open_quark_int4,
    "mxfp6": _open_mxfp6,
    "eetq": _open_eetq,
    "torchao": _open_torchao,
    "hqq": _open_hqq,
    "bitnet": _open_bitnet,
    "awq": _open_awq,
    "gptq": _open_gptq,
    "compressed-int": _open_compressed,
    "sparse-24": _open_sparse,
    "sparse-bitmask": _open_sparse,
    "mlx": _open_mlx,
}
"""Kind of packing → the function that opens one matrix; ggml's block types are dequantized by
`ggml_values`."""
