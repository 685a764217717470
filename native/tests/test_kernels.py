"""The C++ kernels: every path that this machine supports against formulas in numpy, on random, odd and hostile inputs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from kernel_library import (
    BF16,
    EXACT,
    F16,
    F32,
    FAST,
    I8,
    MXFP4,
    PTR,
    Q4_0,
    Q4_K,
    Q5_K,
    Q6_K,
    Q8_0,
    Attention,
    DeltaRule,
    ExpertProduct,
    Library,
    Matrix,
    Product,
    Route,
    Sampling,
    StateScan,
    build_library,
    pointer,
)
from llamath.native.library_cache import cached_library
from llamath_native import build
from support.each_case import each

pytestmark = pytest.mark.slow
PATHS = ("reference", *build.PATHS.get(build.machine(), ("generic",)))
TYPES = {
    F32: "F32",
    F16: "F16",
    BF16: "BF16",
    I8: "I8",
    Q8_0: "Q8_0",
    Q4_0: "Q4_0",
    Q4_K: "Q4_K",
    Q5_K: "Q5_K",
    Q6_K: "Q6_K",
    MXFP4: "MXFP4",
}
BLOCKS = {Q8_0: 32, Q4_0: 32, MXFP4: 32, Q4_K: 256, Q5_K: 256, Q6_K: 256}
ROWS = (1, 2, 3, 4, 5, 8, 9, 13, 30)
close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5)


@pytest.fixture(scope="session")
def library() -> Iterator[Library]:
    library = Library(build_library(), threads=3)
    yield library
    library.close()


@pytest.fixture(params=PATHS)
def lib(library: Library, request: pytest.FixtureRequest) -> Iterator[Library]:
    """The library, once for each path of this machine."""
    if request.param not in library.paths():
        names = [library("path_name", i).decode() for i in range(library("num_paths"))]
        pytest.skip(
            f"{request.param} is not supported by this processor"
            if request.param in names
            else "a path of another kind of machine"
        )
    with library.using(request.param):
        yield library


def test_every_path_of_the_machine_is_compiled(library: Library) -> None:
    assert [library("path_name", i).decode() for i in range(library("num_paths"))] == list(PATHS)
    assert library("path").decode() == (
        os.environ.get("LLAMATH_NATIVE_PATH") or library.paths()[-1]
    )


def test_own_path_is_the_one_that_would_be_taken(library: Library, tmp_path: Path) -> None:
    assert build.own_paths() == (library.paths()[-1],)
    with (tmp_path / "cpuinfo").open("w") as file:
        file.write("processor : 0\nflags : fpu sse2 avx2 fma\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_CPUINFO", str(tmp_path / "cpuinfo"))
        assert build.own_paths() == build.all_paths()[:1]  # AVX2 needs bmi2 and f16c as well
        patch.setattr(build, "_CPUINFO", "/nowhere")
        assert build.own_paths() == build.all_paths()


def test_commands_for_one_path_compile_it_beside_the_reference(tmp_path: Path) -> None:
    compiler = build.find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    own = build.own_paths()
    each = [
        x
        for x in build.commands(compiler, tmp_path, paths=own)
        if any(y.startswith("-DLLAMATH_PATH=") for y in x)
    ]
    assert {y for x in each for y in x if y.startswith("-DLLAMATH_PATH=")} == {
        f"-DLLAMATH_PATH={x}" for x in own
    }
    assert cached_library(own) != cached_library()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(sum(request.node.name.encode()))


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def as_bf16(x: np.ndarray) -> np.ndarray:
    """Round to bfloat16, as float32."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def random_weights(
    rng: np.random.Generator, kind: int, rows: int, cols: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Stored rows of bytes, their values, and scales."""
    if kind == F32:
        w = normal(rng, rows, cols)
        return w, w, None
    if kind == BF16:
        w = as_bf16(normal(rng, rows, cols))
        return (w.view(np.uint32) >> 16).astype(np.uint16), w, None
    if kind == F16:
        half = normal(rng, rows, cols).astype(np.float16)
        return half, half.astype(np.float32), None
    if kind == I8:
        w, scales = (
            rng.integers(-128, 128, (rows, cols), dtype=np.int8),
            rng.uniform(0.005, 0.02, rows).astype(np.float32),
        )
        return w, w * scales[:, None], scales
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    size, num_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    blocks = rng.integers(0, 256, (rows, cols // size, num_bytes), dtype=np.uint8)
    halves = {Q8_0: (0,), Q4_0: (0,), Q4_K: (0, 2), Q5_K: (0, 2), Q6_K: (208,), MXFP4: ()}[kind]
    for at in halves:
        scales = rng.uniform(-0.02, 0.02, (rows, cols // size, 1)).astype(np.float16)
        blocks[..., at : at + 2] = scales.view(np.uint8)
    if kind == MXFP4:
        blocks[..., 0] = rng.integers(118, 130, blocks.shape[:2])
    stored = blocks.reshape(rows, -1)
    return stored, dequantize(stored, GGMLQuantizationType(kind)).reshape(rows, cols), None


def matrix(stored: np.ndarray, kind: int, cols: int, scales: np.ndarray | None = None) -> Matrix:
    return Matrix(
        pointer(stored),
        pointer(scales),
        len(stored),
        cols,
        0,
        kind,
        0,
        stored.nbytes,
        0 if scales is None else scales.size,
    )


def multiply(
    lib: Library,
    stored: np.ndarray,
    kind: int,
    x: np.ndarray,
    scales: np.ndarray | None = None,
    precision: int = EXACT,
) -> np.ndarray:
    out = np.full((len(x), len(stored)), np.nan, np.float32)
    product = Product(matrix(stored, kind, x.shape[1], scales), pointer(out))
    assert lib.pooled("matmul", product, 1, x, 0, len(x), precision) == 0
    return out


def quantized(x: np.ndarray) -> np.ndarray:
    """Inputs as they are after quantization to int8 in groups of 32, as floats."""
    groups = np.pad(x, ((0, 0), (0, -x.shape[1] % 32))).reshape(len(x), -1, 32)
    most = np.abs(groups).max(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(most > 0, np.rint(groups * (np.float32(127) / most)), 0)
    return (steps * (most / np.float32(127))).reshape(len(x), -1)[:, : x.shape[1]]


def error(found: np.ndarray, x: np.ndarray, w: np.ndarray) -> float:
    """The largest error, relative to the lengths of the two vectors of each product."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    expected = x @ w.T
    return float(
        (
            np.abs(found - expected)
            / (np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(w, axis=1) + 1e-60)
        ).max()
    )


# Products


