"""`MatrixFormat`: the tensors that a quantizer stores for one matrix [out, in], with their dtypes,
shapes and bytes.

An axis is written once, as a whole number of units of `out` or `in`; shapes, bytes and the formula
that users read come from it.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

from ...core.expr import Expr, ceil_div, product, total
from ...utils.errors import Argument, UnknownQuantization
from ...utils.number_format import group_digits
from ...utils.record_type import Record
from ..formats.dtypes import DTYPES


class Axis(NamedTuple):
    """The length of an axis of a stored tensor: ⌈letter · times / per⌉ · each, or a constant."""

    letter: str  # out, in, out·in, or empty for a constant
    times: int = 1
    per: int = 1
    each: int = 1

    def length(self, out: int, into: int) -> int:
        """Return the length for a matrix of this shape."""
        n = {"out": out, "in": into, "out·in": out * into, "": 1}[self.letter]
        return -(-n * self.times // self.per) * self.each

    def expression(self, out: int, into: int) -> Expr:
        """Return the length as an expression of the matrix's dimensions."""
        if not self.letter:
            return Expr.const(self.times)
        if self.letter != "out·in" and (self.times, self.per, self.each) == (1, 1, 1):
            return Expr.const(out if self.letter == "out" else into)
        length = Expr.const(
            {"out": out, "in": into, "out·in": out * into}[self.letter] * self.times
        )
        if self.per > 1:
            length = Expr.const(ceil_div(length, self.per))
        return length if self.each == 1 else product((length, Expr.factor(self.each)))


OUT, IN, ALL = Axis("out"), Axis("in"), Axis("out·in")


def per(axis: Axis, n: int, times: int = 1) -> Axis:
    """Return the axis ⌈axis · times / n⌉ in lowest terms where that does not change its length."""
    while times % 2 == 0 and n % 2 == 0:
        times, n = times // 2, n // 2
    return Axis(axis.letter, times, n)


class MatrixPart(NamedTuple):
    """A tensor that is stored for a matrix; its name is that of the module with `suffix`."""

    suffix: str
    dtype: str
    axes: tuple[Axis, ...] = ()


class StoredMatrixTensor(NamedTuple):
    """A tensor stored for a matrix of a known shape."""

    suffix: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of the tensor."""
        return DTYPES[self.dtype].size(prod(self.shape))


class MatrixFormat(Record):
    """How a quantizer stores a matrix."""

    name: str  # short, as in `awq-4bit-g128`
    title: str  # in words
    parts: tuple[MatrixPart, ...]
    # the GPU rate that applies to its products; empty: it is unpacked to 16 bits first
    compute_rate: str = ""
    divides: int = 1  # matrices whose inputs are no multiple of it stay unquantized

    def tensors(self, out: int, into: int) -> tuple[StoredMatrixTensor, ...]:
        """Return the tensors stored for a matrix of this shape."""
        return tuple(
            StoredMatrixTensor(x.suffix, x.dtype, tuple(axis.length(out, into) for axis in x.axes))
            for x in self.parts
        )

    def bytes(self, out: int, into: int) -> int:
        """Return the bytes stored for a matrix of this shape."""
        return _bytes(self.parts, out, into)

    def scale_elements(self, out: int, into: int) -> int:
        """Return the elements stored for a matrix in addition to its values: scales, zero
        points, indices.
        """
        return sum(prod(x.shape) for x in self.tensors(out, into)[1:])

    def expression(self, out: int, into: int) -> Expr:
        """Return the bytes as an expression of the matrix's dimensions."""
        return total(
            product((DTYPES[x.dtype].bytes, *(axis.expression(out, into) for axis in x.axes)))
            for x in self.parts
        )

    @cached_property
    def formula(self) -> str:
        """The bytes as text."""
        return group_digits(self.expression(Expr.variable("out", 1), Expr.variable("in", 1)).symbol)


@lru_cache(maxsize=4096)
def _bytes(parts: tuple[MatrixPart, ...], out: int, into: int) -> int:
    return sum(
        DTYPES[x.dtype].bytes * prod(axis.length(out, into) for axis in x.axes) for x in parts
    )


def _constant(n: int) -> tuple[Axis, ...]:
    return (Axis("", n),)


