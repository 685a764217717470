"""One parser for dtype names: every usual spelling names the same type."""

from __future__ import annotations

import pytest

from llamath.checkpoint.formats.dtypes import DTYPES, find_dtype, parse_dtype
from llamath.utils.errors import LlamathError

SPELLINGS = {
    "F64": "f64 fp64 float64 double torch.float64",
    "F32": "f32 fp32 float32 float torch.float32 FP32",
    "F16": "f16 fp16 float16 half torch.float16 torch.half F16",
    "BF16": "bf16 bfloat16 torch.bfloat16 BF16",
    "F8_E4M3": "fp8 float8 fp8_e4m3 torch.float8_e4m3fn F8_E4M3",
    "I8": "int8 i8 torch.int8",
    "Q4_K": "q4_k Q4_K",
}


@pytest.mark.parametrize(
    ("name", "spelling"), [(name, x) for name, texts in SPELLINGS.items() for x in texts.split()]
)
def test_every_spelling_names_the_same_type(name: str, spelling: str) -> None:
    assert parse_dtype(spelling) is DTYPES[name]


def test_canonical_and_short_names_parse_to_their_type() -> None:
    for dtype in DTYPES.values():
        assert find_dtype(dtype.name) is dtype
        assert find_dtype(dtype.short_name) is dtype


@pytest.mark.slow
def test_torch_dtypes_parse_to_the_same_names() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.int64,
    ):
        assert parse_dtype(str(dtype)).bytes == dtype.itemsize


def test_unknown_dtype_is_refused_with_a_suggestion() -> None:
    assert find_dtype("float17") is None
    with pytest.raises(LlamathError, match="unknown dtype 'bf17'") as caught:
        parse_dtype("bf17")
    assert "bf16" in caught.value.hint


def test_unsupported_dtype_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(LlamathError, match="dtype q4_k is not supported for computation") as caught:
        parse_dtype("q4_k", ("F32", "BF16"), "computation")
    assert caught.value.hint == "expected fp32, bf16"
