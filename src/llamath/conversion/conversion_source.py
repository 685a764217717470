"""`open_source`: the checkpoint to convert, verified against its configuration."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from ..analysis.check.verify.verified_checkpoint import verify_contents, vocab_size
from ..analysis.check.verify.verify_tensors import Finding
from ..checkpoint.formats import gguf
from ..checkpoint.formats.source import LocalFile
from ..checkpoint.gguf_metadata.gguf_rope import ROPE_FREQS
from ..checkpoint.meta_shards import drop_copies
from ..checkpoint.naming.scheme import Scheme
from ..checkpoint.open import OpenedCheckpoint, local_copy, open_checkpoint, packings_of
from ..checkpoint.quantization.dequantizers import why_not_dequantized
from ..checkpoint.quantization.ggml_values import GGML_DECODERS
from ..checkpoint.quantization.packed_tensors import packed_weights
from ..checkpoint.quantization.weight_format import stated_dtype
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..core.tree import Block, Stack, walk
from ..families.gguf_config import with_gguf_keys
from ..loading import STORED_INSTEAD, load_family
from ..model import FamilyModel
from ..utils.errors import Argument, ConvertError, Name, UnknownQuantization, safe
from .edit.edit_source import EditedCheckpoint, EditSource
from .float_cast import FLOAT_BYTES, INTEGERS
from .source_files import SourceFiles, take_stamps
from .source_tensors import PackedTensor, PlainTensor, SourceTensor

_FIXED_BY_CONVERSION = frozenset({"dtype", "total_size", "index", "missing_index", "overlap"})
"""Codes of findings of `verify` that do not apply to the converted files."""
_NOT_ABOUT_WEIGHTS = frozenset({"vocabulary"})
_UNIMPORTANT = frozenset({"buffer", "packed", "further"})
"""Codes of findings of `verify` that are not noted."""
_KEPT_NOTES = ("not read", "not in GGUF", "rope_scaling was reconstructed", STORED_INSTEAD)
"""Beginnings of the model's notes that matter to a conversion."""
Shape = tuple[int, ...]


class ConversionSource(SourceFiles):
    """A checkpoint to convert."""

    format: str
    model: FamilyModel
    scheme: Scheme
    tensors: Mapping[str, SourceTensor]  # of the model's weights
    mtp: Mapping[str, SourceTensor]  # of the multi-token prediction layers
    declared_dtype: str  # in the configuration; empty if it has none
    notes: tuple[str, ...]


def open_source(path: str, changes: Mapping[str, Any]) -> ConversionSource:
    """Open the checkpoint at this path, or in a repository on the Hub, if it is complete and of
    a family that can be converted.
    """
    path = local_copy(path)
    folder = (path if os.path.isdir(path) else os.path.dirname(path)) or "."
    before = take_stamps(path, folder)
    checkpoint = open_checkpoint(path, local_only=True)
    read = {x.path for x in take_stamps(path, folder, checkpoint.manifest)}
    reader = TensorReader(checkpoint.manifest)
    try:
        source = _open_source(checkpoint, reader, changes)
        return source.replace(stamps=tuple(x for x in before if x.path in read))
    except BaseException:
        reader.close()
        raise


def convertible_source(edited: EditSource, changes: Mapping[str, Any]) -> ConversionSource:
    """Return an edited checkpoint as the source of a conversion."""
    source = _open_source(edited.report.checkpoint, edited.reader, changes)
    return source.replace(
        model=source.model.replace(name=edited.model.name, source=edited.model.source),
        **{name: getattr(edited, name) for name in SourceFiles.fields},
    )


def _open_source(
    checkpoint: OpenedCheckpoint, reader: TensorReader, changes: Mapping[str, Any]
) -> ConversionSource:
    contents = verify_contents(
        checkpoint,
        lambda changes: _load_model(checkpoint, changes),
        changes,
        _is_harmless,
        ConvertError,
    )
    model, scheme, merged = contents.model, contents.scheme, contents.tensors
    checkpoint, manifest = contents.checkpoint, checkpoint.manifest
    stored_tensors = list(scheme.tensors(model.tree))
    expected = {x.name: tuple(map(int, x.shape)) for x in stored_tensors}
    notes = [*contents.notes, *_notes(contents.findings)]
    mtp_shapes = _mtp_shapes(checkpoint, model, scheme)
    mtp_shapes |= {name: x.shape for name, x in merged.items() if _is_mtp_name(name, model.wrapper)}
    tensors = _source_tensors(checkpoint, merged, expected, mtp_shapes, reader)
    _check_dtypes(tensors, {part.weight.dtype for x in stored_tensors for part in x.parts})
    notes += [x for x in model.notes if x.startswith(_KEPT_NOTES)]
    try:
        declared = stated_dtype(model.config.data)
    except UnknownQuantization:  # what is written states the dtype of its tensors
        declared = None
    return ConversionSource(
        folder=checkpoint.folder or ".",
        format=checkpoint.manifest.format,
        model=model,
        scheme=scheme,
        tensors={name: x for name, x in tensors.items() if name in expected},
        mtp={name: x for name, x in tensors.items() if name not in expected},
        declared_dtype=declared.name if declared else "",
        reader=reader,
        notes=tuple(notes),
        path=checkpoint.name,
        manifest=manifest,
        stamps=(),
    )


