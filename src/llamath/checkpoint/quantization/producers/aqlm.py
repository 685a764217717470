"""AQLM: each group of weights is a sum of vectors, one from each codebook, times a scale for its
rows.
"""

from __future__ import annotations

from typing import Any

from ...formats.manifest import Tensor
from ...formats.number_arrays import require_numpy
from ..matrix_formats import MatrixFormat, parts
from ..packed_tensors import SCALE_DTYPES, Detection, Packing
from ..recipes import Recipe, skipping_recipe
from ..registry import Keys, PackedLayout, Producer
from ..shared.recipe_keys import integer, strings, wrong
from ..shared.stored_matrix import Rows, StoredMatrix

_LARGEST = 1 << 10
"""The largest side of a group, and the largest number of codebooks."""


def _read(config: Keys, dtype: str) -> Recipe:
    rows, columns = _size(config, "out_group_size", 1), _size(config, "in_group_size", 8)
    count, bits = _size(config, "num_codebooks", 1), _size(config, "nbits_per_codebook", 16, 16)
    to = MatrixFormat(
        name=f"aqlm-{count}x{bits}-g{rows * columns}",
        title=f"AQLM, {count} codebooks of 2^{bits} vectors for {rows}×{columns} weights",
        parts=parts(
            f".codes {'I8' if bits <= 8 else 'I16'} out/{rows} in/{columns} {count}",
            f".codebooks {dtype} {count} {1 << bits} {rows} {columns}",
            f".scales {dtype} out/{rows} 1 1 1",
        ),
    )
    key = "linear_weights_not_to_quantize"
    listed = strings(config, key)  # names of weights
    modules = None if listed is None else [x.removesuffix(".weight") for x in listed]
    return skipping_recipe("aqlm", {key: modules}, to, key)


def _size(config: Keys, key: str, default: int, most: int = _LARGEST) -> int:
    size = integer(config, key, default)
    if not 0 < size <= most:
        raise wrong(key, f"from 1 to {most:,}", size)
    return size


def _detect(d: Detection, x: Tensor) -> None:
    """Detect `X.codes`, with codebooks of groups and a scale for each row of groups."""
    base = x.name.removesuffix("codes")
    books, scale = (d.get(f"{base}{end}", *SCALE_DTYPES) for end in ("codebooks", "scales"))
    if base == x.name or books is None or scale is None:
        return
    if len(x.shape) != 3 or len(books.shape) != 4 or books.shape[0] != x.shape[2]:
        return
    if not books.elements or max(books.shape[2:]) > _LARGEST:
        return
    if scale.shape == (x.shape[0], 1, 1, 1):
        shape = (x.shape[0] * books.shape[2], x.shape[1] * books.shape[3])
        roles = {books.name: "index", scale.name: "scale"}
        d.record(x, Packing.of_values("aqlm", f"{base}weight", shape), roles)


def _open(m: StoredMatrix) -> Rows:
    np = require_numpy()
    codes, books, scale = m.raw("values"), m.floats("codebooks"), m.floats("scales")
    count, size, tall, wide = books.shape
    if size < 1 or size & (size - 1) or not tall or not wide:
        raise m.error(f"expected codebooks of 2, 4, 8, … vectors, found shape {list(books.shape)}")
    m.check("codes", codes.shape, (m.out // tall, m.into // wide, count))

    def rows(first: int, last: int) -> Any:
        start, end = first // tall, -(-last // tall)
        indices = codes[start:end].astype(np.int64) % size
        groups = sum(books[i][indices[..., i]] for i in range(count)) * scale[start:end]
        found = groups.swapaxes(1, 2).reshape(-1, m.into)
        return found[first - start * tall : last - start * tall]

    return rows


PRODUCER = Producer(
    read=_read,
    recognized=("aqlm",),
    detect=_detect,
    layouts={"aqlm": PackedLayout(open=_open)},
)
