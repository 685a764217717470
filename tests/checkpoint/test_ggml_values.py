"""ggml's block types: values against the gguf package on random bytes, and the bounds of rounding against its quantizers."""

from __future__ import annotations

from typing import Any

import pytest

from llamath.checkpoint.formats.dtypes import GGML
from llamath.checkpoint.formats.number_arrays import to_float32
from llamath.checkpoint.quantization.ggml_values import (
    FLOAT16_OFFSETS,
    GGML_DECODERS,
    decode_ggml,
    dequantize_ggml,
    swap_ggml_bytes,
)
from llamath.checkpoint.quantization.rounding_bounds import (
    CODEBOOK_ERRORS,
    block_radius,
    float_radius,
    surely_within,
)
from llamath.utils.errors import FormatError

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf")
NUMBERS = {x.name: number for number, x in GGML.items()}
THEIRS = [
    x
    for x in GGML_DECODERS
    if x in gguf.GGMLQuantizationType.__members__ and x not in ("Q8_1", "Q8_K", "Q1_0", "Q2_0")
]


def random_blocks(dtype: str, blocks: int = 400, seed: int = 0) -> Any:
    """Random bytes with finite scales."""
    generator = np.random.default_rng(seed)
    x = generator.integers(0, 256, (blocks, GGML[NUMBERS[dtype]].bytes), dtype=np.uint8)
    for at in FLOAT16_OFFSETS.get(dtype, (0,)):
        x[:, at : at + 2] = generator.normal(0, 1, (blocks, 1)).astype("<f2").view("u1")
    if dtype == "IQ1_M":
        x[:, 55] &= 0x3F
    if dtype == "MXFP4":
        x[:, 0] = generator.integers(0, 254, blocks)
    return x


@pytest.mark.parametrize("dtype", THEIRS)
def test_values_equal_those_of_the_gguf_package(dtype: str) -> None:
    x = random_blocks(dtype)
    with np.errstate(over="ignore"):
        theirs = gguf.quants.dequantize(x.reshape(-1), gguf.GGMLQuantizationType[dtype]).reshape(
            len(x), -1
        )
    assert np.array_equal(dequantize_ggml(x, dtype), theirs)


def test_every_block_type_is_decoded() -> None:
    assert GGML_DECODERS.keys() == {x.name for x in GGML.values() if x.block > 1}


def test_types_without_a_reference_follow_their_structs() -> None:
    scale = np.array([1.5], "<f2").tobytes()
    assert dequantize_ggml(scale + bytes([0b10100101] + [0] * 15), "Q1_0")[0, :8].tolist() == [
        1.5,
        -1.5,
        1.5,
        -1.5,
        -1.5,
        1.5,
        -1.5,
        1.5,
    ]
    assert dequantize_ggml(scale + bytes([0b11100100] + [0] * 15), "Q2_0")[0, :5].tolist() == [
        -1.5,
        0.0,
        1.5,
        3.0,
        -1.5,
    ]
    assert dequantize_ggml(scale + bytes(2) + np.arange(-16, 16, dtype="i1").tobytes(), "Q8_1")[
        0, :2
    ].tolist() == [-24.0, -22.5]
    q8_k = (
        np.array([0.5], "<f4").tobytes()
        + np.arange(256, dtype="u1").view("i1").tobytes()
        + bytes(32)
    )
    assert dequantize_ggml(q8_k, "Q8_K")[0, [0, 127, 128]].tolist() == [0.0, 63.5, -64.0]


def test_big_endian_blocks_are_swapped_or_refused() -> None:
    x = random_blocks("Q4_K", 3)
    swapped = x.copy()
    swapped[:, :4] = x[:, [1, 0, 3, 2]]
    assert np.array_equal(swap_ggml_bytes(swapped, "Q4_K"), x)
    with pytest.raises(FormatError, match=r"IQ2_XXS in a big-endian GGUF file"):
        swap_ggml_bytes(random_blocks("IQ2_XXS", 1), "IQ2_XXS")


