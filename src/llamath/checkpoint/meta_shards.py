"""Merge Meta's sharded checkpoints (`consolidated.NN.pth`, one file per model-parallel rank); the
shapes show the axis.

llama's `model.py` splits wq, wk, wv, w1, w3 and output by rows, wo and w2 by columns (fairscale's
column- and row-parallel layers), tok_embeddings by columns (Llama 1 and 2: ParallelEmbedding) or by
rows (Llama 3: VocabParallelEmbedding); every file has the norms. With more files than key/value
heads, neighboring files repeat the same head (llama-models, `checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..utils.errors import ConvertError, safe
from .formats.manifest import Tensor
from .naming.scheme import Scheme
from .tensor_reader import MergedTensor, TensorReader, have_equal_values

Shape = tuple[int, ...]


class _InferredValue(NamedTuple):
    """A configuration value inferred from the tensors, and a note about it."""

    value: Any
    note: str


def merged_vocab_size(tensors: Mapping[str, list[Tensor]], embed: str, norm: str) -> int | None:
    """Return the rows of the merged embedding, which may be split along either axis; norms are
    not split, so they have the whole width.
    """
    parts, norms = tensors.get(embed, []), tensors.get(norm, [])
    if not parts or not norms or len(norms[0].shape) != 1 or any(len(x.shape) != 2 for x in parts):
        return None
    is_split_by_columns = parts[0].shape[1] != norms[0].shape[0]
    return parts[0].shape[0] if is_split_by_columns else sum(x.shape[0] for x in parts)


def infer_missing_config(
    data: Mapping[str, Any], scheme: Scheme, tensors: Mapping[str, list[Tensor]]
) -> dict[str, _InferredValue]:
    """Infer configuration values that `params.json` leaves out from Meta's tensors; `data` has
    its values under Hugging Face keys.
    """
    inferred: dict[str, _InferredValue] = {}
    head, embed = (tensors.get(scheme.stored_name(f"{x}.weight")) for x in ("head", "embed"))
    if embed is not None and (
        head is None
        or [(x.file, x.start, x.shape) for x in head] == [(x.file, x.start, x.shape) for x in embed]
    ):
        inferred["tie_word_embeddings"] = _InferredValue(
            True, "embedding and output share one matrix"
        )
    context = _trained_context(data)
    note = f"max_position_embeddings is not in params.json; using {context:,}"
    inferred["max_position_embeddings"] = _InferredValue(context, note)
    return inferred


def _trained_context(data: Mapping[str, Any]) -> int:
    """Return the context length that Meta's models were trained with, which RoPE's base and the
    norms' epsilon identify.
    """
    theta = data.get("rope_theta", 10000.0)
    if theta > 10000.0:
        return 131072 if data.get("rope_scaling") else 16384 if theta == 1e6 else 8192
    return 2048 if data.get("rms_norm_eps") == 1e-6 else 4096


def merge_tensor(name: str, parts: list[Tensor], expected: Shape | None) -> MergedTensor:
    """Merge the parts of a tensor; where their shapes do not add up to the expected one, return
    the first part for `verify` to report.
    """
    first = parts[0]
    unmerged = MergedTensor(name, first.dtype, first.shape, (first,))
    if (
        len(parts) == 1
        or expected is None
        or any((x.shape, x.dtype) != (first.shape, first.dtype) for x in parts)
    ):
        return unmerged
    if first.shape == expected:
        return unmerged._replace(parts=tuple(parts))
    n = len(parts)
    differ = [i for i, (a, b) in enumerate(zip(first.shape, expected, strict=False)) if a != b]
    if len(first.shape) != len(expected) or len(differ) != 1 or differ[0] > 1:
        return unmerged
    copies, remainder = divmod(first.shape[differ[0]] * n, expected[differ[0]])
    if remainder or n % copies or (copies > 1 and differ != [0]):
        return unmerged
    return MergedTensor(name, first.dtype, expected, tuple(parts), differ[0])


def drop_copies(tensor: MergedTensor, files: TensorReader) -> MergedTensor:
    """Return the tensor without parts that repeat another one; copies that differ are an error."""
    if len(tensor.parts) == 1:
        return tensor
    rows = sum(x.shape[0] for x in tensor.parts)
    copies = rows // tensor.shape[0] if tensor.axis == 0 else 1
    parts = [MergedTensor(tensor.name, x.dtype, x.shape, (x,)) for x in tensor.parts]
    for i, x in enumerate(parts):
        if i % copies and not have_equal_values(first := parts[i - i % copies], x, files):
            where = f"{files.file_name_of(first)} and {files.file_name_of(x)}"
            raise ConvertError(
                f"{safe(tensor.name)} should be equal in {where}, and differs",
                hint="these files do not belong to one checkpoint",
            )
    return tensor._replace(parts=tensor.parts[::copies])
