"""Comparing groups of quantized weights with numbers: the native library's pass against numpy's, on every path of the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llamath.analysis.check.same import chunk_comparison
from llamath.analysis.check.same.chunk_comparison import Tally, compare_chunks
from llamath.checkpoint.canonical_reader import RowChunk
from llamath.checkpoint.quantization.ggml_values import GGML_DECODERS, decode_ggml
from llamath.checkpoint.quantization.rounding_bounds import CODEBOOK_ERRORS
from llamath.native.group_comparison import find_group_comparer
from llamath.native.library import load_library
from llamath_native import build

np = pytest.importorskip("numpy")
from checkpoint.test_ggml_values import random_blocks  # noqa: E402
from kernel_library import build_library  # noqa: E402

WIDTH = 512
TYPES = [x for x in GGML_DECODERS if x not in CODEBOOK_ERRORS]
SAME = (
    "values",
    "differing",
    "beyond",
    "rows",
    "first",
    "changed",
    "codebook",
    "error_limit",
    "max_difference",
)


@pytest.fixture
def each_path() -> Callable[[], Iterator[Any]]:
    """Yields the comparison by each path that this machine has."""
    build_library()
    library = load_library()

    def comparers() -> Iterator[Any]:
        before = library.path()
        try:
            for path in ("reference", *build.PATHS.get(build.machine(), ("generic",))):
                if not library.set_path(path.encode()):
                    yield find_group_comparer()
        finally:
            library.set_path(before)

    return comparers


def ordinary_blocks(dtype: str, count: int, seed: int) -> Any:
    """Random blocks with scales of ordinary size."""
    blocks, rng = random_blocks(dtype, count, seed), np.random.default_rng(seed)
    if dtype == "Q8_K":
        blocks[:, :4] = rng.normal(0, 1, (count, 1)).astype("<f4").view("u1")
    if dtype == "MXFP4":
        blocks[:, 0] = rng.integers(115, 135, count)
    return blocks


def stored(values: Any, dtype: str) -> RowChunk:
    """A chunk of numbers of a plain dtype."""
    x = values.astype("f4")
    raw = {"F32": x, "F16": x.astype("f2"), "BF16": (x.view("u4") >> 16).astype("u2")}[dtype]
    return RowChunk(dtype, raw.reshape(-1, WIDTH))


def tally_of(blocks: Any, dtype: str, numbers: RowChunk, compare: Any, swapped: bool) -> Tally:
    """What a comparison finds; None: numpy's."""
    pair = RowChunk(dtype, None, decode_ggml(blocks, dtype)), RowChunk(numbers.dtype, numbers.raw)
    tally = Tally()
    compare_chunks(*(reversed(pair) if swapped else pair), 3, WIDTH, tally, compare)
    return tally


@pytest.mark.parametrize("numbers", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("dtype", TYPES)
def test_library_finds_what_numpy_finds(
    each_path: Callable[[], Iterator[Any]],
    dtype: str,
    numbers: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values that were rounded, moved a little, moved far and exact."""
    size = decode_ggml(random_blocks(dtype, 1), dtype).values.size
    blocks = ordinary_blocks(dtype, 40 * WIDTH // size, 4)
    values, rng = decode_ggml(blocks, dtype).values.reshape(-1), np.random.default_rng(5)
    near = values * (1 + rng.normal(0, 0.01, values.shape)).astype("f4")
    near[::97] *= 3
    single = np.where(np.arange(values.size) == 700, near, values)
    for other, swapped in ((near, False), (near, True), (values, False), (single, False)):
        chunk = stored(other, numbers)
        theirs = tally_of(blocks, dtype, chunk, None, swapped)
        for compare in each_path():
            ours = tally_of(blocks, dtype, chunk, compare, swapped)
            assert {x: getattr(ours, x) for x in SAME} == {x: getattr(theirs, x) for x in SAME}
            for name in ("square_a", "square_b", "square_difference"):
                assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-4)
            if other is near:  # where few differ, numpy computes their exact bounds at once
                assert ours.largest_share == theirs.largest_share
    calls = []
    monkeypatch.setattr(
        chunk_comparison, "_find_in_groups", lambda *args: calls.append(args) or np.zeros(0, "i8")
    )
    for compare in each_path():
        pair = RowChunk(dtype, None, decode_ggml(blocks, dtype)), stored(near, numbers)
        compare_chunks(*pair, 0, WIDTH, Tally(), compare)
    assert not calls, "numpy's way is not taken"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_left_to_numpy(
    each_path: Callable[[], Iterator[Any]], bad: float
) -> None:
    blocks = random_blocks("Q4_K", 2 * WIDTH // 256, 1)
    other = decode_ggml(blocks, "Q4_K").values.reshape(-1).copy()
    other[[3, 800]] = bad
    chunk = stored(other, "F32")
    theirs = tally_of(blocks, "Q4_K", chunk, None, False)
    for compare in each_path():
        ours = tally_of(blocks, "Q4_K", chunk, compare, False)
        assert vars(ours) == vars(theirs) and ours.changed == {(3, 3), (4, 800 - WIDTH)}
