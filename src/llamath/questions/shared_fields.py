"""The fields that several questions have: context, batch, dtypes, GPUs, images."""

from __future__ import annotations

import os
from typing import Any

from .settings import ask
from .value_kinds import GPU_NAMES, TOKENS, Kind, integer, text

_WEIGHT_DTYPES = (
    *("fp32", "bf16", "fp16", "fp8", "int8", "bnb-int8", "bnb-nf4", "bnb-nf4-dq"),
    *("awq", "gptq", "mxfp4", "nvfp4"),
    *("q2_k", "q3_k_m", "q4_0", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "iq2_xs", "iq3_xs", "iq4_xs"),
)
"""Weight dtypes that shell completion offers; more spellings are accepted."""
_KV_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "q8_0", "q5_1", "q4_0")

WEIGHT_DTYPE = text("bf16", words=_WEIGHT_DTYPES)


def _read_file_name(value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ValueError
    return os.fspath(value)


FILE_NAME = Kind(
    _read_file_name,
    expected="the path of a file",
    annotation="str | os.PathLike[str]",
    metavar="FILE",
)
MODEL_NAME: Kind[Any] = Kind(
    lambda value: value, expected="a model", annotation="Source", metavar="MODEL"
)
"""A model, or what `load` makes one of."""
CONTEXT_TOKENS = TOKENS.or_word("max")
IMAGES_TEXT = text("2x1024", "IMAGES")

CONTEXT = ask(CONTEXT_TOKENS, default=None, help="Tokens of each sequence: 8192, 128k, max.")
BATCH = ask(integer(), default=1, help="Number of sequences.")
DTYPE = ask(
    WEIGHT_DTYPE,
    default="",
    help="Dtype of the weights, if not the model's own: "
    "fp32, bf16, fp16, fp8, bnb-int8, bnb-nf4, awq, gptq, mxfp4, q4_k_m, iq3_xs, …",
)
KV_DTYPE = ask(
    text("bf16", words=_KV_DTYPES),
    default="",
    help="Dtype of the KV cache: bf16, fp8, int8, q8_0, q4_0, …",
)
IMAGES = ask(
    IMAGES_TEXT,
    default="",
    help="Images of each sequence, COUNTxSIDE or COUNTxWIDTHxHEIGHT in pixels: 2x1024.",
)
LIMITING_GPU = ask(
    GPU_NAMES,
    default=None,
    help="What fits on this GPU: the longest context, the largest batch. Names or 'mem=24GiB'.",
)
