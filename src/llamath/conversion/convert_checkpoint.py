"""`convert_checkpoint`: write a checkpoint in another format.

The files are written in a hidden folder inside the target folder and moved to their places when all
are complete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ..checkpoint.formats.dtypes import parse_dtype
from ..checkpoint.gguf_metadata import loader_version, loading_problems
from ..checkpoint.naming.scheme import Scheme, fused_scheme
from ..families.registry import find_family
from ..render.report import Report
from ..render.tables import Column, Part, Table
from ..utils.errors import ArgumentError, ConvertError, safe
from ..utils.number_format import format_count
from ..utils.record_type import Record
from .conversion_source import ConversionSource, open_source
from .copy_tokenizer import (
    count_tiktoken_ranks,
    find_tokenizer_files,
    read_tokenizer_file,
    special_token_ids,
)
from .float_cast import FLOAT_BYTES
from .gguf_model_keys import GGUFKeys, check_same_model, gguf_model_keys
from .quantize_blocks import QUANTIZERS
from .tensor_plan import TargetTypes, TensorPlan, plan_tensors
from .write.output_files import ConcatFile, OutputFile
from .write.write_gguf import gguf_file, model_metadata
from .write.write_gguf_tokenizer import copy_tokenizer_metadata, tokenizer_metadata
from .write.write_hf import (
    MAX_SHARD_SIZE,
    STALE_HF_FILES,
    config_json,
    json_file,
    safetensors_files,
)
from .write.write_meta import TorchArchive, params_keys
from .write.write_output import Output, OutputFolder, Progress, write_error, write_output

_FILE_TYPES = ("Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M")
"""GGUF file types in which llama.cpp chooses a type for each tensor, all of which can be
written."""
_META_FILE = "consolidated.00.pth"
_STALE_FILES = {
    "hf": STALE_HF_FILES,
    "hf-fused": STALE_HF_FILES,
    "meta": re.compile(r"consolidated\.\d\d\.pth"),
}
"""Target format → files in the target folder that would be taken for a part of the new
checkpoint."""


class ConvertOptions(Record):
    """The target format and options of a conversion."""

    to: str  # hf, hf-fused, meta or gguf
    # in any spelling of fp32, fp16 or bf16, or a type of GGUF_TYPES; empty: as stored
    dtype: str = ""
    with_mtp: bool = True  # keep multi-token prediction layers
    max_shard_size: int = MAX_SHARD_SIZE
    force: bool = False  # overwrite existing files
    changes: Mapping[str, Any] = {}  # of configuration keys
    dry_run: bool = False  # check and plan, and write nothing


class WrittenFile(NamedTuple):
    """A file of the new checkpoint."""

    path: str
    bytes: int


def written_files(files: Sequence[WrittenFile], kept: Sequence[str], folder: str) -> str:
    """Return the number of files and where they are."""
    earlier = f" ({len(kept)} of them from an earlier run)" if kept else ""
    return f"{format_count(len(files), 'file')}{earlier} to {safe(folder)}"


def file_table(files: Sequence[WrittenFile]) -> Table:
    """Return a row for each file."""
    columns = (Column("file"), Column("path", shown=False), Column("bytes", "count"))
    rows = tuple((os.path.basename(x.path), x.path, x.bytes) for x in files)
    return Table(columns=columns, rows=rows)


class ConversionReport(Report):
    """The files of a conversion, and notes about it."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "model",
        "folder",
        "files",
        "bytes",
        "tensors",
        "dtype",
        "kept",
        "notes",
    )

    model: str
    folder: str
    files: tuple[WrittenFile, ...]
    kept: tuple[str, ...]  # names of files that an interrupted run had completed
    tensors: int
    dtype: str
    notes: tuple[str, ...]
    dry_run: bool = False
    seconds: float = 0.0  # 0: not measured

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(x.bytes for x in self.files)

    @property
    def summary(self) -> str:
        """The result in one line."""
        return f"{self.model}, {self.tensors:,} tensors, {self.bytes:,} bytes in {self.folder}"

    @property
    def headline(self) -> str:
        """What was written, or would be."""
        written = sum(x.bytes for x in self.files if os.path.basename(x.path) not in self.kept)
        rate = (
            f", {self.seconds:.1f} s, {written / 1e9 / self.seconds:.2f} GB/s"
            if self.seconds >= 0.1 and written and not self.dry_run
            else ""
        )
        files = written_files(self.files, self.kept, self.folder)
        verb = "would write" if self.dry_run else "wrote"
        return f"{verb} {self.tensors:,} tensors, {self.bytes:,} bytes, in {files}{rate}"

    def tables(self) -> Iterable[Part]:
        """The files."""
        yield file_table(self.files)


