"""`edit_checkpoint`: write a checkpoint with fewer layers, another vocabulary, or one rank's part
of it.

The edited tree says what the new config.json has to describe. Before anything is written, the
planned tensors are verified against it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ...analysis.default_context import default_context
from ...analysis.flops.flop_count import forward_flops
from ...analysis.graph.recorder import record
from ...analysis.shard_tree import check_shardable, shard_of, shard_tree
from ...analysis.verify.check_checkpoint import verify_opened
from ...checkpoint.formats.folder import resolve_inside
from ...checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ...checkpoint.open import OpenedCheckpoint
from ...checkpoint.quantization_section import RECIPE_FILES, quantization_section, with_recipe_file
from ...checkpoint.tensor_parallel_shard import SHARD_KEY, TensorParallelShard
from ...core.blocks import Decoder
from ...core.expr import Expr
from ...loading import load
from ...model import Model
from ...render.report import Report
from ...render.tables import Cell, Column, Part, Table, heading
from ...utils.errors import ConvertError, safe
from ...utils.number_format import format_count
from ...utils.record_type import Record
from ...utils.strict_json import parse_json, read_json
from ..convert_checkpoint import WrittenFile, file_table, written_files
from ..copy_tokenizer import find_tokenizer_files, read_tokenizer_file
from ..source_files import SourceFiles
from ..write.output_files import ConcatFile
from ..write.write_hf import MAX_SHARD_SIZE, STALE_HF_FILES, safetensors_files
from ..write.write_output import Output, OutputFolder, Progress, write_error, write_output
from .edit_options import EditOptions, describe_layers, parse_tp_shard, select_layers
from .edit_source import KEPT_FINDINGS, EditSource, open_edit_source
from .edited_config import LayerNumbers, edit_config, special_token_ids
from .edited_tensor import EditedTensor
from .edited_tree import TreeEdit, edit_tree
from .join_ranks import join_ranks, open_ranks
from .packed_cuts import packed_cuts
from .plan_edit import plan_edit
from .plan_shards import plan_shard, stored_cuts

_PROCESSOR_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
"""Files of multimodal models, copied like the tokenizer."""


class Change(Record):
    """A number of the source and of the edited checkpoint."""

    json_fields: ClassVar[tuple[str, ...]] = ("before", "after", "change=difference")

    before: int
    after: int

    @property
    def difference(self) -> int:
        """The change."""
        return self.after - self.before


class EditReport(Report):
    """The change that an edit makes, and the files that it wrote."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model",
            "folder",
            "edits",
            "parameters",
            "bytes",
            "flops",
            "context",
            "config",
            "tensors",
            "files",
            "kept",
            "notes",
        ),
    )

    model: str
    folder: str
    edits: tuple[str, ...]
    parameters: Change
    bytes: Change  # of the stored tensors
    flops: Change  # of a forward pass over one sequence of `context` tokens
    context: int
    config: Mapping[str, Any]  # changed keys with their new values
    tensors: int
    files: tuple[WrittenFile, ...]
    kept: tuple[str, ...]  # names of files that an interrupted run had completed
    notes: tuple[str, ...]
    dry_run: bool = False

    @property
    def summary(self) -> str:
        """The result in one line."""
        return (
            f"{self.model}, {'; '.join(self.edits)}: {self.parameters.before:,} → "
            f"{self.parameters.after:,} parameters in {self.folder}"
        )

    @property
    def headline(self) -> str:
        """The edits."""
        return f"{self.model}: {'; '.join(self.edits)}"

    def tables(self) -> Iterable[Part]:
        """The change of each number, the changed keys of the config, and the files."""
        yield Table(
            columns=_CHANGES,
            rows=tuple(_change_cells(name, x) for name, x in self.changes.items()),
            legend="FLOPs of a forward pass over one sequence of "
            f"{format_count(self.context, 'token')}",
        )
        if self.config:
            yield Table(
                title="config.json",
                columns=(Column("", key="key"), Column("", key="value", wrap=True)),
                rows=tuple((x, _value_cell(value)) for x, value in self.config.items()),
            )
        size = sum(x.bytes for x in self.files)
        verb = "would write" if self.dry_run else "wrote"
        files = written_files(self.files, self.kept, self.folder)
        yield heading(f"{verb} {self.tensors:,} tensors, {size:,} bytes, in {files}")
        yield file_table(self.files)

    @property
    def changes(self) -> Mapping[str, Change]:
        """The changes by name."""
        return {"parameters": self.parameters, "bytes": self.bytes, "FLOPs": self.flops}