@each("kind", TYPES, ids=TYPES.get)
@each("precision", (EXACT, FAST), ids=("exact", "fast"))
def test_products_of_every_type_and_number_of_rows(
    lib: Library, rng: np.random.Generator, kind: int, precision: int
) -> None:
    size = BLOCKS.get(kind, 1)
    for cols in {1: (1, 5, 67, 512, 1031), 32: (32, 96, 544), 256: (256, 768)}[size]:
        for rows in (1, 7, 35):
            stored, w, scales = random_weights(rng, kind, rows, cols)
            for n in ROWS:
                x = normal(rng, n, cols)
                found = multiply(lib, stored, kind, x, scales, precision)
                is_reference = lib("path") == b"reference"
                if precision == FAST and size > 1 and not is_reference:
                    assert (
                        error(found, quantized(x), w) < 3e-6
                    )  # the values that llamath_matmul's documentation names, and no others
                    assert error(found, x, w) < 0.01
                elif (
                    precision == FAST and kind == BF16 and n >= 4 and lib("path").endswith(b"bf16")
                ):
                    assert error(found, as_bf16(x), w) < 1e-6
                else:
                    assert error(found, x, w) < 1e-6


def test_products_of_one_input_at_once(lib: Library, rng: np.random.Generator) -> None:
    for n in (1, 3, 12):
        x, bias = normal(rng, n, 96), normal(rng, 21)
        parts = [
            (kind, *random_weights(rng, kind, rows, 96))
            for kind, rows in ((BF16, 21), (Q8_0, 40), (F32, 3))
        ]
        outs = [normal(rng, n, len(stored) + 2) for _, stored, _, _ in parts]
        before = [out.copy() for out in outs]
        products = (Product * 3)(
            *(
                Product(
                    matrix(stored, kind, 96),
                    pointer(out),
                    len(stored) + 2,
                    pointer(bias if i == 0 else None),
                    int(i == 0),
                )
                for i, ((kind, stored, _, _), out) in enumerate(zip(parts, outs, strict=True))
            )
        )
        assert lib.pooled("matmul", products, 3, x, 0, n, EXACT) == 0
        close(outs[0][:, :21], before[0][:, :21] + x @ parts[0][2].T + bias, atol=1e-4)
        for out, old, (_, stored, w, _) in list(zip(outs, before, parts, strict=True))[1:]:
            close(out[:, : len(stored)], x @ w.T, atol=1e-4)
            assert (out[:, len(stored) :] == old[:, len(stored) :]).all()


def test_strides_of_inputs_and_of_stored_rows(lib: Library, rng: np.random.Generator) -> None:
    stored, w, _ = random_weights(rng, F32, 20, 64)
    for n in (1, 6):
        x, out = normal(rng, n, 70), np.zeros((n, 10), np.float32)
        every_other = Matrix(pointer(stored), None, 10, 60, 2 * 64 * 4, F32, 0, stored.nbytes)
        lib.pooled("matmul", Product(every_other, pointer(out)), 1, x, 70, n, EXACT)
        close(out, x[:, :60] @ w[::2, :60].T, atol=1e-4)


def test_products_across_page_ends_read_nothing_beyond(
    lib: Library, rng: np.random.Generator
) -> None:
    mmap = pytest.importorskip("mmap")
    ctypes = pytest.importorskip("ctypes")
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 4 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert (
        ctypes.CDLL(None).mprotect(ctypes.c_void_p(base + 3 * page), ctypes.c_size_t(page), 0) == 0
    )
    for kind, cols in (
        (F32, 67),
        (BF16, 67),
        (F16, 33),
        (I8, 45),
        (Q8_0, 96),
        (Q4_0, 32),
        (Q6_K, 256),
        (Q4_K, 256),
        (Q5_K, 256),
        (MXFP4, 96),
    ):
        stored, w, scales = random_weights(rng, kind, 5, cols)
        raw = stored.tobytes()
        begin = 3 * page - len(raw)
        memory[begin : 3 * page] = raw
        for n in (1, 3, 5, 9):
            x, out = normal(rng, n, cols), np.zeros((n, 5), np.float32)
            at_end = Matrix(base + begin, pointer(scales), 5, cols, 0, kind, 0, len(raw), 5)
            lib.pooled("matmul", Product(at_end, pointer(out)), 1, x, 0, n, FAST)
            assert error(out, x, w) < 0.01


