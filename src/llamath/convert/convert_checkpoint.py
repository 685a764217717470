"""`convert`: a checkpoint of the Llama family as another format has it, written beside where it will lie and moved there whole."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..checkpoint.naming.scheme import Scheme
from ..core.errors import ConvertError, safe
from ..core.record_type import Record
from . import copy_tokenizer as tokenizer
from . import write_gguf
from . import write_gguf_keys as gguf_keys
from . import write_gguf_tokenizer as gguf_tokenizer
from .conversion_source import Origin, opened
from .staging import HIDDEN, Stage
from .target_files import Laid, Target
from .tensor_plan import Plan, planned
from .write_config import config_json, params
from .write_pth import Archived
from .write_safetensors import shards

SHARD = 5_000_000_000
"""The largest shard, as transformers has it."""
META = "consolidated.00.pth"
OLD = {
    "hf": re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?"),
    "meta": re.compile(r"consolidated\.\d\d\.pth"),
    "gguf": re.compile(r"(?!)"),
}
"""What would be taken for a part of the new checkpoint, if it stayed beside it."""


class Order(Record):
    """What is wanted."""

    to: str
    dtype: str = ""  # F32, F16 or BF16; empty: as stored
    shard: int = SHARD
    force: bool = False
    changes: Mapping[str, Any] = {}
    dry: bool = False  # say what would be written, and write nothing


class Converted(Record):
    """What was written, and what there is to say of it."""

    folder: str
    files: Mapping[str, int]
    kept: tuple[str, ...]  # that an earlier run had finished
    tensors: int
    dtype: str
    notes: tuple[str, ...]


Progress = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""


def convert(source: str, target: str, order: Order, progress: Progress = lambda _done, _all: None) -> Converted:
    """Convert the checkpoint at one path into one at another."""
    origin = opened(source, order.changes)
    try:
        folder, label, name = _place(target, order.to)
        notes = list(origin.notes)
        plan = planned(origin, _scheme(origin, order.to), order.dtype)
        targets = _targets(origin, plan, order, name, notes)
        _apart(source, origin, folder, targets)
        stage = Stage(folder, label, targets, _fingerprint(origin, targets))
        _free(stage, folder, targets, order)
        kept = [] if order.dry else _written(stage, origin, order, progress)
    finally:
        origin.files.close()
    sizes = {x.name: x.size for x in targets}
    return Converted(
        folder=folder, files=sizes, kept=tuple(kept), tensors=len(plan.entries), dtype=plan.dtype, notes=tuple(dict.fromkeys(notes))
    )


def _place(target: str, to: str) -> tuple[str, str, str]:
    """The folder that is written to, what sets its hidden folder apart, and the name of a GGUF file in it."""
    if to == "gguf" and target.endswith(".gguf") and not os.path.isdir(target):
        name = os.path.basename(target)
        return os.path.dirname(target) or ".", f".{name}", name
    return target, "", "model.gguf"


def _apart(source: str, origin: Origin, folder: str, targets: list[Target]) -> None:
    """Refuse to write among what is read, or over it."""
    home, there = os.path.realpath(origin.folder), os.path.realpath(folder)
    if os.path.isdir(source) and (there == home or there.startswith(os.path.join(home, ""))):
        raise ConvertError(f"{safe(folder)} lies in {safe(source)}, which is read", hint="write to another folder")
    read = {path for path, *_ in origin.files.file_stamps()} | {os.path.join(home, x) for x in ("config.json", "params.json")}
    if over := [x.name for x in targets if os.path.join(there, x.name) in read]:
        raise ConvertError(f"{safe(os.path.join(folder, over[0]))} is read, and would be written over", hint="write to another folder")


def _scheme(origin: Origin, to: str) -> Scheme:
    schemes = origin.model.family.schemes
    if to not in schemes:
        raise ConvertError(
            f"Meta's reference implements the llama family alone, and this is {origin.model.family.name}", hint="--to hf or gguf"
        )
    return schemes[to]


def _targets(origin: Origin, plan: Plan, order: Order, name: str, notes: list[str]) -> list[Target]:
    """The files that are to be written, weights first: the configuration is what makes a folder a model."""
    beside = tokenizer.beside(origin.folder)
    if order.to == "gguf":
        keys = [*gguf_keys.keys(origin.model, plan.dtype, notes), *gguf_tokenizer.keys(beside, int(origin.model.tree.vocab), notes)]
        return [write_gguf.file(name, keys, plan.entries)]
    along = {x: tokenizer.content(path) for x, path in beside.items()}
    model = along.get("tokenizer.model", b"")
    files = [Laid(x, [data]) for x, data in along.items()]
    if order.to == "meta":
        if not model:
            notes.append("there is no tokenizer.model, which Meta's reference reads")
        return [Archived(META, plan.entries), *files, _json("params.json", params(origin, notes))]
    if "tokenizer.json" not in along:
        kind = "tiktoken's, of which transformers needs a tokenizer.json" if tokenizer.tiktoken(model) else ""
        notes += [f"tokenizer.model is {kind}"] if kind else [] if model else ["there is no tokenizer beside the checkpoint"]
    return [*shards(plan.entries, order.shard), *files, _json("config.json", config_json(origin, plan.dtype, tokenizer.special(model)))]


def _json(name: str, keys: Mapping[str, Any]) -> Laid:
    return Laid(name, [(json.dumps(keys, indent=2, ensure_ascii=False) + "\n").encode()])


def _fingerprint(origin: Origin, targets: list[Target]) -> str:
    """What the same conversion of the same files has in common with itself, and with no other."""
    digest = hashlib.sha256()
    for x in origin.files.file_stamps():
        digest.update(repr(x).encode())
    for target in targets:
        digest.update(repr((target.name, target.size)).encode() + target.facts())
    return digest.hexdigest()


def _free(stage: Stage, folder: str, targets: list[Target], order: Order) -> None:
    """Refuse to write over what there is, unless told to, or begun before."""
    if order.force or stage.moving or not os.path.lexists(folder):
        return
    if not os.path.isdir(folder):
        raise ConvertError(f"{safe(folder)} is a file, and a folder is to be written", hint="name another place")
    there = sorted(x for x in os.listdir(folder) if not x.startswith(HIDDEN))
    taken = [x.name for x in targets if x.name in there] if order.to == "gguf" else there
    if taken:
        stage.tidy()
        raise ConvertError(f"{safe(folder)} has {safe(taken[0])} already, and nothing is written over", hint="--force writes over it")


def _written(stage: Stage, origin: Origin, order: Order, progress: Progress) -> list[str]:
    """Write what is not there yet, and move it all to its place."""
    try:
        stage.begin()
        kept = [x for x in stage.targets if stage.ready(x)]
        stage.room()
        done, total = sum(x.size for x in kept), sum(x.size for x in stage.targets)

        def moved(more: int) -> None:
            nonlocal done
            done += more
            progress(done, total)

        for target in stage.targets:
            if target not in kept:
                stage.write(target, origin.files, moved)
        names = {x.name for x in stage.targets}
        stage.move([x for x in os.listdir(stage.folder) if OLD[order.to].fullmatch(x) and x not in names])
        return [x.name for x in kept]
    except KeyboardInterrupt as stopped:
        if whole := stage.pause():
            stopped.add_note(f"{whole} of {len(stage.targets)} files are whole; the same command goes on from there")
        raise
    except BaseException:
        stage.drop()
        raise
    finally:
        stage.close()