def fp8_format(
    block: tuple[int, int] | None = (128, 128),
    scale: str = "weight_scale_inv",
    static: str = "",
    dtype: str = "F32",
    axes_between: bool = False,
) -> MatrixFormat:
    """Return FP8 with a scale for each block, or for the tensor; `static` names the scale of static
    activations.

    With `axes_between`, axes of length 1 follow those of the blocks.
    """
    axes: tuple[Axis, ...] = (per(OUT, block[0]), per(IN, block[1])) if block else ()
    axes = (axes[0], Axis(""), axes[1], Axis("")) if axes_between and axes else axes
    parts = [MatrixPart(".weight", "F8_E4M3", (OUT, IN)), MatrixPart(f".{scale}", dtype, axes)]
    title = (
        f"FP8, a scale for each block of {block[0]}×{block[1]}"
        if block
        else ("FP8, a scale for the matrix")
    )
    if static:
        parts.append(MatrixPart(f".{static}", dtype))
    name = "fp8" if block == (128, 128) else f"fp8-{block[0]}x{block[1]}" if block else "fp8-tensor"
    return MatrixFormat(name=name, title=title, parts=tuple(parts), compute_rate="fp8")


def fp8_rows_format(
    dtype: str = "F32", input_scale: bool = False, axes: tuple[Axis, ...] = (OUT, Axis(""))
) -> MatrixFormat:
    """Return FP8 with a scale for each row."""
    parts = [MatrixPart(".weight", "F8_E4M3", (OUT, IN)), MatrixPart(".weight_scale", dtype, axes)]
    if input_scale:
        parts.append(MatrixPart(".input_scale", dtype, _constant(1)))
    return MatrixFormat(
        name="fp8-rows", title="FP8, a scale for each row", parts=tuple(parts), compute_rate="fp8"
    )


def nvfp4_format(
    input_scale: bool = True, group: int = 16, pre_quant_scale: str = ""
) -> MatrixFormat:
    """Return NVFP4 as ModelOpt stores it; weight-only recipes have no input scale."""
    parts = [
        MatrixPart(".weight", "U8", (OUT, per(IN, 2))),
        MatrixPart(".weight_scale", "F8_E4M3", (OUT, per(IN, group))),
        MatrixPart(".weight_scale_2", "F32"),
    ]
    if input_scale:
        parts.append(MatrixPart(".input_scale", "F32"))
    if pre_quant_scale:
        parts.append(MatrixPart(".pre_quant_scale", pre_quant_scale, (IN,)))
    name = ("nvfp4" if input_scale else "nvfp4-w4a16") + ("-awq" if pre_quant_scale else "")
    title = f"NVFP4, an FP8 scale for {group} weights" + (
        "" if input_scale else ", activations in 16 bits"
    )
    return MatrixFormat(
        name=name, title=title, parts=tuple(parts), compute_rate="fp4" if input_scale else ""
    )


def mxfp4_format(stacked: bool = False) -> MatrixFormat:
    """Return MXFP4: two values in a byte, an 8-bit exponent for 32 values; `stacked` as gpt-oss
    stores experts, in blocks of 16 bytes.
    """
    parts = (
        (
            MatrixPart("_blocks", "U8", (OUT, per(IN, 32), Axis("", 16))),
            MatrixPart("_scales", "U8", (OUT, per(IN, 32))),
        )
        if stacked
        else (
            MatrixPart(".weight", "U8", (OUT, per(IN, 2))),
            MatrixPart(".weight_scale", "U8", (OUT, per(IN, 32))),
        )
    )
    return MatrixFormat(name="mxfp4", title="MXFP4, an 8-bit exponent for 32 weights", parts=parts)


def fp4_experts_format() -> MatrixFormat:
    """Return MXFP4 as DeepSeek-V4 stores experts."""
    parts = (
        MatrixPart(".weight", "I8", (OUT, per(IN, 2))),
        MatrixPart(".scale", "F8_E8M0", (OUT, per(IN, 32))),
    )
    return MatrixFormat(name="mxfp4", title="MXFP4, an 8-bit exponent for 32 weights", parts=parts)


def packed_nvfp4_format(
    group: int = 16, is_activation: bool = True, has_input_scale: bool | None = None
) -> MatrixFormat:
    """Return NVFP4 as compressed-tensors stores it, also by other quantizers, with or without
    quantized activations.
    """
    parts = [
        MatrixPart(".weight_packed", "U8", (OUT, per(IN, 2))),
        MatrixPart(".weight_scale", "F8_E4M3", (OUT, per(IN, group))),
        MatrixPart(".weight_global_scale", "F32", _constant(1)),
    ]
    if is_activation if has_input_scale is None else has_input_scale:
        parts.append(MatrixPart(".input_global_scale", "F32", _constant(1)))
    name, rate = ("nvfp4", "fp4") if is_activation else ("nvfp4-w4a16", "")
    return MatrixFormat(name=name, title="NVFP4", parts=tuple(parts), compute_rate=rate)


