"""`Origin`: a checkpoint that is to be converted: its model, where its tensors lie, and whether it is what its configuration says."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any

from ..analysis.verify.check_checkpoint import expectation_of
from ..analysis.verify.verify_tensors import verify_tensors
from ..checkpoint.formats import gguf
from ..checkpoint.formats.manifest import Manifest, Tensor
from ..checkpoint.formats.source import LocalFile
from ..checkpoint.gguf_metadata import config_from_gguf
from ..checkpoint.meta_shards import InferredValue, drop_copies, have_equal_values, infer_missing_config, merge_tensor, merged_vocab_size
from ..checkpoint.naming.scheme import Scheme, UnnamedWeight
from ..checkpoint.open import OpenedCheckpoint, open_checkpoint
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..core.errors import ConvertError, safe
from ..core.record_type import Record
from ..loading import load
from ..model import Model
from .float_cast import FLOAT_BYTES
from .llama3_rope import NAME, scaling

_SUPPORTED = frozenset({"llama", "qwen2"})
"""What can be converted, by the name that GGUF has for it."""
_FIXED_BY_CONVERSION, _NOT_ABOUT_WEIGHTS = frozenset({"dtype", "total_size", "index"}), frozenset({"vocabulary"})
"""Findings of `verify` that a conversion sets right, and those that are not about the weights."""
TensorsByName = Mapping[str, list[Tensor]]


class ConversionSource(Record):
    """What is converted."""

    folder: str  # where its configuration and tokenizer lie
    format: str
    model: Model
    scheme: Scheme
    tensors: Mapping[str, MergedTensor]
    reader: TensorReader
    notes: tuple[str, ...]


def open_source(path: str, changes: Mapping[str, Any]) -> ConversionSource:
    """The checkpoint at this path, if it is whole and of a family that can be converted."""
    checkpoint = open_checkpoint(path, local_only=True)
    files = TensorReader(checkpoint.manifest)
    try:
        return _open_source(checkpoint, files, changes)
    except BaseException:
        files.close()
        raise


def _open_source(checkpoint: OpenedCheckpoint, files: TensorReader, changes: Mapping[str, Any]) -> ConversionSource:
    found, notes = checkpoint.tensors_by_name, list[str]()
    model = _load_model(checkpoint, found, changes)
    scheme = _detect_scheme(checkpoint, model, found)
    unsaid = {key: x for key, x in _infer_config(model, scheme, found, files).items() if key not in changes}
    if unsaid:
        notes += [remark for _, remark in unsaid.values()]
        model = _load_model(checkpoint, found, {**changes, **{key: value for key, (value, _) in unsaid.items()}})
    expected = {x.name: tuple(map(int, x.shape)) for x in scheme.tensors(model.tree)}
    head = scheme.stored_name("head.weight")
    wholes = {name: merge_tensor(name, parts, expected.get(name)) for name, parts in found.items()}
    notes += _verify(checkpoint, model, wholes)
    wholes = {name: drop_copies(x, files) for name, x in wholes.items() if name in expected or name == head}
    _check_dtypes(wholes)
    if head not in expected and head in wholes:
        _check_tied_head(wholes[scheme.stored_name("embed.weight")], wholes.pop(head), files)
    notes += [x for x in model.notes if x.startswith(("not read", "not in GGUF"))]
    return ConversionSource(
        folder=checkpoint.folder or ".",
        format=checkpoint.manifest.format,
        model=model,
        scheme=scheme,
        tensors=wholes,
        reader=files,
        notes=tuple(notes),
    )


def _load_model(checkpoint: OpenedCheckpoint, found: TensorsByName, changes: Mapping[str, Any]) -> Model:
    """The model that the configuration describes, or the GGUF header."""
    path, manifest = checkpoint.name, checkpoint.manifest
    if manifest.format == "gguf":
        model = _load_from_gguf(path, manifest, changes)
    else:
        size = None if checkpoint.has_config_json else merged_vocab_size(found, "tok_embeddings.weight", "norm.weight")
        model = load(checkpoint.folder or ".", changes=changes, vocab_size=size)
    if model.wrapper or model.family.gguf_arch not in _SUPPORTED:
        what = f"the text part of {safe(model.wrapper)}" if model.wrapper else f"of the {model.family.name} family"
        raise ConvertError(f"{safe(path)} is {what}, which is not converted", hint="what is: Llama, Mistral, Mixtral and Qwen 2")
    head = model.tree.head
    if head is None or head.weight.shape[0] != model.tree.vocab:
        raise ConvertError(f"{safe(path)} is a model without a head over its vocabulary, which no other format has")
    return model


def _load_from_gguf(path: str, manifest: Manifest, changes: Mapping[str, Any]) -> Model:
    with LocalFile(manifest.files[0].name) as source:
        if gguf.preamble(source).order != "<":
            raise ConvertError(f"{safe(path)} is a big-endian GGUF file; only little-endian ones are converted")
    notes: list[str] = []
    model = load(config_from_gguf(manifest.metadata, manifest.tensors, safe(path), notes), changes=changes)
    name = str(manifest.metadata.get("general.name") or os.path.basename(path).removesuffix(".gguf"))
    return model.replace(name=safe(name), source=safe(path), notes=(*notes, *model.notes))


def _detect_scheme(checkpoint: OpenedCheckpoint, model: Model, found: TensorsByName) -> Scheme:
    """The naming that most of the tensors have."""
    best: tuple[int, Scheme | None] = (0, None)
    for scheme in expectation_of(model, checkpoint).schemes:
        try:
            overlap = sum(x.name in found for x in scheme.tensors(model.tree))
        except UnnamedWeight:
            continue
        if overlap > best[0]:
            best = overlap, scheme
    if best[1] is None:
        raise ConvertError(
            f"{safe(checkpoint.name)} has no tensor that a model of the {model.family.name} family has", hint="llamath ls shows what it has"
        )
    return best[1]


def _infer_config(model: Model, scheme: Scheme, found: TensorsByName, files: TensorReader) -> dict[str, InferredValue]:
    """What the tensors say and the configuration does not, with a remark: what Meta's files share, the scaling of positions in GGUF's."""
    said: dict[str, InferredValue] = {}
    data = model.config.data
    if model.config.source.endswith("params.json"):
        said |= infer_missing_config(data, scheme, found)
    if factors := found.get(NAME):
        x, layer = factors[0], model.tree.layers[0]
        numbers = struct.unpack(f"<{x.elements}f", files.read_rows(MergedTensor(x.name, x.dtype, x.shape, (x,)), 0, x.shape[0]))
        made = scaling(numbers, data.get("rope_theta", 10000.0), layer.attn.head_dim)  # type: ignore[attr-defined]
        said["rope_scaling"] = InferredValue(made, f"the scaling of positions is made out from {NAME}: {made}")
    return said


def _verify(checkpoint: OpenedCheckpoint, model: Model, wholes: Mapping[str, MergedTensor]) -> list[str]:
    """Hold the tensors against the model; what a conversion would carry on is an error."""
    tensors = tuple(Tensor(x.name, x.dtype, x.shape, x.parts[0].file, x.parts[0].start, x.parts[0].end) for x in wholes.values())
    verdict = verify_tensors(expectation_of(model, checkpoint), checkpoint.manifest.replace(tensors=tensors))
    wrong = [x for x in verdict.findings if x.severity != "info" and x.code not in _FIXED_BY_CONVERSION | _NOT_ABOUT_WEIGHTS]
    if wrong:
        first, more = wrong[0], f"; and {len(wrong) - 1} more findings" if len(wrong) > 1 else ""
        message = f"{safe(checkpoint.name)} is not what its configuration says: {first.message}{more}"
        raise ConvertError(message, hint=first.hint or "llamath verify says more")
    return [
        x.message for x in verdict.findings if x.code in _NOT_ABOUT_WEIGHTS or (x.severity == "info" and x.code not in ("buffer", "packed"))
    ]


def _check_dtypes(wholes: Mapping[str, MergedTensor]) -> None:
    """Refuse numbers that are not plain floats, and tensors that lie in the file as none should."""
    for x in wholes.values():
        if x.dtype not in FLOAT_BYTES:
            hint = "convert the original instead; what is quantised has lost what the original had" if x.dtype[:1] in "QIMNT" else ""
            raise ConvertError(f"{safe(x.name)} is {x.dtype}; only {', '.join(FLOAT_BYTES)} are converted", hint=hint)
        if len(x.shape) > 2 and any(part.strides is not None for part in x.parts):
            raise ConvertError(
                f"{safe(x.name)} has {len(x.shape)} dimensions that do not lie one after another", hint="save .contiguous() of it"
            )


def _check_tied_head(embed: MergedTensor, head: MergedTensor, files: TensorReader) -> None:
    if not have_equal_values(embed, head, files):
        where = f"the configuration says that embedding and head share one matrix, and {safe(head.name)} is another than {safe(embed.name)}"
        raise ConvertError(where, hint="--set tie_word_embeddings=false keeps both")
