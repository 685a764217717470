"""Weights packed into words of 16 to 64 bits: AWQ, GPTQ and its Marlin form, compressed-tensors, MLX."""

from __future__ import annotations

from ..formats.dtypes import PLAIN
from ..formats.manifest import Tensor
from .packed_tensors import GROUPED, Found, Packing, Shape, ratio, scheme_bits

HALVES = ("F16", "BF16", "F32")


def words(found: Found, x: Tensor) -> None:
    """Whatever the name and its companions say."""
    if x.name.endswith(".qweight"):
        grouped(found, x)
    elif x.name.endswith(".weight_packed"):
        compressed(found, x)
    elif x.name.endswith(".B"):
        marlin(found, x)


def grouped(found: Found, x: Tensor) -> None:
    """AWQ or GPTQ: `X.qweight` with a scale for each group of inputs."""
    base = x.name.removesuffix("qweight")
    scale, zero, turned = found.get(f"{base}scales", *HALVES), found.get(f"{base}qzeros"), found.get(f"{base}scaled_zeros")
    if scale is None or any(len(y.shape) != 2 or not y.elements for y in (x, scale, zero) if y is not None):
        return
    if x.shape[1] == scale.shape[1] and turned is None:
        values = _gptq(found, x, scale, zero)
    elif shape := _awq(x, scale, turned if zero is None else zero):
        values = Packing.of_values("awq", f"{base}weight", shape)
    else:
        return
    found.add(x, values, {base + end: role for end, role in GROUPED.items()})


def _awq(x: Tensor, scale: Tensor, zero: Tensor | None) -> Shape | None:
    """Eight to a word along the outputs (GEMM) or the inputs (GEMV), or four rows in one of 16-bit words (GEMV-fast)."""
    if zero is None:
        return None
    (rows, columns), scales, zeros = x.shape, scale.shape, zero.shape
    if x.dtype == "I16":
        return (4 * rows, columns) if scales == zeros and scales[1] == 4 * rows else None
    if x.dtype != "I32" or zero.dtype != "I32" or scales != (zeros[0], 8 * zeros[1]):
        return None
    if zeros[1] == columns:
        return 8 * columns, rows
    return (rows, 8 * columns) if scales[0] == rows else None


def _gptq(found: Found, x: Tensor, scale: Tensor, zero: Tensor | None) -> Packing:
    """Packed along the inputs. The zeros, packed along the outputs, tell the bits; so do the index of groups and the configuration."""
    base, word, (rows, outputs) = x.name.removesuffix("qweight"), 8 * PLAIN[x.dtype].bytes, x.shape
    index = found.get(f"{base}g_idx", "I32", "I64")
    bits = list(range(1, 9))
    if zero is not None:
        bits = [b for b in bits if zero.shape == (scale.shape[0], -(-outputs * b // word))]
    if index is not None:
        bits = [b for b in bits if -(-index.elements * b // word) == rows]
    if len(bits) > 1:
        said = {b for b, _ in found.declared()}
        bits = [b for b in bits if {b} == said]
    if len(bits) != 1 or (index is None and rows * word % bits[0]):
        return Packing.of_unknown_length("gptq", f"{base}weight", x)
    return Packing.of_values("gptq", f"{base}weight", (outputs, rows * word // bits[0] if index is None else index.elements))


def marlin(found: Found, x: Tensor) -> None:
    """GPTQ's tiles of 16 inputs, `X.B`, with scales `X.s` in as many columns as there are outputs."""
    base = x.name[:-1]
    scale = found.get(f"{base}s", "F16", "BF16")
    if scale is None or len(x.shape) != 2 or len(scale.shape) != 2:
        return
    if x.shape[1] in (2 * scale.shape[1], 4 * scale.shape[1]):
        values = Packing.of_values("gptq", f"{base}weight", (scale.shape[1], 16 * x.shape[0]))
        found.add(x, values, {scale.name: "scale", f"{base}workspace": "meta"})


def compressed(found: Found, x: Tensor) -> None:
    """Rows packed densely. The index of groups or the packed zeros tell the bits, or else the configuration."""
    weight = x.name.removesuffix("_packed")
    scale = found.get(f"{weight}_scale", *HALVES)
    if scale is None or len(x.shape) < 2 or scale.shape[:-1] != x.shape[:-1]:
        return
    lengths = _lengths(found, x, weight)
    if lengths is None:
        lengths = {y for bits, group in found.declared() if (y := _length(x.shape[-1], scale.shape[-1], bits, group))}
    values = Packing.of_unknown_length("compressed-int", weight, x)
    if len(lengths) == 1 and (length := lengths.pop()):
        values = Packing.of_values(f"compressed-int{32 * x.shape[-1] // length}", weight, (*x.shape[:-1], length))
    found.pack(x, values)


def _lengths(found: Found, x: Tensor, weight: str) -> set[int] | None:
    """How long the rows are, as the companions tell; None if they do not."""
    if (index := found.get(f"{weight}_g_idx", "I32", "I64")) is not None:
        return {index.elements} if any(-(-index.elements * b // 32) == x.shape[-1] for b in range(1, 9)) else set()
    zero = found.get(f"{weight}_zero_point", "I32")
    if zero is not None and len(zero.shape) == len(x.shape):
        bits = [b for b in range(1, 9) if -(-x.shape[-2] * b // 32) == zero.shape[-2]]
        return {x.shape[-1] * 32 // bits[0]} if len(bits) == 1 and 8 % bits[0] == 0 else None
    return None


def _length(packed: int, scales: int, bits: int, group: int | None) -> int:
    """How long a row of so many words and scales is, if this scheme makes such a one."""
    if group is not None and packed in (-(-scales * group * bits // 32), -(-scales * group // (32 // bits))):
        return scales * group
    return packed * 32 // bits if group is None and scales == 1 and 8 % bits == 0 else 0


def mlx(found: Found, x: Tensor) -> None:
    """Rows packed densely. With FP4 and FP8, which have no biases, the scales tell the scheme, else the configuration does."""
    base = x.name.removesuffix("weight")
    scale, bias = found.get(f"{base}scales"), found.get(f"{base}biases")
    if scale is None or base == x.name or (bias is not None and bias.shape != scale.shape) or not (each := ratio(x, scale)):
        return
    if bias is not None:
        said = found.quantization.get(base.rstrip("."))
        scheme = scheme_bits(said if isinstance(said, dict) else found.quantization)
        group = next((g for b, g in scheme if g and b * g == 32 * each), 0)
    else:
        group = {2: 16, 4: 32, 8: 32}.get(each, 0) if scale.dtype == "U8" else 0
    values = (
        Packing.of_values("mlx", x.name, (*x.shape[:-1], scale.shape[-1] * group)) if group else Packing.of_unknown_length("mlx", x.name, x)
    )
    found.add(x, values, {base + end: role for end, role in GROUPED.items()})