_CHANGES = (
    Column("", key="of"),
    Column("before", "count"),
    Column("after", "count"),
    Column("change", "signed", drop=2),
    Column("", "right", "share", drop=1),
)


def _change_cells(name: str, x: Change) -> tuple[Any, ...]:
    share = x.difference / x.before if x.before else None
    text = f"{share:+.2%}".replace("-", "−") if share else ""
    return name, x.before, x.after, x.difference, Cell(share, text=text)


def _value_cell(value: object) -> Cell:
    text = json.dumps(value, ensure_ascii=False)
    return Cell(value, text="removed" if value is None else safe(text, _MAX_VALUE))


_MAX_VALUE = 60
"""Characters of a value of the config."""


class _Edited(NamedTuple):
    """The planned result of an edit."""

    source: SourceFiles
    before: Model
    after: Model
    config: Mapping[str, Any]
    stored: Mapping[str, Any]  # the config of the source
    tensors: Sequence[EditedTensor]
    edits: tuple[str, ...]
    notes: tuple[str, ...]
    parameters: Change
    stored_bytes: Change
    folder: str  # with the tokenizer
    recipes: Mapping[str, bytes]  # the new files beside config.json that have a recipe, by name


def edit_checkpoint(
    source: str, target: str, options: EditOptions, progress: Progress = lambda _done, _all: None
) -> EditReport:
    """Write an edited copy of the checkpoint in a folder to another folder."""
    options.check()
    edited: _Edited | None = None
    try:
        edited = (
            _join(source)
            if options.join_shards
            else _shard(source, options)
            if options.tp_shard
            else _edit(source, options)
        )
        _check_result(edited)
        output = OutputFolder(path=target, force=options.force, stale=STALE_HF_FILES)
        files = _files(edited)
        (kept,) = write_output(
            [Output(edited.source, files, output)], progress, dry_run=options.dry_run
        )
    except OSError as error:
        raise write_error(error, target) from None
    finally:
        if edited is not None:
            edited.source.reader.close()
    flops, context = _flops(edited.before.tree, edited.after.tree)
    return EditReport(
        model=edited.before.name,
        folder=target,
        edits=edited.edits,
        parameters=edited.parameters,
        bytes=edited.stored_bytes,
        flops=flops,
        context=context,
        config=_changed_keys(edited.stored, edited.config),
        tensors=len(edited.tensors),
        files=tuple(WrittenFile(os.path.join(target, x.name), x.size) for x in files),
        kept=kept,
        notes=edited.notes,
        dry_run=options.dry_run,
    )


def _edit(path: str, options: EditOptions) -> _Edited:
    """Plan the edits of layers and vocabulary."""
    source = open_edit_source(path)
    try:
        return _plan_tree_edit(source, options)
    except BaseException:
        source.reader.close()
        raise


def _plan_tree_edit(source: EditSource, options: EditOptions) -> _Edited:
    model, tree = source.model, source.model.tree
    if shard_of(model) is not None:
        raise ConvertError(
            f"{safe(source.path)} is one rank's part of a checkpoint",
            hint="join the ranks first: --join-shards",
        )
    edit, edits, notes = TreeEdit(), list[str](), list[str]()
    if options.drop_layers is not None:
        count = int(tree.layers.n)
        dropped = select_layers(options.drop_layers, count)
        if len(dropped) == count:
            raise ConvertError(
                f"--drop-layers: expected at least one layer to remain, found all {count} dropped"
            )
        gone = set(dropped)
        edit = edit.replace(layers=tuple(x for x in range(count) if x not in gone))
        edits.append(f"dropped {describe_layers(dropped, count)}")
    if options.resize_vocab is not None:
        edit = edit.replace(vocab=_check_vocab(source, options.resize_vocab))
        edits.append(f"resized the vocabulary from {int(tree.vocab):,} to {options.resize_vocab:,}")
        if (more := options.resize_vocab - int(tree.vocab)) > 0:
            first = int(tree.vocab)
            rows = (
                f"row {first:,} is"
                if more == 1
                else (f"rows {first:,}–{options.resize_vocab - 1:,} are")
            )
            notes.append(f"{rows} the mean of the rows before, in the embedding and in the head")
    edited_tree = edit_tree(tree, edit)
    config, after = edit_config(model, dict(source.config), edited_tree, edit)
    tensors = plan_edit(source, edit, edited_tree)
    names = LayerNumbers(edit, model.family.hf.layer.rstrip(".").split(".")[-2])
    notes += [x.message for x in source.report.findings if x.severity != "info"]
    return _Edited(
        source=source,
        before=model,
        after=after,
        config=config,
        stored=source.config,
        tensors=tensors,
        edits=tuple(edits),
        notes=tuple(notes),
        parameters=_change(model.parameters.total, after.parameters.total),
        stored_bytes=_change(
            sum(x.bytes for x in source.tensors.values()), sum(x.size for x in tensors)
        ),
        folder=source.folder,
        recipes=_recipes(source.folder, names),
    )


