"""`dcp_parts`: the chunks in the files of a distributed checkpoint, as tensors that can be read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ...utils.errors import FormatError
from ..formats.folder import LocalFolder
from ..formats.manifest import CheckpointFile, Manifest, Tensor
from ..formats.source import Part
from ..formats.torch_files import torch_checkpoint
from ..naming.training_names import is_training_state
from .dcp import Chunk, ChunkedTensor, DcpCheckpoint, read_dcp
from .stored_parts import StoredParts, with_slice


def dcp_parts(path: str) -> StoredParts:
    """Return the chunks in the files of a distributed checkpoint; one that covers a part of its
    tensor is named with its slice.
    """
    checkpoint = read_dcp(LocalFolder(path))
    chunks: dict[str, list[tuple[ChunkedTensor, Chunk]]] = {
        x: [] for x in checkpoint.files if x in checkpoint.sizes
    }
    unread: dict[str, None] = {}
    for tensor in checkpoint.tensors:
        for chunk in tensor.chunks:
            if (
                chunk.file in chunks
                and not chunk.is_transformed
                and len(chunk.offsets) == len(chunk.sizes) == len(tensor.shape)
            ):
                chunks[chunk.file].append((tensor, chunk))
            else:
                unread[tensor.name] = None
    tensors: list[Tensor] = []
    bases: dict[str, str] = {}
    for i, (file, own) in enumerate(chunks.items()):
        for tensor, chunk, stored in _read_items(checkpoint, file, own):
            if stored is None:
                unread[tensor.name] = None
                continue
            name = with_slice(tensor.name, _slices(tensor, chunk))
            bases[name] = "" if is_training_state(tensor.name) else tensor.name
            start, end, storage = (
                chunk.start + stored.start,
                chunk.start + stored.end,
                f"{chunk.start}/{stored.storage}",
            )
            tensors.append(
                stored._replace(name=name, file=i, start=start, end=end, storage=storage)
            )
    files = tuple(CheckpointFile(os.path.join(path, x), checkpoint.sizes[x]) for x in chunks)
    return StoredParts(
        Manifest(format="torch", files=files, tensors=tuple(tensors)), bases, tuple(unread)
    )


def _read_items(
    checkpoint: DcpCheckpoint, file: str, chunks: Sequence[tuple[ChunkedTensor, Chunk]]
) -> Iterator[tuple[ChunkedTensor, Chunk, Tensor | None]]:
    """Yield each chunk in a file with the tensor that is stored there; None if it is another
    one, or cannot be read.
    """
    source = LocalFolder(checkpoint.folder).open(file)
    if source is None:
        return
    with source:
        for tensor, chunk in chunks:
            stored: Sequence[Tensor] = ()
            if chunk.start + chunk.length <= source.size:
                try:
                    stored = torch_checkpoint.read(Part(source, chunk.start, chunk.length)).tensors
                except FormatError:
                    stored = ()  # the check of the headers names it
            is_it = len(stored) == 1 and (stored[0].dtype, stored[0].shape) == (
                tensor.dtype,
                chunk.sizes,
            )
            yield tensor, chunk, stored[0] if is_it else None


def _slices(tensor: ChunkedTensor, chunk: Chunk) -> list[str]:
    places = zip(chunk.offsets, chunk.sizes, tensor.shape, strict=True)
    return [
        ":" if (offset, size) == (0, whole) else f"{offset}:{offset + size}"
        for offset, size, whole in places
    ]
