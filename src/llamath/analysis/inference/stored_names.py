"""`stored_names`: every tensor of a model as files of one format have it; of a quantized checkpoint with its dtype."""

from __future__ import annotations

from ...checkpoint.quantization.schemes import parse_weight_format
from ...checkpoint.quantization.weight_format import declared_weight_format
from ...model import Model
from ...utils.errors import LlamathError
from ..count.count_report import StoredNamesReport, StoredTensor, check_listable
from .quantized_tensors import quantized_tensors


def stored_names(model: Model, scheme: str, dtype: str = "") -> StoredNamesReport:
    """List the tensors of a model as files of one format have them; an empty `dtype` is the format that the config declares.

    A recipe in a config is that of HF files; it does not change the names in Meta and GGUF files.
    """
    check_listable(model)
    names = model.scheme(scheme)
    packer = parse_weight_format(dtype) if dtype else declared_weight_format(model.config.data) if scheme == "hf" else None
    kind = "" if packer is None else "gguf" if packer.gguf_file_type else "hf" if packer.is_packed else ""
    if dtype and packer is not None and kind and kind != scheme:
        raise LlamathError(f"{packer.name} is a format of {kind} files, not of {scheme} files", hint=f"--names {kind}")
    if packer is not None and kind:
        found = quantized_tensors(model, packer)
        tensors = tuple(StoredTensor(name=x.name, shape=x.shape, dtype=x.dtype, parameters=x.parameters) for x in found)
    else:
        tensors = tuple(
            StoredTensor(name=x.name, shape=tuple(x.shape), parameters=sum(int(part.weight.parameters) for part in x.parts))
            for x in names.tensors(model.stored_tree(names))
        )
    return StoredNamesReport(model=model, scheme=scheme, tensors=tensors)