def packed_mxfp_format(bits: int, group: int = 32) -> MatrixFormat:
    """Return MXFP4 or MXFP6 as compressed-tensors stores it, also by other quantizers."""
    packed = MatrixPart(".weight_packed", "U8", (OUT, per(IN, 8, bits)))
    parts = (packed, MatrixPart(".weight_scale", "U8", (OUT, per(IN, group))))
    return MatrixFormat(
        name=f"mxfp{bits}", title=f"MXFP{bits}, an 8-bit exponent for {group} weights", parts=parts
    )


def sparse_24_format(dense: MatrixFormat | None, dtype: str) -> MatrixFormat:
    """Return 2:4 sparsity of a matrix in a plain dtype, or in a format of 8 bits: of four values
    in a row, two are stored.
    """
    values, *rest = dense.parts if dense is not None else (MatrixPart(".weight", dtype, (OUT, IN)),)
    if values.suffix != ".weight" or values.axes != (OUT, IN):
        raise UnknownQuantization(
            "quantization_config: sparse-24-bitmask of "
            f"{dense.title if dense is not None else dtype} is unknown",
            hint=f"{Argument('dtype')} sets the format of the weights",
        )
    parts = (
        MatrixPart(".compressed", values.dtype, (OUT, per(IN, 2))),
        MatrixPart(".bitmask", "U8", (OUT, per(IN, 8))),
        MatrixPart(".shape", "I64", (Axis("", 2), Axis(""))),
    )
    name = "sparse-24" + (f"-{dense.name}" if dense is not None else "")
    return MatrixFormat(
        name=name,
        title="2:4 sparsity, half of the values and a bit for each",
        parts=(*parts, *rest),
    )


def fp8_table_format() -> MatrixFormat:
    """Return an embedding in FP8 with a scale for the table."""
    parts = (
        MatrixPart(".weight", "F8_E4M3", (OUT, IN)),
        MatrixPart(".weight_scale", "F32", _constant(1)),
    )
    return MatrixFormat(
        name="fp8-table", title="FP8, a scale for the table", parts=parts, compute_rate="fp8"
    )


def mxfp8_format(scale: str = "weight_scale") -> MatrixFormat:
    """Return MXFP8: an 8-bit exponent for 32 values."""
    parts = (
        MatrixPart(".weight", "F8_E4M3", (OUT, IN)),
        MatrixPart(f".{scale}", "U8", (OUT, per(IN, 32))),
    )
    return MatrixFormat(
        name="mxfp8",
        title="MXFP8, an 8-bit exponent for 32 weights",
        parts=parts,
        compute_rate="fp8",
    )


def _groups(group: int) -> Axis:
    """Return the axis of groups of inputs; 0 or less is one group for the whole row."""
    return per(IN, group) if group > 0 else Axis("")


def _group_name(method: str, bits: int, group: int) -> str:
    return f"{method}-{bits}bit-g{group}" if group > 0 else f"{method}-{bits}bit-channel"


def _group_title(method: str, bits: int, group: int) -> str:
    return f"{method} with {bits} bits, a scale for " + (
        f"{group} weights" if group > 0 else "each row"
    )


def awq_format(bits: int = 4, group: int = 128, layout: str = "gemm") -> MatrixFormat:
    """Return AWQ in one of its layouts: GEMM; GEMV, whose zeros fill whole words; GEMV-fast,
    which packs four rows in 16 bits.
    """
    word, groups = 32 // bits, _groups(group)
    # AutoAWQ rounds the words of zeros up to a multiple of this many
    words = 128 // group if 0 < group < 128 else 1
    wide = Axis("in", 1, group * word * words, words) if group > 0 else Axis("")
    tall = wide._replace(each=word * words) if group > 0 else Axis("", word)
    if layout == "gemv":
        parts = (
            MatrixPart(".qweight", "I32", (OUT, per(IN, word))),
            MatrixPart(".qzeros", "I32", (OUT, wide)),
            MatrixPart(".scales", "F16", (OUT, tall)),
        )
    elif layout == "gemv_fast":
        parts = (
            MatrixPart(".qweight", "I16", (per(OUT, 4), IN)),
            MatrixPart(".scales", "F16", (tall, OUT)),
            MatrixPart(".scaled_zeros", "F16", (tall, OUT)),
        )
    else:
        parts = (
            MatrixPart(".qweight", "I32", (IN, per(OUT, word))),
            MatrixPart(".qzeros", "I32", (groups, per(OUT, word))),
            MatrixPart(".scales", "F16", (groups, OUT)),
        )
    return MatrixFormat(
        name=_group_name("awq", bits, group), title=_group_title("AWQ", bits, group), parts=parts
    )


