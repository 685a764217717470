"""Plans a conversion: the source rows of each output tensor, their permutation and their dtype."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ..checkpoint.formats.dtypes import PLAIN
from ..checkpoint.formats.number_arrays import require_numpy
from ..checkpoint.gguf_metadata import ROPE_FREQS
from ..checkpoint.naming.scheme import Scheme, half_split_order, interleaved_order
from ..checkpoint.tensor_reader import CHUNK_BYTES, MergedTensor, TensorReader
from ..core.blocks import Attention, Layer
from ..core.errors import ConvertError, safe
from ..core.positions import Llama3Rope
from ..core.record_type import Record
from ..core.tree import Leaf, fill_pattern, walk
from .conversion_source import ConversionSource
from .float_cast import cast_blocks, is_exact


class _RowRange(NamedTuple):
    """The rows `first` up to `last` of a source tensor."""

    source: MergedTensor
    first: int
    last: int
    rotary_rows: int = 0  # rows of a head to permute: > 0 from halves to interleaved pairs, < 0 from pairs to halves, 0 none


class OutputTensor(NamedTuple):
    """A tensor to write."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sources: tuple[_RowRange, ...] = ()
    data: bytes = b""  # of a tensor that the source does not contain
    shares_data_with: str = ""  # the tensor that has the same bytes

    @property
    def size(self) -> int:
        """The size of the data."""
        return prod(self.shape) * PLAIN[self.dtype].bytes

    def chunks(self, reader: TensorReader) -> Iterator[bytes]:
        """Yield the data in chunks."""
        return _read_chunks(self, reader)

    def identity(self) -> bytes:
        """Return bytes that identify the source of the data and its changes."""
        sources = ((x.source, x.first, x.last, x.rotary_rows) for x in self.sources)
        return repr([self.name, self.dtype, self.shape, self.shares_data_with, *sources]).encode()


class _StoredRows(NamedTuple):
    """The rows of a stored tensor that hold one weight."""

    name: str
    first: int
    rows: int
    leaf: Leaf


class TensorPlan(Record):
    """The tensors of the output, in their order."""

    tensors: tuple[OutputTensor, ...]
    dtype: str  # of most matrices


def plan_tensors(source: ConversionSource, target: Scheme, dtype: str) -> TensorPlan:
    """Plan the output tensors; an empty `dtype` keeps the stored dtypes."""
    tree = source.model.tree
    stored = {(x.leaf.pattern, x.leaf.indices): x for rows in _locate_weights(source.scheme, source).values() for x in rows}
    main_dtype = dtype or Counter(x.dtype for x in source.tensors.values() if len(x.shape) > 1).most_common(1)[0][0]
    is_gguf = source.format == "gguf"
    # GGUF stores vectors in F32: narrow them again if no value changes
    widened = [x for x in stored.values() if is_gguf and _is_f32_in_gguf(x.leaf)]
    narrow = all(_is_exact_in(source.tensors[x.name], main_dtype, source.reader) for x in widened)
    tensors = []
    shapes = {x.name: tuple(map(int, x.shape)) for x in target.tensors(tree)}
    for name, rows in _locate_weights(target, source).items():
        parts = [stored[x.leaf.pattern, x.leaf.indices] for x in rows]
        is_vector = _is_f32_in_gguf(rows[0].leaf)
        own_dtype = dtype or (main_dtype if is_gguf and is_vector and narrow else source.tensors[parts[0].name].dtype)
        own_dtype = "F32" if target.name == "gguf" and is_vector else own_dtype
        sources = (_RowRange(source.tensors[x.name], x.first, x.first + x.rows, _rotary_rows(source, target, x.leaf)) for x in parts)
        tensors.append(OutputTensor(name, own_dtype, shapes[name], tuple(sources)))
    if any(_needs_numpy(x, part.source) for x in tensors for part in x.sources):
        require_numpy()
    return TensorPlan(tensors=(*tensors, *_extra_tensors(source, target, tensors)), dtype=main_dtype)


