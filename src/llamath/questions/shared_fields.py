"""The fields that several questions have: context, batch, dtypes, GPUs, images."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

from .settings import ask
from .value_kinds import GPU_NAMES, TOKENS, Kind, choice, integer, text

if TYPE_CHECKING:
    from ..hardware import Device

_WEIGHT_DTYPES = (
    *("fp32", "bf16", "fp16", "fp8", "int8", "bnb-int8", "bnb-nf4", "bnb-nf4-dq"),
    *("awq", "gptq", "mxfp4", "nvfp4", "mlx-4bit"),
    *("q2_k", "q3_k_m", "q4_0", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "iq2_xs", "iq3_xs", "iq4_xs"),
)
"""Weight dtypes that shell completion offers; more spellings are accepted."""
_KV_DTYPES = ("fp32", "bf16", "fp16", "fp8", "int8", "q8_0", "q5_1", "q4_0")

WEIGHT_DTYPE = text("bf16", words=_WEIGHT_DTYPES)


class _GPUsOrFile(Kind["tuple[int, Device] | str"]):
    """GPUs, or the file of a machine."""

    def parse(self, argument: str, value: object) -> tuple[int, Device] | str:
        """Return the path of a file, or the GPUs."""
        if isinstance(value, os.PathLike):
            path: str = os.fspath(value)
            return path
        if isinstance(value, str) and names_file(value):
            return value
        return GPU_NAMES.parse(argument, value)


def names_file(gpus: str) -> bool:
    """Whether a text that stands for GPUs is the path of a file."""
    return gpus.endswith(".json") or ("/" in gpus and "=" not in gpus)


GPUS_OR_FILE = _GPUsOrFile(
    GPU_NAMES.read,
    expected=f"{GPU_NAMES.expected}, or the file of a machine",
    annotation="GPUs | os.PathLike[str]",
    metavar=GPU_NAMES.metavar,
    words=GPU_NAMES.words,
)
"""What reads a file must be refused where files are not to be read."""
MODEL_NAME: Kind[Any] = Kind(
    lambda value: value, expected="a model", annotation="Source", metavar="MODEL"
)
"""A model, or what `load` makes one of."""
CONTEXT_TOKENS = TOKENS.or_word("max")
IMAGES_TEXT = text("2x1024", "IMAGES")

CONTEXT = ask(CONTEXT_TOKENS, default=None, help="Tokens of each sequence: 8192, 128k, max.")
BATCH = ask(integer(), default=1, help="Number of sequences.")
PART: Literal["text", "main"] | None = ask(
    choice("text", "main"),
    default=None,
    help="text: without towers, as GGUF has them in a file of their own (mmproj); "
    "main: without MTP layers, too.",
)
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
