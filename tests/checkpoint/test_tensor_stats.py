"""Statistics of stored values equal those of numpy, torch and gguf on the same bytes, however the bytes are cut."""

from __future__ import annotations

import random

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

from llamath.checkpoint import tensor_stats  # noqa: E402
from llamath.checkpoint.formats.dtypes import DTYPES, GGML  # noqa: E402
from llamath.checkpoint.formats.manifest import Tensor  # noqa: E402
from llamath.checkpoint.tensor_stats import FileScan, TensorStats  # noqa: E402
from support.each_case import each  # noqa: E402

TORCH_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}
BLOCK_TYPES = sorted(x.name for x in GGML.values() if x.block > 1)


def stats_of(
    data: bytes, dtype: str, shape: tuple[int, ...], seed: int = 0, **options: bool
) -> TensorStats:
    """Feed bytes in pieces of random lengths."""
    stats = TensorStats(Tensor("x", dtype, shape, 0, 0, len(data)), dtype, **options)
    draw, at, view = random.Random(seed), 0, memoryview(bytearray(data))
    while at < len(data):
        length = draw.choice((1, 7, 64, 1000, 100_000))
        stats.feed(view[at : at + length])
        at += length
    stats.finish()
    return stats


@each("dtype", TORCH_TYPES)
@each("shape", [(23, 48), (5, 3, 16), (7, 9), (1000,), (40, 3)])
@each("scale", [1.0, 1e-3])
def test_counts_and_norms_equal_those_of_torch(
    dtype: str, shape: tuple[int, ...], scale: float
) -> None:
    torch.manual_seed(len(shape))
    x = (
        (torch.randn(shape, dtype=torch.float64) * scale).abs()
        if dtype == "F8_E8M0"
        else torch.randn(shape, dtype=torch.float64) * scale
    )
    stored = x.to(TORCH_TYPES[dtype])
    sound = stats_of(stored.view(torch.uint8).numpy().tobytes(), dtype, shape)
    assert sound.complete and not (sound.nan or sound.infinite)
    assert sound.norm() == pytest.approx(float(stored.to(torch.float64).norm()), rel=1e-5)
    bits = stored.view(torch.uint8).flatten().clone()
    for i in random.Random(1).sample(range(len(bits)), 40):
        bits[i] = random.Random(i).choice((0x7F, 0xFF, 0x80, 0x7C, 0xF8))
    values = bits.view(TORCH_TYPES[dtype]).double().reshape(shape)
    damaged = stats_of(bits.numpy().tobytes(), dtype, shape)
    assert (damaged.nan, damaged.infinite) == (int(values.isnan().sum()), int(values.isinf().sum()))
    if damaged.nan + damaged.infinite:
        rows = values.reshape(damaged.rows, -1)
        bad = [i for i in range(len(rows)) if not bool(rows[i].isfinite().all())]
        assert [x.row for x in damaged.bad_rows] == bad[: tensor_stats.MAX_EXAMPLES]
        assert all(
            (x.nan, x.infinite) == (int(rows[x.row].isnan().sum()), int(rows[x.row].isinf().sum()))
            for x in damaged.bad_rows
        )


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "F8_E4M3"])
def test_zero_and_constant_rows_are_found(dtype: str) -> None:
    torch.manual_seed(3)
    x = torch.randn(300, 40) + 4
    x[[0, 17, 299]] = 0
    x[17, ::2] = -0.0
    x[[5, 6]], x[7], x[8, 1:] = 2.0, -1.0, 2.0
    stats = stats_of(x.to(TORCH_TYPES[dtype]).view(torch.uint8).numpy().tobytes(), dtype, (300, 40))
    assert (stats.zero_rows, stats.zero_examples) == (3, [0, 17, 299])
    assert (stats.constant_rows, stats.constant_examples) == (3, [5, 6, 7])
    assert not stats.is_constant and not stats.is_zero


@pytest.mark.parametrize(("value", "is_zero"), [(0.0, True), (1.0, False)])
def test_tensors_of_one_value_are_constant(value: float, is_zero: bool) -> None:
    for shape in ((64,), (4, 8, 16), (3, 100)):
        stats = stats_of(np.full(shape, value, np.float32).tobytes(), "F32", shape)
        assert stats.is_constant and stats.is_zero is is_zero and stats.is_zero_unit(0) is is_zero


def test_large_and_small_squares_do_not_overflow() -> None:
    for scale in (1e25, 1e-25):
        x = np.linspace(1, 2, 800, dtype=np.float32) * np.float32(scale)
        assert stats_of(x.tobytes(), "F32", (8, 100)).norm() == pytest.approx(
            float(np.linalg.norm(x.astype(np.float64))), rel=1e-5
        )


def test_long_rows_are_examined_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_stats, "LONG_ROW", 64)
    x = np.ones((5, 1001), np.float32)
    assert stats_of(x.tobytes(), "F32", (5, 1001)).is_constant
    x[3, 500], x[4, 0] = np.nan, np.inf
    stats = stats_of(x.tobytes(), "F32", (5, 1001))
    assert [(y.row, y.nan, y.infinite) for y in stats.bad_rows] == [
        (3, 1, 0),
        (4, 0, 1),
    ] and not stats.is_constant


