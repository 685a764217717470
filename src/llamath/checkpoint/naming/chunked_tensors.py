"""`rejoin_chunks`: weights that were concatenated and stored in equal chunks, cut again where
one weight ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...core.tree import Block
from ...utils.errors import FormatError, safe
from ..formats.manifest import Tensor
from ..tensor_reader import MergedTensor
from .scheme import Scheme, StoredTensor, is_chunked


def rejoin_chunks(
    scheme: Scheme, tree: Block, tensors: dict[str, MergedTensor]
) -> tuple[Scheme, dict[str, MergedTensor]]:
    """Return the scheme without chunks, and the tensors with the rows that they have under it;
    what is not chunked is unchanged.
    """
    whole = scheme.replace(chunked=())
    groups: dict[int, list[StoredTensor]] = {}
    for x in whole.tensors(tree):
        if is_chunked(x, scheme.chunked):
            groups.setdefault(scheme.split_layer(x.name)[0], []).append(x)
    return whole, {
        **tensors,
        **{x.name: x for group in groups.values() for x in _rejoin(group, tensors)},
    }


def _rejoin(
    group: Sequence[StoredTensor], tensors: Mapping[str, MergedTensor]
) -> list[MergedTensor]:
    """Return the tensors of a layer, each of rows of one or more chunks."""
    chunks = [_contiguous(tensors[x.name]) for x in group]
    first, chunk = 0, 0  # the next row, and its chunk
    result = []
    for x in group:
        parts, missing = list[Tensor](), int(x.shape[0])
        while missing:
            n = min(missing, chunks[chunk].shape[0] - first)
            parts += [_rows(chunks[chunk], first, n)] if n else []
            first, missing = first + n, missing - n
            if first == chunks[chunk].shape[0]:
                first, chunk = 0, chunk + 1
        result.append(MergedTensor(x.name, chunks[0].dtype, tuple(map(int, x.shape)), tuple(parts)))
    return result


def _contiguous(tensor: MergedTensor) -> Tensor:
    part = tensor.parts[0]
    if len(tensor.parts) > 1 or part.strides is not None:
        message = (
            f"{safe(part.name)} is a chunk of several weights, and is not contiguous in one file"
        )
        raise FormatError("not_contiguous", message, hint="save it with .contiguous() in one file")
    return part


def _rows(x: Tensor, first: int, n: int) -> Tensor:
    """Return rows of a tensor as a tensor."""
    size = x.bytes // x.shape[0]
    return x._replace(
        shape=(n, *x.shape[1:]), start=x.start + first * size, end=x.start + (first + n) * size
    )
