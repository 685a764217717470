"""`WeightSample`: some rows and columns of a weight in both checkpoints, and the size of
rounding errors among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....checkpoint.canonical_reader import CanonicalWeight, RowChunk
from ....checkpoint.formats.number_arrays import require_numpy
from ....checkpoint.quantization.rounding_bounds import CODEBOOK_ERRORS
from .compared_side import ComparedSide

Array = Any
"""A numpy array."""
_BLOCKS, _BLOCK_ROWS, _MAX_COLUMNS = 4, 128, 512
"""Rows are read in consecutive blocks, so that whole heads are among them."""
_AGREEMENT = 3.0
"""Samples agree if their difference is at most this many times as large as rounding errors."""


class WeightSample(NamedTuple):
    """Some rows and columns of a weight."""

    values: Array  # float64
    rounding: float  # root mean square of the largest rounding errors
    rows: Array
    columns: Array

    @property
    def size(self) -> float:
        """The root mean square of the values."""
        return root_mean_square(self.values)

    def agrees(self, other: WeightSample, values: Array = None) -> bool:
        """Whether the values of another sample, or `values` instead, are the same apart from
        rounding.
        """
        np = require_numpy()
        difference = self.values - (other.values if values is None else values)
        if not np.isfinite(difference).all():
            return False
        bound = _AGREEMENT * (self.rounding + other.rounding) + 1e-6 * max(self.size, other.size)
        return root_mean_square(difference) <= bound


def root_mean_square(x: Array) -> float:
    """Return the root of the mean square."""
    np = require_numpy()
    return float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0


def sample_rows(rows: int) -> Array:
    """Return the numbers of the rows that are sampled."""
    np = require_numpy()
    if rows <= _BLOCKS * _BLOCK_ROWS:
        return np.arange(rows)
    starts = np.linspace(0, rows - _BLOCK_ROWS, _BLOCKS).astype("i8") // _BLOCK_ROWS * _BLOCK_ROWS
    return np.unique((starts[:, None] + np.arange(_BLOCK_ROWS)).reshape(-1))


def read_sample(
    side: ComparedSide, weight: CanonicalWeight, rows: Array = None, columns: Array = None
) -> WeightSample:
    """Read a sample of a weight; by default, evenly distributed rows and columns."""
    np = require_numpy()
    rows = sample_rows(weight.rows) if rows is None else rows
    width = weight.width
    if columns is None:
        columns = np.unique(np.linspace(0, width - 1, min(width, _MAX_COLUMNS)).astype("i8"))
    pieces, squares = [], []
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        chunk = side.read(weight, int(run[0]), int(run[-1]) + 1)
        pieces.append(chunk.values.reshape(len(run), -1)[:, columns].astype("f8"))
        squares.append(_rounding(chunk))
    return WeightSample(np.concatenate(pieces), float(np.sqrt(np.mean(squares))), rows, columns)


def _rounding(chunk: RowChunk) -> float:
    """Return the mean square of the largest rounding errors of up to 4096 values."""
    np = require_numpy()
    positions = np.unique(
        np.linspace(0, chunk.values.size - 1, min(chunk.values.size, 4096)).astype("i8")
    )
    if chunk.dtype in CODEBOOK_ERRORS:
        return float(
            (root_mean_square(chunk.values[positions]) * CODEBOOK_ERRORS[chunk.dtype]) ** 2
        )
    if not chunk.has_bound or chunk.dtype in ("F32", "F64"):
        return 0.0
    radius = chunk.radius(positions, np.ones(len(positions), bool))
    return float(
        np.mean(
            np.square(np.minimum(radius, np.abs(chunk.values[positions]) + 2 * np.median(radius)))
        )
    )