def append_mtp_layers(source: ConversionSource) -> ConversionSource:
    """Return the checkpoint with its layers for multi-token prediction as further layers, which
    GGUF has; unchanged if their tensors are not all there. Matrices that are not stored again
    remain tied.
    """
    tree, stored = source.model.tree, source.mtp
    layers, names = [], set[str]()
    for block, (_, tensors) in zip(
        tree.mtp or (), source.scheme.mtp_tensors_by_layer(tree), strict=True
    ):
        copies = {x.pattern for x in walk(block) if x.weight.tied}
        own = [(x.name, x.parts[0].pattern.split(".", 2)[2]) for x in tensors]
        names |= {name for name, path in own if path not in copies or name in stored}
        untied = {path for name, path in own if path in copies and name in stored}
        layers.append(_untie(block, untied))
    if not layers or not names <= stored.keys():
        return source
    appended = tree.replace(layers=Stack(*tree.layers.runs, *(((x,), 1) for x in layers)), mtp=None)
    return source.replace(
        model=source.model.replace(tree=appended),
        tensors={**source.tensors, **{name: stored[name] for name in names}},
        mtp={name: x for name, x in stored.items() if name not in names},
    )


def _untie(block: Block, paths: Collection[str]) -> Block:
    """Return a block that has these tied weights itself: `embed.weight`."""
    for path in paths:
        name, _, leaf = path.partition(".")
        part: Block = getattr(block, name)
        own = part.replace(**{leaf: getattr(part, leaf).replace(tied="")})
        block = block.replace(**{name: own})
    return block


def _mtp_shapes(
    checkpoint: OpenedCheckpoint, model: FamilyModel, scheme: Scheme
) -> dict[str, Shape]:
    """Return the shapes of the stored tensors of multi-token prediction layers, whose experts
    may not be fused where the others are.
    """
    if model.tree.mtp is None or not scheme.names_mtp:
        return {}
    packings = packings_of(checkpoint.manifest, checkpoint.quantization_config or {})
    names = {*checkpoint.tensors_by_name, *(x.weight for x in packings.values())}
    layers = (
        layer
        for form in (scheme, *([model.family.hf] if scheme.name.startswith("hf") else []))
        for layer in form.stored_mtp_layers(model.tree, names)
    )
    return {x.name: tuple(map(int, x.shape)) for layer in layers for x in layer}


def _source_tensors(
    checkpoint: OpenedCheckpoint,
    merged: Mapping[str, MergedTensor],
    expected: Mapping[str, Shape],
    others: Mapping[str, Shape],
    reader: TensorReader,
) -> dict[str, SourceTensor]:
    """Return the tensors with these names, `others` with the stored shapes; quantized weights
    are dequantized when they are read.
    """
    config = checkpoint.quantization_config or {}
    packings = packings_of(checkpoint.manifest, config)
    packed = (
        packed_weights({name: x for name, x in packings.items() if x.kind != "ggml"})
        if packings
        else {}
    )
    tensors: dict[str, SourceTensor] = {}
    for name, shape in {**expected, **others}.items():
        if name in packings and packings[name].role != "values":
            continue  # read with the weight that it belongs to
        if name in packed:
            weight = packed[name]
            shape = weight.shape or shape if name not in expected else shape
            if problem := why_not_dequantized(weight._replace(shape=weight.shape or shape), config):
                raise ConvertError(
                    f"{safe(checkpoint.name)}: {safe(name)} is packed as {safe(weight.kind, 60)} "
                    f"and cannot be dequantized: {problem}",
                    hint="convert the checkpoint that it was quantized from",
                )
            parts = {x: merged[x].parts[0] for x in (weight.values, *weight.companions)}
            tensors[name] = PackedTensor(weight, _logical_shape(weight.shape, shape), parts, config)
        elif name in merged:
            tensors[name] = PlainTensor(drop_copies(merged[name], reader))
    return tensors


