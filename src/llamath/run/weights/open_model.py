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
from ..debug.nan_check import described, wrong
from ..layers import Decoder
from ..memory_budget import placed, require, sharing, typed, word
from ..module import Place, numbers, own
from .dequantize import refuse
from .ggml_blocks import KINDS
from .load_weights import from_named, joined, load
from .mmap_tensors import TYPES, Files, Stored
from .verified_checkpoint import Sound, sound

FLOATS = ("F64", "F32", "F16", "BF16")
T = TypeVar("T")
Where = str | torch.device | DeviceMesh
Progress = Callable[[int, int], None]
"""Is told how many bytes are done, and of how many."""


class Opened(Record):
    """A model that can be run, and where it came from."""

    model: Model
    module: Decoder
    manifest: Manifest
    scheme: Scheme
    folder: str  # where a tokenizer may lie; of a GGUF file, the file
    own: str  # the type of its numbers in the file: of the most of them
    files: Files
    notes: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        """The type and the device of its numbers."""
        first = next(self.module.parameters())
        return Place(first.dtype, first.device)

    def stored(self, path: str) -> str:
        """What the tensor is called that holds the weight at this path."""
        leaf = next(x for x in walk(self.model.tree) if x.path == path)
        return fill_pattern(self.scheme.stored(leaf.pattern), leaf.indices)

    def flaw(self) -> str:
        """The first weight that holds a NaN or an infinity, in words; empty if none does. Reads all of them."""
        return self.module.heard(next((self._wrong(path, x) for path, x in numbers(self.module) if wrong(x)), ""))

    def _wrong(self, path: str, x: Tensor) -> str:
        return f"{path} ({safe(self.stored(path))}) {described(x)}"


def opened(
    path: str,
    dtype: str | torch.dtype | None = None,
    device: Where = "cpu",
    progress: Progress = lambda _done, _all: None,
    changes: Mapping[str, Any] | None = None,
) -> Opened:
    """Open the checkpoint in this folder or file; `dtype` None: the file's own, of block types and other packed ones bfloat16.

    Refused before any memory is spent: what `verify` finds fault with, what is quantised as nothing here reads, what there is no room for.
    Where `device` is a mesh of processes, each opens it, and holds its part.
    """
    return filled(everywhere(device, lambda: sound(path, changes or {})), dtype, device, progress)


def filled(source: Sound, dtype: str | torch.dtype | None, device: Where, progress: Progress) -> Opened:
    """The model of a checkpoint that is known to be whole."""
    place = everywhere(device, lambda: _place(source, dtype, device))
    module = build(source.model, place.dtype, "meta")
    if not isinstance(device, (str, torch.device)):
        from ..distributed.tensor_parallel import parallelize

        parallelize(module, device)
    files = Files(source.manifest)
    everywhere(device, lambda: _fill(module, source, Stored(files, source.held, place.dtype), place, progress))
    facts = {name: getattr(source, name) for name in ("model", "manifest", "scheme", "folder", "notes")}
    return Opened(module=module, own=_kinds(source).most_common(1)[0][0], files=files, **facts)


def everywhere(device: Where, work: Callable[[], T]) -> T:
    """What `work` gives; what is wrong in one process of a mesh is an error in all."""
    if isinstance(device, (str, torch.device)):
        return work()
    from ..distributed.collectives import agreed

    return agreed(device, work)


def _place(source: Sound, dtype: str | torch.dtype | None, device: Where) -> Place:
    """Where the numbers are to lie."""
    _readable(source)
    there = device if isinstance(device, (str, torch.device)) else device.device_type
    return placed(there, _own(source) if dtype is None else typed(dtype))


def _fill(module: Decoder, source: Sound, stored: Stored, place: Place, progress: Progress) -> None:
    """Give a module of no numbers those of a checkpoint, as far as it holds them."""
    size = sum(own(x).nbytes for x in (*module.parameters(), *module.buffers()))
    require(size * sharing(module), f"{safe(source.path)}: the weights in {word(place.dtype)}", place.device)
    load(module, _placed(source, module, stored, place, lambda done: progress(done, size)))


def _readable(source: Sound) -> None:
    """Refuse numbers of a kind that nothing here reads."""
    refuse(source.path, source.held.packings, source.held.wholes)
    own = {x.weight for x in source.held.packings.values() if x.kind != "ggml"}
    for name in joined(source.model.tree, source.scheme):
        if name not in own and (kind := source.held.wholes[name].dtype) not in (*FLOATS, *KINDS):
            known = ", ".join((*FLOATS, *KINDS))
            raise LlamathError(f"{safe(source.path)}: {safe(name)} is {kind}, which is not computed with here", hint=f"what is: {known}")


def _placed(source: Sound, module: Decoder, stored: Stored, place: Place, told: Callable[[int], None]) -> Iterator[tuple[str, Tensor]]:
    """Every weight by its path, on its device; of a module that is cut, its part."""
    done = 0
    weights = from_named(source.model.tree, source.scheme, stored)
    if module.mesh is not None:
        from ..distributed.collectives import mine

        weights = mine(module, weights)
    for path, x in weights:
        yield path, x.to(place.device)
        done += own(x).numel() * place.dtype.itemsize
        told(done)


def _kinds(source: Sound) -> Counter[str]:
    """How many numbers the file has of each type."""
    kinds: Counter[str] = Counter()
    packed_as = {x.weight: x for x in source.held.packings.values() if x.role == "values" and x.kind != "ggml"}
    for name in joined(source.model.tree, source.scheme):
        if name in packed_as:
            kinds[packed_as[name].kind] += packed_as[name].elements
        else:
            kinds[source.held.wholes[name].dtype] += sum(x.elements for x in source.held.wholes[name].parts)
    return kinds


def _own(source: Sound) -> torch.dtype:
    """The type of most numbers; bfloat16 where some are packed: it has their range, and more digits than they have."""
    kinds = _kinds(source)
    return TYPES[kinds.most_common(1)[0][0]] if kinds.keys() <= set(FLOATS) else torch.bfloat16
