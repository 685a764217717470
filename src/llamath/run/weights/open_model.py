"""`opened`: a checkpoint on disk → the model that computes with its numbers, mapped from its files where they can lie as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.naming.scheme import Scheme
from ...core.errors import LlamathError, safe
from ...core.record_type import Record
from ...core.tree import fill_pattern, walk
from ...model import Model
from ..build_module import build
from ..debug.nan_check import describe_nonfinite, has_nonfinite
from ..layers import Decoder
from ..memory_budget import check_memory, dtype_name, parse_dtype, ranks_per_host, resolve_device
from ..module import TensorOptions, local_tensor, local_tensors
from .dequantize import reject_unreadable
from .ggml_blocks import DEQUANTIZERS
from .load_weights import canonical_weights, group_by_stored_name, load_weights
from .mmap_tensors import TORCH_DTYPES, MappedFiles, TensorsByName
from .verified_checkpoint import VerifiedCheckpoint, open_verified

FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
T = TypeVar("T")
Device = str | torch.device | DeviceMesh
Progress = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""


class LoadedModel(Record):
    """A model that can be run, and where it came from."""

    model: Model
    module: Decoder
    manifest: Manifest
    scheme: Scheme
    folder: str  # where a tokenizer may lie; of a GGUF file, the file
    stored_dtype: str  # the type of its numbers in the file: of the most of them
    files: MappedFiles
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> TensorOptions:
        """The type and the device of its numbers."""
        first = next(self.module.parameters())
        return TensorOptions(first.dtype, first.device)

    def stored_name(self, path: str) -> str:
        """What the tensor is called that holds the weight at this path."""
        leaf = next(x for x in walk(self.model.tree) if x.path == path)
        return fill_pattern(self.scheme.stored_name(leaf.pattern), leaf.indices)

    def first_nonfinite_weight(self) -> str:
        """The first weight that holds a NaN or an infinity, in words; empty if none does. Reads all of them."""
        return self.module.first_from_any_rank(
            next((self._describe(path, x) for path, x in local_tensors(self.module) if has_nonfinite(x)), "")
        )

    def _describe(self, path: str, x: Tensor) -> str:
        return f"{path} ({safe(self.stored_name(path))}) {describe_nonfinite(x)}"


def open_model(
    path: str,
    dtype: str | torch.dtype | None = None,
    device: Device = "cpu",
    progress: Progress = lambda _done, _all: None,
    changes: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Open the checkpoint in this folder or file; `dtype` None: the file's own, of block types and other packed ones bfloat16.

    Refused before any memory is spent: what `verify` finds fault with, what is quantised as nothing here reads, what there is no room for.
    Where `device` is a mesh of processes, each opens it, and holds its part.
    """
    return load_verified(on_all_ranks(device, lambda: open_verified(path, changes or {})), dtype, device, progress)


def load_verified(source: VerifiedCheckpoint, dtype: str | torch.dtype | None, device: Device, progress: Progress) -> LoadedModel:
    """The model of a checkpoint that is known to be whole."""
    place = on_all_ranks(device, lambda: _resolve_options(source, dtype, device))
    module = build(source.model, place.dtype, "meta")
    if not isinstance(device, (str, torch.device)):
        from ..distributed.tensor_parallel import parallelize

        parallelize(module, device)
    files = MappedFiles(source.manifest)
    on_all_ranks(device, lambda: _load_weights(module, source, TensorsByName(files, source.stored, place.dtype), place, progress))
    facts = {name: getattr(source, name) for name in ("model", "manifest", "scheme", "folder", "notes")}
    return LoadedModel(module=module, stored_dtype=_dtype_counts(source).most_common(1)[0][0], files=files, **facts)


def on_all_ranks(device: Device, work: Callable[[], T]) -> T:
    """What `work` gives; what is wrong in one process of a mesh is an error in all."""
    if isinstance(device, (str, torch.device)):
        return work()
    from ..distributed.collectives import run_on_all_ranks

    return run_on_all_ranks(device, work)


def _resolve_options(source: VerifiedCheckpoint, dtype: str | torch.dtype | None, device: Device) -> TensorOptions:
    """Where the numbers are to lie."""
    _check_readable(source)
    there = device if isinstance(device, (str, torch.device)) else device.device_type
    return resolve_device(there, _native_dtype(source) if dtype is None else parse_dtype(dtype))


def _load_weights(module: Decoder, source: VerifiedCheckpoint, stored: TensorsByName, place: TensorOptions, progress: Progress) -> None:
    """Give a module of no numbers those of a checkpoint, as far as it holds them."""
    size = sum(local_tensor(x).nbytes for x in (*module.parameters(), *module.buffers()))
    check_memory(size * ranks_per_host(module), f"{safe(source.path)}: the weights in {dtype_name(place.dtype)}", place.device)
    load_weights(module, _weights_on_device(source, module, stored, place, lambda done: progress(done, size)))


def _check_readable(source: VerifiedCheckpoint) -> None:
    """Refuse numbers of a kind that nothing here reads."""
    reject_unreadable(source.path, source.stored.packings, source.stored.tensors)
    own = {x.weight for x in source.stored.packings.values() if x.kind != "ggml"}
    for name in group_by_stored_name(source.model.tree, source.scheme):
        if name not in own and (kind := source.stored.tensors[name].dtype) not in (*FLOAT_DTYPES, *DEQUANTIZERS):
            known = ", ".join((*FLOAT_DTYPES, *DEQUANTIZERS))
            raise LlamathError(f"{safe(source.path)}: {safe(name)} is {kind}, which is not computed with here", hint=f"what is: {known}")


def _weights_on_device(
    source: VerifiedCheckpoint, module: Decoder, stored: TensorsByName, place: TensorOptions, told: Callable[[int], None]
) -> Iterator[tuple[str, Tensor]]:
    """Every weight by its path, on its device; of a module that is cut, its part."""
    done = 0
    weights = canonical_weights(source.model.tree, source.scheme, stored)
    if module.mesh is not None:
        from ..distributed.collectives import iter_local_shards

        weights = iter_local_shards(module, weights)
    for path, x in weights:
        yield path, x.to(place.device)
        done += local_tensor(x).numel() * place.dtype.itemsize
        told(done)


def _dtype_counts(source: VerifiedCheckpoint) -> Counter[str]:
    """How many numbers the file has of each type."""
    kinds: Counter[str] = Counter()
    packed_as = {x.weight: x for x in source.stored.packings.values() if x.role == "values" and x.kind != "ggml"}
    for name in group_by_stored_name(source.model.tree, source.scheme):
        if name in packed_as:
            kinds[packed_as[name].kind] += packed_as[name].elements
        else:
            kinds[source.stored.tensors[name].dtype] += sum(x.elements for x in source.stored.tensors[name].parts)
    return kinds


def _native_dtype(source: VerifiedCheckpoint) -> torch.dtype:
    """The type of most numbers; bfloat16 where some are packed: it has their range, and more digits than they have."""
    kinds = _dtype_counts(source)
    return TORCH_DTYPES[kinds.most_common(1)[0][0]] if kinds.keys() <= set(FLOAT_DTYPES) else torch.bfloat16
