"""`stored_names`: every tensor of a model as files of one format have it; of a quantized
checkpoint with its dtype.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....checkpoint.gguf_metadata.gguf_rope import ROTARY_TENSORS, rotary_factors
from ....checkpoint.naming.scheme import Scheme
from ....checkpoint.naming.scheme import StoredTensor as TensorOfFile
from ....core.blocks import AttentionBase
from ....core.tree import fold
from ....model import FamilyModel
from ....utils.errors import Argument, LlamathError
from ...storage.choose_storage import model_format
from ...storage.listed_weights import check_listable
from ...storage.quantized_tensors import QuantizedTensor, mtp_quantized_tensors, quantized_tensors
from .count_report import StoredNamesReport, StoredTensor


def stored_names(model: FamilyModel, scheme: str, dtype: str = "") -> StoredNamesReport:
    """List the tensors of a model as files of one format have them; an empty `dtype` is the format
    that the config declares.

    A recipe in a config is that of HF files; it does not change the names in Meta and GGUF files.
    """
    check_listable(model.tree)
    names = model.scheme(scheme)
    packer = model_format(model, dtype) if dtype or scheme == "hf" else None
    kind = (
        ""
        if packer is None
        else "gguf"
        if packer.gguf_file_type
        else "hf"
        if packer.is_packed
        else ""
    )
    if dtype and packer is not None and kind and kind != scheme:
        raise LlamathError(
            f"{packer.name} is a format of {kind} files, not of {scheme} files",
            hint=f"give {Argument('names', kind)}",
        )
    if packer is not None and kind:
        tensors = (
            *map(_packed, quantized_tensors(model, packer)),
            *_rotary_tensors(model, scheme, "F32"),
            *(_packed(x, mtp=True) for x in mtp_quantized_tensors(model, packer)),
        )
    else:
        mtp = _mtp_tensors(model, names) if names.names_mtp else ()
        tensors = (
            *map(_stored, names.tensors(model.stored_tree(names))),
            *_rotary_tensors(model, scheme, ""),
            *(_stored(x, mtp=True) for x in mtp),
        )
    return StoredNamesReport(
        model=model,
        scheme=scheme,
        tensors=tensors,
        notes=tuple(
            _notes(model, tensors, bool(names.mtp_layer) or not model.repeats_embedding_in_mtp)
        ),
    )


def _rotary_tensors(model: FamilyModel, scheme: str, dtype: str) -> Iterator[StoredTensor]:
    """Yield the tensors of GGUF files with the factors of rotary frequencies, which are no
    parameters.
    """
    if scheme != "gguf":
        return
    attentions = [getattr(x, "attn", None) for x, _ in model.text.tree.layers.distinct()]
    found = [x for x in attentions if isinstance(x, AttentionBase) and x.rope is not None]
    found.sort(key=lambda x: x.window.size is not None)  # full attention first
    for name, factors in rotary_factors(found[0].rope).items() if found else ():
        yield StoredTensor(name=name, shape=(len(factors),), dtype=dtype, parameters=0)


def _mtp_tensors(model: FamilyModel, names: Scheme) -> Iterator[TensorOfFile]:
    """Yield the tensors for multi-token prediction, without copies where the files have none."""
    tree = model.stored_tree(names)
    for block, (_, tensors) in zip(tree.mtp or (), names.mtp_tensors_by_layer(tree), strict=True):
        copies = {f"layers.{{l}}.{x.pattern}" for x in fold(block) if x.weight.tied}
        for x in tensors:
            if model.repeats_embedding_in_mtp or x.parts[0].pattern not in copies:
                yield x


def _packed(x: QuantizedTensor, mtp: bool = False) -> StoredTensor:
    return StoredTensor(name=x.name, shape=x.shape, dtype=x.dtype, parameters=x.parameters, mtp=mtp)


def _stored(x: TensorOfFile, mtp: bool = False) -> StoredTensor:
    return StoredTensor(
        name=x.name,
        shape=tuple(x.shape),
        parameters=sum(int(part.weight.parameters) for part in x.parts),
        mtp=mtp,
    )


def _notes(
    model: FamilyModel, tensors: tuple[StoredTensor, ...], without_copies: bool
) -> Iterator[str]:
    """Yield notes on the tensors that are no parameters of the main model."""
    if rotary := [x.name for x in tensors if x.name in ROTARY_TENSORS]:
        verb = "has" if len(rotary) == 1 else "have"
        yield f"{' and '.join(rotary)} {verb} factors of rotary frequencies, and no parameters"
    if (n := sum(x.mtp for x in tensors)) and model.tree.mtp is not None:
        leaves = (
            x
            for layer, times in model.tree.mtp.distinct()
            for x in fold(layer)
            for _ in range(int(times))
        )
        copies = 0 if without_copies else sum(bool(x.weight.tied) for x in leaves)
        yield f"the last {n:,} tensors are for multi-token prediction" + (
            f"; {copies} of them are copies of the embedding and the head, which not all files have"
            if copies
            else ""
        )
