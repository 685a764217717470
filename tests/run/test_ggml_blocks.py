"""Dequantized ggml blocks equal the gguf package's bit by bit, for random bytes and for its own quantization."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.run.weights.ggml_blocks import DEQUANTIZERS, dequantize_blocks


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("kind", DEQUANTIZERS)
def test_random_blocks_match_the_gguf_package(kind: str) -> None:
    data = np.random.default_rng(0).integers(0, 256, (512, DTYPES[kind].bytes), dtype=np.uint8)
    theirs = gguf.dequantize(data, gguf.GGMLQuantizationType[kind])
    ours = dequantize_blocks(torch.from_numpy(data.reshape(-1)), kind)
    assert np.array_equal(ours.numpy(), theirs.reshape(-1), equal_nan=True)
