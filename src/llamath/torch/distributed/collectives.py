"""Sharded weights as DTensors, and the collectives that combine the outputs of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Shard

from ...utils.errors import LlamathError

T = TypeVar("T")
_MAX_MESSAGE_BYTES = 4096
"""Longest text that a rank can send to the others."""


def shard_bounds(size: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the first and last (exclusive) index of a rank's shard; the last shards are shorter
    where the size is not divisible.
    """
    step = -(-size // ranks)
    return min(rank * step, size), min((rank + 1) * step, size)


def _local_shard(x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> Tensor:
    """Return this rank's shard of a weight: a view of a mapped file where it is contiguous, else
    a copy, so that the rest is freed.
    """
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    for rank, ranks, placement in zip(coordinate, mesh.shape, placements, strict=True):
        if isinstance(placement, Shard):
            first, last = shard_bounds(x.shape[placement.dim], rank, ranks)
            x = x.narrow(placement.dim, first, last - first)
        elif isinstance(placement, Partial) and rank:
            x = torch.zeros_like(x)
    x = x.contiguous()
    storage = x.untyped_storage()
    return x.clone() if storage.resizable() and x.nbytes < storage.nbytes() else x


def distribute(x: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> DTensor:
    """Return a DTensor of a weight that every rank holds in full."""
    return _make_dtensor(_local_shard(x, mesh, placements), x, mesh, placements)


def _make_dtensor(
    local: Tensor, full: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]
) -> DTensor:
    strides = torch.empty(full.shape, device="meta").stride()
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=full.shape, stride=strides
    )


def iter_local_shards(
    module: nn.Module, weights: Iterable[tuple[str, Tensor]]
) -> Iterator[tuple[str, Tensor]]:
    """Yield this rank's shards of the weights of a sharded module; of mapped weights only the
    shards are read.
    """
    known = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
    for path, x in weights:
        target = known.get(path)
        if isinstance(target, DTensor):
            yield path, distribute(x, target.device_mesh, target.placements)
        elif target is not None:
            yield path, x


@contextmanager
def translate_dist_errors() -> Iterator[None]:
    """Raise an error with an explanation where other ranks do not take part in a collective."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise LlamathError(
            "another rank has exited or does not respond", hint=f"torch.distributed: {reason}"
        ) from error


def all_reduce_hook(mesh: DeviceMesh) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """Return a forward hook that sums the outputs of all ranks."""
    group = mesh.get_group()

    def all_reduce(_module: nn.Module, _args: Any, y: Tensor) -> Tensor:
        y = y.contiguous()
        if not y.is_meta:
            with translate_dist_errors():
                dist.all_reduce(y, group=group)
        return y

    return all_reduce


def all_gather_hook(mesh: DeviceMesh, size: int) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    """Return a forward hook that concatenates the outputs of all ranks to `size` channels."""
    return lambda _module, _args, y: _all_gather_outputs(y, mesh, [Shard(0)], size)


def _output_placements(placements: Sequence[Placement], y: Tensor) -> list[Placement]:
    """Return the placements of a linear layer's output, given those of its weight's rows."""
    return [Shard(y.dim() - 1) if isinstance(x, Shard) else x for x in placements]


def _all_gather_outputs(
    y: Tensor, mesh: DeviceMesh, placements: Sequence[Placement], size: int
) -> Tensor:
    """Concatenate the outputs of a linear layer whose weight's rows have these placements."""
    full = y.new_empty(*y.shape[:-1], size, device="meta")
    with translate_dist_errors():
        return _make_dtensor(y, full, mesh, _output_placements(placements, y)).full_tensor()


class GatherHooks:
    """Hooks around a module that needs all `size` channels, of which each rank computes a shard."""

    def __init__(self, mesh: DeviceMesh, placements: Sequence[Placement], size: int) -> None:
        self.mesh, self.placements, self.size = mesh, placements, size

    def before(self, _module: nn.Module, args: tuple[Any, Tensor]) -> tuple[Any, Tensor]:
        """Gather the channels of all ranks."""
        machine, x = args
        return machine, _all_gather_outputs(x, self.mesh, self.placements, self.size)

    def after(self, _module: nn.Module, _args: Any, y: Tensor) -> Tensor:
        """Return the channels of this rank."""
        return _local_shard(y, self.mesh, _output_placements(self.placements, y))


class VocabParallelHooks:
    """Hooks around a row-sharded lookup table; this rank has rows `first` to `last`: other rows
    are zero here; ranks are summed.
    """

    def __init__(self, mesh: DeviceMesh, size: int) -> None:
        self.first, self.last = shard_bounds(size, mesh.get_local_rank(), mesh.size())
        self.all_reduce = all_reduce_hook(mesh)
        self.is_remote = torch.empty(0)

    def before(self, _module: nn.Module, args: tuple[Any, Tensor]) -> tuple[Any, Tensor]:
        """Convert ids to rows of the local shard."""
        machine, ids = args
        self.is_remote = (ids < self.first) | (ids >= self.last)
        return machine, (ids - self.first).masked_fill(self.is_remote, 0)

    def after(self, module: nn.Module, args: Any, y: Tensor) -> Tensor:
        """Sum the rows of all ranks."""
        return self.all_reduce(module, args, y.masked_fill(self.is_remote[..., None], 0.0))


def broadcast(mesh: DeviceMesh, number: int) -> int:
    """Return the first rank's number."""
    message = torch.tensor([number], device=mesh.device_type)
    with translate_dist_errors():
        dist.broadcast(message, group=mesh.get_group(), group_src=0)
    return int(message)


def run_on_all_ranks(mesh: DeviceMesh, work: Callable[[], T]) -> T:
    """Return the result of `work` once it has ended on all ranks; an error on one rank is raised
    on all.
    """
    own_error: LlamathError | None = None
    results: list[T] = []
    try:
        results.append(work())
    except LlamathError as error:
        own_error = error
    messages = all_gather_text(mesh, "" if own_error is None else f"{own_error}\0{own_error.hint}")
    failed = next(((rank, x) for rank, x in enumerate(messages) if x), None)
    if failed is not None:
        rank, text = failed
        message, _, hint = text.partition("\0")
        raise LlamathError(f"rank {rank}: {message}" if rank else message, hint=hint) from own_error
    return results[0]


def all_gather_text(mesh: DeviceMesh, text: str) -> list[str]:
    """Return the texts of all ranks."""
    message = torch.zeros(_MAX_MESSAGE_BYTES, dtype=torch.uint8)
    data = text.encode()[:_MAX_MESSAGE_BYTES]
    message[: len(data)] = torch.tensor(list(data), dtype=torch.uint8)
    own = message.to(mesh.device_type)
    messages = [torch.empty_like(own) for _ in range(mesh.size())]
    with translate_dist_errors():
        dist.all_gather(messages, own, group=mesh.get_group())
    return [bytes(x.tolist()).rstrip(b"\0").decode(errors="ignore") for x in messages]
