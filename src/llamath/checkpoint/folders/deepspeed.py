"""Read the files of a DeepSpeed ZeRO checkpoint: partitions of the optimizer by rank, and the
shapes of the parameters.

A folder `global_step100` has `zero_pp_rank_R_mp_rank_MM_optim_states.pt` for each rank, and model
states: `mp_rank_MM_model_states.pt`, or with stage 3 one for each rank. The folder around it names
the newest one in `latest`. The files' pickles contain objects of DeepSpeed's classes; they become
inert records of a name, and no class is looked up. Keys and layouts are those of DeepSpeed's
`zero_to_fp32.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, ClassVar, NamedTuple

from ...utils.errors import FormatError, safe
from ...utils.record_type import Record
from ..formats.folder import LocalFolder, check_file_name
from ..formats.folder_kind import LATEST, OPTIMIZER_STATES
from ..formats.manifest import Tensor
from ..formats.source import LocalFile, Source
from ..formats.torch_files.pickle_reader import KNOWN, Opcode, PickleInterpreter, unknown_opcode
from ..formats.torch_files.torch_checkpoint import read_content, tensors_of
from ..formats.torch_files.torch_objects import Global, TensorRecord, allowed_global

Shape = tuple[int, ...]
_MODEL = re.compile(r"(?:zero_pp_rank_(\d{1,6})_)?mp_rank_(\d{1,6})_model_states\.pt", re.ASCII)
_OTHER = re.compile(r"(?:layer_|expp_rank_)[\w.-]{1,200}_(?:model|optim)_states\.pt", re.ASCII)
_MAX_FILES = 100_000
MASTER_WEIGHTS = ("single_partition_of_fp32_groups", "fp32_flat_groups")
"""Keys of the float32 master weights of stages 1 and 2, and of stage 3."""


class RankFile(NamedTuple):
    """A file of one rank."""

    name: str
    rank: int  # of data parallelism; -1: of all ranks
    model_rank: int


class OptimizerPartition(Record):
    """The partition of one rank's optimizer file."""

    file: RankFile
    stage: int
    partition_counts: tuple[int, ...]
    groups: tuple[int, ...]  # elements of the float32 master weights by parameter group
    dtype: str = ""
    version: str = ""
    classes: frozenset[str] = frozenset()  # names of classes whose objects were not created


class ModelStates(Record):
    """What a file of model states says of the parameters."""

    file: RankFile
    groups: tuple[Mapping[str, Shape], ...]  # trained parameters by parameter group
    frozen: Mapping[str, Shape] = {}
    shared: Mapping[str, str] = {}
    steps: int | None = None
    version: str = ""
    classes: frozenset[str] = frozenset()


class ZeroFolder(Record):
    """The files of a checkpoint, not yet read."""

    folder: str
    tag: str  # name of the folder
    latest: str  # tag in `latest`; empty if there is no such file
    optimizers: tuple[RankFile, ...]
    models: tuple[RankFile, ...]
    others: tuple[str, ...]  # of experts and of pipeline stages


def find_zero_files(path: str) -> ZeroFolder:
    """Find the files in the folder of one step, or in the one that `latest` names."""
    names = LocalFolder(path).names()
    latest = ""
    if LATEST in names:
        latest = _read_tag(os.path.join(path, LATEST))
        path = os.path.join(path, latest)
        if not os.path.isdir(path) or os.path.islink(path):
            raise FormatError(
                "latest",
                f"{safe(path)}: `{LATEST}` names "
                f"{safe(repr(latest), 80)}, and there is no such folder",
            )
        names = LocalFolder(path).names()
    if len(names) > _MAX_FILES:
        raise FormatError(
            "too_large", f"{safe(path)} has {len(names):,} files; at most {_MAX_FILES:,} are read"
        )
    optimizers = [
        RankFile(x, int(found[1]), int(found[2]))
        for x in names
        if (found := OPTIMIZER_STATES.fullmatch(x))
    ]
    models = [
        RankFile(x, int(found[1] or -1), int(found[2]))
        for x in names
        if (found := _MODEL.fullmatch(x))
    ]
    if not optimizers and not models:
        raise FormatError(
            "no_checkpoint",
            f"{safe(path)}: expected optimizer and model states of DeepSpeed, found none",
        )
    return ZeroFolder(
        folder=path,
        tag=os.path.basename(os.path.abspath(path)),
        latest=latest,
        optimizers=tuple(sorted(optimizers, key=lambda x: (x.model_rank, x.rank))),
        models=tuple(sorted(models, key=lambda x: (x.model_rank, x.rank))),
        others=tuple(x for x in names if _OTHER.fullmatch(x)),
    )


