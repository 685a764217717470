"""Decoding of GGUF's block types: the levels of a block, and the scale and minimum of each group of
them (the structs of ggml-common.h).

A value is scale × level − minimum, computed in float32 as ggml computes it. The functions take the
little-endian bytes of blocks, `[blocks, bytes]`, and return levels as `[blocks, groups, levels]`,
and scales and minimums as `[blocks, groups, 1]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...utils.errors import FormatError
from ..formats.dtypes import DTYPES
from ..formats.number_arrays import require_numpy
from .ggml_grids import IQ4_LEVELS, grid, sign_bits

Array = Any
"""A numpy array."""

E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of E2M1 (OCP Microscaling Formats 1.0, section 5.3.3), negative ones last."""


class Blocks(NamedTuple):
    """Decoded blocks."""

    levels: Array  # small whole numbers; of IQ1, multiples of 1/8
    scale: Array
    minimum: Array | None = None
    super_scale: Array | None = None  # of a block, `[blocks, 1, 1]`: the unit of the groups' scales
    super_minimum: Array | None = None

    @property
    def values(self) -> Array:
        """The values, `[blocks, values]`, float32."""
        np = require_numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            x = self.levels.astype("f4")
            x *= self.scale
            if self.minimum is not None:
                x -= self.minimum
        return x.reshape(len(x), -1)


def dequantize_ggml(data: Any, dtype: str) -> Array:
    """Return the values of blocks of a type in GGML_DECODERS, given as bytes or as an array of
    bytes: `[blocks, values]`, float32.
    """
    return decode_ggml(data, dtype).values


def decode_ggml(data: Any, dtype: str) -> Blocks:
    """Return the levels and scales of blocks, given as bytes or as an array of bytes."""
    np = require_numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        return GGML_DECODERS[dtype](np.frombuffer(data, "u1").reshape(-1, DTYPES[dtype].bytes))


def swap_ggml_bytes(data: Any, dtype: str) -> Array:
    """Return blocks of a big-endian file as little-endian ones."""
    if dtype not in FLOAT16_OFFSETS:
        raise FormatError(
            "big_endian",
            f"{dtype} in a big-endian GGUF file is not supported",
            hint="use a little-endian file",
        )
    x = require_numpy().frombuffer(data, "u1").reshape(-1, DTYPES[dtype].bytes).copy()
    for at in FLOAT16_OFFSETS[dtype]:
        x[:, at : at + 2] = x[:, at : at + 2][:, ::-1].copy()
    return x


def _float16(x: Array, at: int) -> Array:
    """Return the float16 at an offset of each block, `[blocks, 1, 1]`."""
    return x[:, at : at + 2].copy().view("<f2").astype("f4")[:, :, None]


def _words(x: Array, dtype: str) -> Array:
    return x.copy().view(dtype)


def _nibbles(x: Array) -> Array:
    """Return the low halves of all bytes, then the high halves, `[blocks, 1, 2·bytes]`."""
    np = require_numpy()
    return np.concatenate((x & 15, x >> 4), -1)[:, None]


def _bits(x: Array) -> Array:
    """Return each bit of each byte, lowest first: `[…, n]` → `[…, 8·n]`."""
    return require_numpy().unpackbits(x, axis=-1, bitorder="little")


def _split_fields(x: Array, bits: int) -> Array:
    """Split each byte into fields of this many bits, lowest first: `[…, n]` → `[…, 8/bits, n]`."""
    np = require_numpy()
    if bits == 4:
        halves = np.empty((*x.shape[:-1], 2, x.shape[-1]), "u1")
        row = f"V{x.shape[-1]}"  # rows are copied whole, in half the time
        rows = halves.view(row)[..., 0]
        rows[..., 0], rows[..., 1] = (x & 15).view(row)[..., 0], (x >> 4).view(row)[..., 0]
        return halves
    return (x[..., None, :] >> np.arange(0, 8, bits, dtype="u1")[:, None]) & ((1 << bits) - 1)


def _q4_0(x: Array) -> Blocks:
    """A scale and 32 values of 4 bits with zero point 8."""
    return Blocks(_nibbles(x[:, 2:]).view("i1") - 8, _float16(x, 0))


def _q4_1(x: Array) -> Blocks:
    """A scale, a minimum, and 32 values of 4 bits."""
    return Blocks(_nibbles(x[:, 4:]), _float16(x, 0), -_float16(x, 2))


def _q5_0(x: Array) -> Blocks:
    """q4_0 with a fifth bit of each value stored separately, and zero point 16."""
    return Blocks(
        (_nibbles(x[:, 6:]) | _bits(x[:, None, 2:6]) << 4).view("i1") - 16, _float16(x, 0)
    )