def _check_vocab(source: EditSource, vocab: int) -> int:
    """Return the new size if every token in use has a row."""
    if not 0 < vocab < 2**31:
        raise ConvertError(f"--resize-vocab: expected a positive number of rows, found {vocab}")
    if vocab == int(source.model.tree.vocab):
        raise ConvertError(f"--resize-vocab {vocab}: the vocabulary has this size already")
    ids = list(special_token_ids(source.config, ""))
    if os.path.isfile(os.path.join(source.folder, "generation_config.json")):
        ids += special_token_ids(
            read_json(resolve_inside(source.folder, "generation_config.json")),
            "generation_config.json: ",
        )
    # one beyond the old rows was never in use
    used = [x for x in ids if vocab <= x[0] < int(source.model.tree.vocab)]
    if used:
        number, key = max(used)
        raise ConvertError(
            f"--resize-vocab {vocab}: {key} is {number}, which needs at least {number + 1:,} rows"
        )
    return vocab


def _shard(path: str, options: EditOptions) -> _Edited:
    """Plan one rank's part."""
    shard = TensorParallelShard(*parse_tp_shard(options.tp_shard))
    source = open_edit_source(path)
    try:
        model = source.model
        if shard_of(model) is not None:
            raise ConvertError(
                f"{safe(path)} is one rank's part already",
                hint="join the ranks first: --join-shards",
            )
        check_shardable(model.tree, shard.world_size)
        cuts = stored_cuts(source.scheme, model.tree, shard)
        packed = packed_cuts(
            cuts,
            source.tensors,
            source.packings,
            source.report.checkpoint.quantization_config,
            lambda x: source.reader.read_bytes(x, 0, x.bytes),
        )
        tensors = plan_shard(source.tensors, cuts | packed.cuts, packed.data)
        config = {**source.config, SHARD_KEY: shard._asdict()}
        rank = model.replace(tree=shard_tree(model.tree, shard))
        return _Edited(
            source=source,
            before=model,
            after=model,
            config=config,
            stored=source.config,
            tensors=tensors,
            edits=(f"cut rank {shard.rank} of {shard.world_size}",),
            notes=("the config is that of the whole model; the ranks together compute its FLOPs",),
            parameters=_change(model.parameters.total, rank.parameters.total),
            stored_bytes=_change(
                sum(x.bytes for x in source.tensors.values()), sum(x.size for x in tensors)
            ),
            folder=source.folder,
            recipes=_recipes(source.folder, None),
        )
    except BaseException:
        source.reader.close()
        raise


def _join(path: str) -> _Edited:
    """Plan the checkpoint of all ranks."""
    ranks = open_ranks(path)
    try:
        tensors = join_ranks(ranks)
        first = ranks.sources[0]
        shards = [
            TensorParallelShard(rank, len(ranks.sources)) for rank in range(len(ranks.sources))
        ]
        before = sum(
            ranks.model.replace(tree=shard_tree(ranks.model.tree, x)).parameters.total
            for x in shards
        )
        return _Edited(
            source=ranks,
            before=ranks.model,
            after=ranks.model,
            config=ranks.config,
            stored=first.config,
            tensors=tensors,
            edits=(f"joined {len(ranks.sources)} ranks",),
            notes=(),
            parameters=_change(before, ranks.model.parameters.total),
            stored_bytes=_change(
                sum(x.bytes for rank in ranks.sources for x in rank.tensors.values()),
                sum(x.size for x in tensors),
            ),
            folder=first.folder,
            recipes=_recipes(first.folder, None),
        )
    except BaseException:
        ranks.reader.close()
        raise


