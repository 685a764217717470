"""Tables of hashed n-grams, of which a token reads a row for each hash of each length (Qwen4-Exp, DeepSeek-V4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import isqrt
from typing import ClassVar, NamedTuple

from ..blocks import Embedding, Linear, Norm
from ..constructors import linear, side_table, weight
from ..expr import Expr, product, total
from ..machine import Machine, X
from ..mixers import Convolution, GroupedRMSNorm, RecurrentMixer, convolution
from ..tree import Cut, Stack, Weight

MAX_ROWS = 1 << 40
"""Upper limit of the rows of a hash, so that primes after it are found quickly."""
_MASK = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1


class NGramInput(RecurrentMixer):
    """Features of the n-grams that end at each token, for every residual stream: g + silu(conv(norm g)) (Qwen4-Exp).

    Hashes of the n-grams choose rows e of a table. In each stream, g = value e · sigmoid(s √|r| / √√d), with the sign s of r = k · q, the
    product of the normalized key e and stream.
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
        rows = m.hash_ngrams(self, self.multipliers, self.head_sizes, self.head_offsets)  # (B, T, hashes)
        e = m.merge_heads(m.lookup_in_parts(rows, self.table))
        k, q = self.key_norm(m, self.key(m, e)), self.query_norm(m, x)
        r = m.scale(m.dot(m.split_heads(k, self.width), m.split_heads(q, self.width)), self.width**-0.5)  # (B, T, n, 1)
        gates = m.act(m.merge_heads(m.signed_root(r, 1e-6)), "sigmoid")
        value = self.value(m, e)
        g = m.concat(*[m.multiply(value, each) for each in m.split(gates, *[1 for _ in self.sizes])])
        return m.add(g, m.act(self.conv(m, self.conv_norm(m, g)), "silu"))


class NGramMemory(RecurrentMixer):
    """To each residual stream, value e · sigmoid(s √|r| / √√d) is added, with rows e of a table for the n-grams that end at each token.

    s is the sign of r = k · q, the product of the normalized key of e and stream. Tokens that normalize alike, as a map of the tokenizer
    says, are the same in an n-gram (DeepSeek-V4.1's Engram).
    """

    group: ClassVar[str] = "mlp"
    groups: ClassVar[dict[str, str]] = {"table": "embedding"}
    cuts: ClassVar[dict[str, Cut]] = {"table": Cut(0, on_indivisible="pad")}
    table: Embedding
    kv: Linear  # a key for each stream, and a value
    query_norm: Norm
    key_norm: Norm
    width: int
    sizes: tuple[int, ...]  # of the streams
    ngram_size: int
    heads_per_ngram: int
    multipliers: tuple[int, ...]  # of the tokens of an n-gram, the last one first
    head_sizes: tuple[int, ...]  # rows of each hash
    pad_token: int

    def forward(self, m: Machine[X], x: X) -> X:
        e = m.merge_heads(self.table(m, m.hash_merged_ngrams(self)))
        keys, value = m.split(m.to_float32(self.kv(m, e)), total(self.sizes), self.width)
        wide = m.to_float32(x)
        k, q = self.key_norm(m, keys), self.query_norm(m, wide)
        r = m.scale(m.dot(m.split_heads(k, self.width), m.split_heads(q, self.width)), self.width**-0.5)  # (B, T, n, 1)
        gates = m.split(m.act(m.merge_heads(m.signed_root(r, 1e-6)), "sigmoid"), *[1 for _ in self.sizes])
        return m.to_model_dtype(m.add(wide, m.concat(*[m.multiply(value, each) for each in gates])))


class HashFacts(NamedTuple):
    """The longest n-gram, the hashes of each length, and the token at which n-grams end."""

    ngram_size: int
    heads_per_ngram: int
    end_token: int


class HashSizes(NamedTuple):
    """The longest n-gram, the hashes of each length, the least rows of a hash, and the number of tokens."""

    longest: int
    each: int
    least: int
    tokens: int

    @property
    def hashes(self) -> int:
        """The hashes of all lengths from 2 on."""
        return (self.longest - 1) * self.each

    @property
    def problem(self) -> str:
        """What is out of range; empty if nothing is."""
        if self.longest >= 2 and 0 < self.hashes <= 1000 and 0 < self.least < MAX_ROWS and 0 < self.tokens <= 1 << 30:
            return ""
        return f"is {self.longest} with {self.each} hashes of {self.least} rows and {self.tokens} tokens, which is out of range"


def streams_norm(d: Expr, n: Expr, eps: float, offset: float = 0.0) -> GroupedRMSNorm:
    """A norm of each of n residual streams by itself."""
    return GroupedRMSNorm(weight=weight(n, d, role="scale"), eps=eps, offset=offset)


