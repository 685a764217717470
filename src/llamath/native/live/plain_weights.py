"""`plain_weights`: the weights of a program as they lie in a checkpoint, for the engine in
WebAssembly. The standard library suffices.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ...analysis.check.verify.verified_checkpoint import VerifiedCheckpoint
from ...checkpoint.naming.stored_layouts import group_by_stored_name
from ...generation.mapped_files import MappedFiles
from ...utils.errors import LlamathError, safe
from ..program import Program
from .program_bytes import placed_weights

_BYTES = {"F32": 4, "F16": 2, "BF16": 2}


class PlainWeight(NamedTuple):
    """The values of a weight as they are stored, row by row."""

    path: str
    dtype: str  # F32, F16 or BF16
    values: memoryview


def plain_weights(checkpoint: VerifiedCheckpoint, program: Program) -> Iterator[PlainWeight]:
    """Yield every stored weight that a program reads, once; raise where values would have to be
    converted or arranged anew.
    """
    wanted = {path for x in placed_weights(program) for path in x.paths}
    files = MappedFiles(checkpoint.manifest)
    for name, leaves in group_by_stored_name(checkpoint.model.tree, checkpoint.scheme).items():
        tensor = checkpoint.stored.tensors[name]
        is_plain = (
            len(tensor.parts) == 1
            and tensor.dtype in _BYTES
            and tensor.parts[0].strides is None
            and not checkpoint.scheme.layout_of(leaves[0].pattern)
            and len({x.indices[1:] for x in leaves}) == 1
            and not files.map_file(tensor.parts[0].file)[1]
        )
        if not is_plain:
            raise LlamathError(
                f"the values of {safe(name)} are not stored as the model computes with them",
                hint="use a checkpoint in float32, float16 or bfloat16 with Hugging Face's names",
            )
        (part,) = tensor.parts
        data, at = memoryview(files.map_file(part.file)[0]), part.start
        for leaf in leaves:
            end = at + prod(map(int, leaf.shape)) * _BYTES[tensor.dtype]
            if leaf.path in wanted:
                yield PlainWeight(leaf.path, tensor.dtype, data[at:end])
            at = end
