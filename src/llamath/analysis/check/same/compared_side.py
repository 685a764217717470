"""`ComparedSide`: a checkpoint whose weights are compared or hashed, with a reader of its
canonical weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from ....checkpoint.canonical_reader import CanonicalReader, CanonicalWeight, RowChunk
from ....checkpoint.formats import gguf
from ....checkpoint.formats.source import LocalFile
from ....checkpoint.meta_shards import drop_copies
from ....checkpoint.quantization.packed_tensors import packed_weights
from ....checkpoint.tensor_reader import MergedTensor, TensorReader
from ....core.tree import walk
from ....utils.record_type import Record
from ..verify.verified_checkpoint import VerifiedCheckpoint
from ..verify.verify_tensors import is_buffer


class SideFacts(Record):
    """What a report says about one of the checkpoints."""

    path: str
    model: str
    family: str
    format: str
    names: str  # naming scheme
    dtypes: Mapping[str, int]  # number of elements by stored dtype
    weights: int
    elements: int
    notes: tuple[str, ...] = ()
    adapter: str = ""  # what was merged
    base: str = ""  # of the adapter


class ComparedSide:
    """An opened checkpoint; `close` closes its files."""

    def __init__(self, checkpoint: VerifiedCheckpoint, name: str = "") -> None:
        self.checkpoint, self.name = checkpoint, name or checkpoint.path
        self._files = TensorReader(checkpoint.manifest)
        try:
            self._reader = self._open()
        except BaseException:
            self.close()
            raise
        self.weights: Mapping[str, CanonicalWeight] = self._reader.weights
        self.mtp_weights: Mapping[str, CanonicalWeight] = self._reader.mtp_weights
        self.tied = {x.path: x.weight.tied for x in walk(checkpoint.model.tree) if x.weight.tied}

    def _open(self) -> CanonicalReader:
        checkpoint, manifest = self.checkpoint, self.checkpoint.manifest
        is_gguf = manifest.format == "gguf"
        big_endian = False
        if is_gguf:
            with LocalFile(manifest.files[0].name) as source:
                big_endian = gguf.preamble(source).order == ">"
        tensors = {
            name: drop_copies(x, self._files) if len(x.parts) > 1 else x
            for name, x in checkpoint.stored.tensors.items()
        }
        return CanonicalReader(
            checkpoint.model.tree,
            checkpoint.scheme,
            tensors,
            self._files,
            packed_weights(checkpoint.stored.packings),
            checkpoint.quantization,
            big_endian=big_endian,
            importance=is_gguf and "quantize.imatrix.file" in manifest.metadata,
            # MTP layers are often not fused where the others are
            mtp_schemes=(checkpoint.scheme, checkpoint.model.family.hf),
        )

    def find(self, path: str) -> CanonicalWeight | None:
        """Return the weight at a path; of a tied weight, the one whose values it has."""
        return (
            self.weights.get(path)
            or self.weights.get(self.tied.get(path, ""))
            or self.mtp_weights.get(path)
        )

    def read(self, weight: CanonicalWeight, first: int, last: int) -> RowChunk:
        """Read rows of a weight."""
        return self._reader.read(weight, first, last)

    def bytes_of(self, weight: CanonicalWeight) -> int:
        """Return about how many stored bytes a weight has."""
        stored = self.checkpoint.stored.tensors.get(weight.stored)
        if stored is None:
            return weight.rows * weight.width
        total = sum(x.bytes for x in stored.parts)
        return total * weight.rows * weight.width // max(1, sum(x.elements for x in stored.parts))

    def others(self, compared: Iterable[str] = ()) -> dict[str, MergedTensor]:
        """Return the stored tensors that are no weights of the model and no buffers, by name;
        without those of the paths in `compared`.
        """
        known = {x.stored for x in self.weights.values()} | {
            self.mtp_weights[x].stored for x in compared
        }
        known |= {name for name, x in self.checkpoint.stored.packings.items() if x.weight in known}
        head = {
            self.checkpoint.scheme.stored_name(f"{x}.weight")
            for x in ("head",)
            if f"{x}.weight" in self.tied
        }
        return {
            name: x
            for name, x in self.checkpoint.stored.tensors.items()
            if name not in known and name not in head and not is_buffer(name)
        }

    def read_stored(self, x: MergedTensor, first: int, last: int) -> bytes:
        """Read rows of a stored tensor."""
        return self._files.read_rows(x, first, last)

    @property
    def facts(self) -> SideFacts:
        """What a report says about it."""
        dtypes: Counter[str] = Counter()
        for x in self.weights.values():
            dtypes[x.dtype] += x.rows * x.width
        model = self.checkpoint.model
        return SideFacts(
            path=self.name,
            model=model.name,
            family=model.family.name,
            format=self.checkpoint.manifest.format,
            names=self.checkpoint.scheme.name,
            dtypes=dict(dtypes.most_common()),
            weights=len(self.weights),
            elements=sum(dtypes.values()),
            notes=self.checkpoint.notes,
        )

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
