"""`convert`: a checkpoint of the Llama family as another format has it, written beside where it will lie and moved there whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..checkpoint.formats.dtypes import parse_dtype
from ..checkpoint.naming.scheme import Scheme
from ..core.errors import ConvertError, safe
from ..core.record_type import Record
from . import copy_tokenizer as tokenizer
from . import write_gguf
from . import write_gguf_keys as gguf_keys
from . import write_gguf_tokenizer as gguf_tokenizer
from .conversion_source import ConversionSource, open_source
from .float_cast import FLOAT_BYTES
from .staging import STAGING_FOLDER, StagingFolder
from .target_files import ConcatFile, OutputFile
from .tensor_plan import TensorPlan, plan_tensors
from .write_config import config_json, params_keys
from .write_pth import TorchArchive
from .write_safetensors import safetensors_files

_MAX_SHARD_SIZE = 5_000_000_000
"""The largest shard, as transformers has it."""
_META_FILE = "consolidated.00.pth"
_STALE_FILES = {
    "hf": re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?"),
    "meta": re.compile(r"consolidated\.\d\d\.pth"),
    "gguf": re.compile(r"(?!)"),
}
"""What would be taken for a part of the new checkpoint, if it stayed beside it."""


class ConvertOptions(Record):
    """What is wanted."""

    to: str
    dtype: str = ""  # in any spelling of fp32, fp16 or bf16; empty: as stored
    max_shard_size: int = _MAX_SHARD_SIZE
    force: bool = False
    changes: Mapping[str, Any] = {}
    dry_run: bool = False  # say what would be written, and write nothing


class ConversionReport(Record):
    """What was written, and what there is to say of it."""

    folder: str
    files: Mapping[str, int]
    kept: tuple[str, ...]  # that an earlier run had finished
    tensors: int
    dtype: str
    notes: tuple[str, ...]


Progress = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""


def convert_checkpoint(
    source: str, target: str, options: ConvertOptions, progress: Progress = lambda _done, _all: None
) -> ConversionReport:
    """Convert the checkpoint at one path into one at another."""
    dtype = parse_dtype(options.dtype, FLOAT_BYTES, "convert").name if options.dtype else ""
    origin = open_source(source, options.changes)
    try:
        folder, label, name = _split_target(target, options.to)
        notes = list(origin.notes)
        plan = plan_tensors(origin, _target_scheme(origin, options.to), dtype)
        targets = _plan_files(origin, plan, options, name, notes)
        _check_not_source(source, origin, folder, targets)
        stage = StagingFolder(folder, label, targets, _fingerprint(origin, targets))
        _check_free(stage, folder, targets, options)
        kept = [] if options.dry_run else _write_files(stage, origin, options, progress)
    finally:
        origin.reader.close()
    sizes = {x.name: x.size for x in targets}
    return ConversionReport(
        folder=folder, files=sizes, kept=tuple(kept), tensors=len(plan.tensors), dtype=plan.dtype, notes=tuple(dict.fromkeys(notes))
    )


def _split_target(target: str, to: str) -> tuple[str, str, str]:
    """The folder that is written to, what sets its hidden folder apart, and the name of a GGUF file in it."""
    if to == "gguf" and target.endswith(".gguf") and not os.path.isdir(target):
        name = os.path.basename(target)
        return os.path.dirname(target) or ".", f".{name}", name
    return target, "", "model.gguf"


def _check_not_source(source: str, origin: ConversionSource, folder: str, targets: list[OutputFile]) -> None:
    """Refuse to write among what is read, or over it."""
    home, there = os.path.realpath(origin.folder), os.path.realpath(folder)
    if os.path.isdir(source) and (there == home or there.startswith(os.path.join(home, ""))):
        raise ConvertError(f"{safe(folder)} lies in {safe(source)}, which is read", hint="write to another folder")
    read = {path for path, *_ in origin.reader.file_stamps()} | {os.path.join(home, x) for x in ("config.json", "params.json")}
    if over := [x.name for x in targets if os.path.join(there, x.name) in read]:
        raise ConvertError(f"{safe(os.path.join(folder, over[0]))} is read, and would be written over", hint="write to another folder")


def _target_scheme(origin: ConversionSource, to: str) -> Scheme:
    schemes = origin.model.family.schemes
    if to not in schemes:
        raise ConvertError(
            f"Meta's reference implements the llama family alone, and this is {origin.model.family.name}", hint="--to hf or gguf"
        )
    return schemes[to]


def _plan_files(origin: ConversionSource, plan: TensorPlan, order: ConvertOptions, name: str, notes: list[str]) -> list[OutputFile]:
    """The files that are to be written, weights first: the configuration is what makes a folder a model."""
    beside = tokenizer.find_tokenizer_files(origin.folder)
    if order.to == "gguf":
        keys = [
            *gguf_keys.model_metadata(origin.model, plan.dtype, notes),
            *gguf_tokenizer.tokenizer_metadata(beside, int(origin.model.tree.vocab), notes),
        ]
        return [write_gguf.gguf_file(name, keys, plan.tensors)]
    along = {x: tokenizer.read_tokenizer_file(path) for x, path in beside.items()}
    model = along.get("tokenizer.model", b"")
    files = [ConcatFile(x, [data]) for x, data in along.items()]
    if order.to == "meta":
        if not model:
            notes.append("there is no tokenizer.model, which Meta's reference reads")
        return [TorchArchive(_META_FILE, plan.tensors), *files, _json_file("params.json", params_keys(origin, notes))]
    if "tokenizer.json" not in along:
        kind = "tiktoken's, of which transformers needs a tokenizer.json" if tokenizer.count_tiktoken_ranks(model) else ""
        notes += [f"tokenizer.model is {kind}"] if kind else [] if model else ["there is no tokenizer beside the checkpoint"]
    return [
        *safetensors_files(plan.tensors, order.max_shard_size),
        *files,
        _json_file("config.json", config_json(origin, plan.dtype, tokenizer.special_token_ids(model))),
    ]


def _json_file(name: str, keys: Mapping[str, Any]) -> ConcatFile:
    return ConcatFile(name, [(json.dumps(keys, indent=2, ensure_ascii=False) + "\n").encode()])


def _fingerprint(origin: ConversionSource, targets: list[OutputFile]) -> str:
    """What the same conversion of the same files has in common with itself, and with no other."""
    digest = hashlib.sha256()
    for x in origin.reader.file_stamps():
        digest.update(repr(x).encode())
    for target in targets:
        digest.update(repr((target.name, target.size)).encode() + target.identity())
    return digest.hexdigest()


def _check_free(stage: StagingFolder, folder: str, targets: list[OutputFile], order: ConvertOptions) -> None:
    """Refuse to write over what there is, unless told to, or begun before."""
    if order.force or stage.is_moving or not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ConvertError(f"{safe(folder)} is a file, and a folder is to be written", hint="name another place")
    there = sorted(x for x in os.listdir(folder) if not x.startswith(STAGING_FOLDER))
    taken = [x.name for x in targets if x.name in there] if order.to == "gguf" else there
    if taken:
        stage.remove_if_empty()
        raise ConvertError(f"{safe(folder)} has {safe(taken[0])} already, and nothing is written over", hint="--force writes over it")


def _write_files(stage: StagingFolder, origin: ConversionSource, order: ConvertOptions, progress: Progress) -> list[str]:
    """Write what is not there yet, and move it all to its place."""
    try:
        stage.begin()
        kept = [x for x in stage.targets if stage.is_complete(x)]
        stage.check_disk_space()
        done, total = sum(x.size for x in kept), sum(x.size for x in stage.targets)

        def moved(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        for target in stage.targets:
            if target not in kept:
                stage.write(target, origin.reader, moved)
        names = {x.name for x in stage.targets}
        stage.publish([x for x in os.listdir(stage.folder) if _STALE_FILES[order.to].fullmatch(x) and x not in names])
        return [x.name for x in kept]
    except KeyboardInterrupt as stopped:
        if whole := stage.keep_completed():
            stopped.add_note(f"{whole} of {len(stage.targets)} files are whole; the same command goes on from there")
        raise
    except BaseException:
        stage.discard()
        raise
    finally:
        stage.unlock()