def weights(kind: str) -> Any:
    """Values as weights have them, and stranger ones."""
    generator = np.random.default_rng(3)
    values = {
        "normal": generator.normal(0, 0.02, (24, 512)),
        "heavy tails": generator.standard_t(2, (24, 512)) * 0.01,
        "sparse": generator.normal(0, 0.02, (24, 512)) * (generator.random((24, 512)) < 0.05),
        "many scales": generator.normal(0, 1, (24, 512))
        * np.exp(generator.normal(0, 2, (24, 32))).repeat(16, 1)
        * 0.01,
        "far from zero": generator.normal(1, 0.02, (24, 512)),
    }
    return values[kind].astype("f4")


@pytest.mark.parametrize(
    "kind", ["normal", "heavy tails", "sparse", "many scales", "far from zero"]
)
@pytest.mark.parametrize(
    "dtype", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"]
)
def test_quantized_values_are_within_their_bounds(dtype: str, kind: str) -> None:
    x = weights(kind)
    blocks = decode_ggml(gguf.quants.quantize(x, gguf.GGMLQuantizationType[dtype]), dtype)
    difference = x.reshape(-1).astype("f8") - blocks.values.reshape(-1)
    radius = block_radius(blocks, dtype, np.arange(x.size), difference > 0)
    assert (np.abs(difference) <= radius).all()
    if dtype not in ("MXFP4", "TQ1_0", "TQ2_0") and kind == "normal":
        assert np.abs(difference).max() > 0.9 * np.median(radius)  # the bound is not loose


@pytest.mark.parametrize("dtype", sorted(GGML_DECODERS.keys() - CODEBOOK_ERRORS.keys()))
def test_the_short_test_of_bounds_admits_nothing_beyond_them(dtype: str) -> None:
    x = random_blocks(dtype, 200, 5)
    x[:20] = 0
    generator = np.random.default_rng(5)
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = decode_ggml(x, dtype)
        positions = np.arange(blocks.levels.size)
        within = 0
        for importance in (False, True):
            for sign in (1, -1):
                radius = block_radius(
                    blocks, dtype, positions, np.full(len(positions), sign > 0), importance
                )
                inside, beyond = (
                    sign * radius * generator.uniform(*span, len(radius))
                    for span in ((0, 1), (1.001, 2))
                )
                within += int(surely_within(blocks, dtype, positions, inside.astype("f4")).sum())
                assert not surely_within(blocks, dtype, positions, beyond.astype("f4")).any()
    assert within > 0.1 * len(positions)


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3"])
def test_no_rounding_bound_admits_infinity(dtype: str) -> None:
    assert np.isfinite(float_radius(np.array([np.inf, -np.inf, 3e38]), dtype, np.True_)).all()


def test_every_float16_is_widened_as_numpy_does() -> None:
    every = np.arange(1 << 16, dtype="<u2").view("<f2")
    finite = every[np.isfinite(every)]
    for x in (every, finite, finite[::2], every[:0]):
        assert np.array_equal(to_float32(x, "F16").view("u4"), x.astype("f4").view("u4"))


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_float_radius_is_half_the_distance_to_the_neighbor(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = {"F16": torch.float16, "BF16": torch.bfloat16}[dtype]
    values = torch.tensor([1.0, 1.5, -2.0, 3.7, 1e-3, 2.0**-14, 5e-7], dtype=kind)
    x = values.double().numpy()
    bits = values.view(torch.int16)
    away, towards = ((bits + step).view(kind).double().numpy() for step in (1, -1))
    assert np.array_equal(float_radius(x, dtype, np.True_), np.abs(away - x) / 2)
    assert np.array_equal(float_radius(x, dtype, np.False_), np.abs(x - towards) / 2)


def test_codebook_types_have_no_bound_of_single_values() -> None:
    assert {
        x for x in GGML_DECODERS if x.startswith(("IQ1", "IQ2", "IQ3"))
    } == CODEBOOK_ERRORS.keys()
