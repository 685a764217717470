"""GLM-5.3 Flash against the bytes of its published files."""

from __future__ import annotations

from math import ceil

import llamath
from llamath.core.tree import Folded, fold

FILES, PREDICTED = 328_326_771_576, 7_493_399_168
"""Bytes of all tensors, and of those that predict further tokens."""
IN_FP8 = ("attn.q_down.", "attn.q_up.", "attn.kv_down.", "attn.o.", "mlp.")
IN_FLOAT32 = ("mlp.correction", "attn.a_log", "attn.dt_bias")


def bytes_of(x: Folded) -> int:
    """The bytes of a weight in files: FP8 with a scale for each block of 128 by 128, float32 or BF16."""
    name = x.pattern.removeprefix("layers.{l}.")  # towers are in BF16
    if name.startswith(IN_FP8) and x.weight.role == "matmul" and "router" not in name:
        rows, columns = map(int, x.weight.shape)
        each = rows * columns + 4 * ceil(rows / 128) * ceil(columns / 128)
    else:
        in_float32 = name in IN_FLOAT32 or ("_hc." in name and x.weight.role != "matmul")
        each = int(x.weight.size) * (4 if in_float32 else 2)
    return each * int(x.copies)


def test_files_have_these_bytes() -> None:
    assert sum(map(bytes_of, fold(llamath.load("glm-5.3-flash").tree))) == FILES - PREDICTED
