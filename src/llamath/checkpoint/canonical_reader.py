"""`CanonicalReader`: read the rows of a model's weights by canonical path, from any format, naming
scheme and layout, plain or packed.

A weight is read in chunks of rows, so that memory does not grow with the size of a tensor; only
matrices that files store transposed are read as a whole, up to a limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..core.tree import Block, Leaf
from ..utils.errors import FormatError, LlamathError, safe
from .formats.dtypes import DTYPES, PLAIN
from .formats.manifest import Tensor
from .formats.number_arrays import StoredArray, as_array, require_numpy, to_float32
from .naming.scheme import Scheme
from .naming.stored_layouts import (
    LayoutParams,
    group_by_stored_name,
    layout_params_at,
    split_tensor,
    undo_layout,
)
from .quantization.dequantizers import OpenedPacked, open_packed
from .quantization.ggml_values import GGML_DECODERS, Blocks, decode_ggml, swap_ggml_bytes
from .quantization.packed_tensors import PackedWeight
from .quantization.rounding_bounds import (
    CODEBOOK_ERRORS,
    MANTISSA_BITS,
    SMALLEST_HALF_GAP,
    block_radius,
    float_radius,
    surely_within,
)
from .tensor_reader import MergedTensor, TensorReader

Array = Any
"""A numpy array."""
CHUNK_VALUES = 1 << 19
"""Values in a chunk, if a row has not more."""
MAX_ROW = 1 << 26
"""Maximum number of values in a row, and in a matrix that is stored transposed and packed."""
_ROW_MULTIPLE = 256
"""Chunks of many rows begin at multiples of this, so that no head and no packed word is cut."""
_READABLE = frozenset((*MANTISSA_BITS, "F8_E4M3FNUZ", "F8_E5M2FNUZ"))
"""Plain dtypes of weights."""
_ROW_WORDS, _VALUE_WORDS = (
    frozenset(("heads", "each", "rows", "quarters", "rotary", "tiled")),
    frozenset(("shifted", "decay")),
)
_MAX_FLIPPED_BYTES = 1 << 26
"""Larger matrices that are stored transposed are read column by column."""
_LARGEST_THRESHOLD = 31 << 20
"""A little less than glibc's DEFAULT_MMAP_THRESHOLD_MAX."""
_PACKED_SLACK = 2.0**-18
"""Relative error of the float32 arithmetic of quantizers and of their scales."""
_DECAY_RADIUS = 2.0**-20
"""How far a logarithm is from the number whose exponential was stored in F32."""