def convert_checkpoint(
    source: str, target: str, options: ConvertOptions, progress: Progress = lambda _done, _all: None
) -> ConversionReport:
    """Convert the checkpoint at one path into a checkpoint at another path."""
    types = _target_types(options)
    opened = open_source(source, options.changes)
    try:
        output, gguf_name = _output_folder(target, options)
        notes = list(opened.notes)
        target_scheme = _target_scheme(opened, options.to)
        keys = _gguf_keys(opened, target_scheme, notes) if options.to == "gguf" else None
        plan = plan_tensors(
            opened, target_scheme, types, keys.tensors if keys else {}, with_mtp=options.with_mtp
        )
        notes += [*plan.notes, *_mtp_notes(opened, options)]
        if keys is not None:
            notes += _loading_notes(keys, plan, force=options.force)
        files = _plan_files(opened, plan, keys, gguf_name, options, notes)
        (kept,) = write_output([Output(opened, files, output)], progress, dry_run=options.dry_run)
    except OSError as error:
        raise write_error(error, target) from None
    finally:
        opened.reader.close()
    return ConversionReport(
        model=opened.model.name,
        folder=output.path,
        files=tuple(WrittenFile(os.path.join(output.path, x.name), x.size) for x in files),
        kept=kept,
        tensors=len(plan.tensors),
        dtype=plan.dtype,
        notes=tuple(dict.fromkeys(notes)),
        dry_run=options.dry_run,
    )


def target_format(target: str) -> str:
    """Return the format that the name of a target says: a file NAME.gguf is a GGUF file; raise
    for all else.
    """
    if target.endswith(".gguf") and not os.path.isdir(target):
        return "gguf"
    raise ArgumentError(
        "names",
        ": expected hf, hf-fused, meta or gguf, found none",
        hint="only a target NAME.gguf says which files it is",
    )


def _output_folder(target: str, options: ConvertOptions) -> tuple[OutputFolder, str]:
    """Return the folder to write to, and the name of the GGUF file in it."""
    if options.to != "gguf":
        return OutputFolder(path=target, force=options.force, stale=_STALE_FILES[options.to]), ""
    path, name, suffix = target, "model.gguf", ""
    if target.endswith(".gguf") and not os.path.isdir(target):
        path, name = os.path.dirname(target) or ".", os.path.basename(target)
        suffix = f".{name}"
    return OutputFolder(path=path, force=options.force, staging_suffix=suffix, shared=True), name


def _target_types(options: ConvertOptions) -> TargetTypes:
    """Return the types that the user asked for."""
    if not options.dtype:
        return TargetTypes()
    word = options.dtype.strip().upper()
    if word in (*QUANTIZERS, *_FILE_TYPES):
        if options.to != "gguf":
            raise ConvertError(
                f"{word} is a type of GGUF files, and {options.to} files do not have it",
                hint="expected fp32, bf16 or fp16",
            )
        return TargetTypes(mix=word) if word in _FILE_TYPES else TargetTypes(word)
    return TargetTypes(
        parse_dtype(
            options.dtype, (*FLOAT_BYTES, *(QUANTIZERS if options.to == "gguf" else ())), "convert"
        ).name
    )


