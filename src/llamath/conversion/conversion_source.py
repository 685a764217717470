"""`open_source`: the checkpoint to convert, verified against its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..analysis.shard_tree import reject_shard
from ..analysis.verify.check_checkpoint import expectation_of, without_training_names
from ..analysis.verify.verify_tensors import verify_tensors
from ..checkpoint.formats import gguf
from ..checkpoint.formats.manifest import Tensor
from ..checkpoint.formats.source import LocalFile
from ..checkpoint.gguf_metadata import ROPE_FREQS
from ..checkpoint.meta_shards import drop_copies, have_equal_values, infer_missing_config, merge_tensor, merged_vocab_size
from ..checkpoint.naming.detect_scheme import detect_scheme
from ..checkpoint.naming.scheme import Scheme
from ..checkpoint.open import OpenedCheckpoint, local_copy, open_checkpoint
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..core.errors import ConvertError, safe
from ..loading import load
from ..model import Model
from .float_cast import FLOAT_BYTES
from .source_files import SourceFiles, take_stamps

_SUPPORTED = frozenset({"llama", "qwen2"})
"""GGUF architectures of the families that can be converted."""
_FIXED_BY_CONVERSION = frozenset({"dtype", "total_size", "index", "missing_index"})
"""Codes of findings of `verify` that do not apply to the converted files."""
_NOT_ABOUT_WEIGHTS = frozenset({"vocabulary"})
_KEPT_NOTES = ("not read", "not in GGUF", "rope_scaling was reconstructed")
"""Beginnings of the model's notes that matter to a conversion."""
TensorsByName = Mapping[str, list[Tensor]]


class ConversionSource(SourceFiles):
    """A checkpoint to convert."""

    format: str
    model: Model
    scheme: Scheme
    tensors: Mapping[str, MergedTensor]
    notes: tuple[str, ...]


def open_source(path: str, changes: Mapping[str, Any]) -> ConversionSource:
    """Open the checkpoint at this path, or in a repository on the Hub, if it is complete and of a family that can be converted."""
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


def _open_source(checkpoint: OpenedCheckpoint, reader: TensorReader, changes: Mapping[str, Any]) -> ConversionSource:
    stored, notes = checkpoint.tensors_by_name, list[str]()
    model = _load_model(checkpoint, stored, changes)
    reject_shard(model, checkpoint.name)
    checkpoint, added = without_training_names(checkpoint, model)
    notes += [x.message for x in added]
    stored = checkpoint.tensors_by_name
    scheme = _detect_scheme(checkpoint, model, stored)
    if model.config.source.endswith("params.json"):
        inferred = {key: x for key, x in infer_missing_config(model.config.data, scheme, stored).items() if key not in changes}
        notes += [x.note for x in inferred.values()]
        if inferred:
            model = _load_model(checkpoint, stored, {**changes, **{key: x.value for key, x in inferred.items()}})
    expected = {x.name: tuple(map(int, x.shape)) for x in scheme.tensors(model.tree)}
    head = scheme.stored_name("head.weight")
    tensors = {name: merge_tensor(name, parts, expected.get(name)) for name, parts in stored.items()}
    notes += _verify(checkpoint, model, tensors)
    tensors = {name: drop_copies(x, reader) for name, x in tensors.items() if name in expected or name == head}
    _check_quantization(checkpoint, expected, tensors)
    _check_dtypes(tensors)
    if head not in expected and head in tensors:
        _check_tied_head(tensors[scheme.stored_name("embed.weight")], tensors.pop(head), reader)
    notes += [x for x in model.notes if x.startswith(_KEPT_NOTES)]
    return ConversionSource(
        folder=checkpoint.folder or ".",
        format=checkpoint.manifest.format,
        model=model,
        scheme=scheme,
        tensors=tensors,
        reader=reader,
        notes=tuple(notes),
        path=checkpoint.name,
        manifest=checkpoint.manifest,
        stamps=(),
    )


def _load_model(checkpoint: OpenedCheckpoint, tensors: TensorsByName, changes: Mapping[str, Any]) -> Model:
    """Load the model from the configuration or the GGUF metadata."""
    path, manifest = checkpoint.name, checkpoint.manifest
    if manifest.format == "gguf":
        model = _load_from_gguf(checkpoint, changes)
    else:
        size = None if checkpoint.has_config_json else merged_vocab_size(tensors, "tok_embeddings.weight", "norm.weight")
        model = load(checkpoint.folder or ".", changes=changes, vocab_size=size)
    if model.wrapper or model.family.gguf_arch not in _SUPPORTED:
        subject = f"the text part of {safe(model.wrapper)}" if model.wrapper else f"of the {model.family.name} family"
        raise ConvertError(
            f"{safe(path)} is {subject}, which cannot be converted", hint="Llama, Mistral, Mixtral and Qwen 2 can be converted"
        )
    head = model.tree.head
    if head is None or head.weight.shape[0] != model.tree.vocab:
        raise ConvertError(f"{safe(path)} is a model without a language-model head, which other formats do not support")
    return model


