"""Plans a conversion: the dtype of each output tensor, the source rows that it is made of, and
how their layout changes.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

from ..analysis.storage.gguf_mixture import gguf_traits
from ..analysis.storage.weight_bytes import GGUFNaming
from ..checkpoint.formats.manifest import Tensor
from ..checkpoint.formats.number_arrays import require_numpy
from ..checkpoint.naming.scheme import Scheme
from ..checkpoint.naming.stored_layouts import LayoutParams, layout_params_at
from ..checkpoint.quantization.gguf_file_types import GGUFTensor, assign_types, is_kept_f32
from ..checkpoint.tensor_reader import MergedTensor, TensorReader
from ..core.blocks import Attention, Layer
from ..core.tree import Leaf, walk
from ..utils.errors import ConvertError
from ..utils.record_type import Record
from .conversion_source import ConversionSource
from .float_cast import FLOAT_BYTES, INTEGERS, is_exact
from .source_tensors import PackedTensor, PlainTensor, Shape, SourceTensor, row_width
from .tensor_pieces import (
    GGML_BLOCKS,
    Piece,
    Rearranged,
    RowRange,
    StoredWeights,
    named_errors,
    stored_size,
)

_RESHAPING = frozenset(("unit", "lead", "flat"))
"""Words of layouts that leave the order of elements as it is."""


class OutputTensor(NamedTuple):
    """A tensor to write."""

    name: str
    dtype: str
    shape: Shape
    pieces: tuple[Piece, ...] = ()
    data: bytes = b""  # of a tensor that the source does not contain
    shares_data_with: str = ""  # the tensor that has the same bytes

    @property
    def size(self) -> int:
        """The size of the data."""
        return stored_size(self.dtype, self.shape)

    def chunks(self, reader: TensorReader) -> Iterator[bytes]:
        """Yield the data in chunks."""
        if self.data:
            yield self.data
        for x in self.pieces:
            yield from named_errors(x.chunks(self.dtype, reader), x.source_name)

    def identity(self) -> bytes:
        """Return bytes that identify the source of the data and its changes."""
        return repr(
            [
                self.name,
                self.dtype,
                self.shape,
                self.data,
                self.shares_data_with,
                *(x.identity() for x in self.pieces),
            ]
        ).encode()


class TensorPlan(Record):
    """The tensors of the output, in their order."""

    tensors: tuple[OutputTensor, ...]
    dtype: str  # of most elements, or the file type
    float_dtype: str  # of matrices that are not quantized
    keeps_packed: bool = False  # whether quantized weights are copied under their own names
    notes: tuple[str, ...] = ()


class TargetTypes(NamedTuple):
    """The types that the user asked for."""

    dtype: str = ""  # of matrices; empty: as stored
    mix: str = ""  # a GGUF file type, in which llama.cpp chooses a type for each tensor


class StoredGroup(NamedTuple):
    """The weights of one stored tensor, or of one expert in it, in their order."""

    name: str
    leaves: tuple[Leaf, ...]
    expert: int = 0  # position in the stack
    experts: int = 1

    @property
    def keys(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The weights, in a form that can be compared between schemes."""
        return tuple((x.pattern, x.indices) for x in self.leaves)

    @property
    def size(self) -> int:
        """The number of elements."""
        return sum(int(x.weight.size) for x in self.leaves)


Replace = Callable[[StoredGroup, Shape, LayoutParams], Piece | None]
"""Returns the data of a stored tensor, or of one expert in it, where they do not come from the
source; None where they do."""


def plan_tensors(
    source: ConversionSource,
    target: Scheme,
    types: TargetTypes,
    rotary: Mapping[str, Sequence[float]] = {},
    *,
    with_mtp: bool = True,
    replace: Replace = lambda _group, _shape, _params: None,
) -> TensorPlan:
    """Plan the output tensors; `rotary` has the values of rotary factors that the file has as
    tensors, `with_mtp` copies those of multi-token prediction layers.
    """
    planner = _Planner(source, target, types, replace)
    return planner.plan(rotary, with_mtp)