def _logical_shape(packed: Shape | None, stored: Shape) -> Shape:
    """Return the shape [out, in] of a quantized weight; that of a scheme whose headers do not
    determine it is the model's.
    """
    return packed if packed is not None and prod(packed) == prod(stored) else stored


def _is_mtp_name(name: str, wrapper: str) -> bool:
    """Whether a tensor belongs to multi-token prediction layers that are stored outside of the
    text model's layers, as Qwen's are.
    """
    return name.startswith("mtp.") or (bool(wrapper) and name.startswith("model.mtp."))


def _load_model(checkpoint: OpenedCheckpoint, changes: Mapping[str, Any]) -> FamilyModel:
    """Load the model from the configuration or the GGUF metadata."""
    path, manifest = checkpoint.name, checkpoint.manifest
    if manifest.format == "gguf":
        model = _load_from_gguf(checkpoint, changes)
    elif isinstance(checkpoint, EditedCheckpoint):
        model = load_family(checkpoint.keys, changes=changes)
    else:
        model = load_family(
            checkpoint.folder or ".",
            changes=changes,
            vocab_size=vocab_size(checkpoint),
            check_tensors=False,
        )
    head = model.tree.head
    if head is None or head.weight.shape[0] != model.tree.vocab:
        raise ConvertError(
            f"{safe(path)} is a model without a language-model head, which other "
            "formats do not support"
        )
    return model


def _load_from_gguf(checkpoint: OpenedCheckpoint, changes: Mapping[str, Any]) -> FamilyModel:
    path, manifest = checkpoint.name, checkpoint.manifest
    with LocalFile(manifest.files[0].name) as source:
        if gguf.preamble(source).order != "<":
            raise ConvertError(
                f"{safe(path)} is a big-endian GGUF file; only little-endian files can be converted"
            )
    config = with_gguf_keys(checkpoint.config)
    notes = list(config.notes)
    keys = dict(config.keys or {})
    if "rope_scaling" not in changes and any(x.name == ROPE_FREQS for x in manifest.tensors):
        if "rope_scaling" not in keys and "rope_parameters" not in keys:
            raise ConvertError(
                f"{safe(path)}: {ROPE_FREQS} does not have the divisors of a Llama 3.1 scaling",
                hint=f"give {Argument('changes', {'rope_scaling': Name('…')})}",
            )
        if "rope_scaling" in keys:
            notes.append(
                f"rope_scaling was reconstructed from {ROPE_FREQS}: {keys['rope_scaling']}"
            )
    model = load_family(keys, changes=changes)
    name = str(
        manifest.metadata.get("general.name") or os.path.basename(path).removesuffix(".gguf")
    )
    return model.replace(name=safe(name), source=safe(path), notes=(*notes, *model.notes))


def _is_harmless(x: Finding, model: FamilyModel) -> bool:
    """Whether a conversion would not carry a finding over."""
    return x.code in _FIXED_BY_CONVERSION | _NOT_ABOUT_WEIGHTS or (
        bool(x.tensors) and all(_is_mtp_name(y, model.wrapper) for y in x.tensors)
    )


def _notes(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings that a conversion says something about."""
    for x in findings:
        if x.code in _NOT_ABOUT_WEIGHTS or (x.severity == "info" and x.code not in _UNIMPORTANT):
            yield f"left out: {x.message}" if x.code == "other_part" else x.message


def _check_dtypes(tensors: Mapping[str, SourceTensor], own: Collection[str]) -> None:
    """Refuse dtypes that cannot be converted, and strided tensors of more than two dimensions;
    integers are those of the tree's tables.
    """
    for x in tensors.values():
        if x.dtype not in (*FLOAT_BYTES, *GGML_DECODERS) and not (
            x.dtype in INTEGERS and x.dtype in own
        ):
            raise ConvertError(
                f"{safe(x.name)} is {x.dtype}; expected {', '.join(FLOAT_BYTES)} "
                "or a quantization scheme with its scales"
            )
        if len(x.shape) > 2 and not x.is_contiguous:
            raise ConvertError(
                f"{safe(x.name)} has {len(x.shape)} dimensions and is not contiguous",
                hint="save it with .contiguous()",
            )