class CanonicalWeight(NamedTuple):
    """A weight of the tree and the stored tensor that it is in."""

    path: str
    leaf: Leaf
    shape: tuple[int, ...]
    stored: str
    dtype: str  # stored dtype, or the kind of packing

    @property
    def rows(self) -> int:
        """The length of the first axis."""
        return self.shape[0] if self.shape else 1

    @property
    def width(self) -> int:
        """The number of values in a row."""
        return prod(self.shape[1:])

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last row of each chunk."""
        step = max(1, CHUNK_VALUES // max(1, self.width))
        step = step // _ROW_MULTIPLE * _ROW_MULTIPLE or min(step, _ROW_MULTIPLE)
        yield from ((first, min(first + step, self.rows)) for first in range(0, self.rows, step))


class RowChunk:
    """Some rows of a weight.

    Values are computed when they are first needed, without `cached_property`, which until Python
    3.12 lets only one thread compute.
    """

    importance = False  # whether it was quantized with an importance matrix
    # of a packed weight: flat, towards 0 and away from it
    half_steps: Callable[[], tuple[Array, Array]] | None = None
    # the relative error up to which the whole is rounding, though values are beyond their bounds
    error_limit = 0.0
    # of values that were computed: how far each may be from those of another program, flat
    error: Array = None

    def __init__(
        self, dtype: str, raw: Array = None, blocks: Blocks | None = None, kind: str = ""
    ) -> None:
        self.dtype, self.kind = dtype, kind or dtype
        # stored numbers, `[rows, width]`; BF16 and FP8 as their bits; None: of a block type
        self.raw = raw
        self.word, self.offset = "", 0.0  # a change of the values: `shifted` or `decay`
        self._blocks, self._origin = blocks, None
        self._stored_values: Array = None
        self._values: Array = None
        self._both_steps: tuple[Array, Array] | None = None

    @property
    def bits(self) -> Array:
        """The stored numbers, if they are the values themselves; else None."""
        return None if self.word else self.raw

    @property
    def stored_values(self) -> Array:
        """The values as they are stored, flat: float32, or float64 where that is needed."""
        if self._stored_values is None:
            self._stored_values = self._decode()
        return self._stored_values

    def _decode(self) -> Array:
        if self._blocks is not None:
            values = self._blocks.values.reshape(-1)
            return values if self._origin is None else values[self._origin]
        flat = self.raw.reshape(-1)
        return (
            flat
            if flat.dtype.kind == "f" and flat.dtype.itemsize > 2
            else to_float32(flat, self.dtype)
        )

    @property
    def values(self) -> Array:
        """The values of the weight, flat."""
        if not self.word:
            return self.stored_values
        if self._values is None:
            np = require_numpy()
            x = self.stored_values.astype("f8")
            with np.errstate(invalid="ignore", divide="ignore"):
                self._values = x - self.offset if self.word == "shifted" else np.log(-x)
        return self._values

    @property
    def has_bound(self) -> bool:
        """Whether there is a bound for how far each value was rounded."""
        if self.is_packed:
            return self.half_steps is not None
        return self.dtype in MANTISSA_BITS or (
            self._blocks is not None and self.dtype not in CODEBOOK_ERRORS
        )

    @property
    def is_quantized(self) -> bool:
        """Whether each value is a code with a scale, and has a bound."""
        return self._blocks is not None or self.half_steps is not None

    @property
    def is_packed(self) -> bool:
        """Whether it was dequantized from a packed weight."""
        return self.kind != self.dtype

    def sure_radius(self, dtype: str = "") -> Array:
        """Return a distance from each value that is surely within its bound, flat; `dtype`
        instead of its own plain dtype.
        """
        np = require_numpy()
        if self.error is not None:
            return self.error
        if self._blocks is not None:
            flat = np.broadcast_to(self._half_gap, self._blocks.levels.shape).reshape(-1)
            return flat if self._origin is None else flat[self._origin]
        if self._steps is not None:
            return np.minimum(*self._steps)
        # a power of two has a closer neighbor below it
        bits = np.maximum(np.abs(self.values.astype("f4")).view("u4"), 1) - 1
        return (bits & np.uint32(0x7F800000)).view("f4") * np.float32(
            2.0 ** -(MANTISSA_BITS[dtype or self.dtype] + 1)
        )

    @property
    def has_groups(self) -> bool:
        """Whether it is made of groups of values of a block type, in order."""
        return self._blocks is not None and self._origin is None

    @property
    def group_radius(self) -> Array:
        """Such a distance for each group."""
        return self._half_gap.reshape(-1)

    @property
    def group_parts(self) -> tuple[Array, Array, Array | None]:
        """The levels, scales and minimums of its groups, `[blocks, groups, …]`."""
        assert self._blocks is not None
        return self._blocks.levels, self._blocks.scale, self._blocks.minimum

    def values_at(self, positions: Array) -> Array:
        """Return the values at some positions, float32; of groups without computing the others."""
        if self._values is not None or self._stored_values is not None or self.word:
            return self.values[positions]
        if not self.has_groups:
            return to_float32(self.raw.reshape(-1)[positions], self.dtype)
        assert self._blocks is not None
        groups, in_group = require_numpy().divmod(positions, self._blocks.levels.shape[2])
        block, group = require_numpy().divmod(groups, self._blocks.levels.shape[1])
        scale, minimum = (
            x if x is None else x[block, group, 0]
            for x in (self._blocks.scale, self._blocks.minimum)
        )
        values = self._blocks.levels[block, group, in_group].astype("f4") * scale
        return values if minimum is None else values - minimum

    def surely_within(self, positions: Array, distance: Array) -> Array:
        """Return which of the numbers at these distances from the values of groups are surely
        within their bounds.
        """
        assert self._blocks is not None
        return surely_within(self._blocks, self.dtype, positions, distance)

    @property
    def _half_gap(self) -> Array:
        assert self._blocks is not None
        np = require_numpy()
        return np.abs(self._blocks.scale) * np.float32(SMALLEST_HALF_GAP.get(self.dtype, 0.5))

    def radius(self, positions: Array, upward: Array, dtype: str = "") -> Array:
        """Return how far the number that was rounded to each value lies at most above it, or
        below it.
        """
        np = require_numpy()
        if self.error is not None:
            return self.error[positions]
        if self._blocks is not None:
            origin = positions if self._origin is None else self._origin[positions]
            return block_radius(self._blocks, self.dtype, origin, upward, self.importance)
        if self._steps is not None:
            inward, outward = (x[positions] for x in self._steps)
            values = self.values[positions].astype("f8")
            return np.where(upward == (values > 0), outward, inward) + _PACKED_SLACK * np.abs(
                values
            )
        if self.word == "decay":
            return np.full(len(positions), _DECAY_RADIUS)
        stored = self.stored_values[positions].astype("f8")
        return float_radius(stored, dtype or self.dtype, upward == (stored > 0))

    @property
    def _steps(self) -> tuple[Array, Array] | None:
        if self._both_steps is None and self.half_steps is not None:
            self._both_steps = self.half_steps()
        return self._both_steps

    def with_columns(self, order: Array) -> RowChunk:
        """Return the chunk with its columns in another order."""
        if self._blocks is None:
            result = RowChunk(self.dtype, self.raw[:, order], None, self.kind)
            if (half_steps := self.half_steps) is not None:
                shape = self.raw.shape
                result.half_steps = lambda: tuple(
                    x.reshape(shape)[:, order].reshape(-1) for x in half_steps()
                )
                result.error_limit = self.error_limit
            return result
        positions = require_numpy().arange(self._blocks.levels.size).reshape(-1, len(order))
        return self.reordered(positions[:, order])

    def reordered(self, origin: Array) -> RowChunk:
        """Return the chunk of a block type with the values at these positions."""
        result = RowChunk(self.dtype, None, self._blocks)
        result._origin = origin.reshape(-1)
        return result


class MatrixPlace(NamedTuple):
    """Where a weight is: the rows of one stored matrix `[out, in]`, which is stored as `[in,
    out]` if it is flipped.
    """

    matrix: int  # index of the matrix in a stack of experts
    out: int  # rows of the matrix before it is split
    width: int
    first: int  # its first row
    order: Array  # the row of the matrix for each row of the weight; None: consecutive rows
    columns: Array  # the column for each column of the weight; None: the same
    is_flipped: bool
    heads: int  # a flipped matrix is stored for each head
    word: str
    offset: float


def locate_weights(
    tree: Block, scheme: Scheme, leaves: list[Leaf], outputs_first: bool = False
) -> list[MatrixPlace]:
    """Return the places of the weights that are one stored matrix together; `outputs_first` if
    it is not stored transposed.
    """
    np = require_numpy()
    params = layout_params_at(tree, leaves[0])
    sizes = [int(x.shape[0]) if x.shape else 1 for x in leaves]
    layout = set(scheme.layout_of(leaves[0].pattern).split())
    joined = " ".join(x for x in scheme.layout_of(leaves[0].pattern).split() if x in _ROW_WORDS)
    out, width = sum(sizes), prod(map(int, leaves[0].shape[1:]))
    if width > MAX_ROW or out > 1 << 40:
        raise LlamathError(
            f"{safe(leaves[0].path)}: expected rows of at most {MAX_ROW:,} values, found {width:,}"
        )
    is_flipped = "flip" in layout and not outputs_first
    orders: list[Array] = [None] * len(leaves)
    if joined:
        if out > MAX_ROW:
            raise LlamathError(
                f"{safe(leaves[0].path)}: expected at most {MAX_ROW:,} rows in "
                f"the layout {joined}, found {out:,}"
            )
        orders = split_tensor(np.arange(out), [(n,) for n in sizes], joined, params)
    places, first = [], 0
    for leaf, size, order in zip(leaves, sizes, orders, strict=True):
        order, columns = _reorder(scheme.layout_of(leaf.pattern), leaf, order, first, width, params)
        words = set(scheme.layout_of(leaf.pattern).split()) & _VALUE_WORDS
        place = MatrixPlace(
            matrix=0,
            out=out,
            width=width,
            first=first,
            order=order,
            columns=columns,
            is_flipped=is_flipped,
            heads=params.groups if is_flipped and "split" in layout else 1,
            word=min(words, default=""),
            offset=params.offset,
        )
        places.append(place)
        first += size
    return places


def _reorder(
    layout: str, leaf: Leaf, order: Array, first: int, width: int, params: LayoutParams
) -> tuple[Array, Array]:
    """Return the order of a weight's rows and columns in its matrix."""
    np = require_numpy()
    words = " ".join(x for x in layout.split() if x in ("rotary", "tiled"))
    if not words:
        return (None, None) if order is None or _is_consecutive(order, first) else (order, None)
    name = leaf.path.split(".", 3)[-1]
    if name == "out.weight":
        return order, undo_layout(np.arange(width), words, params, "", np)
    if order is None:
        order = np.arange(first, first + int(leaf.shape[0]))
    return undo_layout(order, words, params, name, np), None