def _check_result(edited: _Edited) -> None:
    """Raise if the planned checkpoint would not match its config."""
    stored: list[Tensor] = []
    for x in edited.tensors:
        start = stored[-1].end if stored else 0
        stored.append(Tensor(x.name, x.dtype, x.shape, 0, start, start + x.size))
    files = (CheckpointFile("model.safetensors", stored[-1].end if stored else 0),)
    manifest = Manifest(format="safetensors", files=files, tensors=tuple(stored))
    keys = with_recipe_file(
        edited.config,
        lambda name: parse_json(edited.recipes[name], name) if name in edited.recipes else None,
    )
    planned = _PlannedCheckpoint(name=edited.folder, manifest=manifest, keys=keys)
    report = verify_opened(planned, edited.folder, load(keys), own_config=True)
    known = (
        {x.code for x in edited.source.report.findings}
        if isinstance(edited.source, EditSource)
        else set()
    )
    for finding in report.findings:
        if finding.severity != "info" and not (
            finding.code in KEPT_FINDINGS and finding.code in known
        ):
            raise ConvertError(
                f"the edited checkpoint would not match its config: {finding.message}",
                hint=finding.hint,
            )


class _PlannedCheckpoint(OpenedCheckpoint):
    """A checkpoint that is not written yet, with its config."""

    keys: Mapping[str, Any]

    @property
    def has_local_values(self) -> bool:
        return False

    @property
    def quantization_config(self) -> Mapping[str, Any] | None:
        """The section of the new config about the quantization of weights."""
        return quantization_section(self.keys)


def _files(edited: _Edited) -> list[ConcatFile]:
    """Return the files to write. The configuration is the last one: with it, a folder is a
    model.
    """
    folder = edited.folder
    paths = {
        name: path
        for name, path in find_tokenizer_files(folder).items()
        if os.path.dirname(path) == folder
    }
    paths |= {
        name: resolve_inside(folder, name)
        for name in _PROCESSOR_FILES
        if os.path.isfile(os.path.join(folder, name))
    }
    copies = [ConcatFile(name, [read_tokenizer_file(path)]) for name, path in paths.items()]
    copies += [ConcatFile(name, [data]) for name, data in edited.recipes.items()]
    return [
        *safetensors_files(edited.tensors, MAX_SHARD_SIZE),
        *copies,
        ConcatFile("config.json", [_json_bytes(edited.config)]),
    ]


def _recipes(folder: str, names: LayerNumbers | None) -> dict[str, bytes]:
    """Return the new files that have a recipe of their own, by name."""
    recipes = {}
    for name in RECIPE_FILES:
        if os.path.isfile(os.path.join(folder, name)):
            data = read_tokenizer_file(resolve_inside(folder, name))
            keys = parse_json(data, name)
            renamed = keys if names is None else names.rename_all(keys)
            recipes[name] = data if renamed == keys else _json_bytes(renamed)
    return recipes


def _json_bytes(keys: Mapping[str, Any]) -> bytes:
    return (json.dumps(keys, indent=2, ensure_ascii=False) + "\n").encode()


def _changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of config.json that an edit changes, with their new values; null for those
    that are gone.
    """
    changed: dict[str, Any] = {}
    for key in (*after, *(x for x in before if x not in after)):
        old, new = before.get(key), after.get(key)
        if old != new and isinstance(old, Mapping) and isinstance(new, Mapping):
            changed |= {f"{key}.{name}": x for name, x in _changed_keys(old, new).items()}
        elif old != new:
            changed[key] = new
    return changed


def _change(before: int, after: int) -> Change:
    return Change(before=int(before), after=int(after))


def _flops(before: Decoder, after: Decoder) -> tuple[Change, int]:
    """Return the FLOPs of a forward pass over one sequence as long as the model's context, and
    its length.
    """
    context = default_context(before)
    old, new = (
        int(forward_flops(record(x, new_tokens=context, past_tokens=Expr.const(0))).total)
        for x in (before, after)
    )
    return _change(old, new), context