def ngram_input(
    d: Expr, n: Expr, eps: float, parts: tuple[int, int], widths: tuple[Expr, Expr], kernel: int, facts: HashFacts
) -> NGramInput:
    """A table of `parts[0]` rows in so many parts and what adds its rows to n residual streams; `widths` are those of a row and of all."""
    (rows, count), (width, e), heads = parts, widths, (facts.ngram_size - 1) * facts.heads_per_ngram
    size = -(-rows // count)  # as torch.chunk does; the last part is the rest
    wide, whole = streams_norm(d, n, eps, offset=1.0), (((_part(size, width, heads),), rows // size))
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
    """A part of a table, as if a token read all its rows in one of them: only their number is known."""
    return side_table(rows, width, rows_read=hashes)


def _numbers(count: int) -> Weight:
    return weight(count, role="scale", dtype="I64").replace(buffer=True)


def ngram_memory(
    d: Expr, n: Expr, eps: float, table: tuple[Expr, Expr], sizes: HashSizes, heads: list[int], *, seed: int, pad: int
) -> NGramMemory:
    """A table `[rows, size]` and what adds its rows to n residual streams."""
    wide = streams_norm(d, n, eps)
    return NGramMemory(
        table=side_table(*table, rows_read=sizes.hashes),
        kv=linear((n + 1) * d, product((sizes.hashes, table[1]))),
        query_norm=wide,
        key_norm=wide,
        width=d,
        sizes=(d,) * n,
        ngram_size=sizes.longest,
        heads_per_ngram=sizes.each,
        multipliers=odd_factors(seed, sizes.tokens, sizes.longest),
        head_sizes=tuple(heads),
        pad_token=pad,
    )


def rows_of_hashes(least: int, place: int, hashes: int) -> list[int]:
    """Return the rows of each hash of the table with this number: primes from `least` on, each used once in all tables."""
    return list(islice(_primes(least), place * hashes, (place + 1) * hashes))


def _primes(start: int) -> Iterator[int]:
    """Yield the primes from this number on."""
    while True:
        if start > 1 and all(start % i for i in range(2, isqrt(start) + 1)):
            yield start
        start += 1


def odd_factors(seed: int, tokens: int, count: int) -> tuple[int, ...]:
    """Return the factors 2 n + 1 with random n, so small that a product with a token does not exceed 63 bits.

    n are what `numpy.random.default_rng(seed).integers` returns: PCG64 (O'Neill 2014), scaled as by Lemire (arXiv:1805.10941).
    """
    bound = max(1, ((1 << 63) - 1) // tokens // 2)
    if bound <= _MASK[0]:
        raise ValueError(f"{tokens} tokens")
    draws = _pcg64(seed)
    found: list[int] = []
    while len(found) < count:
        product = next(draws) * bound
        if product & _MASK[1] >= (1 << 64) % bound:
            found.append(product >> 64)
    return tuple(2 * n + 1 for n in found)


def _pcg64(seed: int) -> Iterator[int]:
    """Yield the numbers of 64 bits of a permuted congruential generator, as numpy seeds it."""
    words = _seed_words(seed, 8)
    numbers = [words[i] | words[i + 1] << 32 for i in range(0, 8, 2)]
    start, increment = numbers[0] << 64 | numbers[1], ((numbers[2] << 64 | numbers[3]) << 1 | 1) & _MASK[2]
    state = (increment + start) & _MASK[2]
    factor = 0x2360ED051FC65DA44385DF649FCCF645
    state = (state * factor + increment) & _MASK[2]
    while True:
        state = (state * factor + increment) & _MASK[2]
        mixed, turn = (state >> 64 ^ state) & _MASK[1], state >> 122
        yield (mixed >> turn | mixed << (64 - turn)) & _MASK[1]


def _seed_words(seed: int, count: int) -> list[int]:
    """Return the words of 32 bits that numpy's `SeedSequence` makes of a seed."""
    entropy = [seed >> 32 * i & _MASK[0] for i in range(max(1, -(-seed.bit_length() // 32)))]
    if len(entropy) > 4:
        raise ValueError(f"a seed of {seed.bit_length()} bits")
    factor = 0x43B0D7E5

    def hashed(x: int) -> int:
        nonlocal factor
        x ^= factor
        factor = factor * 0x931E8875 & _MASK[0]
        x = x * factor & _MASK[0]
        return x ^ x >> 16

    def mixed(x: int, y: int) -> int:
        z = (x * 0xCA01F9DD - y * 0x4973F715) & _MASK[0]
        return z ^ z >> 16

    pool = [hashed(x) for x in (entropy + [0] * 4)[:4]]
    for i in range(4):
        for j in range(4):
            if i != j:
                pool[j] = mixed(pool[j], hashed(pool[i]))
    words, factor = [], 0x8B51F9DD
    for i in range(count):
        x = pool[i % 4] ^ factor
        factor = factor * 0x58F38DED & _MASK[0]
        x = x * factor & _MASK[0]
        words.append(x ^ x >> 16)
    return words