class CanonicalReader:
    """The weights of a checkpoint by canonical path."""

    def __init__(
        self,
        tree: Block,
        scheme: Scheme,
        tensors: Mapping[str, MergedTensor],
        reader: TensorReader,
        packed: Mapping[str, PackedWeight] | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        big_endian: bool = False,
        importance: bool = False,
        mtp_schemes: Sequence[Scheme] = (),
    ) -> None:
        _keep_freed_memory()
        self._tree, self._tensors, self._reader = tree, tensors, reader
        self._packed, self._config = (
            {name: x for name, x in (packed or {}).items() if x.kind != "ggml"},
            config or {},
        )
        self._big_endian, self._importance = big_endian, importance
        self._places: dict[str, MatrixPlace] = {}
        self._cache = threading.local()  # the last packed weight and the last transposed matrix
        self.weights: dict[str, CanonicalWeight] = {}
        for name, leaves in group_by_stored_name(tree, scheme).items():
            self.weights |= self._locate(scheme, name, leaves)
        self.mtp_weights: dict[str, CanonicalWeight] = {}
        for form in mtp_schemes or (scheme,):
            if form.name.startswith("hf"):  # other formats do not name them
                self.mtp_weights |= self._find_mtp(form)

    def _find_mtp(self, scheme: Scheme) -> dict[str, CanonicalWeight]:
        """Return the stored weights of the multi-token prediction layers with the names of a
        scheme, by path.
        """
        found: dict[str, CanonicalWeight] = {}
        for i, tensors in enumerate(
            scheme.stored_mtp_layers(self._tree, self._tensors.keys() | self._packed.keys())
        ):
            for x in tensors:
                if x.name in self._packed or self._tensors[x.name].shape == tuple(
                    map(int, x.shape)
                ):
                    leaves = [
                        Leaf(
                            f"mtp.{y.pattern.removeprefix('layers.')}",
                            (i, *y.indices),
                            y.weight,
                            "mtp",
                        )
                        for y in x.parts
                    ]
                    found |= self._locate(scheme, x.name, leaves)
        return found

    def _locate(self, scheme: Scheme, name: str, leaves: list[Leaf]) -> dict[str, CanonicalWeight]:
        """Return the weights in a stored tensor, by path."""
        packed = self._packed.get(name)
        if packed is None and name not in self._tensors:
            raise FormatError(
                "missing", f"expected the tensor {safe(name)}, found none of this name"
            )
        dtype = packed.kind if packed else self._tensors[name].dtype
        if (
            packed is None
            and dtype not in GGML_DECODERS
            and dtype not in _READABLE
            and dtype != leaves[0].weight.dtype
        ):
            known = "the float dtypes, GGUF's block types and packed weights of known schemes"
            raise LlamathError(
                f"{safe(name)} has the dtype {safe(dtype, 40)}, whose values cannot be read",
                hint=f"readable: {known}",
            )
        is_stacked = len(leaves[0].indices) > 1 and "{e}" not in scheme.stored_name(
            leaves[0].pattern
        )
        experts = sorted({x.indices[1:] for x in leaves}) if is_stacked else [()]
        for i, expert in enumerate(experts):
            mine = [x for x in leaves if x.indices[1:] == expert] if is_stacked else leaves
            if i == 0:
                template = locate_weights(
                    self._tree, scheme, mine, packed is not None and packed.is_outputs_first
                )
            for leaf, place in zip(mine, template, strict=True):
                self._places[leaf.path] = place._replace(matrix=expert[0] if expert else 0)
        return {
            x.path: CanonicalWeight(x.path, x, tuple(map(int, x.shape)), name, dtype)
            for x in leaves
        }

    def read(self, weight: CanonicalWeight, first: int, last: int) -> RowChunk:
        """Read the rows from `first` up to, and not including, `last`."""
        np = require_numpy()
        place = self._places[weight.path]
        if place.order is None:
            rows: Array = range(place.first + first, place.first + last)
        else:
            rows = place.order[first:last]
            rows = (
                range(int(rows[0]), int(rows[-1]) + 1) if _is_consecutive(rows, rows[0]) else rows
            )
        chunk = self._read_rows(weight, place, rows)
        if place.columns is not None:
            chunk = chunk.with_columns(place.columns)
        if place.word:
            chunk.word, chunk.offset = place.word, place.offset
        chunk.importance = self._importance
        assert chunk.raw is None or np.size(chunk.raw) == (last - first) * place.width
        return chunk

    def _read_rows(self, weight: CanonicalWeight, place: MatrixPlace, rows: Array) -> RowChunk:
        if weight.stored in self._packed:
            return self._read_packed(weight, place, rows)
        tensor = self._tensors[weight.stored]
        if place.is_flipped:
            return self._read_flipped(tensor, place, rows)
        if isinstance(rows, range):
            return self._decode(
                tensor, self._read_span(tensor, place, rows.start, rows.stop), place.width
            )
        first, last = int(rows.min()), int(rows.max()) + 1
        if last - first <= 4 * len(rows):
            chunk = self._gather(
                tensor, self._read_span(tensor, place, first, last), place.width, rows - first
            )
        else:
            np = require_numpy()
            runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
            data = b"".join(
                [self._read_span(tensor, place, int(run[0]), int(run[-1]) + 1) for run in runs]
            )
            chunk = self._decode(tensor, data, place.width)
        return chunk

    def _read_span(self, tensor: MergedTensor, place: MatrixPlace, first: int, last: int) -> bytes:
        """Read consecutive rows of the matrix."""
        before = place.matrix * place.out
        return self._reader.read_rows(
            _with_width(tensor, place.width), before + first, before + last
        )

    def _gather(self, tensor: MergedTensor, data: bytes, width: int, order: Array) -> RowChunk:
        np = require_numpy()
        size = DTYPES[tensor.dtype].size(width)
        rows = np.frombuffer(data, "u1").reshape(-1, size)[order]
        return self._decode(tensor, rows.reshape(-1), width)

    def _decode(self, tensor: MergedTensor, data: Any, width: int) -> RowChunk:
        if tensor.dtype in GGML_DECODERS:
            return RowChunk(
                tensor.dtype,
                None,
                decode_ggml(
                    swap_ggml_bytes(data, tensor.dtype) if self._big_endian else data, tensor.dtype
                ),
            )
        flat = as_array(StoredArray(tensor.dtype, (len(data) // PLAIN[tensor.dtype].bytes,), data))
        if self._big_endian:
            flat = flat.byteswap()
        return RowChunk(tensor.dtype, flat.reshape(-1, width))

    def _read_flipped(self, tensor: MergedTensor, place: MatrixPlace, rows: Array) -> RowChunk:
        """Read columns of a matrix that is stored as `[in, out]`, or for each head as `[in, out
        / heads]`.
        """
        np = require_numpy()
        size = DTYPES[tensor.dtype].size(place.out * place.width)
        columns = place.out // place.heads
        if (
            size > _MAX_FLIPPED_BYTES
            and tensor.dtype in PLAIN
            and place.heads == 1
            and tensor.parts[0].strides is None
        ):
            return self._read_columns(tensor, place, rows)
        if place.out * place.width > MAX_ROW * 16:
            raise LlamathError(
                f"{safe(tensor.name)}: expected at most {MAX_ROW * 16:,} values "
                "in a transposed matrix"
            )
        key = (tensor.name, place.matrix)
        cached: tuple[tuple[str, int], RowChunk] | None = getattr(self._cache, "flipped", None)
        if cached is None or cached[0] != key:
            stored_rows = place.width * place.heads
            before = place.matrix * stored_rows
            data = self._reader.read_rows(
                _with_width(tensor, columns), before, before + stored_rows
            )
            cached = key, self._decode(tensor, data, columns)
            self._cache.flipped = cached
        chunk = cached[1]
        index = (
            np.arange(place.heads * place.width * columns)
            .reshape(place.heads, place.width, columns)
            .swapaxes(1, 2)
        )
        origin = index.reshape(place.out, place.width)[rows]
        if chunk.raw is None:
            return chunk.reordered(origin)
        return RowChunk(tensor.dtype, chunk.raw.reshape(-1)[origin])

    def _read_columns(self, tensor: MergedTensor, place: MatrixPlace, rows: Array) -> RowChunk:
        """Read columns of a large transposed matrix."""
        np = require_numpy()
        first, last = int(min(rows)), int(max(rows)) + 1
        x: Tensor = tensor.parts[0]
        if len(tensor.parts) > 1:
            raise LlamathError(
                f"{safe(tensor.name)}: large transposed matrices in several parts are not supported"
            )
        item = PLAIN[tensor.dtype].bytes
        begin = x.start + place.matrix * place.out * place.width * item
        source = self._reader.source(x.file)
        data = b"".join(
            [
                source.read(begin + (row * place.out + first) * item, (last - first) * item)
                for row in range(place.width)
            ]
        )
        chunk = self._decode(tensor, data, last - first)
        return RowChunk(tensor.dtype, np.ascontiguousarray(chunk.raw.T[np.asarray(rows) - first]))

    def _read_packed(self, weight: CanonicalWeight, place: MatrixPlace, rows: Array) -> RowChunk:
        """Read rows of a packed weight."""
        np = require_numpy()
        cached: tuple[str, OpenedPacked] | None = getattr(self._cache, "packed", None)
        if cached is None or cached[0] != weight.stored:
            self._cache.packed = None  # at most one is in memory
            cached = (
                weight.stored,
                open_packed(self._packed[weight.stored], self._read_whole, self._config),
            )
            self._cache.packed = cached
        opened = cached[1]
        out, into = opened.shape[-2:]
        expected = (place.width, place.out) if place.is_flipped else (place.out, place.width)
        if (out, into) != expected or (place.is_flipped and out * into > 16 * MAX_ROW):
            found = f"{out:,} by {into:,}"
            raise LlamathError(
                f"{safe(weight.stored)}: expected a packed matrix of "
                f"{expected[0]:,} by {expected[1]:,}, found {found}"
            )
        first, last = (0, out) if place.is_flipped else (int(min(rows)), int(max(rows)) + 1)
        begin, end = first // 64 * 64, min(-(-last // 64) * 64, out)

        def pick(x: Array) -> Array:
            return np.ascontiguousarray(
                x.T[rows] if place.is_flipped else x[np.asarray(rows) - begin]
            )

        chunk = RowChunk("F32", pick(opened.rows(place.matrix, begin, end)), kind=weight.dtype)
        if opened.has_half_steps:

            def half_steps() -> tuple[Array, Array]:
                inward, outward = opened.half_steps(place.matrix, begin, end)
                return pick(inward).reshape(-1), pick(outward).reshape(-1)

            chunk.half_steps, chunk.error_limit = half_steps, opened.error_limit
        return chunk

    def _read_whole(self, name: str) -> StoredArray:
        x = self._tensors[name]
        rows = prod(x.shape) // x.width if x.shape else 1
        return StoredArray(x.dtype, x.shape, self._reader.read_rows(x, 0, rows))


def _with_width(tensor: MergedTensor, width: int) -> MergedTensor:
    """Return a tensor as rows of this width."""
    if tensor.width == width:
        return tensor
    if tensor.axis or any(x.strides is not None or x.elements % width for x in tensor.parts):
        raise LlamathError(
            f"{safe(tensor.name)}: expected rows of {width:,} values, found shape "
            f"{list(tensor.shape)} in parts or not contiguous"
        )
    parts = tuple(
        x._replace(shape=(x.elements // width, width) if width > 1 else (x.elements,))
        for x in tensor.parts
    )
    rows = prod(tensor.shape) // width
    return tensor._replace(shape=(rows, width) if width > 1 else (rows,), parts=parts)


def _keep_freed_memory() -> None:
    """Let glibc reuse the memory of freed chunks instead of returning it to the system, which
    zeroes its pages each time.

    Freeing a large block raises the threshold above which blocks are mapped one by one, and with it
    that of trimming the heap (malloc(3), M_MMAP_THRESHOLD). Reading and comparing takes a fifth of
    the time.
    """
    np = require_numpy()
    np.empty(_LARGEST_THRESHOLD, "u1")


def _is_consecutive(order: Array, first: int) -> bool:
    np = require_numpy()
    return bool(len(order) and order[0] == first and (np.diff(order) == 1).all())