def _locate_weights(scheme: Scheme, source: ConversionSource) -> dict[str, list[_StoredRows]]:
    """Return the stored tensors of a scheme, each with the weights that it is a concatenation of."""
    located: dict[str, list[_StoredRows]] = {}
    for leaf in walk(source.model.tree):
        if leaf.weight.tied:
            continue
        layouts = set(scheme.layout_of(leaf.pattern).split()) - {"rotary"}
        if layouts:
            raise ConvertError(f"{leaf.path} has the layout {', '.join(sorted(layouts))} in {scheme.name} files, which cannot be converted")
        name = fill_pattern(scheme.stored_name(leaf.pattern), leaf.indices)
        rows = located.setdefault(name, [])
        first = rows[-1].first + rows[-1].rows if rows else 0
        rows.append(_StoredRows(name, first, int(leaf.shape[0]), leaf))
    return located


def _read_chunks(tensor: OutputTensor, reader: TensorReader) -> Iterator[bytes]:
    """Yield the bytes of a tensor in chunks."""
    if tensor.data:
        yield tensor.data
    for rows in tensor.sources:
        source, head = rows.source, abs(rows.rotary_rows)
        size = source.width * PLAIN[source.dtype].bytes
        step = max(1, CHUNK_BYTES // (size * (head or 1))) * (head or 1)
        if any(x.strides is not None for x in source.parts):
            step = rows.last - rows.first
        for first in range(rows.first, rows.last, step):
            data = reader.read_rows(source, first, min(rows.last, first + step))
            try:
                yield from cast_blocks(_permute_rotary(data, size, rows.rotary_rows) if head else data, source.dtype, tensor.dtype)
            except ConvertError as error:
                raise ConvertError(f"{safe(source.name)}: {error}", hint=error.hint) from None


def _permute_rotary(data: bytes, size: int, rotary_rows: int) -> bytes:
    """Permute the rows of each head between halves (i, i + h/2) and interleaved pairs (2i, 2i + 1)."""
    order = interleaved_order(rotary_rows) if rotary_rows > 0 else half_split_order(-rotary_rows)
    view = memoryview(data)
    heads = range(0, len(data), len(order) * size)
    return b"".join([view[head + i * size : head + (i + 1) * size] for head in heads for i in order])


def _rotary_rows(source: ConversionSource, target: Scheme, leaf: Leaf) -> int:
    """Return the rows of a head if the two schemes order them differently."""
    from_pairs, to_pairs = ("rotary" in x.layout_of(leaf.pattern) for x in (source.scheme, target))
    if from_pairs == to_pairs:
        return 0
    layer = source.model.tree.layers[leaf.indices[0]]
    assert isinstance(layer, Layer) and isinstance(layer.attn, Attention)
    size, rope = int(layer.attn.head_dim), layer.attn.rope
    if rope is None or rope.dim != size or size % 2:
        raise ConvertError(f"{leaf.path}: partial rotary embeddings of heads of {size} rows cannot be converted")
    return size if to_pairs else -size


def _is_f32_in_gguf(leaf: Leaf) -> bool:
    """Whether GGUF stores a weight in F32 whatever the dtype of the matrices: vectors and routers."""
    return len(leaf.shape) == 1 or leaf.group == "router"


def _needs_numpy(tensor: OutputTensor, source: MergedTensor) -> bool:
    """Whether the cast needs numpy: all do except BF16 to F32 and exact casts of vectors."""
    dtypes = {source.dtype, tensor.dtype}
    return len(dtypes) > 1 and ("F16" in dtypes or (tensor.dtype == "BF16" and len(tensor.shape) > 1))


def _is_exact_in(x: MergedTensor, dtype: str, reader: TensorReader) -> bool:
    return x.dtype == "F32" and is_exact(reader.read_rows(x, 0, prod(x.shape) // x.width), dtype)


def _extra_tensors(source: ConversionSource, target: Scheme, tensors: list[OutputTensor]) -> Iterator[OutputTensor]:
    """Yield tensors that are no weights of the tree: Meta's second name of a tied matrix, and GGUF's frequency divisors."""
    tree = source.model.tree
    if target.name == "meta" and tree.head is not None and tree.head.weight.tied:
        embed = next(x for x in tensors if x.name == target.stored_name("embed.weight"))
        yield OutputTensor(target.stored_name("head.weight"), embed.dtype, embed.shape, shares_data_with=embed.name)
    layer = tree.layers[0]
    rope = layer.attn.rope if isinstance(layer, Layer) and isinstance(layer.attn, Attention) else None
    if target.name == "gguf" and isinstance(rope, Llama3Rope):
        divisors = rope.divisors()
        yield OutputTensor(ROPE_FREQS, "F32", (len(divisors),), data=struct.pack(f"<{len(divisors)}f", *divisors))
