"""`WeightStore`: the weights of a checkpoint as the kernels read them: matrices where they lie in
the mapped files, vectors in float32.

A stored tensor is read in place if its rows are those of the tree in a type that the kernels read.
Others are converted with numpy, which is imported only then.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ..analysis.check.verify.verified_checkpoint import VerifiedCheckpoint
from ..checkpoint.formats.dtypes import DTYPES
from ..checkpoint.formats.number_arrays import StoredArray
from ..checkpoint.naming.stored_layouts import (
    group_by_stored_name,
    layout_params_at,
    split_tensor,
    stack_experts,
    undo_layout,
)
from ..checkpoint.quantization.dequantizers import iter_dequantized
from ..checkpoint.quantization.ggml_values import dequantize_ggml, swap_ggml_bytes
from ..checkpoint.quantization.packed_tensors import packed_weights
from ..checkpoint.tensor_reader import MergedTensor
from ..core.tree import Leaf
from ..generation.mapped_files import MappedFiles
from ..utils.errors import Call, LlamathError, Name, safe
from .library import BF16, F16, F32, I8, TYPES, Library, Matrix, load_library
from .program import Program, ProgramWeight
from .rotary_pairs import LAYOUT, has_stored_pairs

_PLAIN = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "F64": "<f8", "I64": "<i8", "I32": "<i4"}
_NAMES = {number: name for name, number in TYPES.items()} | {I8: "int8"}


class Stored(NamedTuple):
    """A weight in memory: rows of `cols` values of a type."""

    address: int
    type: int
    rows: int
    cols: int
    bytes: int  # of memory from the address on
    owner: object = None  # what keeps the memory alive
    scales: int = 0
    num_scales: int = 0


def address_of(buffer: Any) -> int:
    """Return the address of a buffer, writable or not."""
    if not memoryview(buffer).readonly:
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    import numpy as np

    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


class WeightStore:
    """The weights of a checkpoint by canonical path. `matrix_type`: convert matrices of other
    plain types to this one; None: as stored.
    """

    def __init__(
        self,
        checkpoint: VerifiedCheckpoint,
        files: MappedFiles,
        matrix_type: int | None,
        stored_pairs: bool = True,
    ) -> None:
        self.checkpoint, self.files, self.matrix_type = checkpoint, files, matrix_type
        self.library = load_library()
        self.keeps_pairs = stored_pairs and has_stored_pairs(checkpoint)
        self.packed = {
            name: x
            for name, x in packed_weights(checkpoint.stored.packings).items()
            if x.kind != "ggml"
        }
        self.conversions: Counter[tuple[str, str]] = Counter()  # (stored type, type) -> values
        self._bases: dict[int, int] = {}  # file -> address of its mapping
        self._found: dict[str, Stored] = {}

    def load(self) -> Mapping[str, Stored]:
        """Return every weight."""
        groups = group_by_stored_name(self.checkpoint.model.tree, self.checkpoint.scheme)
        for name, leaves in groups.items():
            mapped = (
                None
                if name in self.packed
                else self._mapped(self.checkpoint.stored.tensors[name], leaves)
            )
            for path, stored in mapped if mapped is not None else self._converted(name, leaves):
                self._found[path] = stored
        return self._found

    def _layout(self, leaf: Leaf) -> str:
        """Return the layout that has to be undone."""
        layout = self.checkpoint.scheme.layout_of(leaf.pattern)
        return "" if self.keeps_pairs and layout == LAYOUT else layout

    def _base(self, file: int) -> int:
        if file not in self._bases:
            self._bases[file] = address_of(self.files.map_file(file)[0])
        return self._bases[file]

    def _mapped(self, tensor: MergedTensor, leaves: list[Leaf]) -> list[tuple[str, Stored]] | None:
        """Return the weights of a tensor where they lie in the file; None where they cannot be
        read there.
        """
        if (
            self._layout(leaves[0])
            or len(tensor.parts) > 1
            or tensor.dtype not in TYPES
            or len({x.indices[1:] for x in leaves}) > 1
        ):
            return None
        (part,), kind = tensor.parts, TYPES[tensor.dtype]
        if (
            part.strides is not None
            or self.files.map_file(part.file)[1]
            or (kind in (F32, F16, BF16) and part.start % (4 if kind == F32 else 2))
        ):
            return None
        cols = tensor.shape[-1] if tensor.shape else 1
        if (
            self._target(tensor.dtype, len(tensor.shape)) != kind
            or len({len(x.shape) for x in leaves}) > 1
        ):
            return None
        size, at, result = (
            self.library.row_bytes(kind, cols),
            self._base(part.file) + part.start,
            [],
        )
        data = self.files.map_file(part.file)[0]
        end = self._base(part.file) + min(part.end, len(data))
        for leaf in leaves:
            rows = prod(map(int, leaf.shape)) // cols
            result.append((leaf.path, Stored(at, kind, rows, cols, end - at, data)))
            at += rows * size
        return result if sum(x.rows for _, x in result) * cols == prod(tensor.shape) else None

    def _target(self, dtype: str, dimensions: int) -> int:
        """Return the type that a tensor of this dtype is kept in."""
        if dimensions < 2:
            return TYPES.get(dtype, F32) if dtype in ("F32", "F16", "BF16") else F32
        if dtype in ("F32", "F16", "BF16", "F64"):
            own = TYPES.get(dtype, F32)
            return (
                own
                if self.matrix_type is None or (self.matrix_type == F32 and dtype != "F64")
                else self.matrix_type
            )
        return TYPES.get(dtype, BF16 if self.matrix_type is None else self.matrix_type)

    def _converted(self, name: str, leaves: list[Leaf]) -> Iterator[tuple[str, Stored]]:
        """Yield the weights of a tensor that has to be rearranged or converted."""
        scheme, tree = self.checkpoint.scheme, self.checkpoint.model.tree
        words = self._layout(leaves[0]).split()
        params = layout_params_at(tree, leaves[0])
        x, kind = (
            (None, F32)
            if name in self.packed or {"shifted", "decay"} & set(words)
            else self._rows(name, words)
        )
        if x is None:
            x, kind = self._values(name, "flip" in words), F32
        import numpy as np

        stacked: dict[tuple[int, ...], list[Leaf]] = {}
        for leaf in leaves:
            stacked.setdefault(leaf.indices[1:], []).append(leaf)
        x = stack_experts(x, self._layout(leaves[0]), len(stacked))
        by_layer = "{e}" in scheme.stored_name(leaves[0].pattern) or len(leaves[0].indices) < 2
        for expert, group in stacked.items():
            part = x if by_layer else x[expert[0]]
            shapes = [tuple(map(int, leaf.shape)) for leaf in group]
            for leaf, shape, piece in zip(
                group,
                shapes,
                split_tensor(part, shapes, self._layout(group[0]), params),
                strict=True,
            ):
                inside = leaf.path.split(".", 3)[-1]
                values = undo_layout(piece, self._layout(leaf), params, inside, np)
                yield leaf.path, self._keep(values, kind, shape, name)

    def _rows(self, name: str, words: Sequence[str]) -> tuple[Any, int]:
        """Return a tensor as bits in the type that it is stored in; None where it has to be
        converted.
        """
        import numpy as np

        tensor = self.checkpoint.stored.tensors[name]
        if (
            len(tensor.parts) > 1
            or tensor.dtype not in TYPES
            or self._target(tensor.dtype, len(tensor.shape)) != TYPES[tensor.dtype]
        ):
            return None, F32
        (part,) = tensor.parts
        data, big_endian = self.files.map_file(part.file)
        if part.strides is not None or big_endian or not tensor.shape:
            return None, F32
        if tensor.dtype in _PLAIN:
            return np.frombuffer(
                data, _PLAIN[tensor.dtype], prod(tensor.shape), part.start
            ).reshape(tensor.shape), TYPES[tensor.dtype]
        if {"flip", "flat", "tiled"} & set(words):
            return None, F32
        size = self.library.row_bytes(TYPES[tensor.dtype], tensor.shape[-1])
        return np.frombuffer(data, np.uint8, part.bytes, part.start).reshape(
            (*tensor.shape[:-1], size)
        ), TYPES[tensor.dtype]

    def _values(self, name: str, is_transposed: bool) -> Any:
        """Return the values of a tensor in float32."""
        import numpy as np

        if name in self.packed:
            packed = self.packed[name]
            shape, pieces = iter_dequantized(
                packed, self._stored_array, self.checkpoint.stored.quantization
            )
            x = np.concatenate(list(pieces)).reshape(shape)
            return x.swapaxes(-1, -2) if is_transposed and packed.is_outputs_first else x
        tensor = self.checkpoint.stored.tensors[name]
        parts = [self._part_values(part) for part in tensor.parts]
        if len(parts) == 1:
            return parts[0]
        copies = sum(x.shape[0] for x in parts) // tensor.shape[0] if tensor.axis == 0 else 1
        for i, x in enumerate(parts):
            if i % copies and not np.array_equal(x, parts[i - i % copies]):
                raise LlamathError(
                    f"{safe(tensor.name)} must be the same in all files, but differs",
                    hint="are the files from one checkpoint?",
                )
        return np.concatenate(parts[::copies], tensor.axis)

    def _part_values(self, part: Any) -> Any:
        import numpy as np

        data, big_endian = self.files.map_file(part.file)
        if part.dtype not in _PLAIN:
            block = DTYPES[part.dtype]
            blocks = np.frombuffer(data, np.uint8, part.bytes, part.start).reshape(-1, block.bytes)
            values = dequantize_ggml(
                swap_ggml_bytes(blocks, part.dtype) if big_endian else blocks, part.dtype
            )
            return values.reshape(part.shape)
        kind = np.dtype(_PLAIN[part.dtype]).newbyteorder(">" if big_endian else "<")
        flat = np.frombuffer(data, kind, part.bytes // kind.itemsize, part.start).astype(
            kind.newbyteorder("=")
        )
        if part.dtype == "BF16":
            flat = (flat.astype(np.uint32) << 16).view(np.float32)
        flat = flat.astype(np.float32, copy=False)
        if part.strides is not None:
            return np.lib.stride_tricks.as_strided(flat, part.shape, [4 * x for x in part.strides])
        return flat.reshape(part.shape)

    def _stored_array(self, name: str) -> StoredArray:
        x = self.checkpoint.stored.tensors[name].parts[0]
        if x.strides is not None:
            raise LlamathError(f"{safe(name)} is not contiguous", hint="save it with .contiguous()")
        return StoredArray(
            x.dtype, x.shape, memoryview(self.files.map_file(x.file)[0])[x.start : x.end]
        )

    def _keep(self, values: Any, kind: int, shape: tuple[int, ...], name: str) -> Stored:
        """Return values that are kept in memory, in the type that this weight needs."""
        import numpy as np

        cols = shape[-1] if shape else 1
        rows = prod(shape) // cols if cols else 0
        x = np.ascontiguousarray(values)
        if kind == F32 and name in self.checkpoint.stored.tensors and name not in self.packed:
            dtype = self.checkpoint.stored.tensors[name].dtype
            kind = self._target(dtype, len(shape))
            if kind not in (F32, F16, BF16):
                kind = BF16 if self.matrix_type is None else self.matrix_type
            x = self._in_type(x, kind) if len(shape) > 1 else x
            kind = kind if len(shape) > 1 else F32
            if len(shape) > 1 and (_NAMES[kind] != dtype):
                self.conversions[dtype, _NAMES[kind]] += prod(shape)
        elif kind == F32 and name in self.packed and len(shape) > 1:
            kind = BF16 if self.matrix_type is None else self.matrix_type
            x = self._in_type(x, kind)
            self.conversions[self.packed[name].kind, _NAMES[kind]] += prod(shape)
        return Stored(int(x.ctypes.data), kind, rows, cols, int(x.nbytes), x)

    def _in_type(self, x: Any, kind: int) -> Any:
        """Return float32 values in another plain type."""
        import numpy as np

        if kind == F32:
            return x.astype(np.float32, copy=False)
        if kind == F16:
            return x.astype(np.float16)
        bits = x.astype(np.float32, copy=False).view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


class LoadedWeights:
    """The weights of a program: an array of `Matrix`, and what keeps their memory alive."""

    def __init__(
        self, program: Program, stored: Mapping[str, Stored], library: Library, int8: bool = False
    ) -> None:
        self.matrices = (Matrix * max(1, program.num_weights))()
        self.paths: list[str] = []
        self._library, self._int8 = library, int8
        self._owners: list[object] = []
        self._quantized: dict[int, Stored] = {}
        number = 0
        for weight in program.weights:
            for path in _paths(weight):
                self.paths.append(path)
                self._set(number, weight, path, stored)
                number += 1

    def _set(
        self, number: int, weight: ProgramWeight, path: str, stored: Mapping[str, Stored]
    ) -> None:
        if weight.kind == "per_head":
            first, _, last = path.partition("{e}")
            heads = [
                stored[f"{first}{i}{last}"]
                for i in range(sum(x.startswith(first) and x.endswith(last) for x in stored))
            ]
            values = (ctypes.c_float * sum(x.rows * x.cols for x in heads))()
            at = 0
            for x in heads:
                self._to_float32(x, ctypes.addressof(values) + 4 * at)
                at += x.rows * x.cols
            self._put(number, _stored_floats(values, len(heads), at // len(heads)))
            return
        x = stored[path]
        if weight.kind == "vector" and x.type != F32:
            values = (ctypes.c_float * (x.rows * x.cols))()
            self._to_float32(x, ctypes.addressof(values))
            x = _stored_floats(values, x.rows, x.cols)
        elif weight.kind == "vector" and x.address % 4:
            values = (ctypes.c_float * (x.rows * x.cols))()
            ctypes.memmove(values, x.address, 4 * x.rows * x.cols)
            x = _stored_floats(values, x.rows, x.cols)
        elif self._int8 and weight.kind == "matrix" and x.type in (F32, F16, BF16):
            x = self._quantized.setdefault(
                x.address, self._quantized.get(x.address) or self._to_int8(x)
            )
        if weight.kind != "vector" and len(weight.shape) > 2:  # of a convolution over patches
            x = x._replace(rows=weight.shape[0], cols=x.rows * x.cols // weight.shape[0])
        self._put(number, x)

    def _put(self, number: int, x: Stored) -> None:
        self.matrices[number] = _matrix(x)
        self._owners.append(x.owner)

    def _to_float32(self, x: Stored, to: int) -> None:
        matrix = _matrix(x)
        for row in range(x.rows):
            if self._library.dequantize_row(to + 4 * row * x.cols, matrix, row):
                raise _does_not_fit(x)

    def _to_int8(self, x: Stored) -> Stored:
        """Return a matrix in eight bits, with one scale for each row."""
        values, scales = (ctypes.c_int8 * (x.rows * x.cols))(), (ctypes.c_float * x.rows)()
        if self._library.quantize_int8(
            ctypes.addressof(values), ctypes.addressof(scales), _matrix(x)
        ):
            raise _does_not_fit(x)
        address, bytes_, owner = ctypes.addressof(values), ctypes.sizeof(values), (values, scales)
        return Stored(
            address, I8, x.rows, x.cols, bytes_, owner, ctypes.addressof(scales), len(scales)
        )


def _matrix(x: Stored) -> Matrix:
    """Return a weight as the kernels read it."""
    return Matrix(x.address, x.scales or None, x.rows, x.cols, 0, x.type, 0, x.bytes, x.num_scales)


def _stored_floats(values: Any, rows: int, cols: int) -> Stored:
    """Return a float32 array of ctypes as a weight."""
    return Stored(ctypes.addressof(values), F32, rows, cols, ctypes.sizeof(values), values)


def _does_not_fit(x: Stored) -> LlamathError:
    return LlamathError(
        f"a weight of {x.rows:,} × {x.cols:,} values in {_NAMES.get(x.type, 'an unknown type')} "
        f"does not fit its {x.bytes:,} bytes",
        hint=f"{Call('verify', Name('path'))} checks the file",
    )


def _paths(weight: ProgramWeight) -> list[str]:
    return (
        [weight.path.replace("{e}", str(i)) for i in range(weight.experts)]
        if weight.experts
        else [weight.path]
    )
