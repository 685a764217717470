"""`open_model`: a verified checkpoint as a torch module whose weights are memory-mapped from its
files where possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from ...analysis.check.verify.verified_checkpoint import VerifiedCheckpoint, open_verified
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.naming.scheme import Scheme
from ...checkpoint.naming.stored_layouts import group_by_stored_name
from ...core.tree import walk
from ...generation.bus_error import watch_files
from ...generation.mapped_files import MappedFiles
from ...generation.stored_dtypes import FLOAT_DTYPES, check_readable, count_dtypes
from ...model import FamilyModel
from ...utils.errors import safe
from ...utils.record_type import Record
from ..debug.nan_check import describe_nonfinite, has_nonfinite
from ..memory_budget import check_memory, dtype_name, parse_dtype, ranks_per_host, resolve_device
from ..module import Decoder, TensorOptions, build, local_tensors
from ..torch_machine import local_tensor
from .load_weights import canonical_weights, load_weights
from .mmap_tensors import TORCH_DTYPES, MappedTensors, TensorsByName

T = TypeVar("T")
Device = str | torch.device | DeviceMesh
Progress = Callable[[int, int], None]
"""Called with the number of bytes loaded, and of all bytes."""


def no_progress(_done: int, _total: int) -> None:
    """Report nothing."""


class LoadedModel(Record):
    """A module with the weights of a checkpoint."""

    model: FamilyModel
    module: Decoder
    manifest: Manifest
    scheme: Scheme
    folder: str  # of the tokenizer files; for a GGUF file, the file
    stored_dtype: str  # the dtype of most parameters in the files
    files: MappedFiles
    notes: tuple[str, ...] = ()

    @property
    def options(self) -> TensorOptions:
        """The dtype and device of the parameters."""
        first = next(self.module.parameters())
        return TensorOptions(first.dtype, first.device)

    def stored_name(self, path: str) -> str:
        """Return the name of the stored tensor that contains the weight at this path."""
        leaf = next(x for x in walk(self.model.tree) if x.path == path)
        return self.scheme.name_of(leaf)

    def first_nonfinite_weight(self) -> str:
        """Describe the first weight that contains NaN or infinity; empty if none does. Reads all
        weights.
        """
        problems = (
            self._describe(path, x) for path, x in local_tensors(self.module) if has_nonfinite(x)
        )
        return self.module.first_from_any_rank(next(problems, ""))

    def _describe(self, path: str, x: Tensor) -> str:
        return f"{path} ({safe(self.stored_name(path))}) {describe_nonfinite(x)}"


def open_model(
    path: str,
    dtype: str | torch.dtype | None = None,
    device: Device = "cpu",
    progress: Progress = no_progress,
    changes: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Open the checkpoint in this folder or file; `dtype` None: that of the file, or bfloat16 for
    quantized weights.

    A checkpoint that `verify` finds faults in, an unsupported quantization or too little memory
    raise an error before memory is allocated. Where `device` is a mesh, every rank opens the
    checkpoint and loads its shard.
    """
    return load_verified(
        on_all_ranks(device, lambda: open_verified(path, changes or {})), dtype, device, progress
    )


def load_verified(
    checkpoint: VerifiedCheckpoint,
    dtype: str | torch.dtype | None,
    device: Device,
    progress: Progress = no_progress,
) -> LoadedModel:
    """Load the weights of a verified checkpoint."""
    options = on_all_ranks(device, lambda: _resolve_options(checkpoint, dtype, device))
    module = build(checkpoint.model, options.dtype, "meta")
    if not isinstance(device, (str, torch.device)):
        from ..distributed.tensor_parallel import parallelize

        parallelize(module, device)
    files = MappedTensors(checkpoint.manifest)
    watch_files(files)
    tensors = TensorsByName(files, checkpoint.stored, options.dtype, _transposed_names(checkpoint))
    on_all_ranks(device, lambda: _load_weights(module, checkpoint, tensors, options, progress))
    return LoadedModel(
        model=checkpoint.model,
        module=module,
        manifest=checkpoint.manifest,
        scheme=checkpoint.scheme,
        folder=checkpoint.folder,
        stored_dtype=count_dtypes(checkpoint).most_common(1)[0][0],
        files=files,
        notes=checkpoint.notes,
    )


def _transposed_names(checkpoint: VerifiedCheckpoint) -> frozenset[str]:
    """Return the names of the matrices that plain files store as [in, out]."""
    groups = (
        group_by_stored_name(checkpoint.model.tree, checkpoint.scheme)
        if checkpoint.stored.packings
        else {}
    )
    return frozenset(
        name
        for name, leaves in groups.items()
        if "flip" in checkpoint.scheme.layout_of(leaves[0].pattern)
    )


def on_all_ranks(device: Device, work: Callable[[], T]) -> T:
    """Return the result of `work`; an error on one rank of a mesh is raised on all."""
    if isinstance(device, (str, torch.device)):
        return work()
    from ..distributed.collectives import run_on_all_ranks

    return run_on_all_ranks(device, work)


def _resolve_options(
    checkpoint: VerifiedCheckpoint, dtype: str | torch.dtype | None, device: Device
) -> TensorOptions:
    """Return the dtype and device of the parameters."""
    check_readable(checkpoint)
    target = device if isinstance(device, (str, torch.device)) else device.device_type
    return resolve_device(
        target, _native_dtype(checkpoint) if dtype is None else parse_dtype(dtype)
    )


def _load_weights(
    module: Decoder,
    checkpoint: VerifiedCheckpoint,
    tensors: TensorsByName,
    options: TensorOptions,
    progress: Progress,
) -> None:
    """Load this rank's weights into a module on the meta device."""
    size = sum(local_tensor(x).nbytes for x in (*module.parameters(), *module.buffers()))
    what = f"{safe(checkpoint.path)}: the weights in {dtype_name(options.dtype)}"
    check_memory(size * ranks_per_host(module), what, options.device)
    load_weights(
        module,
        _weights_on_device(checkpoint, module, tensors, options, lambda done: progress(done, size)),
    )


def _weights_on_device(
    checkpoint: VerifiedCheckpoint,
    module: Decoder,
    tensors: TensorsByName,
    options: TensorOptions,
    on_bytes: Callable[[int], None],
) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight by path on its device; for a sharded module, this rank's shard."""
    done = 0
    weights = canonical_weights(checkpoint.model.tree, checkpoint.scheme, tensors)
    if module.mesh is not None:
        from ..distributed.collectives import iter_local_shards

        weights = iter_local_shards(module, weights)
    for path, x in weights:
        yield path, x.to(options.device)
        done += local_tensor(x).numel() * options.dtype.itemsize
        on_bytes(done)


def _native_dtype(checkpoint: VerifiedCheckpoint) -> torch.dtype:
    """Return the dtype of most parameters; bfloat16 if any are quantized, since it covers their
    range with more precision.
    """
    counts = count_dtypes(checkpoint)
    return (
        TORCH_DTYPES[counts.most_common(1)[0][0]]
        if counts.keys() <= set(FLOAT_DTYPES)
        else torch.bfloat16
    )
