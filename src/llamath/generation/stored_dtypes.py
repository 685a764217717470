"""The dtypes in which the weights of a checkpoint are stored, and whether they can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..analysis.check.verify.verified_checkpoint import VerifiedCheckpoint
from ..checkpoint.naming.stored_layouts import group_by_stored_name
from ..checkpoint.quantization.dequantizers import why_not_dequantized
from ..checkpoint.quantization.ggml_values import GGML_DECODERS
from ..checkpoint.quantization.packed_tensors import Packing, packed_weights
from ..utils.errors import LlamathError, safe

FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")


def reject_unreadable(
    path: str, packings: Mapping[str, Packing], config: Mapping[str, Any]
) -> None:
    """Raise an error that names the first quantization scheme that cannot be dequantized."""
    for x in packed_weights(packings).values():
        if x.kind != "ggml" and (problem := why_not_dequantized(x, config)):
            hint = "use the checkpoint it was quantized from, or a GGUF file"
            raise LlamathError(
                f"{safe(path)}: quantization scheme {safe(x.kind, 40)} ({safe(x.name)}) is not "
                f"supported: {problem}",
                hint=hint,
            )


def check_readable(checkpoint: VerifiedCheckpoint) -> None:
    """Raise an error for dtypes and quantization schemes that cannot be read."""
    stored = checkpoint.stored
    reject_unreadable(checkpoint.path, stored.packings, stored.quantization)
    packed = {x.weight for x in stored.packings.values() if x.kind != "ggml"}
    for name, leaves in group_by_stored_name(checkpoint.model.tree, checkpoint.scheme).items():
        allowed = (*FLOAT_DTYPES, *GGML_DECODERS, leaves[0].weight.dtype)
        if name not in packed and (dtype := stored.tensors[name].dtype) not in allowed:
            known = ", ".join((*FLOAT_DTYPES, *GGML_DECODERS))
            raise LlamathError(
                f"{safe(checkpoint.path)}: {safe(name)} has the unsupported dtype {dtype}",
                hint=f"supported: {known}",
            )


def count_dtypes(checkpoint: VerifiedCheckpoint) -> Counter[str]:
    """Count the stored values by dtype or quantization scheme."""
    counts: Counter[str] = Counter()
    stored = checkpoint.stored
    packed = {
        x.weight: x for x in stored.packings.values() if x.role == "values" and x.kind != "ggml"
    }
    for name in group_by_stored_name(checkpoint.model.tree, checkpoint.scheme):
        if name in packed:
            counts[packed[name].kind] += packed[name].elements
        else:
            counts[stored.tensors[name].dtype] += sum(
                x.elements for x in stored.tensors[name].parts
            )
    return counts
