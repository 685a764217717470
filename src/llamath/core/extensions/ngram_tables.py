"""Tables of hashed n-grams, of which a token reads a row for each hash of each length
(Qwen4-Exp).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import isqrt
from typing import ClassVar, NamedTuple

from ..blocks import Embedding, Linear, Norm
from ..constructors import linear, side_table, weight
from ..expr import Expr, product
from ..machine import Machine, X
from ..mixers import Convolution, GroupedRMSNorm, RecurrentMixer, convolution
from ..tree import Stack, Weight

MAX_ROWS = 1 << 40
"""Upper limit of the rows of a hash, so that primes after it are found quickly."""


class NGramInput(RecurrentMixer):
    """Features of the n-grams that end at each token, for every residual stream: g + silu(conv(norm
    g)) (Qwen4-Exp).

    Hashes of the n-grams choose rows e of a table. In each stream, g = value e · sigmoid(s √|r| /
    √√d), with the sign s of r = k · q, the product of the normalized key e and stream.
    """

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"table": "embedding"}
    multipliers: Weight
    head_sizes: Weight  # rows of each hash
    head_offsets: Weight  # their first rows
    table: Stack
    key: Linear
    value: Linear
    key_norm: Norm
    query_norm: Norm
    conv_norm: Norm
    conv: Convolution
    width: int
    sizes: tuple[int, ...]  # of the streams
    ngram_size: int
    heads_per_ngram: int
    end_token: int

    def forward(self, m: Machine[X], x: X) -> X:
        # (B, T, hashes)
        rows = m.hash_ngrams(self, self.multipliers, self.head_sizes, self.head_offsets)
        e = m.merge_heads(m.lookup_in_parts(rows, self.table))
        k, q = self.key_norm(m, self.key(m, e)), self.query_norm(m, x)
        # (B, T, n, 1)
        r = m.scale(
            m.dot(m.split_heads(k, self.width), m.split_heads(q, self.width)), self.width**-0.5
        )
        gates = m.act(m.merge_heads(m.signed_root(r, 1e-6)), "sigmoid")
        value = self.value(m, e)
        g = m.concat(
            *[m.multiply(value, each) for each in m.split(gates, *[1 for _ in self.sizes])]
        )
        return m.add(g, m.act(self.conv(m, self.conv_norm(m, g)), "silu"))


class HashFacts(NamedTuple):
    """The longest n-gram, the hashes of each length, and the token at which n-grams end."""

    ngram_size: int
    heads_per_ngram: int
    end_token: int


def streams_norm(d: Expr, n: Expr, eps: float, offset: float = 0.0) -> GroupedRMSNorm:
    """A norm of each of n residual streams by itself."""
    return GroupedRMSNorm(weight=weight(n, d, role="scale"), eps=eps, offset=offset)


def ngram_input(
    d: Expr,
    n: Expr,
    eps: float,
    parts: tuple[int, int],
    widths: tuple[Expr, Expr],
    kernel: int,
    facts: HashFacts,
) -> NGramInput:
    """A table of `parts[0]` rows in so many parts and what adds its rows to n residual streams;
    `widths` are those of a row and of all.
    """
    (rows, count), (width, e), heads = parts, widths, (facts.ngram_size - 1) * facts.heads_per_ngram
    size = -(-rows // count)  # as torch.chunk does; the last part is the rest
    wide, whole = (
        streams_norm(d, n, eps, offset=1.0),
        (((_part(size, width, heads),), rows // size)),
    )
    rest = [((_part(rows % size, width, heads),), 1)] if rows % size else []
    return NGramInput(
        multipliers=_numbers(facts.ngram_size),
        head_sizes=_numbers(heads),
        head_offsets=_numbers(heads),
        table=Stack(whole, *rest, active=1),
        key=linear(product((n, d)), e),
        value=linear(d, e),
        key_norm=wide,
        query_norm=wide,
        conv_norm=wide,
        conv=convolution(n * d, kernel).replace(dilation=facts.ngram_size),
        width=d,
        sizes=(d,) * n,
        ngram_size=facts.ngram_size,
        heads_per_ngram=facts.heads_per_ngram,
        end_token=facts.end_token,
    )


def _part(rows: int, width: Expr, hashes: int) -> Embedding:
    """A part of a table, as if a token read all its rows in one of them: only their number is
    known.
    """
    return side_table(rows, width, rows_read=hashes)


def _numbers(count: int) -> Weight:
    return weight(count, role="scale", dtype="I64").replace(buffer=True)


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
