"""`open_edited`: a checkpoint with its ranks joined, fewer layers, or another vocabulary;
`cut_ranks`, its parts under tensor parallelism, and `checkpoint_files`, the files of each.

The edited tree says what the new config.json has to describe. Before anything is written, the
planned tensors are verified against it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...analysis.storage.shard_tree import check_shardable, shard_of, shard_tree
from ...checkpoint.formats.folder import resolve_inside
from ...checkpoint.tensor_parallel_shard import SHARD_KEY, TensorParallelShard
from ...model import FamilyModel
from ...questions.edit_settings import Edit
from ...utils.errors import Argument, ArgumentError, ConvertError, safe
from ...utils.strict_json import parse_json, read_json
from ..copy_tokenizer import find_tokenizer_files, read_tokenizer_file
from ..write.output_files import ConcatFile
from ..write.write_hf import json_bytes, json_file, safetensors_files
from .edit_source import EditSource, edited_source, open_edit_source
from .edited_config import LayerNumbers, edit_config, special_token_ids
from .edited_tensor import copy_tensor
from .edited_tree import TreeEdit, edit_tree
from .join_ranks import join_ranks
from .layer_selection import describe_layers, select_layers
from .packed_cuts import packed_cuts
from .plan_edit import plan_edit
from .plan_shards import plan_shard, stored_cuts

_PROCESSOR_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
"""Files of multimodal models, copied like the tokenizer."""


class Edited(NamedTuple):
    """An edited checkpoint, and how it differs from the one that is stored."""

    source: EditSource
    parameters: int  # that are stored
    edits: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    config: Mapping[str, Any] = {}  # the changed keys with their new values


def open_edited(path: str, edit: Edit) -> Edited:
    """Open a checkpoint with the edits other than `tp_shards`: ranks are joined, layers left out,
    and the vocabulary is resized.
    """
    if edit.join_shards:
        joined, ranks = join_ranks(path)
        total = sharded_parameters(joined.model, ranks)
        edited = Edited(joined, total, (f"joined {ranks} ranks",))
    else:
        source = open_edit_source(path)
        notes = tuple(x.message for x in source.report.findings if x.severity != "info")
        edited = Edited(source, source.model.parameters.total, notes=notes)
    source = edited.source
    try:
        if shard_of(source.model) is not None:
            raise ConvertError(
                f"{safe(path)} is one rank's part of a checkpoint",
                hint=f"join the ranks first: {Argument('edit', 'join_shards=yes')}",
            )
        if edit.layers is None and edit.vocab_size is None:
            return edited
        return _edit_tree(edited, edit)
    except BaseException:
        source.reader.close()
        raise


def _edit_tree(edited: Edited, settings: Edit) -> Edited:
    """Apply the edits of layers and vocabulary."""
    source = edited.source
    model, tree = source.model, source.model.tree
    edit, edits, notes = TreeEdit(), list(edited.edits), list(edited.notes)
    if settings.layers is not None:
        count = int(tree.layers.n)
        kept = select_layers(settings.layers, count)
        if len(kept) == count:
            raise ArgumentError("layers", f" keeps all {count} layers")
        edit = edit.replace(layers=kept)
        edits.append(f"kept {describe_layers(kept, count)}")
    if (vocab := settings.vocab_size) is not None:
        first = int(tree.vocab)
        _check_vocab(source, vocab)
        edit = edit.replace(vocab=vocab)
        edits.append(f"resized the vocabulary from {first:,} to {vocab:,}")
        if vocab > first:
            rows = (
                f"row {first:,} is" if vocab == first + 1 else f"rows {first:,}–{vocab - 1:,} are"
            )
            notes.append(f"{rows} the mean of the rows before, in the embedding and in the head")
    edited_tree = edit_tree(tree, edit)
    names = LayerNumbers(edit, model.family.hf.layer.rstrip(".").split(".")[-2])
    config = edit_config(model, dict(source.config), edited_tree, edit)
    new = edited_source(
        source,
        model.name,
        plan_edit(source, edit, edited_tree),
        config,
        {name: _renamed(data, name, names) for name, data in source.recipes.items()},
        {x.code for x in source.report.findings},
    )
    changed = _changed_keys(source.config, config)
    return Edited(new, edited.parameters, tuple(edits), tuple(notes), changed)


def _renamed(recipe: bytes, name: str, names: LayerNumbers) -> bytes:
    """Return a file with a recipe in which the layers have their new numbers."""
    keys = parse_json(recipe, name)
    renamed = names.rename_all(keys)
    return recipe if renamed == keys else json_bytes(renamed)


def _check_vocab(source: EditSource, vocab: int) -> None:
    """Raise if a token in use would have no row."""
    if vocab == int(source.model.tree.vocab):
        raise ArgumentError("vocab_size", f" {vocab}: the vocabulary has this size already")
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
        raise ArgumentError(
            "vocab_size", f" {vocab}: {key} is {number}, which needs at least {number + 1:,} rows"
        )


def cut_ranks(source: EditSource, ranks: int) -> Iterator[EditSource]:
    """Yield each rank's part of a checkpoint."""
    model = source.model
    check_shardable(model.tree, ranks)
    for rank in range(ranks):
        shard = TensorParallelShard(rank, ranks)
        cuts = stored_cuts(source.scheme, model.tree, shard)
        packed = packed_cuts(
            cuts,
            source.tensors,
            source.packings,
            source.report.checkpoint.quantization_config,
            lambda x: source.reader.read_bytes(x, 0, x.bytes),
        )
        yield edited_source(
            source,
            model.name,
            plan_shard(source.tensors, cuts | packed.cuts, packed.data),
            {**source.config, SHARD_KEY: shard._asdict()},
            source.recipes,
            {x.code for x in source.report.findings},
        )


def sharded_parameters(model: FamilyModel, ranks: int) -> int:
    """Return the sum of the parameters of all ranks, copies included."""
    shards = (TensorParallelShard(rank, ranks) for rank in range(ranks))
    return sum(model.replace(tree=shard_tree(model.tree, x)).parameters.total for x in shards)


def checkpoint_files(source: EditSource, max_shard_size: int) -> list[ConcatFile]:
    """Return the files of a checkpoint. The configuration is the last one: with it, a folder is a
    model.
    """
    folder = source.folder
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
    copies += [ConcatFile(name, [data]) for name, data in source.recipes.items()]
    tensors = [copy_tensor(x, name) for name, x in source.tensors.items()]
    return [
        *safetensors_files(tensors, max_shard_size),
        *copies,
        json_file("config.json", source.config),
    ]


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