def _q5_1(x: Array) -> Blocks:
    """q4_1 with a fifth bit of each value stored separately."""
    return Blocks(_nibbles(x[:, 8:]) | _bits(x[:, None, 4:8]) << 4, _float16(x, 0), -_float16(x, 2))


def _q8_0(x: Array) -> Blocks:
    """A scale and 32 signed bytes."""
    return Blocks(x[:, None, 2:].view("i1"), _float16(x, 0))


def _q8_1(x: Array) -> Blocks:
    """q8_0 with the sum of its values."""
    return Blocks(x[:, None, 4:].view("i1"), _float16(x, 0))


def _q8_k(x: Array) -> Blocks:
    """A float32 scale, 256 signed bytes, and sums of them."""
    return Blocks(x[:, None, 4:260].view("i1"), _words(x[:, :4], "<f4")[:, :, None])


def _q2_k(x: Array) -> Blocks:
    """Sixteen groups of 16 values of 2 bits; their scales and minimums have 4 bits."""
    d, m = _float16(x, 80), _float16(x, 82)
    levels = _split_fields(x[:, 16:80].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    return Blocks(levels, d * (x[:, :16, None] & 15), m * (x[:, :16, None] >> 4), d, m)


def _q3_k(x: Array) -> Blocks:
    """Sixteen groups of 16 values of 3 bits with zero point 4; the third bit and the scales of 6
    bits are stored in pieces.
    """
    np = require_numpy()
    low = _split_fields(x[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 8, 32)
    levels = (low | _split_fields(x[:, :32], 1) << 2).view("i1") - 4
    scales = (
        np.concatenate((x[:, 96:104] & 15, x[:, 96:104] >> 4), 1)
        | _split_fields(x[:, 104:108], 2).reshape(-1, 16) << 4
    )
    d = _float16(x, 108)
    return Blocks(levels.reshape(-1, 16, 16), d * (scales.view("i1") - 32)[:, :, None], None, d)


def _six_bit_scales(x: Array) -> tuple[Array, Array]:
    """Unpack twelve bytes to eight scales and eight minimums of 6 bits: the first four whole,
    the last four in two pieces.
    """
    np = require_numpy()
    first, second, third = np.ascontiguousarray(x.T).reshape(3, 4, -1)
    scale = np.concatenate((first & 63, (third & 15) | (first >> 6 << 4)))
    minimum = np.concatenate((second & 63, (third >> 4) | (second >> 6 << 4)))
    return scale.T[:, :, None], minimum.T[:, :, None]


def _affine_k(x: Array, levels: Array) -> Blocks:
    d, m = _float16(x, 0), _float16(x, 2)
    scale, minimum = _six_bit_scales(x[:, 4:16])
    return Blocks(levels, d * scale, m * minimum, d, m)


def _q4_k(x: Array) -> Blocks:
    """Eight groups of 32 values of 4 bits; their scales and minimums have 6 bits."""
    return _affine_k(x, _split_fields(x[:, 16:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32))


def _q5_k(x: Array) -> Blocks:
    """q4_k with bit g of 32 more bytes as the fifth bit of group g."""
    low = _split_fields(x[:, 48:].reshape(-1, 4, 32), 4).reshape(-1, 8, 32)
    return _affine_k(x, low | _split_fields(x[:, 16:48], 1) << 4)


def _q6_k(x: Array) -> Blocks:
    """Sixteen groups of 16 values of 6 bits with zero point 32; the low four bits and the high
    two are stored separately.
    """
    low = _split_fields(x[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 2, 4, 32)
    levels = (low | _split_fields(x[:, 128:192].reshape(-1, 2, 32), 2) << 4).view("i1") - 32
    d = _float16(x, 208)
    return Blocks(levels.reshape(-1, 16, 16), d * x[:, 192:208, None].view("i1"), None, d)


def _iq4_nl(x: Array) -> Blocks:
    """A scale and 32 codes of 4 bits."""
    return Blocks(require_numpy().array(IQ4_LEVELS, "i1")[_nibbles(x[:, 2:])], _float16(x, 0))


def _iq4_xs(x: Array) -> Blocks:
    """Eight groups of 32 codes of 4 bits; their scales have 6 bits."""
    np = require_numpy()
    high = (_words(x[:, 2:4], "<u2") >> np.arange(0, 16, 2, dtype="u2")) & 3
    low = _split_fields(x[:, 4:8], 4).swapaxes(1, 2).reshape(-1, 8)
    d = _float16(x, 0)
    levels = np.array(IQ4_LEVELS, "i1")[
        _split_fields(x[:, 8:].reshape(-1, 8, 16), 4).reshape(-1, 8, 32)
    ]
    return Blocks(levels, d * ((low | high.astype("u1") << 4).view("i1") - 32)[:, :, None], None, d)


def _tq1_0(x: Array) -> Blocks:
    """256 ternary values, five in a byte."""
    np = require_numpy()
    powers = np.array((1, 3, 9, 27, 81), "u1")[:, None]
    parts = (x[:, None, :32] * powers, x[:, None, 32:48] * powers, x[:, None, 48:52] * powers[:4])
    digits = np.concatenate([part.reshape(len(x), -1) for part in parts], 1)
    return Blocks((digits.astype("u2") * 3 >> 8).astype("i1")[:, None] - 1, _float16(x, 52))


def _tq2_0(x: Array) -> Blocks:
    """256 ternary values of 2 bits."""
    return Blocks(
        _split_fields(x[:, :64].reshape(-1, 2, 32), 2).reshape(-1, 1, 256).view("i1") - 1,
        _float16(x, 64),
    )


def _q1_0(x: Array) -> Blocks:
    """128 signs."""
    return Blocks(_bits(x[:, None, 2:]).view("i1") * 2 - 1, _float16(x, 0))


def _q2_0(x: Array) -> Blocks:
    """64 values of 2 bits with zero point 1."""
    return Blocks(
        _split_fields(x[:, 2:, None], 2).reshape(-1, 1, 64).view("i1") - 1, _float16(x, 0)
    )


def _fp4_levels(x: Array) -> Array:
    return require_numpy().array(E2M1, "i1")[x]


def _mxfp4(x: Array) -> Blocks:
    """A power of two and 32 values of E2M1."""
    np = require_numpy()
    scale = np.ldexp(np.float32(1), x[:, :1].astype("i4") - 128)[:, :, None]
    return Blocks(_fp4_levels(_nibbles(x[:, 1:])), scale.astype("f4"))


def _nvfp4(x: Array) -> Blocks:
    """Four groups of 16 values of E2M1; their scales are E4M3 without a sign, in which 0x7F is
    0.
    """
    np = require_numpy()
    code = np.arange(256)
    exponent, fraction = code >> 3 & 15, code & 7
    table = np.ldexp(
        np.where(exponent, 8 + fraction, fraction).astype("f4"), np.maximum(exponent, 1) - 11
    ).astype("f4")
    table[127] = 0
    levels = _fp4_levels(_split_fields(x[:, 4:].reshape(-1, 4, 8), 4).reshape(-1, 4, 16))
    return Blocks(levels, table[x[:, :4]][:, :, None])


def _signed(levels: Array, negative: Array) -> Array:
    """Apply signs, one bit each."""
    return levels * (1 - 2 * negative.astype("i1"))


def _iq2_xxs(x: Array) -> Blocks:
    """Eight groups of 32; a group is four codes of 8 bits, four of signs of 7, and a scale of 4."""
    np = require_numpy()
    words = _words(x[:, 2:], "<u4").reshape(-1, 8, 2)
    signs = sign_bits()[(words[:, :, 1:] >> np.arange(0, 28, 7, dtype="u4")) & 127].reshape(
        -1, 8, 32
    )
    levels = grid("IQ2_XXS")[x[:, 2:].reshape(-1, 8, 8)[:, :, :4]].reshape(-1, 8, 32)
    d = _float16(x, 0)
    return Blocks(
        _signed(levels, signs),
        d * (np.float32(0.5) + (words[:, :, 1:] >> 28).astype("f4")) * np.float32(0.25),
        None,
        d,
    )


def _iq2_scales(x: Array, packed: Array) -> tuple[Array, Array]:
    np = require_numpy()
    d = _float16(x, 0)
    codes = _split_fields(packed, 4).swapaxes(1, 2).reshape(-1, 16, 1)
    return d * (np.float32(0.5) + codes.astype("f4")) * np.float32(0.25), d


def _iq2_xs(x: Array) -> Blocks:
    """Sixteen groups of 16; a group is two codes of 9 bits with signs of 7, and a scale of 4."""
    words = _words(x[:, 2:66], "<u2")
    scale, d = _iq2_scales(x, x[:, 66:74])
    levels = _signed(grid("IQ2_XS")[words & 511], sign_bits()[words >> 9])
    return Blocks(levels.reshape(-1, 16, 16), scale, None, d)


def _iq2_s(x: Array) -> Blocks:
    """iq2_xs with codes of 10 bits and a bit for each sign."""
    codes = (
        x[:, 2:34].astype("u2")
        | _split_fields(x[:, 66:74], 2).swapaxes(1, 2).reshape(-1, 32).astype("u2") << 8
    )
    scale, d = _iq2_scales(x, x[:, 74:82])
    levels = grid("IQ2_S")[codes].reshape(-1, 16, 16)
    return Blocks(_signed(levels, _bits(x[:, 34:66]).reshape(-1, 16, 16)), scale, None, d)


def _iq3_xxs(x: Array) -> Blocks:
    """Eight groups of 32; a group is eight codes of 8 bits, four of signs of 7, and a scale of
    4.
    """
    np = require_numpy()
    words = _words(x[:, 66:98], "<u4")[:, :, None]
    signs = sign_bits()[(words >> np.arange(0, 28, 7, dtype="u4")) & 127].reshape(-1, 8, 32)
    d = _float16(x, 0)
    scale = d * (np.float32(0.5) + (words >> 28).astype("f4")) * np.float32(0.5)
    return Blocks(_signed(grid("IQ3_XXS")[x[:, 2:66]].reshape(-1, 8, 32), signs), scale, None, d)


def _iq3_s(x: Array) -> Blocks:
    """Eight groups of 32; a group is eight codes of 9 bits, a bit for each sign, and a scale of
    4.
    """
    codes = x[:, 2:66].astype("u2") | _bits(x[:, 66:74]).astype("u2") << 8
    levels = _signed(
        grid("IQ3_S")[codes].reshape(-1, 8, 32), _bits(x[:, 74:106]).reshape(-1, 8, 32)
    )
    d = _float16(x, 0)
    scales = _split_fields(x[:, 106:110], 4).swapaxes(1, 2).reshape(-1, 8, 1)
    return Blocks(levels, d * (1 + 2 * scales), None, d)


def _shifted_grid(codes: Array, down: Array) -> Array:
    """Return the ternary levels of 11-bit codes, plus or minus 1/8."""
    np = require_numpy()
    levels = grid("IQ1")[codes].astype("f4")
    levels += np.where(down, np.float32(-0.125), np.float32(0.125))[..., None]
    return levels


def _iq1_s(x: Array) -> Blocks:
    """Eight groups of 32; a group is four codes of 11 bits, a scale of 3, and the sign of a
    shift.
    """
    np = require_numpy()
    high = _words(x[:, 34:50], "<u2")[:, :, None]
    codes = (
        x[:, 2:34].reshape(-1, 8, 4).astype("u2")
        | ((high >> np.arange(0, 12, 3, dtype="u2")) & 7) << 8
    )
    d = _float16(x, 0)
    return Blocks(
        _shifted_grid(codes, high & 0x8000).reshape(-1, 8, 32),
        d * (2 * (high >> 12 & 7) + 1),
        None,
        d,
    )


def _iq1_m(x: Array) -> Blocks:
    """Sixteen groups of 16; a group is two codes of 11 bits with a shift each, and a scale of 3;
    the block's scale is in pieces.
    """
    np = require_numpy()
    words = _words(x[:, 48:56], "<u2")
    pieces = (words & 0xF000) >> np.array((12, 8, 4, 0), "u2")
    d = (
        (pieces[:, 0] | pieces[:, 1] | pieces[:, 2] | pieces[:, 3])
        .view("<f2")
        .astype("f4")[:, None, None]
    )
    scales = ((words[:, :, None] >> np.array((0, 3, 6, 9), "u2")) & 7).reshape(-1, 16, 1)
    high = _split_fields(x[:, 32:48], 4).swapaxes(1, 2).reshape(-1, 32)
    codes = x[:, :32].astype("u2") | (high & 7).astype("u2") << 8
    return Blocks(_shifted_grid(codes, high & 8).reshape(-1, 16, 16), d * (2 * scales + 1), None, d)


GGML_DECODERS: dict[str, Callable[[Array], Blocks]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q8_1": _q8_1,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "Q8_K": _q8_k,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "TQ1_0": _tq1_0,
    "TQ2_0": _tq2_0,
    "MXFP4": _mxfp4,
    "NVFP4": _nvfp4,
    "Q1_0": _q1_0,
    "Q2_0": _q2_0,
}
"""Every block type, by ggml's name."""

FLOAT16_OFFSETS: dict[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ4_NL": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
    "MXFP4": (),
    "NVFP4": (),
}
"""Offsets of the float16 numbers in a block of each type whose other numbers are single bytes."""