def _load_from_gguf(checkpoint: OpenedCheckpoint, changes: Mapping[str, Any]) -> Model:
    path, manifest = checkpoint.name, checkpoint.manifest
    with LocalFile(manifest.files[0].name) as source:
        if gguf.preamble(source).order != "<":
            raise ConvertError(f"{safe(path)} is a big-endian GGUF file; only little-endian files can be converted")
    config = checkpoint.config
    notes = list(config.notes)
    keys = dict(config.keys or {})
    if "rope_scaling" not in changes and any(x.name == ROPE_FREQS for x in manifest.tensors):
        if "rope_scaling" not in keys:
            raise ConvertError(
                f"{safe(path)}: {ROPE_FREQS} does not have the divisors of a Llama 3.1 scaling", hint='set rope_scaling={"rope_type": …}'
            )
        notes.append(f"rope_scaling was reconstructed from {ROPE_FREQS}: {keys['rope_scaling']}")
    model = load(keys, changes=changes)
    name = str(manifest.metadata.get("general.name") or os.path.basename(path).removesuffix(".gguf"))
    return model.replace(name=safe(name), source=safe(path), notes=(*notes, *model.notes))


def _detect_scheme(checkpoint: OpenedCheckpoint, model: Model, tensors: TensorsByName) -> Scheme:
    """Return the naming scheme that most of the tensors follow."""
    match = detect_scheme(model.tree, expectation_of(model, checkpoint).schemes, dict.fromkeys(tensors, ()))
    if not match.overlap:
        raise ConvertError(
            f"{safe(checkpoint.name)} has no tensor of the {model.family.name} family",
            hint="llamath.inspect(path) lists its tensors",
        )
    return match.scheme


def _verify(checkpoint: OpenedCheckpoint, model: Model, tensors: Mapping[str, MergedTensor]) -> list[str]:
    """Verify the tensors against the model: findings that would be carried over are errors, and the others are returned as notes."""
    merged = tuple(Tensor(x.name, x.dtype, x.shape, x.parts[0].file, x.parts[0].start, x.parts[0].end) for x in tensors.values())
    verdict = verify_tensors(expectation_of(model, checkpoint), checkpoint.manifest.replace(tensors=merged))
    problems = [x for x in verdict.findings if x.severity != "info" and x.code not in _FIXED_BY_CONVERSION | _NOT_ABOUT_WEIGHTS]
    if problems:
        first, more = problems[0], f"; and {len(problems) - 1} more findings" if len(problems) > 1 else ""
        message = f"{safe(checkpoint.name)} does not match its config: {first.message}{more}"
        raise ConvertError(message, hint=first.hint or "llamath.verify(path) lists all findings")
    infos = [x for x in verdict.findings if x.severity == "info" and x.code not in ("buffer", "packed")]
    return [x.message for x in verdict.findings if x.code in _NOT_ABOUT_WEIGHTS or x in infos]


def _check_quantization(checkpoint: OpenedCheckpoint, expected: Mapping[str, object], tensors: Mapping[str, MergedTensor]) -> None:
    """Refuse checkpoints whose weights are packed under other names (GPTQ, AWQ, compressed-tensors)."""
    missing = next((name for name in expected if name not in tensors), None)
    if missing is not None:
        method = str((checkpoint.quantization_config or {}).get("quant_method") or "packed weights")
        raise ConvertError(
            f"{safe(checkpoint.name)} is quantized ({safe(method, 60)}): {safe(missing)} is not stored in {', '.join(FLOAT_BYTES)}",
            hint="convert the original, unquantized checkpoint",
        )


def _check_dtypes(tensors: Mapping[str, MergedTensor]) -> None:
    """Refuse dtypes that are not plain floats, and strided tensors of more than two dimensions."""
    for x in tensors.values():
        if x.dtype not in FLOAT_BYTES:
            hint = "convert the original, unquantized checkpoint" if x.dtype[:1] in "QIMNT" else ""
            raise ConvertError(f"{safe(x.name)} is {x.dtype}; only {', '.join(FLOAT_BYTES)} can be converted", hint=hint)
        if len(x.shape) > 2 and any(part.strides is not None for part in x.parts):
            raise ConvertError(f"{safe(x.name)} has {len(x.shape)} dimensions and is not contiguous", hint="save it with .contiguous()")


def _check_tied_head(embed: MergedTensor, head: MergedTensor, reader: TensorReader) -> None:
    if not have_equal_values(embed, head, reader):
        raise ConvertError(
            f"the configuration ties embedding and head, but {safe(head.name)} differs from {safe(embed.name)}",
            hint="set tie_word_embeddings=false to keep both",
        )