def gptq_format(
    bits: int = 4, group: int = 128, index: bool = True, method: str = "gptq"
) -> MatrixFormat:
    """Return GPTQ, also as AutoRound stores it; `index` is the group of each input."""
    groups = _groups(group)
    parts = [
        MatrixPart(".qweight", "I32", (per(IN, 32, bits), OUT)),
        MatrixPart(".qzeros", "I32", (groups, per(OUT, 32, bits))),
        MatrixPart(".scales", "F16", (groups, OUT)),
    ]
    if index:
        parts.append(MatrixPart(".g_idx", "I32", (IN,)))
    return MatrixFormat(
        name=_group_name(method, bits, group),
        title=_group_title(method.upper(), bits, group),
        parts=tuple(parts),
    )


def marlin_format(bits: int = 4, group: int = 128) -> MatrixFormat:
    """Return GPTQ in Marlin's tiles of 16 inputs."""
    parts = (
        MatrixPart(".B", "I32", (per(IN, 16), Axis("out", bits // 2))),
        MatrixPart(".s", "F16", (_groups(group), OUT)),
        MatrixPart(".workspace", "I32", (Axis("out", 1, 128, 16),)),
    )
    return MatrixFormat(
        name=_group_name("marlin", bits, group),
        title=_group_title("Marlin", bits, group),
        parts=parts,
    )


def bnb_int8_format() -> MatrixFormat:
    """Return bitsandbytes LLM.int8(): a scale for each row."""
    parts = (
        MatrixPart(".weight", "I8", (OUT, IN)),
        MatrixPart(".SCB", "F32", (OUT,)),
        MatrixPart(".weight_format", "U8"),
    )
    return MatrixFormat(
        name="bnb-int8", title="LLM.int8(), a scale for each row", parts=parts, compute_rate="int8"
    )


def bnb_4bit_format(kind: str = "nf4", nested: bool = False, words: str = "U8") -> MatrixFormat:
    """Return bitsandbytes NF4 or FP4, without the JSON of its state; `nested` is double
    quantization, `words` what it is packed in.
    """
    parts = [
        MatrixPart(".weight", words, (per(ALL, 2 * DTYPES[words].size(1)), Axis(""))),
        MatrixPart(".weight.absmax", "U8" if nested else "F32", (per(ALL, 64),)),
        *([MatrixPart(".weight.nested_absmax", "F32", (per(ALL, 64 * 256),))] if nested else ()),
        MatrixPart(".weight.quant_map", "F32", _constant(16)),
        *([MatrixPart(".weight.nested_quant_map", "F32", _constant(256))] if nested else ()),
    ]
    title = f"{kind.upper()}, a scale for 64 weights" + (", scales in 8 bits" if nested else "")
    return MatrixFormat(
        name=f"bnb-{kind}" + ("-dq" if nested else ""), title=title, parts=tuple(parts)
    )


def mlx_format(bits: int, group: int, dtype: str = "BF16", mode: str = "affine") -> MatrixFormat:
    """Return MLX's packed rows: scales and biases of groups, or the 8-bit scales of its FP4 and
    FP8 modes.
    """
    values = MatrixPart(".weight", "U32", (OUT, per(IN, 32, bits)))
    groups = (OUT, per(IN, group))
    parts: tuple[MatrixPart, ...]
    if mode == "affine":
        parts = (values, MatrixPart(".scales", dtype, groups), MatrixPart(".biases", dtype, groups))
        name = f"mlx-{bits}bit-g{group}"
    else:
        parts = (values, MatrixPart(".scales", "U8", groups))
        name = f"mlx-{mode}"
    return MatrixFormat(
        name=name,
        title=_group_title("MLX" if mode == "affine" else f"MLX {mode}", bits, group),
        parts=parts,
        divides=group,
    )


def int4_blocks_format(group: int, dtype: str, second_scale: bool) -> MatrixFormat:
    """Return ModelOpt's INT4 AWQ: two rows in a byte, a scale for each group, and a scale for
    each input.
    """
    parts = [
        MatrixPart(".weight", "U8", (per(OUT, 2), IN)),
        MatrixPart(".weight_scale", "F32", (OUT, _groups(group))),
        MatrixPart(".pre_quant_scale", dtype, (IN,)),
    ]
    if second_scale:
        parts += [MatrixPart(".weight_scale_2", "F32"), MatrixPart(".input_scale", "F32")]
    return MatrixFormat(
        name="w4a8-awq" if second_scale else "w4a16-awq",
        title=_group_title("ModelOpt AWQ", 4, group),
        parts=tuple(parts),
    )


def int8_format(
    name: str = "int8", dtype: str = "F32", extra: tuple[MatrixPart, ...] = ()
) -> MatrixFormat:
    """Return INT8 with a scale for each row."""
    parts = (
        MatrixPart(".weight", "I8", (OUT, IN)),
        MatrixPart(".weight_scale", dtype, (OUT,)),
        *extra,
    )
    return MatrixFormat(
        name=name,
        title="INT8, a scale for each row",
        parts=parts,
        compute_rate="int8" if extra else "",
    )


def eetq_format() -> MatrixFormat:
    """Return EETQ: INT8, transposed, a scale for each output."""
    parts = (MatrixPart(".weight", "I8", (IN, OUT)), MatrixPart(".weight_scales", "F16", (OUT,)))
    return MatrixFormat(name="eetq", title="EETQ, INT8 with a scale for each row", parts=parts)


def bitnet_format(dtype: str = "BF16") -> MatrixFormat:
    """Return BitNet: four rows of ternary values in one, a scale for the matrix."""
    parts = (
        MatrixPart(".weight", "U8", (per(OUT, 4), IN)),
        MatrixPart(".weight_scale", dtype, _constant(1)),
    )
    return MatrixFormat(name="bitnet", title="BitNet, ternary weights, four in a byte", parts=parts)


def hqq_format(bits: int, group: int, axis: int, dtype: str) -> MatrixFormat:
    """Return HQQ: groups of the flat matrix as rows (axis 1) or columns, packed along the first
    axis, and the settings of each matrix.
    """
    count, packed = (10, "I32") if bits == 3 else (8 // bits, "U8")
    groups = per(ALL, group)
    values = (
        (per(ALL, group * count), Axis("", group))
        if axis == 1
        else (Axis("", -(-group // count)), groups)
    )
    scale = (groups, Axis("")) if axis == 1 else (Axis(""), groups)
    flags = (
        "view_as_float quant_scale quant_zero encoded_state_dict stores_quant_config "
        "channel_wise optimize round_zero"
    )
    names = {"BF16": "torch.bfloat16", "F16": "torch.float16", "F32": "torch.float32"}
    parts = (
        MatrixPart(".W_q", packed, values),
        MatrixPart(".scale", dtype, scale),
        MatrixPart(".zero", dtype, scale),
        MatrixPart(".shape", "I64", (Axis("", 2),)),
        *(MatrixPart(f".{x}", "I32") for x in ("nbits", "group_size", "axis")),
        MatrixPart(".packing", "U8", (Axis("", len("4bit_u8")),)),
        MatrixPart(".unpack_view_dtype", "U8", (Axis("", len("torch.uint8")),)),
        MatrixPart(".compute_dtype", "U8", (Axis("", len(names[dtype])),)),
        *(MatrixPart(f".{x}", "U8") for x in flags.split()),
    )
    return MatrixFormat(
        name=f"hqq-{bits}bit-g{group}",
        title=f"HQQ with {bits} bits, groups of {group}",
        parts=parts,
    )


def torchao_format(
    name: str, dtype: str, axes: tuple[Axis, ...], zero: bool = False
) -> MatrixFormat:
    """Return a quantized tensor of torchao, as its safetensors support flattens it."""
    parts = [
        MatrixPart("._weight_qdata", dtype, (OUT, IN)),
        MatrixPart("._weight_scale", "F32", axes),
    ]
    if zero:
        parts.append(MatrixPart("._weight_zero_point", "I8", axes))
    return MatrixFormat(
        name=name,
        title=f"{dtype} of torchao",
        parts=tuple(parts),
        compute_rate="int8" if zero else "fp8",
    )
