"""Tables of hashed n-grams, of which a token reads a row for each hash of each length
(Qwen4-Exp).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import isqrt

from ..constructors import weight
from ..expr import Expr
from ..mixers import GroupedRMSNorm

MAX_ROWS = 1 << 40
"""Upper limit of the rows of a hash, so that primes after it are found quickly."""


def streams_norm(d: Expr, n: Expr, eps: float, offset: float = 0.0) -> GroupedRMSNorm:
    """A norm of each of n residual streams by itself."""
    return GroupedRMSNorm(weight=weight(n, d, role="scale"), eps=eps, offset=offset)


def rows_of_hashes(least: int, place: int, hashes: int) -> list[int]:
    """Return the rows of each hash of the table with this number: primes from `least` on, each
    used once in all tables.
    """
    return list(islice(_primes(least), place * hashes, (place + 1) * hashes))


def _primes(start: int) -> Iterator[int]:
    """Yield the primes from this number on."""
    while True:
        if start > 1 and all(start % i for i in range(2, isqrt(start) + 1)):
            yield start
        start += 1
