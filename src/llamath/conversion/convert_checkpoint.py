"""`convert_checkpoint`: write a checkpoint in another format.

The files are written in a hidden folder inside the target folder and moved to their places when all
are complete.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from ..checkpoint.formats.dtypes import parse_dtype
from ..checkpoint.gguf_metadata.loaded_tensors import (
    loader_version,
    loading_problems,
    loads_mtp_layers,
)
from ..checkpoint.naming.scheme import Scheme, fused_scheme
from ..families.registry import Family, find_family
from ..model import FamilyModel
from ..questions.edit_settings import Edit
from ..render.report import Report
from ..render.tables import Cell, Column, Part, Table, Text
from ..utils.errors import Argument, ArgumentError, ConvertError, safe
from ..utils.number_format import format_count
from ..utils.record_type import Record
from .conversion_source import (
    ConversionSource,
    append_mtp_layers,
    convertible_source,
    open_source,
)
from .copy_tokenizer import (
    count_tiktoken_ranks,
    find_tokenizer_files,
    read_tokenizer_file,
    special_token_ids,
)
from .edit.edit_checkpoint import (
    Edited,
    checkpoint_files,
    cut_ranks,
    open_edited,
    sharded_parameters,
)
from .float_cast import FLOAT_BYTES
from .gguf_model_keys import GGUFKeys, check_same_model, gguf_model_keys
from .quantize_blocks import QUANTIZERS
from .source_files import SourceFiles
from .tensor_plan import TargetTypes, TensorPlan, most_common_dtype, plan_tensors
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

    # hf, hf-fused, meta or gguf; empty: what the target's name says, or an edited checkpoint as it
    # is stored
    to: str = ""
    edit: Edit = Edit()
    # in any spelling of fp32, fp16 or bf16, or a type of GGUF_TYPES; empty: as stored
    dtype: str = ""
    max_shard_size: int = MAX_SHARD_SIZE
    force: bool = False  # overwrite existing files
    changes: Mapping[str, Any] = {}  # of configuration keys
    dry_run: bool = False  # check and plan, and write nothing


class Change(Record):
    """A number of the source and of the edited checkpoint."""

    json_fields: ClassVar[tuple[str, ...]] = ("before", "after", "change=difference")

    before: int
    after: int

    @property
    def difference(self) -> int:
        """The change."""
        return self.after - self.before


class WrittenFile(NamedTuple):
    """A file of the new checkpoint."""

    path: str
    bytes: int


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
        "edits",
        "parameters",
        "config",
        "notes",
    )

    model: str
    folder: str
    files: tuple[WrittenFile, ...]
    kept: tuple[str, ...]  # names of files that an interrupted run had completed
    tensors: int
    dtype: str
    notes: tuple[str, ...]
    edits: tuple[str, ...] = ()  # in words
    parameters: Change | None = None  # None: nothing was edited
    config: Mapping[str, Any] = {}  # the keys that an edit changes, with their new values
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
        written = sum(x.bytes for x in self.files if self._name(x) not in self.kept)
        rate = (
            f", {self.seconds:.1f} s, {written / 1e9 / self.seconds:.2f} GB/s"
            if self.seconds >= 0.1 and written and not self.dry_run
            else ""
        )
        earlier = f" ({len(self.kept)} of them from an earlier run)" if self.kept else ""
        files = f"{format_count(len(self.files), 'file')}{earlier} to {safe(self.folder)}"
        verb = "would write" if self.dry_run else "wrote"
        return f"{verb} {self.tensors:,} tensors, {self.bytes:,} bytes, in {files}{rate}"

    def tables(self) -> Iterable[Part]:
        """The changes of an edit, and the files."""
        if self.parameters is not None:
            before, after = self.parameters.before, self.parameters.after
            yield Text(f"{'; '.join(self.edits)}: {before:,} → {after:,} parameters")
        if self.config:
            yield Table(
                title="config.json",
                columns=(Column("", key="key"), Column("", key="value", wrap=True)),
                rows=tuple((x, _value_cell(value)) for x, value in self.config.items()),
            )
        columns = (Column("file"), Column("path", shown=False), Column("bytes", "count"))
        rows = tuple((self._name(x), x.path, x.bytes) for x in self.files)
        yield Table(columns=columns, rows=rows)

    def _name(self, file: WrittenFile) -> str:
        """Return the path of a file from the folder on."""
        return os.path.relpath(file.path, self.folder)


def _value_cell(value: object) -> Cell:
    text = json.dumps(value, ensure_ascii=False)
    return Cell(value, text="removed" if value is None else safe(text, _MAX_VALUE))


_MAX_VALUE = 60
"""Characters of a value of the config."""


def convert_checkpoint(
    source: str, target: str, options: ConvertOptions, progress: Progress = lambda _done, _all: None
) -> ConversionReport:
    """Convert the checkpoint at one path into a checkpoint at another path."""
    options = options.replace(to=_target_format(target, options))
    types = _target_types(options)
    edited: Edited | None = None
    opened: SourceFiles | None = None
    try:
        if not options.edit.is_none:
            edited = open_edited(source, options.edit)
            opened = edited.source
        if not options.to:
            assert edited is not None, "without a format, a checkpoint is edited"
            return _write_edited(edited, target, options, progress)
        if edited is None:
            opened = converted = open_source(source, options.changes)
        else:
            converted = convertible_source(edited.source, options.changes)
        report = _write_converted(converted, types, target, options, progress)
        return report if edited is None else _with_edits(report, edited, converted.model)
    except OSError as error:
        raise write_error(error, target) from None
    finally:
        if opened is not None:
            opened.reader.close()


def _write_converted(
    opened: ConversionSource,
    types: TargetTypes,
    target: str,
    options: ConvertOptions,
    progress: Progress,
) -> ConversionReport:
    """Write a checkpoint in another format."""
    output, gguf_name = _output_folder(target, options)
    notes = list(opened.notes)
    target_scheme = _target_scheme(opened, options.to)
    keys = _gguf_keys(opened, target_scheme, notes) if options.to == "gguf" else None
    copies_mtp = options.edit.keeps_mtp and opened.format != "gguf" and options.to.startswith("hf")
    whole = opened
    if options.edit.keeps_mtp and not copies_mtp and target_scheme.names_mtp:
        whole = append_mtp_layers(opened)
    plan = plan_tensors(
        whole, target_scheme, types, keys.tensors if keys else {}, with_mtp=copies_mtp
    )
    left_out = 0 if copies_mtp else len(whole.mtp)
    notes += [*plan.notes, *_mtp_notes(opened, left_out, options)]
    if keys is not None:
        keys = keys.with_mtp_layers(len(whole.model.tree.layers) - len(opened.model.tree.layers))
        notes += _loading_notes(keys, plan, force=options.force)
    with_mtp = copies_mtp or whole is not opened
    files = _plan_files(opened, plan, keys, gguf_name, options, notes, with_mtp=with_mtp)
    (kept,) = write_output([Output(opened, files, output)], progress, dry_run=options.dry_run)
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


def _write_edited(
    edited: Edited, target: str, options: ConvertOptions, progress: Progress
) -> ConversionReport:
    """Write an edited checkpoint, or its ranks, with the names, dtypes and parts that it has."""
    source, ranks = edited.source, options.edit.tp_shards
    parts, folders = [source], [target]
    if ranks is not None:
        parts = list(cut_ranks(source, ranks))
        folders = [os.path.join(target, str(rank)) for rank in range(ranks)]
        _check_rank_folders(target, ranks, force=options.force)
    outputs = [
        Output(
            x,
            checkpoint_files(x, options.max_shard_size),
            OutputFolder(path=folder, force=options.force, stale=STALE_HF_FILES),
        )
        for x, folder in zip(parts, folders, strict=True)
    ]
    kept = write_output(outputs, progress, dry_run=options.dry_run)
    report = ConversionReport(
        model=source.model.name,
        folder=target,
        files=tuple(
            WrittenFile(os.path.join(x.folder.path, file.name), file.size)
            for x in outputs
            for file in x.files
        ),
        kept=tuple(
            os.path.relpath(os.path.join(x.folder.path, name), target)
            for x, names in zip(outputs, kept, strict=True)
            for name in names
        ),
        tensors=sum(len(x.tensors) for x in parts),
        dtype=most_common_dtype(source.tensors.values()),
        notes=(),
        dry_run=options.dry_run,
    )
    return _with_edits(report, edited, source.model, ranks)


def _with_edits(
    report: ConversionReport, edited: Edited, model: FamilyModel, ranks: int | None = None
) -> ConversionReport:
    """Return the report of a conversion with what was edited before it."""
    after = model.parameters.total if ranks is None else sharded_parameters(model, ranks)
    return report.replace(
        edits=edited.edits if ranks is None else (*edited.edits, f"cut {ranks} ranks"),
        parameters=Change(before=int(edited.parameters), after=int(after)),
        config=edited.config,
        notes=tuple(dict.fromkeys((*edited.notes, *report.notes))),
    )


def _check_rank_folders(target: str, ranks: int, *, force: bool) -> None:
    """Refuse a folder with anything but the ranks to write; with `force`, one with ranks of
    another cut, which would be joined with these.
    """
    if not os.path.isdir(target):
        return
    own = {str(x) for x in range(ranks)}
    other = sorted(x for x in set(os.listdir(target)) - own if not force or x.isdecimal())
    if other:
        raise ConvertError(
            f"{safe(target)} already contains {safe(other[0])}",
            hint="remove it, or choose another target",
        )


def _target_format(target: str, options: ConvertOptions) -> str:
    """Return the format to write, which the name of a target NAME.gguf may say, or an empty string
    for an edited checkpoint as it is stored.
    """
    edit, to = options.edit, options.to
    if not to and target.endswith(".gguf") and not os.path.isdir(target):
        to = "gguf"
    is_stored = not to and not options.dtype and not options.changes and not edit.part
    if edit.tp_shards is not None and not is_stored:
        raise ArgumentError(
            "tp_shards",
            " cuts a checkpoint as it is stored, and not one in another format",
            hint="convert the checkpoint first, then cut the result",
        )
    if to or (is_stored and not edit.is_none):
        return to
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
            else family.why_no_gguf
            or f"llama.cpp has the architecture {family.gguf_arch}, and its tensor names and "
            "metadata are not known here"
            if family.gguf_arch
            else "no architecture of GGUF files is known here for this family"
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
        raise ConvertError(
            text,
            hint=f"convert to hf; {Argument('force', True)} writes the file for other programs",
        )
    return [text]


def _mtp_notes(source: ConversionSource, left_out: int, options: ConvertOptions) -> Iterator[str]:
    """Yield notes about the tensors of multi-token prediction layers."""
    if kept := len(source.mtp) - left_out:
        yield f"multi-token prediction layers: {format_count(kept, 'tensor')} kept"
    if left_out:
        why = ""
        if options.to == "gguf" and options.edit.keeps_mtp:
            why = f": {_why_without_mtp(source.model.family)}"
        yield f"multi-token prediction layers: {format_count(left_out, 'tensor')} left out{why}"


def _why_without_mtp(family: Family) -> str:
    """Return why layers for multi-token prediction are not in a family's GGUF files."""
    if family.gguf is not None and family.gguf.names_mtp:
        return "some of their tensors are missing or have other shapes"
    if not loads_mtp_layers(family.gguf_arch):
        return f"llama.cpp has no tensors for them in its architecture {family.gguf_arch}"
    return f"their GGUF names are not known for the {family.name} family"


def _plan_files(
    source: ConversionSource,
    plan: TensorPlan,
    keys: GGUFKeys | None,
    gguf_name: str,
    options: ConvertOptions,
    notes: list[str],
    *,
    with_mtp: bool,
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
    config = config_json(source, plan, special_token_ids(tokenizer_model), with_mtp=with_mtp)
    return [
        *safetensors_files(plan.tensors, options.max_shard_size),
        *copies,
        json_file("config.json", config),
    ]