def _target_scheme(source: ConversionSource, to: str) -> Scheme:
    """Return the naming scheme of the target; a text model leaves its multimodal wrapper."""
    family = source.model.family
    schemes = dict(family.schemes)
    if source.model.wrapper:
        schemes["hf"] = (
            find_family(str(source.model.config.data["model_type"])).for_tree(source.model.tree).hf
        )
    if to == "hf-fused":
        fused, tree = fused_scheme(schemes["hf"]), source.model.tree
        if fused is None or fused.flat_tensors(tree)[0] == schemes["hf"].flat_tensors(tree)[0]:
            raise ConvertError(
                f"the {family.name} family has no experts that can be fused", hint="convert to hf"
            )
        return fused
    if to not in schemes:
        problem = (
            "Meta's reference implements only the llama family"
            if to == "meta"
            else "llama.cpp does not have this family"
        )
        raise ConvertError(
            f"{problem}, and this is {family.name}",
            hint="convert to hf or gguf" if to == "meta" else "convert to hf",
        )
    return schemes[to]


def _gguf_keys(source: ConversionSource, scheme: Scheme, notes: list[str]) -> GGUFKeys:
    """Return the metadata of the model, after checking that they describe the same model."""
    model = source.model
    keys = gguf_model_keys(model)
    if "context_length" not in keys.keys:
        raise ConvertError(
            "GGUF needs the model's context length", hint="set max_position_embeddings=…"
        )
    shapes = {x.name: tuple(map(int, x.shape)) for x in scheme.tensors(model.tree)}
    notes += [*check_same_model(model, keys, shapes), *keys.notes]
    return keys


def _loading_notes(keys: GGUFKeys, plan: TensorPlan, *, force: bool) -> list[str]:
    """Raise an error if llama.cpp would not load the file; with `force`, return that as a note."""
    problems = loading_problems(keys.arch, [x.name for x in plan.tensors])
    if not problems:
        return []
    more = f" (and {len(problems) - 2} more)" if len(problems) > 2 else ""
    text = f"{'; '.join(problems[:2])}{more}: it would refuse to load the file ({loader_version()})"
    if not force:
        raise ConvertError(text, hint="convert to hf; --force writes the file for other programs")
    return [text]


def _mtp_notes(source: ConversionSource, options: ConvertOptions) -> list[str]:
    """Return a note about multi-token prediction layers."""
    if not source.mtp:
        return []
    tensors = "1 tensor" if len(source.mtp) == 1 else f"{len(source.mtp):,} tensors"
    kept = options.with_mtp and options.to.startswith("hf")
    return [f"multi-token prediction layers: {tensors} {'kept' if kept else 'left out'}"]


def _plan_files(
    source: ConversionSource,
    plan: TensorPlan,
    keys: GGUFKeys | None,
    gguf_name: str,
    options: ConvertOptions,
    notes: list[str],
) -> list[OutputFile]:
    """Return the files to write. The configuration is the last one: with it, a folder is a
    model.
    """
    paths = find_tokenizer_files(source.folder)
    if keys is not None:
        metadata = list(model_metadata(source.model, keys, plan.dtype))
        copied = copy_tokenizer_metadata(source.manifest) if source.format == "gguf" else []
        metadata += copied or tokenizer_metadata(paths, int(source.model.tree.vocab), notes)
        return [gguf_file(gguf_name, metadata, plan.tensors)]
    contents = {name: read_tokenizer_file(path) for name, path in paths.items()}
    tokenizer_model = contents.get("tokenizer.model", b"")
    copies = [ConcatFile(name, [data]) for name, data in contents.items()]
    if options.to == "meta":
        if not tokenizer_model:
            notes.append("there is no tokenizer.model, which Meta's reference needs")
        return [
            TorchArchive(_META_FILE, plan.tensors),
            *copies,
            json_file("params.json", params_keys(source, notes)),
        ]
    if "tokenizer.json" not in contents:
        if not tokenizer_model:
            notes.append("the checkpoint has no tokenizer")
        elif count_tiktoken_ranks(tokenizer_model):
            notes.append(
                "tokenizer.model is a tiktoken file: transformers needs a tokenizer.json instead"
            )
    config = config_json(
        source, plan, special_token_ids(tokenizer_model), with_mtp=options.with_mtp
    )
    return [
        *safetensors_files(plan.tensors, options.max_shard_size),
        *copies,
        json_file("config.json", config),
    ]
