"""What is to be written: each tensor of the target with the weights that it is made of, and how they change on the way."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ..checkpoint.formats.dtypes import PLAIN
from ..checkpoint.naming.rotary_layouts import half_split_order, interleaved_order
from ..checkpoint.naming.scheme import Scheme
from ..checkpoint.tensor_reader import CHUNK_BYTES, MergedTensor, TensorReader
from ..core.errors import ConvertError, safe
from ..core.positions import Llama3Rope
from ..core.record_type import Record
from ..core.tree import Leaf, fill_pattern, walk
from .conversion_source import ConversionSource
from .float_cast import cast_blocks, is_exact, require_numpy
from .llama3_rope import NAME, divisors


class RowRange(NamedTuple):
    """A weight on its way: rows `first` up to `last` of a tensor, whose heads have `turn` rows."""

    source: MergedTensor
    first: int
    last: int
    rotary_rows: int = 0  # > 0: from halves to neighbouring pairs, < 0: from pairs to halves, 0: as they are


class OutputTensor(NamedTuple):
    """A tensor that is to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sources: tuple[RowRange, ...] = ()
    data: bytes = b""  # of a tensor that no file has
    shares_data_with: str = ""  # the tensor whose bytes these are too

    @property
    def bytes(self) -> int:
        """How many it takes."""
        return prod(self.shape) * PLAIN[self.dtype].bytes


class StoredRows(NamedTuple):
    """Where a weight lies: so many rows below the start of a stored tensor."""

    name: str
    first: int
    rows: int
    leaf: Leaf


class TensorPlan(Record):
    """The tensors of the target, in its order."""

    tensors: tuple[OutputTensor, ...]
    dtype: str  # of most of the matrices


def plan_tensors(source: ConversionSource, target: Scheme, dtype: str) -> TensorPlan:
    """What the target's files hold; an empty `dtype` leaves numbers as they are stored."""
    tree = source.model.tree
    there = {(x.leaf.pattern, x.leaf.indices): x for found in locate_weights(source.scheme, source).values() for x in found}
    main = dtype or Counter(x.dtype for x in source.tensors.values() if len(x.shape) > 1).most_common(1)[0][0]
    widened = [x for x in there.values() if source.format == "gguf" and _is_f32_in_gguf(x.leaf)]
    narrow = all(_is_exact_in(source.tensors[x.name], main, source.reader) for x in widened)
    entries = []
    shapes = {x.name: tuple(map(int, x.shape)) for x in target.tensors(tree)}
    for name, found in locate_weights(target, source).items():
        sources = [there[x.leaf.pattern, x.leaf.indices] for x in found]
        stored = source.tensors[sources[0].name].dtype
        kind = dtype or (main if source.format == "gguf" and _is_f32_in_gguf(found[0].leaf) and narrow else stored)
        kind = "F32" if target.name == "gguf" and _is_f32_in_gguf(found[0].leaf) else kind
        copies = (RowRange(source.tensors[x.name], x.first, x.first + x.rows, _rotary_rows(source, target, x.leaf)) for x in sources)
        entries.append(OutputTensor(name, kind, shapes[name], tuple(copies)))
    if any(_needs_numpy(x, copy.source) for x in entries for copy in x.sources):
        require_numpy()
    return TensorPlan(tensors=(*entries, *_extra_tensors(source, target, entries)), dtype=main)


def locate_weights(scheme: Scheme, source: ConversionSource) -> dict[str, list[StoredRows]]:
    """Every tensor of a scheme with the weights in it, one below the other."""
    found: dict[str, list[StoredRows]] = {}
    for leaf in walk(source.model.tree):
        if leaf.weight.tied:
            continue
        words = set(scheme.layout_of(leaf.pattern).split()) - {"rotary"}
        if words:
            raise ConvertError(
                f"{leaf.path} is stored otherwise in {scheme.name} files ({', '.join(sorted(words))}), which is not converted"
            )
        before = found.setdefault(fill_pattern(scheme.stored_name(leaf.pattern), leaf.indices), [])
        above = before[-1].first + before[-1].rows if before else 0
        before.append(StoredRows(fill_pattern(scheme.stored_name(leaf.pattern), leaf.indices), above, int(leaf.shape[0]), leaf))
    return found


