"""What is to be written: each tensor of the target with the weights that it is made of, and how they change on the way."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from ..checkpoint.formats.dtypes import PLAIN
from ..checkpoint.naming.rotary_layouts import halves, pairs
from ..checkpoint.naming.scheme import Scheme
from ..checkpoint.tensor_reader import CHUNK_BYTES, MergedTensor, TensorReader
from ..core.errors import ConvertError, safe
from ..core.positions import Llama3Rope
from ..core.record_type import Record
from ..core.tree import Leaf, fill_pattern, walk
from .conversion_source import Origin
from .float_cast import blocks, exact, numpy
from .llama3_rope import NAME, divisors


class Copy(NamedTuple):
    """A weight on its way: rows `first` up to `last` of a tensor, whose heads have `turn` rows."""

    source: MergedTensor
    first: int
    last: int
    turn: int = 0  # > 0: from halves to neighbouring pairs, < 0: from pairs to halves, 0: as they are


class Entry(NamedTuple):
    """A tensor that is to be written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    copies: tuple[Copy, ...] = ()
    data: bytes = b""  # of a tensor that no file has
    shares: str = ""  # the tensor whose bytes these are too

    @property
    def bytes(self) -> int:
        """How many it takes."""
        return prod(self.shape) * PLAIN[self.dtype].bytes


class Place(NamedTuple):
    """Where a weight lies: so many rows below the start of a stored tensor."""

    name: str
    above: int
    rows: int
    leaf: Leaf


class Plan(Record):
    """The tensors of the target, in its order."""

    entries: tuple[Entry, ...]
    dtype: str  # of most of the matrices


def planned(origin: Origin, target: Scheme, dtype: str) -> Plan:
    """What the target's files hold; an empty `dtype` leaves numbers as they are stored."""
    tree = origin.model.tree
    there = {(x.leaf.pattern, x.leaf.indices): x for found in places(origin.scheme, origin).values() for x in found}
    main = dtype or Counter(x.dtype for x in origin.wholes.values() if len(x.shape) > 1).most_common(1)[0][0]
    widened = [x for x in there.values() if origin.format == "gguf" and _vector(x.leaf)]
    narrow = all(_fits(origin.wholes[x.name], main, origin.files) for x in widened)
    entries = []
    shapes = {x.name: tuple(map(int, x.shape)) for x in target.tensors(tree)}
    for name, found in places(target, origin).items():
        sources = [there[x.leaf.pattern, x.leaf.indices] for x in found]
        stored = origin.wholes[sources[0].name].dtype
        kind = dtype or (main if origin.format == "gguf" and _vector(found[0].leaf) and narrow else stored)
        kind = "F32" if target.name == "gguf" and _vector(found[0].leaf) else kind
        copies = (Copy(origin.wholes[x.name], x.above, x.above + x.rows, _turn(origin, target, x.leaf)) for x in sources)
        entries.append(Entry(name, kind, shapes[name], tuple(copies)))
    if any(_heavy(x, copy.source) for x in entries for copy in x.copies):
        numpy()
    return Plan(entries=(*entries, *_further(origin, target, entries)), dtype=main)


def places(scheme: Scheme, origin: Origin) -> dict[str, list[Place]]:
    """Every tensor of a scheme with the weights in it, one below the other."""
    found: dict[str, list[Place]] = {}
    for leaf in walk(origin.model.tree):
        if leaf.weight.tied:
            continue
        words = set(scheme.layout(leaf.pattern).split()) - {"rotary"}
        if words:
            raise ConvertError(
                f"{leaf.path} is stored otherwise in {scheme.name} files ({', '.join(sorted(words))}), which is not converted"
            )
        before = found.setdefault(fill_pattern(scheme.stored(leaf.pattern), leaf.indices), [])
        above = before[-1].above + before[-1].rows if before else 0
        before.append(Place(fill_pattern(scheme.stored(leaf.pattern), leaf.indices), above, int(leaf.shape[0]), leaf))
    return found


def chunks(entry: Entry, files: TensorReader) -> Iterator[bytes]:
    """The bytes of a tensor, some at a time."""
    if entry.data:
        yield entry.data
    for copy in entry.copies:
        source, turn = copy.source, abs(copy.turn)
        size = source.width * PLAIN[source.dtype].bytes
        step = max(1, CHUNK_BYTES // (size * (turn or 1))) * (turn or 1)
        if any(x.strides is not None for x in source.parts):
            step = copy.last - copy.first
        for first in range(copy.first, copy.last, step):
            data = files.read_rows(source, first, min(copy.last, first + step))
            try:
                yield from blocks(_turned(data, size, copy.turn) if turn else data, source.dtype, entry.dtype)
            except ConvertError as error:
                raise ConvertError(f"{safe(source.name)}: {error}", hint=error.hint) from None


def _turned(data: bytes, size: int, turn: int) -> bytes:
    """Rows reordered head by head: rows i and i + h/2 become neighbours, or neighbours part again."""
    order = pairs(turn) if turn > 0 else halves(-turn)
    view = memoryview(data)
    heads = range(0, len(data), len(order) * size)
    return b"".join([view[head + i * size : head + (i + 1) * size] for head in heads for i in order])


def _turn(origin: Origin, target: Scheme, leaf: Leaf) -> int:
    """The rows of a head, if the two schemes order them differently."""
    ways = ["rotary" in x.layout(leaf.pattern) for x in (origin.scheme, target)]
    if ways[0] == ways[1]:
        return 0
    attention = origin.model.tree.layers[leaf.indices[0]].attn  # type: ignore[attr-defined]
    size = int(attention.head_dim)
    if attention.rope is None or attention.rope.dim != size or size % 2:
        raise ConvertError(f"{leaf.path}: heads of {size} rows that do not all turn in pairs are not converted")
    return size if ways[1] else -size


def _vector(leaf: Leaf) -> bool:
    """What GGUF has in F32 whatever the matrices are in: vectors, and the router of a mixture."""
    return len(leaf.shape) == 1 or leaf.group == "router"


def _heavy(entry: Entry, source: MergedTensor) -> bool:
    """Whether the cast takes numpy: all do but BF16 to F32, and vectors that are known to fit."""
    kinds = {source.dtype, entry.dtype}
    return len(kinds) > 1 and ("F16" in kinds or (entry.dtype == "BF16" and len(entry.shape) > 1))


def _fits(x: MergedTensor, dtype: str, files: TensorReader) -> bool:
    return x.dtype == "F32" and exact(files.read_rows(x, 0, prod(x.shape) // x.width), dtype)


def _further(origin: Origin, target: Scheme, entries: list[Entry]) -> Iterator[Entry]:
    """What the tree has no weight of its own for: Meta's second name of a tied matrix, GGUF's divisors of the rotary frequencies."""
    tree = origin.model.tree
    if target.name == "meta" and tree.head is not None and tree.head.weight.tied:
        embed = next(x for x in entries if x.name == target.stored("embed.weight"))
        yield Entry(target.stored("head.weight"), embed.dtype, embed.shape, shares=embed.name)
    rope = tree.layers[0].attn.rope  # type: ignore[attr-defined]
    if target.name == "gguf" and isinstance(rope, Llama3Rope):
        made = divisors(rope)
        yield Entry(NAME, "F32", (len(made),), data=struct.pack(f"<{len(made)}f", *made))