class _Planner:
    """The state of planning one conversion."""

    def __init__(
        self, source: ConversionSource, target: Scheme, types: TargetTypes, replace: Replace
    ) -> None:
        self.source, self.target, self.types, self.replace = source, target, types, replace
        self.tree = source.model.tree
        self.to_gguf = target.name == "gguf"
        self.located: dict[tuple[str, tuple[int, ...]], tuple[StoredGroup, int]] = {}
        for groups in _groups(source, source.scheme).values():
            for group in groups:
                self.located.update({key: (group, i) for i, key in enumerate(group.keys)})
        self.main_dtype = self._main_dtype()
        # (kind of packing, what is done with it) → weights
        self.counts: Counter[tuple[str, str]] = Counter()
        self.params: Callable[[Leaf], LayoutParams] = cache(
            lambda leaf: layout_params_at(self.tree, leaf)
        )

    def plan(self, rotary: Mapping[str, Sequence[float]], with_mtp: bool) -> TensorPlan:
        """Return the plan."""
        groups = _groups(self.source, self.target)
        shapes = {x.name: tuple(map(int, x.shape)) for x in self.target.tensors(self.tree)}
        chosen = self._chosen_types(shapes)
        narrow = self._narrow_vectors()
        tensors: list[OutputTensor] = []
        for name, parts in groups.items():
            kept = self._kept_packed(name, parts)
            tensors += kept or [self._tensor(name, shapes[name], parts, chosen.get(name), narrow)]
        tensors += self._mtp_tensors() if with_mtp else []
        if any(_needs_numpy(x) for x in tensors):
            require_numpy()
        return TensorPlan(
            tensors=(*tensors, *_extra_tensors(self.source, self.target, tensors, rotary)),
            dtype=self.types.mix or self.types.dtype or most_common_dtype(tensors),
            float_dtype=self.main_dtype,
            keeps_packed=any(what == "kept" for _, what in self.counts),
            notes=tuple(self._notes()),
        )

    # Types

    def _main_dtype(self) -> str:
        """Return the dtype of most matrices that are written."""
        if self.types.dtype in FLOAT_BYTES:
            return self.types.dtype
        stored = Counter[str]()
        for x in self.source.tensors.values():
            if len(x.shape) > 1:
                stored[x.dtype] += prod(x.shape)
        plain = [
            dtype
            for dtype, _ in stored.most_common()
            if dtype in FLOAT_BYTES and not (dtype == "F32" and len(stored) > 1)
        ]
        if self.source.format == "gguf" and set(stored) & GGML_BLOCKS:
            return "F16"
        if any(isinstance(x, PackedTensor) for x in self.source.tensors.values()):
            plain = (
                [self.source.declared_dtype] if self.source.declared_dtype in FLOAT_BYTES else plain
            )
        return (
            plain[0]
            if plain
            else "F32"
            if "F32" in stored and not set(stored) - {"F32"}
            else "BF16"
        )

    def _chosen_types(self, shapes: Mapping[str, Shape]) -> dict[str, str]:
        """Return the types of a GGUF file's tensors by name; those that are not in it are as
        stored.
        """
        if not self.to_gguf:
            return {}
        tensors = [GGUFTensor(name, shape, _layer_number(name)) for name, shape in shapes.items()]
        kind = self.types.mix or self.types.dtype
        if not kind:
            return {x.name: "F32" for x in tensors if is_kept_f32(x)}
        is_mxfp4 = any(
            isinstance(x, PackedTensor) and x.dtype == "MXFP4" for x in self.source.tensors.values()
        )
        arch = self.source.model.family.gguf_arch
        naming = GGUFNaming(self.target, arch, "MXFP4" if is_mxfp4 else "")
        traits = gguf_traits(self.tree.replace(mtp=None), naming)
        return {
            x.name: dtype
            for x, dtype in assign_types(kind, tensors, traits, pure=not self.types.mix)
        }

    def _is_widened(self, group: StoredGroup) -> bool:
        """Whether the source is a GGUF file, which stores this tensor in F32 whatever the dtype
        of the matrices.
        """
        x = self.source.tensors[group.name]
        return (
            self.source.format == "gguf"
            and x.dtype == "F32"
            and is_kept_f32(GGUFTensor(group.name, x.shape))
        )

    def _narrow_vectors(self) -> bool:
        """Whether the vectors that a GGUF file stores in F32 can have the dtype of the matrices
        without changing a value.
        """
        if self.source.format != "gguf" or self.main_dtype == "F32" or self.to_gguf:
            return True
        groups = {
            id(group): group for group, _ in self.located.values() if self._is_widened(group)
        }.values()
        as_stored = [
            x
            for x in groups
            if not {"shifted", "decay"}
            & set(self.source.scheme.layout_of(x.leaves[0].pattern).split())
        ]
        return all(
            _is_exact_in(self.source.tensors[x.name], self.main_dtype, self.source.reader)
            for x in as_stored
        )

    def _own_dtype(self, parts: Sequence[StoredGroup], chosen: str | None, narrow: bool) -> str:
        """Return the dtype of an output tensor."""
        names = {self.located[key][0].name for part in parts for key in part.keys}
        if (integers := {self.source.tensors[x].dtype for x in names}) <= set(INTEGERS):
            return integers.pop()
        if chosen is not None or self.types.dtype:
            return chosen or self.types.dtype
        groups = {
            id(group): group
            for part in parts
            for key in part.keys
            for group in (self.located[key][0],)
        }.values()
        sources = [self.source.tensors[x.name] for x in groups]
        stored = {x.dtype for x in sources}
        if stored & GGML_BLOCKS or any(isinstance(x, PackedTensor) for x in sources):
            return (
                stored.pop()
                if self.to_gguf and len(stored) == 1 and stored <= GGML_BLOCKS
                else self.main_dtype
            )
        return (
            self.main_dtype if narrow and all(map(self._is_widened, groups)) else sources[0].dtype
        )

    # Tensors

    def _tensor(
        self,
        name: str,
        shape: Shape,
        parts: Sequence[StoredGroup],
        chosen: str | None,
        narrow: bool,
    ) -> OutputTensor:
        dtype = self._own_dtype(parts, chosen, narrow)
        pieces = [
            piece
            for part in parts
            for piece in self._pieces(
                part, shape[1:] if part.experts > 1 or len(parts) > 1 else shape
            )
        ]
        for x in {
            id(y): y for part in parts for key in part.keys for y in (self._source_of(key),)
        }.values():
            kind = (
                x.kind if isinstance(x, PackedTensor) else x.dtype if x.dtype in GGML_BLOCKS else ""
            )
            if kind and (dtype == "F32" or x.dtype != dtype):
                self.counts[
                    kind,
                    f"{'quantized again' if dtype in GGML_BLOCKS else 'dequantized'} to {dtype}",
                ] += 1
        return OutputTensor(name, dtype, shape, tuple(pieces))

    def _source_of(self, key: tuple[str, tuple[int, ...]]) -> SourceTensor:
        return self.source.tensors[self.located[key][0].name]

    def _pieces(self, target: StoredGroup, shape: Shape) -> Iterator[Piece]:
        """Yield the pieces of one stored tensor, or of one expert in it."""
        if (replaced := self.replace(target, shape, self.params(target.leaves[0]))) is not None:
            yield replaced
            return
        groups = list(
            {id(group): group for key in target.keys for group in (self.located[key][0],)}.values()
        )
        is_same = (
            len(groups) == 1
            and groups[0].keys == target.keys
            and self._is_same_layout(groups[0], target)
        )
        if is_same and (rows := self._rows(groups[0], 0, groups[0].size)) is not None:
            yield rows
            return
        if rows_of_each := self._rows_of_each(target):
            yield from rows_of_each
            return
        yield self._rearranged(groups, target, shape)

    def _is_same_layout(self, ours: StoredGroup, theirs: StoredGroup) -> bool:
        return all(
            self._essential(self._source_layout(x, ours), ours)
            == self._essential(self._layout(x), theirs)
            for x in ours.leaves
        )

    def _essential(self, layout: str, group: StoredGroup) -> frozenset[str]:
        """Return the words of a layout that change the order or the values of the elements of
        this tensor.
        """
        words = set(layout.split()) - _RESHAPING
        if "flip" not in words:
            words -= {"split"}
        if len(group.leaves) == 1:
            words -= {"heads", "each", "rows", "quarters"}
        return frozenset(words)

    def _layout(self, leaf: Leaf) -> str:
        """Return the layout of a weight in the target."""
        return self.target.layout_of(leaf.pattern)

    def _source_layout(self, leaf: Leaf, group: StoredGroup) -> str:
        """Return the layout of a weight in the source; packed weights are dequantized to [out,
        in] even where the model has [in, out].
        """
        layout, x = self.source.scheme.layout_of(leaf.pattern), self.source.tensors[group.name]
        if isinstance(x, PackedTensor) and x.is_transposed:
            return " ".join(word for word in layout.split() if word != "flip")
        return layout

    def _rows(self, group: StoredGroup, first: int, last: int, rotary: int = 0) -> RowRange | None:
        """Return these elements of a group as rows of its tensor; None if they are not whole
        rows.
        """
        x = self.source.tensors[group.name]
        width, start = row_width(x.shape), group.expert * group.size
        if (start + first) % width or (start + last) % width:
            return None
        return RowRange(x, (start + first) // width, (start + last) // width, rotary)

    def _rows_of_each(self, target: StoredGroup) -> list[RowRange]:
        """Return the rows of each weight, if a weight is consecutive rows in both schemes; an
        empty list if not.
        """
        found = []
        for leaf, key in zip(target.leaves, target.keys, strict=True):
            group, i = self.located[key]
            ours, theirs = (
                self._essential(self._source_layout(leaf, group), group),
                self._essential(self._layout(leaf), target),
            )
            if (ours | theirs) - {"rotary"}:
                return []
            first = sum(int(x.weight.size) for x in group.leaves[:i])
            rows = self._rows(
                group, first, first + int(leaf.weight.size), self._rotary_rows(leaf, ours, theirs)
            )
            if rows is None:
                return []
            found.append(rows)
        return found

    def _rotary_rows(self, leaf: Leaf, ours: frozenset[str], theirs: frozenset[str]) -> int:
        """Return the rows of a head if the two schemes order them differently."""
        if ("rotary" in ours) == ("rotary" in theirs):
            return 0
        layer = self.tree.layers[leaf.indices[0]]
        assert isinstance(layer, Layer) and isinstance(layer.attn, Attention)
        size, rope = int(layer.attn.head_dim), layer.attn.rope
        if rope is not None and (rope.dim != size or size % 2):
            raise ConvertError(
                f"{leaf.path}: partial rotary embeddings of heads of {size} rows "
                "cannot be converted"
            )
        return size if "rotary" in theirs else -size

    def _rearranged(
        self, groups: Sequence[StoredGroup], target: StoredGroup, shape: Shape
    ) -> Rearranged:
        numbers = {id(x): i for i, x in enumerate(groups)}
        picks = [(numbers[id(self.located[key][0])], self.located[key][1]) for key in target.keys]
        return Rearranged(
            groups=tuple(map(self._stored, groups)),
            picks=tuple(picks),
            shape=shape,
            layouts=tuple(map(self._layout, target.leaves)),
            params=self.params(target.leaves[0]),
            modules=tuple(map(_module, target.leaves)),
        )

    def _stored(self, group: StoredGroup) -> StoredWeights:
        x = self.source.tensors[group.name]
        shape = (
            x.shape[1:]
            if group.experts > 1 or len(x.shape) > len(self._joined_shape(group))
            else x.shape
        )
        width = row_width(x.shape)
        start = group.expert * group.size
        return StoredWeights(
            source=x,
            first=start // width,
            last=(start + group.size) // width,
            shape=shape,
            shapes=tuple(tuple(map(int, y.shape)) for y in group.leaves),
            layouts=tuple(self._source_layout(y, group) for y in group.leaves),
            params=self.params(group.leaves[0]),
            modules=tuple(map(_module, group.leaves)),
        )

    def _joined_shape(self, group: StoredGroup) -> Shape:
        """Return a shape with as many dimensions as the stored tensor has without experts."""
        words = self._source_layout(group.leaves[0], group).split()
        n = (
            len(group.leaves[0].shape)
            + ("split" in words)
            + ("unit" in words)
            + words.count("lead")
        )
        return (1,) * (1 if "flat" in words else n)

    # Packed weights and extras

    def _kept_packed(self, name: str, parts: Sequence[StoredGroup]) -> list[OutputTensor]:
        """Return the stored tensors of a quantized weight under their new names, if the target
        has the same layout of it.
        """
        group = self.located[parts[0].keys[0]][0]
        x = self.source.tensors[group.name]
        if (
            not isinstance(x, PackedTensor)
            or self.types.dtype
            or not self.target.name.startswith("hf")
        ):
            return []
        ours = [self.located[key][0] for part in parts for key in part.keys[:1]]
        if {y.name for y in ours} != {group.name} or [y.keys for y in ours] != [
            y.keys for y in parts
        ]:
            return []
        if any(
            self.source.scheme.layout_of(leaf.pattern) != self.target.layout_of(leaf.pattern)
            for leaf in group.leaves
        ):
            return []
        self.counts[x.kind, "kept"] += 1
        return [_copy(y, _renamed(y.name, group.name, name)) for y in x.parts.values()]

    def _mtp_tensors(self) -> list[OutputTensor]:
        """Return the tensors of multi-token prediction layers, which only Hugging Face files
        have.
        """
        found = []
        for x in self.source.mtp.values():
            if isinstance(x, PackedTensor) and not self.types.dtype:
                self.counts[x.kind, "kept"] += 1
                found += [_copy(y, y.name) for y in x.parts.values()]
                continue
            plain = (
                x.dtype
                if x.dtype in (*FLOAT_BYTES, *INTEGERS) and not isinstance(x, PackedTensor)
                else self.main_dtype
            )
            rows = RowRange(x, 0, prod(x.shape) // row_width(x.shape))
            found.append(
                OutputTensor(
                    x.name,
                    plain if plain in INTEGERS else self.types.dtype or plain,
                    x.shape,
                    (rows,),
                )
            )
        return found

    def _notes(self) -> Iterator[str]:
        for (kind, what), n in self.counts.items():
            weights = "1 weight" if n == 1 else f"{n:,} weights"
            yield f"{weights} packed as {kind}: {'copied as stored' if what == 'kept' else what}"


def most_common_dtype(tensors: Iterable[OutputTensor | Tensor]) -> str:
    """Return the dtype of most elements of matrices."""
    elements: Counter[str] = Counter()
    for x in tensors:
        elements[x.dtype] += prod(x.shape) if len(x.shape) > 1 else 0
    return elements.most_common(1)[0][0]


def _layer_number(name: str) -> int:
    """Return the layer of a GGUF tensor; −1 outside the layers."""
    return int(name.split(".")[1]) if name.startswith("blk.") else -1


def _groups(source: ConversionSource, scheme: Scheme) -> dict[str, list[StoredGroup]]:
    """Return the stored tensors of a scheme with their weights; a stack of experts has one group
    for each.
    """
    located: dict[str, dict[int, list[Leaf]]] = {}
    for leaf in walk(source.model.tree):
        if leaf.weight.tied:
            continue
        stored = scheme.stored_name(leaf.pattern)
        is_stacked = "{e}" in leaf.pattern and "{e}" not in stored
        name = scheme.fill(stored, leaf)
        located.setdefault(name, {}).setdefault(leaf.indices[-1] if is_stacked else 0, []).append(
            leaf
        )
    return {
        name: [
            StoredGroup(name, tuple(leaves), i, len(experts))
            for i, leaves in enumerate(experts.values())
        ]
        for name, experts in located.items()
    }


def _module(leaf: Leaf) -> str:
    """Return the name of a weight in its layer's block: `attn.out.weight` is `out.weight`."""
    return leaf.path.split(".", 3)[-1]


def _copy(x: Tensor, name: str) -> OutputTensor:
    """Return a stored tensor under another name."""
    merged = MergedTensor(x.name, x.dtype, x.shape, (x,))
    rows = prod(merged.shape) // row_width(merged.shape) if prod(merged.shape) else 0
    return OutputTensor(name, merged.dtype, merged.shape, (RowRange(PlainTensor(merged), 0, rows),))


def _renamed(name: str, old: str, new: str) -> str:
    """Return the name of a stored part of a weight whose name changes."""
    for end in ("weight", ""):
        if (
            old.endswith(end)
            and new.endswith(end)
            and name.startswith(start := old.removesuffix(end))
        ):
            return new.removesuffix(end) + name[len(start) :]
    raise ConvertError(f"{name} is not named after {old}")


def _needs_numpy(x: OutputTensor) -> bool:
    """Whether writing a tensor needs numpy: all do except copies, BF16 to F32, and exact casts
    of vectors.
    """
    if any(not isinstance(y, RowRange) or isinstance(y.source, PackedTensor) for y in x.pieces):
        return True
    dtypes = {x.dtype, *(y.source.dtype for y in x.pieces if isinstance(y, RowRange))}
    return len(dtypes) > 1 and (
        bool(dtypes & GGML_BLOCKS) or "F16" in dtypes or (x.dtype == "BF16" and len(x.shape) > 1)
    )


def _is_exact_in(x: SourceTensor, dtype: str, reader: TensorReader) -> bool:
    return x.dtype == "F32" and is_exact(
        x.read(reader, 0, prod(x.shape) // row_width(x.shape)), dtype
    )


def _extra_tensors(
    source: ConversionSource,
    target: Scheme,
    tensors: list[OutputTensor],
    rotary: Mapping[str, Sequence[float]],
) -> Iterator[OutputTensor]:
    """Yield tensors that are no weights of the tree: Meta's second name of a tied matrix, and
    GGUF's rotary factors.
    """
    tree = source.model.tree
    if target.name == "meta" and tree.head is not None and tree.head.weight.tied:
        embed = next(x for x in tensors if x.name == target.stored_name("embed.weight"))
        yield OutputTensor(
            target.stored_name("head.weight"), embed.dtype, embed.shape, shares_data_with=embed.name
        )
    for name, values in rotary.items():
        yield OutputTensor(
            name, "F32", (len(values),), data=struct.pack(f"<{len(values)}f", *values)
        )
