"""`convert_checkpoint`: write a checkpoint of the Llama family in another format.

The files are written in a hidden folder inside the target folder and moved to their places when all are complete.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from ..checkpoint.formats.dtypes import parse_dtype
from ..checkpoint.formats.folder import STAGING_FOLDER
from ..checkpoint.naming.scheme import Scheme
from ..core.errors import ConvertError, safe
from ..core.record_type import Record
from ..core.report import Report, html_table
from .conversion_source import ConversionSource, open_source
from .copy_tokenizer import count_tiktoken_ranks, find_tokenizer_files, read_tokenizer_file, special_token_ids
from .float_cast import FLOAT_BYTES
from .output_files import ConcatFile, OutputFile
from .staging import StagingFolder
from .tensor_plan import TensorPlan, plan_tensors
from .write_gguf import gguf_file, model_metadata
from .write_gguf_tokenizer import tokenizer_metadata
from .write_hf import config_json, safetensors_files
from .write_meta import TorchArchive, params_keys

_MAX_SHARD_SIZE = 5_000_000_000
"""The default of transformers."""
_META_FILE = "consolidated.00.pth"
_STALE_FILES = {
    "hf": re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?"),
    "meta": re.compile(r"consolidated\.\d\d\.pth"),
    "gguf": re.compile(r"(?!)"),
}
"""Target format → files in the target folder that would be taken for a part of the new checkpoint."""


class ConvertOptions(Record):
    """The target format and options of a conversion."""

    to: str  # hf, meta or gguf
    dtype: str = ""  # in any spelling of fp32, fp16 or bf16; empty: as stored
    max_shard_size: int = _MAX_SHARD_SIZE
    force: bool = False  # overwrite existing files
    changes: Mapping[str, Any] = {}  # of configuration keys
    dry_run: bool = False  # check and plan, and write nothing


class _WrittenFile(NamedTuple):
    """A file of the new checkpoint."""

    path: str
    bytes: int


class ConversionReport(Report):
    """The files of a conversion, and notes about it."""

    json_fields: ClassVar[tuple[str, ...]] = ("model", "folder", "files", "bytes", "tensors", "dtype", "kept", "notes")

    model: str
    folder: str
    files: tuple[_WrittenFile, ...]
    kept: tuple[str, ...]  # names of files that an interrupted run had completed
    tensors: int
    dtype: str
    notes: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(x.bytes for x in self.files)

    @property
    def summary(self) -> str:
        """The result in one line."""
        return f"{self.model}, {self.tensors:,} tensors, {self.bytes:,} bytes in {self.folder}"

    def html_tables(self) -> list[str]:
        """The table of files."""
        return [html_table(("file", "bytes"), self.files)]


Progress = Callable[[int, int], None]
"""Called with the number of bytes written so far and in all."""


class _Target(NamedTuple):
    """The output of a conversion."""

    folder: str
    staging_suffix: str  # of the hidden folder, so that several GGUF files can be written to one folder
    gguf_name: str


def convert_checkpoint(
    source: str, target: str, options: ConvertOptions, progress: Progress = lambda _done, _all: None
) -> ConversionReport:
    """Convert the checkpoint at one path into a checkpoint at another path."""
    dtype = parse_dtype(options.dtype, FLOAT_BYTES, "convert").name if options.dtype else ""
    opened = open_source(source, options.changes)
    try:
        output = _split_target(target, options.to)
        notes = list(opened.notes)
        plan = plan_tensors(opened, _target_scheme(opened, options.to), dtype)
        files = _plan_files(opened, plan, options, output.gguf_name, notes)
        _check_not_source(source, opened, output.folder, files)
        staging = StagingFolder(output.folder, output.staging_suffix, files, _fingerprint(opened, files))
        _check_not_existing(staging, options)
        kept = [] if options.dry_run else _write_files(staging, opened, options, progress)
    except OSError as error:
        where = safe(os.fsdecode(error.filename or target))
        raise ConvertError(f"{where}: {error.strerror or error}", hint="existing files have not been changed") from None
    finally:
        opened.reader.close()
    return ConversionReport(
        model=opened.model.name,
        folder=output.folder,
        files=tuple(_WrittenFile(os.path.join(output.folder, x.name), x.size) for x in files),
        kept=tuple(kept),
        tensors=len(plan.tensors),
        dtype=plan.dtype,
        notes=tuple(dict.fromkeys(notes)),
    )


def _split_target(target: str, to: str) -> _Target:
    if to == "gguf" and target.endswith(".gguf") and not os.path.isdir(target):
        name = os.path.basename(target)
        return _Target(os.path.dirname(target) or ".", f".{name}", name)
    return _Target(target, "", "model.gguf")


def _check_not_source(path: str, source: ConversionSource, folder: str, files: list[OutputFile]) -> None:
    """Refuse to write into the folder of the source, or over its files."""
    source_folder, target_folder = os.path.realpath(source.folder), os.path.realpath(folder)
    if os.path.isdir(path) and (target_folder == source_folder or target_folder.startswith(os.path.join(source_folder, ""))):
        raise ConvertError(f"{safe(folder)} is inside the source folder {safe(path)}", hint="write to another folder")
    source_files = {os.path.realpath(x.name) for x in source.manifest.files}
    source_files |= {os.path.join(source_folder, x) for x in ("config.json", "params.json")}
    if overwritten := [x.name for x in files if os.path.join(target_folder, x.name) in source_files]:
        raise ConvertError(f"{safe(os.path.join(folder, overwritten[0]))} belongs to the source", hint="write to another folder")


def _target_scheme(source: ConversionSource, to: str) -> Scheme:
    schemes = source.model.family.schemes
    if to not in schemes:
        raise ConvertError(
            f"Meta's reference implements only the llama family, and this is {source.model.family.name}", hint="convert to hf or gguf"
        )
    return schemes[to]


def _plan_files(source: ConversionSource, plan: TensorPlan, options: ConvertOptions, gguf_name: str, notes: list[str]) -> list[OutputFile]:
    """Return the files to write. The configuration is the last one: with it, a folder is a model."""
    paths = find_tokenizer_files(source.folder)
    if options.to == "gguf":
        metadata = list(model_metadata(source.model, plan.dtype, notes))
        metadata += tokenizer_metadata(paths, int(source.model.tree.vocab), notes)
        return [gguf_file(gguf_name, metadata, plan.tensors)]
    contents = {name: read_tokenizer_file(path) for name, path in paths.items()}
    tokenizer_model = contents.get("tokenizer.model", b"")
    copies = [ConcatFile(name, [data]) for name, data in contents.items()]
    if options.to == "meta":
        if not tokenizer_model:
            notes.append("there is no tokenizer.model, which Meta's reference needs")
        return [TorchArchive(_META_FILE, plan.tensors), *copies, _json_file("params.json", params_keys(source, notes))]
    if "tokenizer.json" not in contents:
        if not tokenizer_model:
            notes.append("the checkpoint has no tokenizer")
        elif count_tiktoken_ranks(tokenizer_model):
            notes.append("tokenizer.model is a tiktoken file: transformers needs a tokenizer.json instead")
    config = config_json(source, plan.dtype, special_token_ids(tokenizer_model))
    return [*safetensors_files(plan.tensors, options.max_shard_size), *copies, _json_file("config.json", config)]


def _json_file(name: str, keys: Mapping[str, Any]) -> ConcatFile:
    return ConcatFile(name, [(json.dumps(keys, indent=2, ensure_ascii=False) + "\n").encode()])


def _fingerprint(source: ConversionSource, files: list[OutputFile]) -> str:
    """Return a digest that is the same for the same conversion of the same files only."""
    digest = hashlib.sha256()
    digest.update(repr(source.stamps).encode())
    for file in files:
        digest.update(repr((file.name, file.size)).encode() + file.identity())
    return digest.hexdigest()


def _check_not_existing(staging: StagingFolder, options: ConvertOptions) -> None:
    """Refuse to overwrite files, except with `force`; where a move was interrupted, they are checked again once it is undone."""
    folder = staging.folder
    if options.force or staging.may_be_moving or not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ConvertError(f"{safe(folder)} is a file; expected a folder", hint="choose another target")
    existing = sorted(x for x in os.listdir(folder) if not x.startswith(STAGING_FOLDER))
    if options.to == "gguf":
        existing = [x.name for x in staging.files if x.name in existing]
    if existing:
        staging.remove_if_finished()
        raise ConvertError(f"{safe(folder)} already contains {safe(existing[0])}", hint="use force to overwrite it")


def _write_files(staging: StagingFolder, source: ConversionSource, options: ConvertOptions, progress: Progress) -> list[str]:
    """Write the files that are not complete yet, and publish all; returns the names of the others."""
    try:
        staging.lock()  # and undo the move of another conversion
        _check_not_existing(staging, options)
        kept = [x for x in staging.files if staging.is_complete(x)]
        staging.check_disk_space()
        done, total = sum(x.size for x in kept), sum(x.size for x in staging.files)

        def count_bytes(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        for file in staging.files:
            if file not in kept:
                staging.write(file, source.reader, count_bytes)
        names = {x.name for x in staging.files}
        source.check_unchanged()
        staging.publish([x for x in os.listdir(staging.folder) if _STALE_FILES[options.to].fullmatch(x) and x not in names])
        return [x.name for x in kept]
    except KeyboardInterrupt as stopped:
        if complete := staging.keep_completed():
            stopped.add_note(f"{complete} of {len(staging.files)} files are complete; run the same command again to continue")
        raise
    except BaseException:
        staging.discard()
        raise
    finally:
        staging.unlock()
