"""Weights cut over processes: DTensors of which each process holds its part, and the collectives that make outputs whole again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Shard

from ...core.errors import LlamathError

T = TypeVar("T")
MAX_MESSAGE_BYTES = 4096
"""The most bytes of a message to all."""


def shard_bounds(size: int, at: int, n: int) -> tuple[int, int]:
    """Where the part of one of n processes begins and ends; where they do not divide it, the last ones have less."""
    step = -(-size // n)
    return min(at * step, size), min((at + 1) * step, size)


def local_shard(x: Tensor, mesh: DeviceMesh, how: Sequence[Placement]) -> Tensor:
    """What this process holds of a weight: in place where that is one piece of a file, else with nothing of the rest kept."""
    place = mesh.get_coordinate()
    assert place is not None
    for at, n, each in zip(place, mesh.shape, how, strict=True):
        if isinstance(each, Shard):
            first, last = shard_bounds(x.shape[each.dim], at, n)
            x = x.narrow(each.dim, first, last - first)
        elif isinstance(each, Partial) and at:
            x = torch.zeros_like(x)
    x = x.contiguous()
    kept = x.untyped_storage()
    return x.clone() if kept.resizable() and x.nbytes < kept.nbytes() else x


def distribute(x: Tensor, mesh: DeviceMesh, how: Sequence[Placement]) -> DTensor:
    """A weight that every process has whole, as one that each has its part of."""
    return _make_dtensor(local_shard(x, mesh, how), x, mesh, how)


def _make_dtensor(own: Tensor, whole: Tensor, mesh: DeviceMesh, how: Sequence[Placement]) -> DTensor:
    strides = torch.empty(whole.shape, device="meta").stride()
    return DTensor.from_local(own, mesh, how, run_check=False, shape=whole.shape, stride=strides)


def iter_local_shards(module: nn.Module, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Of the weights of a module that has been cut, what this process holds; of others nothing is read but where they begin."""
    known = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    for path, x in weights:
        there = known.get(path)
        if isinstance(there, DTensor):
            yield path, distribute(x, there.device_mesh, there.placements)
        elif there is not None:
            yield path, x


@contextmanager
def translate_dist_errors() -> Iterator[None]:
    """Say it in words when the others do not take part."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise LlamathError(
            "another process of this group has ended, or does not answer", hint=f"what torch.distributed says: {reason}"
        ) from error


def all_reduce_hook(mesh: DeviceMesh) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """A hook: what the module gives is one of several parts of a sum."""
    group = mesh.get_group()

    def add(_module: nn.Module, _given: Any, y: Tensor) -> Tensor:
        y = y.contiguous()
        if not y.is_meta:
            with translate_dist_errors():
                dist.all_reduce(y, group=group)
        return y

    return add


def all_gather_hook(mesh: DeviceMesh, size: int) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """A hook: what the module gives are some of `size` numbers side by side."""
    return lambda _module, _given, y: all_gather_outputs(y, mesh, [Shard(0)], size)


def output_placements(how: Sequence[Placement], y: Tensor) -> list[Placement]:
    """As the outputs of a map lie whose rows lie like this."""
    return [Shard(y.dim() - 1) if isinstance(x, Shard) else x for x in how]


def all_gather_outputs(y: Tensor, mesh: DeviceMesh, how: Sequence[Placement], size: int) -> Tensor:
    """The `size` outputs, side by side, of a map whose rows lie like this."""
    whole = y.new_empty(*y.shape[:-1], size, device="meta")
    with translate_dist_errors():
        return _make_dtensor(y, whole, mesh, output_placements(how, y)).full_tensor()


class GatherHooks:
    """Hooks around a part that is to see all of `size` numbers side by side, of which each process has some and wants no more back."""

    def __init__(self, mesh: DeviceMesh, how: Sequence[Placement], size: int) -> None:
        self.mesh, self.how, self.size = mesh, how, size

    def before(self, _module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The numbers of all."""
        return (all_gather_outputs(given[0], self.mesh, self.how, self.size),)

    def after(self, _module: nn.Module, _given: Any, y: Tensor) -> Tensor:
        """Those of this process."""
        return local_shard(y, self.mesh, output_placements(self.how, y))


class VocabParallelHooks:
    """Hooks around a table of which this process has the rows from `first` up to `last`: the others are zero here, and all are added."""

    def __init__(self, mesh: DeviceMesh, size: int) -> None:
        self.first, self.last = shard_bounds(size, mesh.get_local_rank(), mesh.size())
        self.sum = all_reduce_hook(mesh)
        self.elsewhere = torch.empty(0)

    def before(self, _module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Ids as rows of this part."""
        self.elsewhere = (given[0] < self.first) | (given[0] >= self.last)
        return ((given[0] - self.first).masked_fill(self.elsewhere, 0), *given[1:])

    def after(self, module: nn.Module, given: Any, y: Tensor) -> Tensor:
        """The rows of all processes."""
        return self.sum(module, given, y.masked_fill(self.elsewhere[..., None], 0.0))


def broadcast(mesh: DeviceMesh, number: int) -> int:
    """The number that the first process has."""
    told = torch.tensor([number], device=mesh.device_type)
    with translate_dist_errors():
        dist.broadcast(told, group=mesh.get_group(), group_src=0)
    return int(told)


def run_on_all_ranks(mesh: DeviceMesh, work: Callable[[], T]) -> T:
    """What `work` gives, once it has come to an end everywhere; what is wrong in one process is an error in all."""
    wrong: LlamathError | None = None
    made: list[T] = []
    try:
        made.append(work())
    except LlamathError as error:
        wrong = error
    said = all_gather_text(mesh, "" if wrong is None else f"{wrong}\0{wrong.hint}")
    found = next(((i, x) for i, x in enumerate(said) if x), None)
    if found is not None:
        message, _, hint = found[1].partition("\0")
        raise LlamathError(f"process {found[0]}: {message}" if found[0] else message, hint=hint) from wrong
    return made[0]


def all_gather_text(mesh: DeviceMesh, text: str) -> list[str]:
    """What each process says."""
    words = torch.zeros(MAX_MESSAGE_BYTES, dtype=torch.uint8)
    data = text.encode()[:MAX_MESSAGE_BYTES]
    words[: len(data)] = torch.tensor(list(data), dtype=torch.uint8)
    own = words.to(mesh.device_type)
    found = [torch.empty_like(own) for _ in range(mesh.size())]
    with translate_dist_errors():
        dist.all_gather(found, own, group=mesh.get_group())
    return [bytes(x.tolist()).rstrip(b"\0").decode(errors="ignore") for x in found]
