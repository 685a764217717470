"""`open_source`: the checkpoint to convert, verified against its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..analysis.verify.check_checkpoint import expectation_of
from ..analysis.verify.verify_tensors import verify_tensors
from ..checkpoint.formats import gguf
from ..checkpoint.formats.checkpoint_files import read_checkpoint
from ..checkpoint.formats.folder import LocalFolder
from ..checkpoint.formats.manifest import Manifest, Tensor
from ..checkpoint.formats.source import LocalFile
from ..checkpoint.gguf_metadata import ROPE_FREQS
from ..checkpoint.meta_shards import drop_copies, have_equal_values, infer_missing_config, merge_tensor, merged_vocab_size
from ..checkpoint.naming.detect_scheme import detect_scheme
from ..checkpoint.naming.scheme import Scheme
from ..checkpoint.open import OpenedCheckpoint, local_copy, open_checkpoint
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..core.errors import ConvertError, safe
from ..core.record_type import Record
from ..core.strict_json import CONFIG_FILES
from ..loading import load
from ..model import Model
from .copy_tokenizer import find_tokenizer_files
from .float_cast import FLOAT_BYTES

_SUPPORTED = frozenset({"llama", "qwen2"})
"""GGUF architectures of the families that can be converted."""
_FIXED_BY_CONVERSION = frozenset({"dtype", "total_size", "index"})
"""Codes of findings of `verify` that do not apply to the converted files."""
_NOT_ABOUT_WEIGHTS = frozenset({"vocabulary"})
_KEPT_NOTES = ("not read", "not in GGUF", "rope_scaling was reconstructed")
"""Beginnings of the model's notes that matter to a conversion."""
TensorsByName = Mapping[str, list[Tensor]]


class ConversionSource(Record):
    """A checkpoint to convert."""

    folder: str  # with its configuration and tokenizer
    format: str
    model: Model
    scheme: Scheme
    tensors: Mapping[str, MergedTensor]
    reader: TensorReader
    notes: tuple[str, ...]
    path: str
    manifest: Manifest
    stamps: tuple[_Stamp, ...]  # taken before the first byte was read

    def check_unchanged(self) -> None:
        """Raise if a file of the source has changed since it was opened: the new checkpoint would be a mixture."""
        changed = next((old.path for old in self.stamps if _stamp(old.path) != old), None)
        if changed is None and len(_stamps(self.path, self.folder, self.manifest)) == len(self.stamps):
            manifest = read_checkpoint(self.path)  # a change within one tick of the file system's clock leaves the times equal
            changed = None if (manifest.files, manifest.tensors) == (self.manifest.files, self.manifest.tensors) else self.path
        elif changed is None:
            changed = self.folder
        if changed is not None:
            raise ConvertError(
                f"{safe(changed)} changed during the conversion: expected the file as it was opened, found another size, time or header",
                hint="repeat the conversion when nothing writes to the source; existing files have not been changed",
            )


class _Stamp(NamedTuple):
    """The identity of a file's content."""

    path: str
    inode: int
    size: int
    modified_ns: int


def _stamp(path: str) -> _Stamp | None:
    """Return the stamp of a file; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return _Stamp(path, found.st_ino, found.st_size, found.st_mtime_ns)


def _stamps(path: str, folder: str, manifest: Manifest | None = None) -> tuple[_Stamp, ...]:
    """Return the stamps of the files that a conversion may read: configuration, tokenizer, and the weights, or all files in the folder."""
    if manifest is None:
        names = [os.path.join(folder, x) for x in LocalFolder(folder).names()] if os.path.isdir(folder) else []
    else:
        names = [x.name for x in manifest.files] + ([manifest.index.path] if manifest.index else [])
    names += [os.path.join(folder, x) for x in CONFIG_FILES] + list(find_tokenizer_files(folder).values())
    return tuple(x for name in sorted({path, *names}) if os.path.isfile(name) and (x := _stamp(name)))


def open_source(path: str, changes: Mapping[str, Any]) -> ConversionSource:
    """Open the checkpoint at this path, or in a repository on the Hub, if it is complete and of a family that can be converted."""
    path = local_copy(path)
    folder = (path if os.path.isdir(path) else os.path.dirname(path)) or "."
    before = _stamps(path, folder)
    checkpoint = open_checkpoint(path, local_only=True)
    read = {x.path for x in _stamps(path, folder, checkpoint.manifest)}
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