def read_chunks(entry: OutputTensor, files: TensorReader) -> Iterator[bytes]:
    """The bytes of a tensor, some at a time."""
    if entry.data:
        yield entry.data
    for copy in entry.sources:
        source, turn = copy.source, abs(copy.rotary_rows)
        size = source.width * PLAIN[source.dtype].bytes
        step = max(1, CHUNK_BYTES // (size * (turn or 1))) * (turn or 1)
        if any(x.strides is not None for x in source.parts):
            step = copy.last - copy.first
        for first in range(copy.first, copy.last, step):
            data = files.read_rows(source, first, min(copy.last, first + step))
            try:
                yield from cast_blocks(_permute_rotary(data, size, copy.rotary_rows) if turn else data, source.dtype, entry.dtype)
            except ConvertError as error:
                raise ConvertError(f"{safe(source.name)}: {error}", hint=error.hint) from None


def _permute_rotary(data: bytes, size: int, turn: int) -> bytes:
    """Rows reordered head by head: rows i and i + h/2 become neighbours, or neighbours part again."""
    order = interleaved_order(turn) if turn > 0 else half_split_order(-turn)
    view = memoryview(data)
    heads = range(0, len(data), len(order) * size)
    return b"".join([view[head + i * size : head + (i + 1) * size] for head in heads for i in order])


def _rotary_rows(origin: ConversionSource, target: Scheme, leaf: Leaf) -> int:
    """The rows of a head, if the two schemes order them differently."""
    ways = ["rotary" in x.layout_of(leaf.pattern) for x in (origin.scheme, target)]
    if ways[0] == ways[1]:
        return 0
    attention = origin.model.tree.layers[leaf.indices[0]].attn  # type: ignore[attr-defined]
    size = int(attention.head_dim)
    if attention.rope is None or attention.rope.dim != size or size % 2:
        raise ConvertError(f"{leaf.path}: heads of {size} rows that do not all turn in pairs are not converted")
    return size if ways[1] else -size


def _is_f32_in_gguf(leaf: Leaf) -> bool:
    """What GGUF has in F32 whatever the matrices are in: vectors, and the router of a mixture."""
    return len(leaf.shape) == 1 or leaf.group == "router"


def _needs_numpy(entry: OutputTensor, source: MergedTensor) -> bool:
    """Whether the cast takes numpy: all do but BF16 to F32, and vectors that are known to fit."""
    kinds = {source.dtype, entry.dtype}
    return len(kinds) > 1 and ("F16" in kinds or (entry.dtype == "BF16" and len(entry.shape) > 1))


def _is_exact_in(x: MergedTensor, dtype: str, files: TensorReader) -> bool:
    return x.dtype == "F32" and is_exact(files.read_rows(x, 0, prod(x.shape) // x.width), dtype)


def _extra_tensors(origin: ConversionSource, target: Scheme, entries: list[OutputTensor]) -> Iterator[OutputTensor]:
    """What the tree has no weight of its own for: Meta's second name of a tied matrix, GGUF's divisors of the rotary frequencies."""
    tree = origin.model.tree
    if target.name == "meta" and tree.head is not None and tree.head.weight.tied:
        embed = next(x for x in entries if x.name == target.stored_name("embed.weight"))
        yield OutputTensor(target.stored_name("head.weight"), embed.dtype, embed.shape, shares_data_with=embed.name)
    rope = tree.layers[0].attn.rope  # type: ignore[attr-defined]
    if target.name == "gguf" and isinstance(rope, Llama3Rope):
        made = divisors(rope)
        yield OutputTensor(NAME, "F32", (len(made),), data=struct.pack(f"<{len(made)}f", *made))