def _read_tag(path: str) -> str:
    with LocalFile(path) as file:
        if file.size > 1000:
            raise FormatError(
                "latest", f"{safe(path)} has {file.size:,} bytes; expected the name of a folder"
            )
        try:
            return check_file_name(file.read(0, file.size).decode().strip())
        except UnicodeDecodeError:
            raise FormatError("latest", f"{safe(path)} should be the name of a folder") from None


def read_optimizer(folder: str, file: RankFile) -> OptimizerPartition:
    """Read the partition of one rank."""
    with _open(folder, file.name) as source:
        return parse_optimizer(source, file)


def parse_optimizer(source: Source, file: RankFile) -> OptimizerPartition:
    """Return the partition in a file."""
    root, classes, name = _read(source)
    state = root.get("optimizer_state_dict")
    if not isinstance(state, dict) or "zero_stage" not in state:
        raise FormatError(
            "deepspeed",
            f"{name}: expected optimizer_state_dict with zero_stage, "
            "found none: it is no ZeRO checkpoint",
        )
    stage, count = _integer(state["zero_stage"]), state.get("partition_count")
    counts = tuple(_integer(x) for x in count) if isinstance(count, list) else (_integer(count),)
    if stage not in (1, 2, 3) or not counts or not all(0 < x < 1 << 20 for x in counts):
        raise FormatError(
            "deepspeed",
            f"{name}: expected a stage from 1 to 3 and a number of partitions, found others",
        )
    key = MASTER_WEIGHTS[stage == 3]
    groups = state.get(key)
    if not isinstance(groups, list) or not all(type(x) is TensorRecord for x in groups):
        raise FormatError("deepspeed", f"{name}: expected the master weights in {key}, found none")
    return OptimizerPartition(
        file=file,
        stage=stage,
        partition_counts=counts,
        groups=tuple(prod(x.shape) for x in groups),
        dtype=groups[0].dtype if groups else "",
        version=_text(state.get("ds_version") or root.get("ds_version")),
        classes=classes,
    )


def read_model_states(folder: str, file: RankFile) -> ModelStates:
    """Read the shapes of the parameters from a file of model states."""
    with _open(folder, file.name) as source:
        return parse_model_states(source, file)


def parse_model_states(source: Source, file: RankFile) -> ModelStates:
    """Return the shapes of the parameters in a file."""
    root, classes, name = _read(source)
    groups = root.get("param_shapes")
    if not isinstance(groups, list) or len({id(x) for x in groups}) < len(groups):
        raise FormatError(
            "deepspeed",
            f"{name}: expected param_shapes, found none: it has no model states of ZeRO",
        )
    steps = root.get("global_steps")
    shared = root.get("shared_params")
    return ModelStates(
        file=file,
        groups=tuple(_shapes(x, name) for x in groups),
        frozen=_shapes(root.get("frozen_param_shapes") or {}, name),
        shared={str(k): v for k, v in shared.items() if type(v) is str}
        if isinstance(shared, dict)
        else {},
        steps=steps if type(steps) is int else None,
        version=_text(root.get("ds_version")),
        classes=classes,
    )


def _shapes(value: Any, name: str) -> dict[str, Shape]:
    if not isinstance(value, dict):
        raise FormatError("deepspeed", f"{name}: param_shapes should have names and shapes")
    if not all(
        type(key) is str and type(shape) is tuple and len(shape) <= 64
        for key, shape in value.items()
    ):
        raise FormatError("deepspeed", f"{name}: param_shapes should have names and shapes")
    if not all(type(x) is int and 0 <= x < 1 << 48 for shape in value.values() for x in shape):
        raise FormatError(
            "deepspeed", f"{name}: a shape in param_shapes has a size that is no number"
        )
    return dict(value)


