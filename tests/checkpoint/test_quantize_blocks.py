"""Quantization to ggml's block types is bit-identical to llama.cpp's reference, and to the gguf package where it has the type."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.quantization.ggml_values import dequantize_ggml
from llamath.conversion.quantize_blocks import QUANTIZERS, quantize_blocks
from llamath.utils.errors import ConvertError
from support.each_case import each
from support.quantizer_inputs import quantizer_inputs

EXPECTED = json.loads((Path(__file__).parents[1] / "golden" / "ggml_quantized.json").read_text())[
    "sha256"
]
"""Written by tools/quantize_with_ggml.py with llama.cpp's library."""
INPUTS = dict(quantizer_inputs())


@each("name", INPUTS)
@each("kind", QUANTIZERS)
@pytest.mark.slow
def test_blocks_equal_those_of_llama_cpp(kind: str, name: str) -> None:
    assert (
        hashlib.sha256(quantize_blocks(INPUTS[name].tobytes(), kind)).hexdigest()
        == EXPECTED[kind][name]
    )


def test_every_type_and_input_has_an_expected_digest() -> None:
    assert {kind: list(names) for kind, names in EXPECTED.items()} == {
        key: list(INPUTS) for key in QUANTIZERS
    }


@each("kind", ["Q8_0", "Q4_0", "Q5_0", "Q5_1"])
@each("name", [x for x in INPUTS if not x.startswith(("negative zeros", "sparse, signed"))])
@pytest.mark.slow
def test_blocks_equal_those_of_the_gguf_package(name: str, kind: str) -> None:
    """Scales and minimums of blocks with −0 have another sign in the gguf package: ours is llama.cpp's."""
    theirs = gguf.quantize(INPUTS[name], gguf.GGMLQuantizationType[kind])
    assert quantize_blocks(INPUTS[name].tobytes(), kind) == theirs.tobytes()


@pytest.mark.parametrize("kind", QUANTIZERS)
def test_blocks_are_quantized_independently(kind: str) -> None:
    values = INPUTS["mixed 384"]
    size = 4 * DTYPES[kind].block
    pieces = [
        quantize_blocks(values[i : i + size].tobytes(), kind) for i in range(0, 40 * size, size)
    ]
    assert b"".join(pieces) == quantize_blocks(values[: 40 * size].tobytes(), kind)


@pytest.mark.parametrize(
    ("kind", "levels"),
    [
        ("Q8_0", 127),
        ("Q4_0", 8),
        ("Q5_0", 16),
        ("Q5_1", 16),
        ("Q4_K", 8),
        ("Q5_K", 16),
        ("Q6_K", 32),
    ],
)
def test_dequantized_values_are_near(kind: str, levels: int) -> None:
    values = INPUTS["uniform 384"].reshape(-1, DTYPES[kind].block)
    found = dequantize_ggml(quantize_blocks(values.tobytes(), kind), kind).reshape(values.shape)
    assert (np.abs(found - values).max(1) <= 1.1 * np.abs(values).max(1) / levels).all()


@pytest.mark.parametrize("kind", QUANTIZERS)
@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"), (3e38, "too large")],
)
def test_numbers_without_a_representation_are_refused(
    value: float, message: str, kind: str
) -> None:
    values = np.ones(256, np.float32)
    values[7] = value
    with pytest.raises(ConvertError, match=message):
        quantize_blocks(values.tobytes(), kind)