def test_experts_of_a_stack_are_kept_apart() -> None:
    x = np.random.default_rng(0).standard_normal((6, 10, 32)).astype(np.float32)
    x[2] = x[4]
    x[5] = 0
    stats = stats_of(x.tobytes(), "F32", x.shape)
    assert stats.units == 6 and stats.rows_per_unit == 10
    assert [stats.norm(i) for i in range(6)] == [
        pytest.approx(float(np.linalg.norm(y)), rel=1e-5) for y in x
    ]
    assert stats.fingerprints[2] == stats.fingerprints[4] and len(set(stats.fingerprints)) == 5
    assert [stats.is_zero_unit(i) for i in range(6)] == [False] * 5 + [True]


@pytest.mark.parametrize(
    ("dtype", "narrower"), [("bfloat16", "BF16"), ("float16", "F16"), ("float32", "")]
)
def test_16_bit_values_in_float32_are_recognized(dtype: str, narrower: str) -> None:
    torch.manual_seed(0)
    x = (torch.randn(100, 64) * 1e-4).to(getattr(torch, dtype)).float().numpy()
    assert stats_of(x.tobytes(), "F32", x.shape).narrower == ({narrower} if narrower else set())


def test_fingerprints_do_not_depend_on_the_chunks() -> None:
    data = np.random.default_rng(1).integers(0, 256, 33 * 1000, dtype=np.uint8).tobytes()
    for dtype, shape in (("U8", (1000, 33)), ("BF16", (500, 33)), ("BF16", (16_500,))):
        assert (
            len({tuple(stats_of(data, dtype, shape, seed).fingerprints) for seed in range(5)}) == 1
        )


@pytest.mark.parametrize("dtype", BLOCK_TYPES)
def test_bad_scales_of_blocks_are_those_that_give_bad_values(dtype: str) -> None:
    """For every ggml type, the rows that are reported are those that the gguf package dequantizes to values that are not finite."""
    quants = pytest.importorskip("gguf.quants")
    gguf = pytest.importorskip("gguf")
    kind = DTYPES[dtype]
    draw = np.random.default_rng(5)
    blocks = draw.integers(0, 256, (400, kind.bytes), dtype=np.uint8)
    stats = stats_of(blocks.tobytes(), dtype, (400, kind.block))
    try:
        with np.errstate(all="ignore"):
            values = quants.dequantize(blocks, gguf.GGMLQuantizationType[dtype])
    except (KeyError, NotImplementedError):
        pytest.skip(f"this gguf package does not dequantize {dtype}")
    assert stats.complete
    if dtype not in ("MXFP4", "NVFP4"):  # gguf reads their NaN as a number
        expected = np.flatnonzero(~np.isfinite(values).all(axis=1))
        assert {x.row for x in stats.bad_rows} <= set(expected.tolist()) and bool(
            stats.nan + stats.infinite
        ) == bool(len(expected))
    zeros = stats_of(bytes(400 * kind.bytes), dtype, (400, kind.block))
    assert (zeros.zero_rows, zeros.is_zero) == (400, True)


@pytest.mark.parametrize("dtype", BLOCK_TYPES)
def test_every_block_type_has_its_scales(dtype: str) -> None:
    kind = DTYPES[dtype]
    stats = stats_of(b"\xff" * (3 * kind.bytes), dtype, (3, kind.block))
    assert stats.nan and [x.row for x in stats.bad_rows] == [0, 1, 2]


def test_big_endian_values_are_swapped() -> None:
    x = np.random.default_rng(0).standard_normal((8, 32)).astype(">f4")
    x[3, 1] = np.nan
    stats = stats_of(x.tobytes(), "F32", (8, 32), swap=True)
    assert (stats.nan, stats.infinite, stats.bad_rows[0].row) == (1, 0, 3)
    assert stats_of(x[:3].tobytes(), "F32", (3, 32), swap=True).norm() == pytest.approx(
        float(np.linalg.norm(x[:3].astype("f8")))
    )


def test_files_pass_each_tensor_its_own_bytes() -> None:
    data = bytearray(range(256)) * 40
    spans = [(0, 64), (64, 4096), (100, 4200), (5000, 10240)]
    stats = [
        TensorStats(Tensor(str(i), "U8", (b - a,), 0, a, b), "packed")
        for i, (a, b) in enumerate(spans)
    ]
    scan = FileScan(stats)
    for at in range(0, len(data), 777):
        scan.feed(at, memoryview(data)[at : at + 777])
    assert all(x.complete for x in stats)
    for x, (a, b) in zip(stats, spans, strict=True):
        alone = TensorStats(x.tensor, "packed")
        alone.feed(memoryview(data)[a:b])
        alone.finish()
        assert alone.fingerprints == x.fingerprints


def test_many_overlapping_tensors_are_left_out() -> None:
    stats = [TensorStats(Tensor(str(i), "U8", (900,), 0, i, i + 900), "packed") for i in range(200)]
    FileScan(stats).feed(0, memoryview(bytearray(2000)))
    assert sum(x.complete for x in stats) == 64


@pytest.mark.parametrize("dtype", ["F8_E4M3FNUZ", "F8_E5M2FNUZ"])
def test_the_nan_of_types_without_negative_zero_is_no_zero(dtype: str) -> None:
    stats = stats_of(bytes(16) + bytes(15) + b"\x80", dtype, (2, 16))
    assert (stats.nan, stats.zero_rows, stats.zero_examples, stats.is_zero) == (1, 1, [0], False)
    assert stats_of(bytes(32), dtype, (2, 16)).is_zero