def read_stored_tensors(folder: str, name: str) -> list[Tensor]:
    """Return all tensors in one file by dotted name, those of the optimizer too."""
    with _open(folder, name) as source:
        return tensors_of(read_content(source, _DeepSpeedInterpreter))[0]


def _integer(value: Any) -> int:
    """Return an integer; an enumeration's record has it as its argument."""
    if type(value) is _Opaque and len(value.args) == 1:
        value = value.args[0]
    return value if type(value) is int else -1


def _text(value: Any) -> str:
    return value if type(value) is str and len(value) < 100 else ""


def _read(source: Source) -> tuple[dict[Any, Any], frozenset[str], str]:
    content = read_content(source, _DeepSpeedInterpreter)
    if not isinstance(content.root, dict):
        raise FormatError(
            "deepspeed", f"{safe(source.name)}: expected a dictionary, found another object"
        )
    return content.root, frozenset(_classes(content.root)), safe(source.name)


def _open(folder: str, name: str) -> Source:
    source = LocalFolder(folder).open(name)
    if source is None:
        raise FormatError(
            "unreadable", f"{safe(folder)}: {safe(name)} cannot be read: no such file"
        )
    return source


def _classes(root: dict[Any, Any]) -> Iterator[str]:
    """Yield the names of classes of objects at the two outer levels."""
    for value in (
        *root.values(),
        *(y for x in root.values() if isinstance(x, dict) for y in x.values()),
    ):
        if type(value) is _Opaque:
            yield value.name


class _Opaque(NamedTuple):
    """An object of a class that is not known: the name of its class, and its arguments if it has
    few.
    """

    name: str
    args: tuple[Any, ...] = ()


class _DeepSpeedInterpreter(PickleInterpreter):
    """An interpreter in which unknown classes are inert names, and their objects inert records."""

    steps: ClassVar[list[Opcode]]


def _global(machine: PickleInterpreter, at: int) -> int:
    parts = []
    for _ in range(2):
        end = machine.data.find(b"\n", at, min(at + 200, machine.size))
        if end < 0:
            machine.argument_end(at, 200)
            raise FormatError("global", "a name of over 200 bytes")
        parts.append(machine.data[at:end].decode())
        at = end + 1
    try:
        machine.stack.append(allowed_global(*parts))
    except FormatError as error:
        if error.code != "global":
            raise
        machine.stack.append(_Opaque(".".join(parts)))
    return at


def _reduce(machine: PickleInterpreter, at: int) -> int:
    args, function = machine.stack[-1], machine.stack[-2]
    if type(function) is _Opaque and type(args) is tuple:
        machine.stack[-2:] = [_Opaque(function.name, args[:1])]
        return at
    return KNOWN[b"R"](machine, at)


def _new_object(machine: PickleInterpreter, at: int) -> int:
    args, kind = machine.stack.pop(), machine.stack.pop()
    if type(kind) not in (_Opaque, Global) or type(args) is not tuple:
        raise FormatError("call", "expected an object of a class, found another value")
    machine.stack.append(_Opaque(kind.name))
    return at


def _dropped_on_opaque(code: bytes, depth: int) -> Opcode:
    """Return a step that drops what is added to an inert object: one or two values, or, with a
    depth of 0, those since the mark.
    """
    usual = KNOWN[code]

    def step(machine: PickleInterpreter, at: int) -> int:
        target = machine.marks[-1][-1] if not depth else machine.stack[-1 - depth]
        if type(target) is not _Opaque:
            return usual(machine, at)
        if depth:
            del machine.stack[-depth:]
        else:
            machine.pop_mark()
        return at

    return step


_STEPS: dict[bytes, Opcode] = {
    **KNOWN,
    b"c": _global,
    b"R": _reduce,
    b"\x81": _new_object,
    **{
        code: _dropped_on_opaque(code, depth)
        for code, depth in ((b"a", 1), (b"b", 1), (b"s", 2), (b"e", 0), (b"u", 0))
    },
}
_DeepSpeedInterpreter.steps = [_STEPS.get(bytes([code]), unknown_opcode) for code in range(256)]