@pytest.mark.parametrize("kind", TYPES, ids=TYPES.get)
def test_nan_and_inf_in_inputs_reach_the_output(
    lib: Library, rng: np.random.Generator, kind: int
) -> None:
    stored, w, scales = random_weights(rng, kind, 18, 512)
    for n in (1, 5, 10):
        for bad in (np.nan, np.inf, -np.inf):
            x = normal(rng, n, 512)
            x[n // 2, 77] = bad
            found = multiply(lib, stored, kind, x, scales, FAST)
            assert not np.isfinite(found[n // 2][w[:, 77] != 0]).any()
            assert np.isfinite(np.delete(found, n // 2, 0)).all()


@pytest.mark.parametrize("kind", (F32, BF16, F16, Q8_0), ids=TYPES.get)
def test_nan_and_inf_in_weights_reach_their_row_alone(
    lib: Library, rng: np.random.Generator, kind: int
) -> None:
    for pattern in (0x7FC0, 0x7F80) if kind == BF16 else (0x7E00, 0x7C00):
        stored, _, _ = random_weights(rng, kind, 19, 96)
        if kind == F32:
            stored[11, 40] = np.inf if pattern == 0x7C00 else np.nan
        elif kind == Q8_0:
            stored[11, :2] = np.frombuffer(np.uint16(pattern).tobytes(), np.uint8)
        else:
            stored.view(np.uint16)[11, 40] = pattern
        for n in (1, 2, 7, 12):
            found = multiply(lib, stored, kind, np.abs(normal(rng, n, 96)) + 0.1, None, FAST)
            assert not np.isfinite(found[:, 11]).any()
            assert np.isfinite(np.delete(found, 11, 1)).all()


def test_denormal_and_huge_numbers(lib: Library) -> None:
    x = np.full((5, 64), 1e-39, np.float32)
    w = np.full((3, 64), 1e30, np.float32)
    assert error(multiply(lib, w, F32, x), x, w) < 1e-5
    stored = np.zeros((3, 2, 34), np.uint8)
    stored[..., :2] = np.frombuffer(np.float16(6e-8).tobytes(), np.uint8)
    stored[..., 2:] = 127
    values = np.full((3, 64), np.float32(np.float16(6e-8)) * 127)
    assert (
        error(
            multiply(lib, stored.reshape(3, -1), Q8_0, np.ones((5, 64), np.float32), None, FAST),
            np.ones((5, 64)),
            values,
        )
        < 1e-6
    )
    assert (
        multiply(lib, stored.reshape(3, -1), Q8_0, np.zeros((2, 64), np.float32), None, FAST) == 0
    ).all()


def test_largest_bytes_do_not_saturate(lib: Library) -> None:
    for value in (-128, -127, 127):
        stored = np.zeros((17, 2, 34), np.uint8)
        stored[..., :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
        stored[..., 2:] = np.int8(value).view(np.uint8)
        for n in (1, 4):
            for sign in (-1, 1):
                found = multiply(
                    lib,
                    stored.reshape(17, -1),
                    Q8_0,
                    np.full((n, 64), sign, np.float32),
                    None,
                    FAST,
                )
                close(found, np.full((n, 17), 64.0 * sign * value), rtol=1e-6)


def test_unknown_types_and_wrong_widths_are_refused(library: Library) -> None:
    data = np.zeros(1024, np.uint8)
    for kind, cols in ((99, 32), (Q8_0, 33), (Q4_K, 128)):
        assert (
            library.pooled(
                "matmul",
                Product(matrix(data[None], kind, cols), pointer(data)),
                1,
                data,
                0,
                1,
                FAST,
            )
            == -1
        )
    assert library("set_path", b"abacus") == -1


@pytest.mark.parametrize("kind", TYPES, ids=TYPES.get)
def test_lookup_dequantizes_rows(lib: Library, rng: np.random.Generator, kind: int) -> None:
    stored, w, scales = random_weights(rng, kind, 9, 256)
    ids, out = np.array([8, 0, 3, 3, -5, 7], np.int32), np.zeros((6, 256), np.float32)
    lib.pooled("lookup", out, 0, ids, 6, matrix(stored, kind, 256, scales), 1, 2.0)
    assert np.isnan(out[0]).all() and np.isnan(out[4]).all()
    close(out[[1, 2, 3, 5]], 2 * w[[1, 4, 4, 8]], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", (F32, BF16, Q8_0, Q4_K), ids=TYPES.get)
def test_per_head_products(lib: Library, rng: np.random.Generator, kind: int) -> None:
    heads, size, cols = 3, 20, 256
    stored, w, _ = random_weights(rng, kind, heads * size, cols)
    each = w.reshape(heads, size, cols)
    for n in (1, 5):
        x, out = normal(rng, n, heads, cols), np.zeros((n, heads, size), np.float32)
        assert (
            lib.pooled("per_head_matmul", out, x, n, matrix(stored, kind, cols), size, 0, EXACT)
            == 0
        )
        close(out, np.einsum("bhc,hsc->bhs", x, each), atol=2e-4)
        x, out = normal(rng, n, heads, size), np.zeros((n, heads, cols), np.float32)
        assert (
            lib.pooled("per_head_matmul", out, x, n, matrix(stored, kind, cols), size, 1, EXACT)
            == 0
        )
        close(out, np.einsum("bhs,hsc->bhc", x, each), atol=2e-4)


@pytest.mark.parametrize("kind", (F32, BF16, Q8_0, MXFP4), ids=TYPES.get)
def test_products_by_chosen_experts(lib: Library, rng: np.random.Generator, kind: int) -> None:
    num_experts, rows, cols, top_k = 6, 35, 96, 2
    stored, w, _ = zip(
        *(random_weights(rng, kind, rows, cols) for _ in range(num_experts)), strict=True
    )
    experts = (Matrix * num_experts)(*(matrix(s, kind, cols) for s in stored))
    biases = [normal(rng, rows), *[None] * (num_experts - 1)]
    pointers = (PTR * num_experts)(*map(pointer, biases))
    for n in (1, 2, 7, 40):
        chosen = rng.integers(0, num_experts - 1, (n, top_k)).astype(
            np.int32
        )  # the last one is never chosen
        chosen[0, 0] = num_experts  # one without weights
        x, weights = normal(rng, n, cols), rng.uniform(0, 1, (n, top_k)).astype(np.float32)
        out = np.full((n, top_k, rows), np.nan, np.float32)
        product = ExpertProduct(_address(experts), pointer(out), _address(pointers))
        assert (
            lib.pooled(
                "expert_matmul", product, 1, x, 0, chosen, n * top_k, top_k, num_experts, EXACT
            )
            == 0
        )
        expected = np.zeros((n, top_k, rows))
        for t in range(n):
            for j, e in enumerate(chosen[t]):
                if e < num_experts:
                    expected[t, j] = w[e] @ x[t] + (0 if biases[e] is None else biases[e])
        close(out, expected, atol=2e-4)
        again = np.full(
            (n, top_k, rows), np.nan, np.float32
        )  # inputs of each pair, as of a down projection
        product = ExpertProduct(_address(experts), pointer(again), _address(pointers))
        pairs = np.repeat(x, top_k, 0)
        lib.pooled("expert_matmul", product, 1, pairs, 0, chosen, n * top_k, 1, num_experts, EXACT)
        close(again, expected, atol=2e-4)
        summed, same = np.zeros((n, rows), np.float32), normal(rng, n, rows)
        lib.pooled(
            "combine_experts", summed, out, weights, chosen, same, n, top_k, num_experts, rows, 0
        )
        expected[0, 0] = same[0]
        close(summed, (expected * weights[..., None]).sum(1), atol=2e-4)


def _address(array: object) -> int:
    import ctypes

    return ctypes.addressof(array)  # type: ignore[arg-type]


# Norms and elementwise operations


@pytest.mark.parametrize("cols", (1, 7, 16, 64, 131))
def test_norms(lib: Library, rng: np.random.Generator, cols: int) -> None:
    x, weight, bias = normal(rng, 6, cols), normal(rng, cols), normal(rng, cols)
    heads = normal(rng, 3, cols)
    out = np.zeros_like(x)
    rms = np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-5)
    lib.pooled("rms_norm", out, 0, x, 0, 6, cols, weight, 1, 1e-5, 1.0)
    close(out, x / rms * (1 + weight))
    lib.pooled("rms_norm", out, 0, x, 0, 6, cols, None, 1, 1e-5, 0.0)
    close(out, x / rms)
    lib.pooled("rms_norm", out, 0, x, 0, 6, cols, heads, 3, 1e-5, 0.0)
    close(out, x / rms * np.tile(heads, (2, 1)))
    centered = x - x.astype(np.float64).mean(-1, keepdims=True)
    lib.pooled("layer_norm", out, 0, x, 0, 6, cols, weight, bias, 1, 1e-5, 0.0)
    close(out, centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * weight + bias)
    out[:] = x
    lib.pooled("l2_norm", out, 0, out, 0, 6, cols, 1e-6)
    close(out, x / np.sqrt((x.astype(np.float64) ** 2).sum(-1, keepdims=True) + 1e-6))


def _activations() -> dict[int, object]:
    from math import erf, sqrt

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    return {
        0: lambda x: x,
        1: lambda x: x * sigmoid(x),
        2: lambda x: 0.5 * x * (1 + np.vectorize(erf)(x / sqrt(2))),
        3: lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        4: lambda x: x * sigmoid(1.702 * x),
        5: lambda x: np.maximum(x, 0),
        6: lambda x: np.maximum(x, 0) ** 2,
        7: sigmoid,
        8: lambda x: np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20)))),
        9: np.tanh,
    }


@pytest.mark.parametrize("act", range(10))
def test_activations(lib: Library, rng: np.random.Generator, act: int) -> None:
    x = np.concatenate(
        (normal(rng, 100) * 4, np.linspace(-95, 95, 191), (0.0, -0.0, 1e-38, -1e-38, 0.624, 0.626))
    ).astype(np.float32)
    out, up, expected = (
        np.zeros_like(x),
        normal(rng, len(x)),
        _activations()[act](x.astype(np.float64)),
    )
    lib.pooled("act", out, x, len(x), act)
    close(out, expected, rtol=2e-6, atol=1e-6)
    lib.pooled("gated", out, 0, x, 0, up, 0, 1, len(x), act)
    close(out, expected * up, rtol=3e-6, atol=3e-6)
    hostile, result = np.array([np.nan, np.inf, -np.inf] * 9, np.float32), np.zeros(27, np.float32)
    lib.pooled("act", result, hostile, 27, act)
    assert np.isnan(result[::3]).all()
    assert (result[1::3] == (1 if act in (7, 9) else np.inf)).all()


def test_clamped_gates_apart_and_interleaved(lib: Library, rng: np.random.Generator) -> None:
    gate, up, out = normal(rng, 3, 21) * 8, normal(rng, 3, 21) * 8, np.zeros((3, 21), np.float32)
    g, u = np.minimum(gate, 7.0), np.clip(up, -7, 7)
    expected = (u + 1) * g / (1 + np.exp(-1.702 * g.astype(np.float64)))
    lib.pooled("clamped_gated", out, 0, gate, 0, up, 0, 3, 21, 1, 7.0, 1.702)
    close(out, expected)
    both = np.stack((gate, up), -1)
    out[:] = 0
    lib.pooled(
        "clamped_gated", out, 0, both, 0, both.reshape(3, 42)[:, 1:], 0, 3, 21, 2, 7.0, 1.702
    )
    close(out, expected)


def test_elementwise_operations(lib: Library, rng: np.random.Generator) -> None:
    x, y, out = normal(rng, 6, 37), normal(rng, 6, 37), np.zeros((6, 37), np.float32)
    lib.pooled("add", out, x, y, x.size)
    close(out, x + y)
    lib.pooled("add_row", out, x, y, 6, 37)
    close(out, x + y[0])
    lib.pooled("multiply", out, x, y, 6, 37, 6, 37)
    close(out, x * y)
    lib.pooled("multiply", out, x, y, 6, 37, 6, 1)
    close(out, x * y.ravel()[:6, None])
    lib.pooled("multiply", out, x, y, 6, 37, 3, 37)
    close(out, x * np.tile(y[:3], (2, 1)))
    lib.pooled("scale", out, x, x.size, 3.0, 0.5)
    close(out, x * 3 + 0.5)
    lib.pooled("softcap", out, x * 50, x.size, 30.0)
    close(out, 30 * np.tanh(x * 50 / 30))
    lib.pooled("clamp", out, x, x.size, -0.5, 0.25)
    close(out, np.clip(x, -0.5, 0.25))
    lib.pooled("softplus_bias", out, x, y, 6, 37, 0.5, 1.5)
    close(out, np.clip(np.log1p(np.exp(x + y[0])), 0.5, 1.5))
    lib.pooled("decay", out, x, y, 3, 2, 37)
    close(out, -np.exp(np.tile(y.ravel()[:2], 3))[:, None] * x)
    lib.pooled("bounded_decay", out, x, y, y, 3, 2, 37, -5.0)
    rates = np.exp(np.tile(y.ravel()[:2], 3))[:, None]
    close(out, -5 / (1 + np.exp(-rates * (x + np.tile(y[:2], (3, 1))))))
    lib.pooled("softmax", out, x, 6, 37)
    close(out, np.exp(x) / np.exp(x).sum(-1, keepdims=True))
    part = np.zeros((6, 10), np.float32)
    lib.pooled("copy_rows", part, 0, x[:, 5:], 37, 6, 10)
    assert (part == x[:, 5:15]).all()


def test_operations_of_many_elements_in_pieces(lib: Library, rng: np.random.Generator) -> None:
    x, weight = normal(rng, 300, 512), normal(rng, 512)
    out = np.zeros_like(x)
    lib.pooled("rms_norm", out, 0, x, 0, 300, 512, weight, 1, 1e-6, 0.0)
    close(out, x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight)
    lib.pooled("act", out, x, x.size, 5)
    assert (out == np.maximum(x, 0)).all()


@pytest.mark.parametrize("interleaved", (0, 1))
@pytest.mark.parametrize("half", (3, 16, 24))
def test_rope(lib: Library, rng: np.random.Generator, half: int, interleaved: int) -> None:
    n, heads, head_dim = 5, 3, 50
    x, positions = normal(rng, n, heads, head_dim), np.array([0, 7, 1, 4095, 131071], np.int32)
    frequencies = (10000.0 ** -(np.arange(half) / half)).astype(np.float32)
    cos, sin = np.zeros((n, half), np.float32), np.zeros((n, half), np.float32)
    lib("rope_tables", cos, sin, positions, n, frequencies, half, 1.25, -1.0)
    angles = positions[:, None].astype(np.float32) * frequencies
    close(cos, np.cos(angles.astype(np.float64)) * 1.25, atol=1e-6)
    close(sin, np.sin(angles.astype(np.float64)) * -1.25, atol=1e-6)
    first = np.arange(half) * 2 if interleaved else np.arange(half)
    second = first + (1 if interleaved else half)
    expected = x.copy()
    c, s = cos[:, None], sin[:, None]
    expected[..., first] = x[..., first] * c - x[..., second] * s
    expected[..., second] = x[..., second] * c + x[..., first] * s
    out = np.zeros_like(x)
    lib.pooled("rope", out, 0, x, 0, n, heads, head_dim, half, interleaved, cos, sin)
    close(out, expected)
    lib.pooled("rope", x, 0, x, 0, n, heads, head_dim, half, interleaved, cos, sin)
    assert (x == out).all()


# Attention


def stored_cache(x: np.ndarray, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """The cache's array and the values in it."""
    if kind == F32:
        return x, x
    if kind == F16:
        return x.astype(np.float16), x.astype(np.float16).astype(np.float32)
    return (as_bf16(x).view(np.uint32) >> 16).astype(np.uint16), as_bf16(x)


@pytest.mark.parametrize("kind", (F32, BF16, F16), ids=TYPES.get)
def test_cache_rows_are_rounded_to_nearest_even(
    lib: Library, rng: np.random.Generator, kind: int
) -> None:
    ties = np.array(
        [
            1 + 2**-8,
            1 + 3 * 2**-8,
            1 + 2**-11,
            1 + 3 * 2**-11,
            65519.0,
            65520.0,
            1e30,
            -1e30,
            6e-8,
            2.0**-25,
            np.inf,
            -np.inf,
            0,
            -0.0,
        ]
    )
    x = np.concatenate((normal(rng, 50) * 100, normal(rng, 50) * 1e-6, ties)).astype(np.float32)[
        None
    ]
    out = np.zeros(x.shape, np.float32 if kind == F32 else np.uint16)
    lib.pooled("store_rows", out, kind, x.shape[1], x, 0, 1, x.shape[1])
    with np.errstate(over="ignore"):
        expected = {
            F32: x,
            F16: x.astype(np.float16).view(np.uint16),
            BF16: (as_bf16(x).view(np.uint32) >> 16).astype(np.uint16),
        }[kind]
    assert (out == expected).all()
    nan = np.full((1, 20), np.nan, np.float32)
    lib.pooled("store_rows", out, kind, 20, nan, 0, 1, 20)
    found = out[0, :20]
    assert np.isnan(
        found
        if kind == F32
        else found.view(np.float16)
        if kind == F16
        else (found.astype(np.uint32) << 16).view(np.float32)
    ).all()


ATTENTION = {
    "plain": {},
    "window": {"window": 5},
    "chunk": {"chunk": 7},
    "softcap": {"softcap": 2.0},
    "sinks": {"sinks": True},
    "alibi": {"slopes": True},
    "padding": {"start": True},
    "padding_window_sinks": {"start": True, "window": 4, "sinks": True},
    "padding_chunk": {"start": True, "chunk": 5},
    "not_causal": {"causal": 0},
    "selected": {"selected": 6},
    "distance_bias": {"distances": 4},
    "latent": {"latent": True},
}


@each("kind", (F32, BF16, F16), ids=TYPES.get)
@each("case", ATTENTION)
def test_attention(lib: Library, rng: np.random.Generator, case: str, kind: int) -> None:
    options = ATTENTION[case]
    for past, tokens in ((0, 1), (0, 19), (11, 1), (30, 37), (1300, 1)):
        if case == "padding" and past == 0 and tokens == 1:
            continue
        batch, heads, kv_heads, k_dim, v_dim = 2, 6, 2, 24, 20
        if "latent" in options:
            kv_heads = 1
        total = past + tokens
        q = normal(rng, batch, tokens, heads, k_dim)
        k, k_values = stored_cache(normal(rng, batch, total + 3, kv_heads, k_dim), kind)
        v, v_values = stored_cache(normal(rng, batch, total + 3, kv_heads, v_dim), kind)
        if "latent" in options:
            v, v_values = k, k_values[..., :v_dim]
        out = np.full((batch, tokens, heads, v_dim), np.nan, np.float32)
        a = Attention(
            pointer(out),
            pointer(q),
            pointer(k),
            pointer(v),
            type=kind,
            batch=batch,
            tokens=tokens,
            heads=heads,
            kv_heads=kv_heads,
        )
        a.k_dim, a.v_dim, a.past, a.scale, a.causal = (
            k_dim,
            v_dim,
            past,
            0.3,
            options.get("causal", 1),
        )
        a.k_batch, a.k_token, a.k_head = (total + 3) * kv_heads * k_dim, kv_heads * k_dim, k_dim
        a.v_batch, a.v_token, a.v_head = (
            (total + 3) * kv_heads * v.shape[-1],
            kv_heads * v.shape[-1],
            v.shape[-1],
        )
        query, key = past + np.arange(tokens)[:, None], np.arange(total)[None]
        start = (
            np.array([0, min(3, total - 1)], np.int32)
            if "start" in options
            else np.zeros(2, np.int32)
        )
        seen = np.broadcast_to((key <= query) | (a.causal == 0), (batch, tokens, total)).copy()
        seen &= key >= start[:, None, None]
        seen &= query >= start[:, None, None]
        if "start" in options:
            a.start = pointer(start)
        if "window" in options:
            a.window = options["window"]
            seen &= query - key < a.window
        if "chunk" in options:
            a.chunk = options["chunk"]
            seen &= (query - start[:, None, None]) // a.chunk == (
                key - start[:, None, None]
            ) // a.chunk
        scores = (
            np.einsum(
                "btgrd,bsgd->bgrts",
                q.reshape(batch, tokens, kv_heads, -1, k_dim),
                k_values[:, :total],
            ).astype(np.float64)
            * 0.3
        )
        scores = scores.reshape(batch, heads, tokens, total)
        sinks, slopes = normal(rng, heads), rng.uniform(0, 1, heads).astype(np.float32)
        if "softcap" in options:
            a.softcap = options["softcap"]
            scores = a.softcap * np.tanh(scores / a.softcap)
        if "slopes" in options:
            a.slopes = pointer(slopes)
            scores = scores + slopes[:, None, None] * (key - query)
        if "distances" in options:
            bias = normal(rng, batch, tokens, heads, options["distances"])
            a.distance_bias, a.num_distances = pointer(bias), options["distances"]
            for d in range(options["distances"]):
                near = np.broadcast_to(query - key == d, scores.shape)
                scores = scores + np.where(near, bias[..., d].transpose(0, 2, 1)[..., None], 0)
        if "selected" in options:
            width = min(options["selected"], total)
            selected = np.stack(
                [[rng.permutation(total)[:width] for _ in range(tokens)] for _ in range(batch)]
            ).astype(np.int32)
            selected[..., -1] = -1
            a.selected, a.num_selected = pointer(selected), width
            seen &= (key[..., None] == selected[:, :, None]).any(-1)
        scores = np.where(seen[:, None], scores, -np.inf)
        if "sinks" in options:
            a.sinks = pointer(sinks)
        largest = np.maximum(scores.max(-1, keepdims=True), -50)
        weights = np.exp(scores - largest)
        sums = weights.sum(-1, keepdims=True) + (
            np.exp(sinks[:, None, None] - largest) if "sinks" in options else 0
        )
        weights = np.where(
            seen.any(-1)[:, None, :, None], weights / np.where(sums == 0, 1, sums), 0
        )
        expected = np.einsum(
            "bgrts,bsgd->btgrd",
            weights.reshape(batch, kv_heads, -1, tokens, total),
            v_values[:, :total],
        )
        lib.pooled("attention", a)
        close(out, expected.reshape(out.shape), atol=1e-5)


def test_attention_to_a_ring_of_keys(lib: Library, rng: np.random.Generator) -> None:
    window, ring, dim = 6, 8, 16
    keys, values = normal(rng, 40, dim), normal(rng, 40, dim)
    for query in (0, 3, 8, 15, 39):
        k, v = np.zeros((ring, dim), np.float32), np.zeros((ring, dim), np.float32)
        for j in range(query + 1):
            k[j % ring], v[j % ring] = keys[j], values[j]
        q, out = normal(rng, dim), np.zeros(dim, np.float32)
        a = Attention(
            pointer(out),
            pointer(q),
            pointer(k),
            pointer(v),
            type=F32,
            batch=1,
            tokens=1,
            heads=1,
            kv_heads=1,
            k_dim=dim,
            v_dim=dim,
        )
        a.k_token = a.v_token = a.k_head = a.v_head = a.k_batch = a.v_batch = dim
        a.past, a.ring, a.window, a.causal, a.scale = query, ring, window, 1, 0.25
        lib.pooled("attention", a)
        seen = slice(max(0, query - window + 1), query + 1)
        weights = np.exp(keys[seen] @ q * 0.25)
        close(out, weights / weights.sum() @ values[seen])


def test_attention_propagates_nan_of_a_visible_key_only(
    lib: Library, rng: np.random.Generator
) -> None:
    k, q = normal(rng, 12, 16), normal(rng, 12, 16)
    k[5] = np.nan
    out = np.zeros((12, 16), np.float32)
    a = Attention(
        pointer(out),
        pointer(q),
        pointer(k),
        pointer(q),
        type=F32,
        batch=1,
        tokens=12,
        heads=1,
        kv_heads=1,
        k_dim=16,
        v_dim=16,
    )
    a.k_token = a.v_token = a.k_head = a.v_head = a.k_batch = a.v_batch = 16
    a.causal, a.scale = 1, 0.25
    lib.pooled("attention", a)
    assert np.isfinite(out[:5]).all() and np.isnan(out[5:]).all()


# Recurrences


def test_causal_convolution_with_state_and_padding(lib: Library, rng: np.random.Generator) -> None:
    batch, channels, taps = 2, 37, 4
    weight, bias, x = (
        normal(rng, channels, taps),
        normal(rng, channels),
        normal(rng, batch, 9, channels),
    )
    pad = np.array([0, 2], np.int32)
    x[1, :2] = np.nan  # padding is not read
    clean = np.where(np.arange(9)[:, None] < pad[:, None, None], 0, x)
    before = np.concatenate((np.zeros((batch, taps - 1, channels)), clean), 1)
    expected = bias + sum(before[:, j : j + 9] * weight[:, j] for j in range(taps))
    expected = expected / (1 + np.exp(-expected))
    expected[1, :2] = 0
    state, parts = np.zeros((batch, taps - 1, channels), np.float32), []
    for first, last, padding in ((0, 6, pad), (6, 7, None), (7, 9, None)):
        part = np.ascontiguousarray(x[:, first:last])
        out = np.zeros_like(part)
        lib.pooled(
            "causal_conv",
            out,
            0,
            part,
            0,
            state,
            weight,
            bias,
            batch,
            last - first,
            channels,
            taps,
            1,
            padding,
        )
        parts.append(out)
    close(np.concatenate(parts, 1), expected)
    close(state, clean[:, -3:])


@pytest.mark.parametrize("by_row", (0, 1))
def test_gated_delta_rule_in_chunks(lib: Library, rng: np.random.Generator, by_row: int) -> None:
    batch, tokens, heads, groups, n, m = 2, 7, 4, 2, 19, 21
    q, k, v = (
        normal(rng, batch, tokens, groups, n),
        normal(rng, batch, tokens, groups, n) * 0.3,
        normal(rng, batch, tokens, heads, m),
    )
    g = -np.abs(normal(rng, batch, tokens, heads, *([n] if by_row else [])))
    beta, pad = (
        rng.uniform(0, 1, (batch, tokens, heads)).astype(np.float32),
        np.array([0, 2], np.int32),
    )
    state, expected = np.zeros((batch, heads, n, m)), np.zeros((batch, tokens, heads, m))
    for b in range(batch):
        for t in range(pad[b], tokens):
            for h in range(heads):
                key, query = k[b, t, h // 2], q[b, t, h // 2]
                s = state[b, h] * np.exp(g[b, t, h]).reshape(-1, 1)
                s = s + np.outer(key, beta[b, t, h] * (v[b, t, h] - s.T @ key))
                state[b, h], expected[b, t, h] = s, s.T @ query
    found_state, parts = np.zeros((batch, heads, n, m), np.float32), []
    for part in (slice(0, 4), slice(4, 5), slice(5, 7)):
        xs = [np.ascontiguousarray(y[:, part]) for y in (q, k, v, g, beta)]
        out = np.full(xs[2].shape, np.nan, np.float32)
        r = DeltaRule(
            pointer(out),
            *map(pointer, xs),
            pointer(found_state),
            batch=batch,
            tokens=out.shape[1],
            heads=heads,
            groups=groups,
            n=n,
            m=m,
        )
        r.decay_per_row, r.pad = by_row, pointer(pad) if part.start == 0 else None
        lib.pooled("gated_delta_rule", r)
        parts.append(out)
    close(np.concatenate(parts, 1), expected)
    close(found_state, state)


def test_state_space_scan_in_chunks(lib: Library, rng: np.random.Generator) -> None:
    batch, tokens, heads, groups, m, n = 2, 6, 4, 2, 5, 23
    x, dt = (
        normal(rng, batch, tokens, heads, m),
        rng.uniform(0, 1, (batch, tokens, heads)).astype(np.float32),
    )
    b, c = normal(rng, batch, tokens, groups, n), normal(rng, batch, tokens, groups, n)
    a_log, skip, pad = normal(rng, heads), normal(rng, heads), np.array([1, 0], np.int32)
    state, expected = np.zeros((batch, heads, m, n)), np.zeros((batch, tokens, heads, m))
    for s in range(batch):
        for t in range(pad[s], tokens):
            for h in range(heads):
                decay = np.exp(-np.exp(a_log[h]) * dt[s, t, h])
                state[s, h] = decay * state[s, h] + dt[s, t, h] * np.outer(
                    x[s, t, h], b[s, t, h // 2]
                )
                expected[s, t, h] = state[s, h] @ c[s, t, h // 2] + skip[h] * x[s, t, h]
    found_state, parts = np.zeros(state.shape, np.float32), []
    for part in (slice(0, 4), slice(4, 6)):
        xs = [np.ascontiguousarray(y[:, part]) for y in (x, b, c, dt)]
        out = np.full(xs[0].shape, np.nan, np.float32)
        r = StateScan(
            pointer(out),
            *map(pointer, (*xs, a_log, skip, found_state)),
            batch=batch,
            tokens=out.shape[1],
        )
        r.heads, r.groups, r.m, r.n, r.pad = (
            heads,
            groups,
            m,
            n,
            pointer(pad) if part.start == 0 else None,
        )
        lib.pooled("ssm_scan", r)
        parts.append(out)
    close(np.concatenate(parts, 1), expected)
    close(found_state, state)


def test_selective_scan_in_chunks(lib: Library, rng: np.random.Generator) -> None:
    batch, tokens, channels, n = 2, 6, 45, 11
    x, dt = (
        normal(rng, batch, tokens, channels),
        rng.uniform(0, 1, (batch, tokens, channels)).astype(np.float32),
    )
    b, c, a_log, skip = (
        normal(rng, batch, tokens, n),
        normal(rng, batch, tokens, n),
        normal(rng, channels, n),
        normal(rng, channels),
    )
    state, expected = np.zeros((batch, channels, n)), np.zeros((batch, tokens, channels))
    for t in range(tokens):
        decay = np.exp(-np.exp(a_log) * dt[:, t, :, None])
        state = decay * state + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
        expected[:, t] = (state * c[:, t, None]).sum(-1) + skip * x[:, t]
    found_state, parts = np.zeros(state.shape, np.float32), []
    for part in (slice(0, 1), slice(1, 6)):
        xs = [np.ascontiguousarray(y[:, part]) for y in (x, b, c, dt)]
        out = np.full(xs[0].shape, np.nan, np.float32)
        r = StateScan(
            pointer(out),
            *map(pointer, (*xs, a_log, skip, found_state)),
            batch=batch,
            tokens=out.shape[1],
        )
        r.heads, r.groups, r.m, r.n = channels, 1, 1, n
        lib.pooled("selective_scan", r)
        parts.append(out)
    close(np.concatenate(parts, 1), expected)
    close(found_state, state)


# Choices


def route(lib: Library, logits: np.ndarray, **fields: object) -> tuple[np.ndarray, np.ndarray]:
    r = Route(num_experts=logits.shape[1], scaling=1.0, **fields)
    chosen, weights = (
        np.zeros((len(logits), r.top_k), np.int32),
        np.zeros((len(logits), r.top_k), np.float32),
    )
    lib.pooled("route", chosen, weights, logits, len(logits), r)
    return chosen, weights


def test_routing(library: Library, rng: np.random.Generator) -> None:
    logits, correction = normal(rng, 5, 12), normal(rng, 12)
    softmax = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    chosen, weights = route(library, logits, top_k=3, normalize=1)
    expected = np.argsort(-logits, -1, kind="stable")[:, :3]
    assert (chosen == expected).all()
    picked = np.take_along_axis(softmax, expected, 1)
    close(weights, picked / picked.sum(-1, keepdims=True))
    sigmoid = 1 / (1 + np.exp(-logits))
    chosen, weights = route(
        library,
        logits,
        top_k=4,
        scoring=1,
        correction=pointer(correction),
        groups=4,
        kept_groups=2,
        best_of_group=2,
        other=0.0,
    )
    ranked = sigmoid + correction
    grouped = np.sort(ranked.reshape(5, 4, 3), -1)[..., -2:].sum(-1)
    kept = np.argsort(-grouped, -1)[:, :2]
    masked = np.where(
        (np.arange(12)[None] // 3)[..., None] == kept[:, None], ranked[..., None], 0
    ).sum(-1)
    assert (chosen == np.argsort(-masked, -1, kind="stable")[:, :4]).all()
    close(weights, np.take_along_axis(sigmoid, chosen, 1))
    equal, _ = route(library, np.zeros((1, 6), np.float32), top_k=4)
    assert equal.tolist() == [[0, 1, 2, 3]]
    hostile, _ = route(library, np.full((1, 6), np.nan, np.float32), top_k=3)
    assert (
        sorted(set(hostile[0])) == sorted(hostile[0]) and hostile.min() >= 0 and hostile.max() < 6
    )


def test_first_nonfinite_and_argmax(lib: Library, rng: np.random.Generator) -> None:
    x = normal(rng, 5000)
    assert lib.pooled("first_nonfinite", x, 5000) == -1
    assert lib.pooled("argmax", x, 5000) == x.argmax()
    x[[100, 4000]] = 99
    assert lib.pooled("argmax", x, 5000) == 100
    for at, bad in ((4999, np.nan), (1234, np.inf), (7, -np.inf)):
        x[at] = bad
        assert lib.pooled("first_nonfinite", x, 5000) == at
        assert lib.pooled("first_nonfinite", x, at) == -1
    assert lib.pooled("argmax", x, 5000) == 4999
    assert lib.pooled("argmax", np.full(70, -np.inf, np.float32), 70) == 0


def sample(
    lib: Library, logits: np.ndarray, u: float, used: np.ndarray | None = None, **fields: float
) -> int:
    s = Sampling(
        **{
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            **fields,
        }
    )
    from ctypes import c_double

    return lib.pooled("sample", logits, len(logits), s, used, c_double(u))


def test_sampling_equals_that_of_the_torch_engine(
    library: Library, rng: np.random.Generator
) -> None:
    torch = pytest.importorskip("torch")
    from llamath.torch import sampling as reference

    for options in (
        {},
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
        {"temperature": 0.0},
        {"repetition_penalty": 1.5, "top_p": 0.5},
    ):
        for vocab in (7, 400, 3000):
            logits, used = normal(rng, vocab) * 3, (rng.uniform(size=vocab) < 0.3).astype(np.uint8)
            parameters = reference.Sampling(**{"temperature": 1.0, **options})
            y = torch.tensor(logits)[None]
            if parameters.repetition_penalty != 1:
                y = reference.apply_repetition_penalty(
                    y, torch.tensor(used).bool()[None], parameters.repetition_penalty
                )
            for u in (0.0, 0.1, 0.5, 0.77, 0.999):
                if parameters.greedy:
                    expected = int(y.argmax())
                else:
                    expected = int(
                        reference.sample(
                            reference.filter_logits(y, parameters),
                            torch.tensor([[u]], dtype=torch.float64),
                        )[0]
                    )
                assert (
                    sample(
                        library,
                        logits,
                        u,
                        used if "repetition_penalty" in options else None,
                        **options,
                    )
                    == expected
                )


def test_sampling_refuses_logits_that_are_not_finite(library: Library) -> None:
    for bad in (np.nan, np.inf):
        logits = np.zeros(50, np.float32)
        logits[20] = bad
        assert sample(library, logits, 0.5) == -1
        assert sample(library, logits, 0.5, temperature=0.0) == -1
    assert sample(library, np.full(50, -np.inf, np.float32), 0.5) == -1


def test_random_numbers_are_those_of_philox(library: Library) -> None:
    from ctypes import c_uint64

    def uniform(seed: int, row: int, step: int) -> float:
        return library("uniform", c_uint64(seed), c_uint64(row), c_uint64(step))

    # Random123's known answers of philox4x32-10: counter and key all zeros, and all ones
    assert uniform(0, 0, 0) == ((0x6627E8D5 << 32 | 0xE169C58D) >> 11) * 2.0**-53
    ones = 2**64 - 1
    assert uniform(ones, ones, ones) == ((0x408F276D << 32 | 0x41C83B0E) >> 11) * 2.0**-53
    streams = {
        (seed, row): tuple(uniform(seed, row, step) for step in range(4))
        for seed in range(8)
        for row in range(8)
    }
    assert len({x for stream in streams.values() for x in stream}) == 256
    values = np.array([uniform(5, 0, step) for step in range(4000)])
    assert values.min() >= 0 and values.max() < 1 and abs(values.mean() - 0.5) < 0.02


def test_top_logprobs(library: Library, rng: np.random.Generator) -> None:
    logits, ids, values = normal(rng, 1000), np.zeros(5, np.int32), np.zeros(5, np.float32)
    total = library.pooled("top_logprobs", logits, 1000, 5, ids, values)
    assert (ids == np.argsort(-logits, kind="stable")[:5]).all()
    close(total, np.log(np.exp(logits.astype(np.float64)).sum()))
    close(values, logits[ids] - total)


# The pool


def _long_product(
    library: Library, rng: np.random.Generator
) -> tuple[Product, np.ndarray, np.ndarray, list[np.ndarray]]:
    w, x = normal(rng, 512, 1024), normal(rng, 64, 1024)
    out = np.zeros((64, 512), np.float32)
    return Product(matrix(w, F32, 1024), pointer(out)), x, out, [w]


def test_results_do_not_depend_on_threads(library: Library, rng: np.random.Generator) -> None:
    product, x, out, kept = _long_product(library, rng)
    results = []
    for threads in (1, 2, 5):
        pool = library("pool_create", threads)
        assert library("pool_threads", PTR(pool)) == threads
        for n in (1, 64):
            library("matmul", PTR(pool), product, 1, x, 0, n, EXACT)
            results.append((n, out[:n].tobytes()))
        library("pool_wait", PTR(pool))
        library("pool_destroy", PTR(pool))
    assert len(set(results)) == 2 and kept


def test_many_calls_in_a_row_stay_correct_and_small(
    library: Library, rng: np.random.Generator
) -> None:
    small, x, out = normal(rng, 33, 20), normal(rng, 2, 20), np.zeros((2, 33), np.float32)
    product, big_x, _, kept = _long_product(library, rng)
    library.pooled("matmul", product, 1, big_x, 0, 64, EXACT)
    size = library.pooled("pool_scratch")
    for i in range(3000):
        x[:] = i % 7
        library.pooled("matmul", Product(matrix(small, F32, 20), pointer(out)), 1, x, 0, 2, FAST)
        if i % 50 == 0:
            library.pooled("matmul", product, 1, big_x, 0, 64, EXACT)
        np.testing.assert_allclose(out[0], small.sum(1) * (i % 7), atol=1e-3)
    assert library.pooled("pool_scratch") <= 2 * size and kept


def test_reading_all_bytes(library: Library, rng: np.random.Generator) -> None:
    words = rng.integers(0, 2**63, 100_003, dtype=np.uint64)
    assert library.pooled("read", words, words.nbytes) == int(words.sum())


def test_cancelled_calls_return_at_once(library: Library, rng: np.random.Generator) -> None:
    product, x, out, kept = _long_product(library, rng)
    library.pooled("pool_cancel")
    assert library.pooled("pool_cancelled") == 1
    library.pooled("matmul", product, 1, x, 0, 64, EXACT)
    assert (out == 0).all()  # no piece was computed
    library.pooled("pool_resume")
    library.pooled("matmul", product, 1, x, 0, 64, EXACT)
    close(out, x @ kept[0].T, atol=1e-3)


def test_cancel_from_another_thread_ends_a_long_series(
    library: Library, rng: np.random.Generator
) -> None:
    product, x, _, kept = _long_product(library, rng)
    timer = threading.Timer(0.05, library.pooled, ("pool_cancel",))
    timer.start()
    calls = 0
    while not library.pooled("pool_cancelled"):
        library.pooled("matmul", product, 1, x, 0, 64, EXACT)
        calls += 1
        assert calls < 10**6
    timer.join()
    library.pooled("pool_resume")
    assert kept


@pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork is not available")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_computes_with_its_own_threads(
    library: Library, rng: np.random.Generator
) -> None:
    product, x, out, kept = _long_product(library, rng)
    library.pooled("matmul", product, 1, x, 0, 64, EXACT)
    expected = out.copy()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        out[:] = 0
        library.pooled("matmul", product, 1, x, 0, 64, EXACT)
        os._exit(0 if (out == expected).all() else 1)
    assert os.waitpid(child, 0)[1] == 0 and kept
    library.pooled("matmul", product, 1, x, 0, 64, EXACT)
    assert (out == expected).all()


def test_helpers_do_not_take_signals(library: Library, rng: np.random.Generator) -> None:
    product, x, _, kept = _long_product(library, rng)
    library.pooled("matmul", product, 1, x, 0, 64, EXACT)
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.get_ident()))
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        library.pooled("matmul", product, 1, x, 0, 64, EXACT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [threading.main_thread().ident] and kept
