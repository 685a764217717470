"""`deepspeed_parts`: the tensors in the files of a DeepSpeed checkpoint; master weights are named
after the parameters that they are.

Stages 1 and 2 cut the concatenated parameters of each group into equal partitions; with stage 3,
each rank has an equal, padded part of every parameter. This is what DeepSpeed's `zero_to_fp32.py`
joins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from ...utils.errors import FormatError
from ..formats.manifest import CheckpointFile, Manifest, Tensor
from ..naming.training_names import is_training_state
from .deepspeed import (
    MASTER_WEIGHTS,
    ModelStates,
    OptimizerPartition,
    Shape,
    find_zero_files,
    read_model_states,
    read_optimizer,
    read_stored_tensors,
)
from .stored_parts import StoredParts, with_slice

_MASTER = re.compile(
    rf"optimizer_state_dict\.(?:{'|'.join(MASTER_WEIGHTS)})\.(\d{{1,6}})", re.ASCII
)
_FLOAT32_BYTES = 4
_MAX_RUNS = 1 << 22
"""The most parts of parameters that are named: ranks times parameters."""


class _Run(NamedTuple):
    """Elements of a parameter that lie one after the other in a partition."""

    parameter: str
    shape: Shape
    first: int  # element of the parameter
    at: int  # element of the partition
    length: int


_Runs = Mapping[int, Sequence[_Run]]
"""The runs of a partition by its parameter group."""


def deepspeed_parts(path: str) -> StoredParts:
    """Return the tensors in all files of the checkpoint in a folder."""
    found = find_zero_files(path)
    models: dict[int, ModelStates] = {}
    partitions: dict[int, list[OptimizerPartition]] = {}
    unread: list[str] = []
    for file in found.models:
        if file.model_rank not in models:
            try:
                models[file.model_rank] = read_model_states(found.folder, file)
            except FormatError:
                continue  # it is named below
    for file in found.optimizers:
        try:
            partitions.setdefault(file.model_rank, []).append(read_optimizer(found.folder, file))
        except FormatError:
            continue
    runs = {
        name: x
        for rank, own in partitions.items()
        if rank in models
        for name, x in _runs(own, models[rank]).items()
    }
    tensors: list[Tensor] = []
    files: list[CheckpointFile] = []
    bases: dict[str, str] = {}
    for file in (*found.models, *found.optimizers):
        try:
            stored = read_stored_tensors(found.folder, file.name)
        except FormatError:
            unread.append(file.name)
            continue
        where = f" of {file.name}"
        for x in stored:
            is_master = _MASTER.fullmatch(x.name)
            own_runs = (
                runs.get(file.name, {}).get(int(is_master[1]))
                if is_master and x.strides is None and x.dtype == "F32"
                else None
            )
            rank = f", model rank {file.model_rank}" if len(models) > 1 else ""
            for piece, base in (
                _pieces(x, own_runs, rank)
                if own_runs
                else [(x._replace(name=x.name + where), _base(x.name))]
            ):
                tensors.append(piece._replace(file=len(files)))
                bases[piece.name] = base
        full_path = os.path.join(found.folder, file.name)
        files.append(CheckpointFile(full_path, os.path.getsize(full_path)))
    return StoredParts(
        Manifest(format="torch", files=tuple(files), tensors=tuple(tensors)), bases, tuple(unread)
    )


def _base(name: str) -> str:
    return "" if is_training_state(name) else name.removeprefix("module.")


def _runs(own: Sequence[OptimizerPartition], states: ModelStates) -> dict[str, _Runs]:
    """Return the runs in each file of a model rank; none if partitions are missing, mixed, or do
    not have the parameters' elements.
    """
    first = own[0]
    count = max(first.partition_counts)
    if (
        len(own) != count
        or [x.file.rank for x in own] != list(range(count))
        or len({x.stage for x in own}) > 1
    ):
        return {}
    if count * sum(map(len, states.groups)) > _MAX_RUNS:
        return {}
    if first.stage == 3:
        return {x.file.name: dict(_stage_3_runs(x, states.groups, count)) for x in own}
    if any(len(x.groups) != len(states.groups) for x in own):
        return {}
    runs: dict[str, dict[int, Sequence[_Run]]] = {x.file.name: {} for x in own}
    for group, parameters in enumerate(states.groups):
        begin = 0
        for x in own:
            runs[x.file.name][group] = list(_flat_runs(parameters, begin, begin + x.groups[group]))
            begin += x.groups[group]
    return dict(runs)


def _flat_runs(parameters: Mapping[str, Shape], begin: int, end: int) -> Iterator[_Run]:
    """Yield the runs of one partition of the concatenated parameters of a group."""
    at = 0
    for name, shape in parameters.items():
        low, high = max(at, begin), min(at + prod(shape), end)
        if low < high:
            yield _Run(name, shape, low - at, low - begin, high - low)
        at += prod(shape)


def _stage_3_runs(
    partition: OptimizerPartition, groups: Iterable[Mapping[str, Shape]], count: int
) -> Iterator[tuple[int, list[_Run]]]:
    """Yield the runs of a rank's part of all parameters, by the sub-group of the optimizer that
    they are in.
    """
    parts: list[_Run] = []
    at = 0
    for name, shape in ((name, shape) for group in groups for name, shape in group.items()):
        size, own = prod(shape), -(-prod(shape) // count)
        low = partition.file.rank * own
        if low < size:
            parts.append(_Run(name, shape, low, at, min(own, size - low)))
        at += own
    if at != sum(partition.groups):
        return
    begin, next_part = 0, 0
    for i, size in enumerate(partition.groups):
        inside: list[_Run] = []
        while next_part < len(parts) and parts[next_part].at < begin + size:
            x = parts[next_part]
            low, high = max(x.at, begin), min(x.at + x.length, begin + size)
            inside.append(_Run(x.parameter, x.shape, x.first + low - x.at, low - begin, high - low))
            if x.at + x.length > begin + size:
                break  # it goes on in the next sub-group
            next_part += 1
        yield i, inside
        begin += size


def _pieces(stored: Tensor, runs: Sequence[_Run], rank: str) -> Iterator[tuple[Tensor, str]]:
    """Yield the parameters, or the rows and other pieces of them, in a partition, and their
    names.
    """
    for x in runs:
        width = prod(x.shape[1:])
        ends = [x.first, x.first + x.length]
        # whole rows, and what is left of the rows around them
        if len(x.shape) > 1 and width and x.length >= width:
            ends[1:1] = [-(-x.first // width) * width, (x.first + x.length) // width * width]
        for low, high in pairwise(ends):
            if low >= high:
                continue
            shape: Shape = (high - low,)
            if high - low == prod(x.shape):
                name, shape = x.parameter, x.shape
            elif len(x.shape) < 2:
                name = with_slice(x.parameter, [f"{low}:{high}"])
            elif width and low % width == 0 and high % width == 0:
                name, shape = (
                    with_slice(x.parameter, [f"{low // width}:{high // width}"]),
                    ((high - low) // width, *x.shape[1:]),
                )
            else:
                name = with_slice(f"{x.parameter}.flatten()", [f"{low}:{high}"])
            start = stored.start + (x.at + low - x.first) * _FLOAT32_BYTES
            piece = stored._replace(
                name=name + rank,
                shape=shape,
                start=start,
                end=start + (high - low) * _FLOAT32_BYTES,
            )
            yield piece, x.parameter
