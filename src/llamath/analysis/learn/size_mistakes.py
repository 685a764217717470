"""Mistakes about bytes, caches and FLOPs, and slips of units and signs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from ...core.expr import Expr
from .account import Account, Product
from .mistake import Change, Mistake
from .study import Study

_BYTES = ("bytes", "cache")
_NUMBERS = ("weights", "difference", "bytes", "cache", "flops")
_GIB_PER_GB = Fraction(2**30, 10**9)


def _bytes(value: Callable[[int], int | None]) -> Change:
    """Store each number in another number of bytes."""

    def change(_study: Study, account: Account) -> Account | None:
        def stored(x: Product) -> Product:
            old = x.factor("bytes")
            new = None if old is None else value(int(old))
            return x if new is None else x.with_factor("bytes", new)

        return account.each(stored)

    return change


def _scaled(ratio: Fraction) -> Change:
    return lambda _study, account: account.scaled(ratio)


def _drop_values(_study: Study, account: Account) -> Account | None:
    left = account.without(lambda x: x.path == "values")
    return left if left.products else None


def _decimal_tokens(_study: Study, account: Account) -> Account | None:
    def counted(x: Product) -> Product:
        n = x.factor("tokens")
        is_binary = n is not None and int(n) % 1024 == 0
        return x.with_factor("tokens", int(n) // 1024 * 1000) if n and is_binary else x

    return account.each(counted)


def _one(name: str) -> Change:
    def change(_study: Study, account: Account) -> Account | None:
        return account.each(lambda x: x if x.factor(name) is None else x.with_factor(name, 1))

    return change


def _cached_width(study: Study, account: Account) -> Account | None:
    def widened(x: Product) -> Product:
        return x.with_factor("width", study.width) if x.path in ("keys", "values") else x

    return account.each(widened)


def _without_head_dim(study: Study, account: Account) -> Account | None:
    h = study.head_dim
    if h is None or len(h.letters) != 1:
        return None
    return account.each(lambda x: x.with_letters({h.symbol: 1}))


def _all_tokens(study: Study, account: Account) -> Account | None:
    """Cache every token in the layers with a window, too."""
    most = max((int(x.factor("tokens") or 0) for x in account.products), default=0)
    if study.window is None:
        return None
    return account.each(lambda x: x.with_factor("tokens", most) if x.role == "window" else x)


def _windows_everywhere(study: Study, account: Account) -> Account | None:
    if study.window is None or study.window.max_lookback is None:
        return None
    n = study.window.max_lookback

    def cut(x: Product) -> Product:
        tokens = x.factor("tokens")
        return x if tokens is None or int(tokens) <= n else x.with_factor("tokens", n)

    return account.each(cut)


def _expanded_latents(study: Study, account: Account) -> Account | None:
    """Cache keys and values of each head in place of a latent vector."""
    latent = study.latent
    if latent is None:
        return None
    keys = Expr.const(latent.heads) * (int(latent.nope_dim) + int(latent.rope_dim))
    values = Expr.const(latent.heads) * int(latent.v_dim)

    def expanded(x: Product) -> Product:
        is_row = x.group == "cache" and x.path not in ("keys", "values")
        return x.with_factor("width", keys + values) if is_row else x

    return account.each(expanded)


def _no_rotary_key(study: Study, account: Account) -> Account | None:
    latent = study.latent
    if latent is None:
        return None
    rope = Expr.const(latent.rope_dim)

    def narrowed(x: Product) -> Product:
        width = x.factor("width")
        is_row = x.group == "cache" and x.path not in ("keys", "values") and width is not None
        return x.with_factor("width", width - rope) if is_row and width is not None else x

    return account.each(narrowed)


def _looked_up(study: Study, account: Account) -> Account | None:
    if account.products and all(x.group == "flops" for x in account.products):
        factors = (
            ("two", Expr.const(2)),
            ("out", Expr.const(study.tree.vocab)),
            ("in", study.width),
        )
        return account.plus([Product("embedding", "flops", factors)])
    return None


def _all_experts_computed(study: Study, account: Account) -> Account | None:
    k, moe = study.top_k, study.moe
    if k is None or moe is None or len(k.letters) != 1:
        return None
    return account.each(lambda x: x.with_letters({k.symbol: len(moe.experts)}))


def _no_head(_study: Study, account: Account) -> Account | None:
    left = account.without(lambda x: x.path == "head" and x.group == "flops")
    return left if left.products else None


SIZE_MISTAKES = (
    Mistake(
        name="32 bits for 16",
        kinds=_BYTES,
        bits=2,
        change=_bytes(lambda n: 4 if n == 2 else None),
        sentence="each number has 4 bytes here, those of fp32; in 16 bits it has 2",
        made_in="“Count the parameters in LLaMA v1”",
    ),
    Mistake(
        name="16 bits for 32",
        kinds=_BYTES,
        bits=2,
        change=_bytes(lambda n: 2 if n == 4 else None),
        sentence="each number has 2 bytes here, those of bf16; in fp32 it has 4",
    ),
    Mistake(
        name="bytes forgotten",
        kinds=_BYTES,
        bits=2,
        change=_bytes(lambda n: 1 if n > 1 else None),
        sentence="these are the numbers, not their bytes (or one byte for each)",
    ),
    Mistake(
        name="bits for bytes",
        kinds=_BYTES,
        bits=2,
        change=_bytes(lambda n: 8 * n),
        sentence="these are bits: 8 of them are a byte",
    ),
    Mistake(
        name="scales forgotten",
        kinds=("bytes",),
        bits=1.5,
        change=_bytes(lambda n: 16 if n == 18 else None),
        sentence="4 bits for each weight, without the scales: a block of 32 weights has 16 bytes "
        "and a scale of 2",
        made_in="omlx#3489",
    ),
    Mistake(
        name="GiB called GB",
        kinds=_BYTES,
        bits=1,
        change=_scaled(1 / _GIB_PER_GB),
        sentence="the digits are those of GiB (2³⁰ bytes); a GB is 10⁹ bytes",
        made_in="accelerate estimate-memory, blog#2345",
    ),
    Mistake(
        name="GB called GiB",
        kinds=_BYTES,
        bits=1,
        change=_scaled(_GIB_PER_GB),
        sentence="the digits are those of GB (10⁹ bytes); a GiB is 2³⁰ bytes",
    ),
    Mistake(
        name="K without V",
        kinds=("cache",),
        bits=1.5,
        change=_drop_values,
        sentence="only the keys are cached here; the values need as much again",
    ),
    Mistake(
        name="the width of the model in the cache",
        kinds=("cache",),
        bits=2,
        change=_cached_width,
        sentence="{d} numbers for each key and value are the whole width; the cache holds the "
        "{K} heads of K and V, of {h} each",
        made_in="VRAM calculators (blog#2345)",
    ),
    Mistake(
        name="head size forgotten",
        kinds=("cache",),
        bits=4,
        change=_without_head_dim,
        sentence="each head has one number here; it has {h}",
    ),
    Mistake(
        name="128k read as 128,000",
        kinds=("cache",),
        bits=2,
        change=_decimal_tokens,
        sentence="1,000 tokens are counted for each 1,024: a context of 128k is 131,072 tokens",
        made_in="blog#2345 (39.06 GiB)",
    ),
    Mistake(
        name="batch forgotten",
        kinds=("cache",),
        bits=2,
        change=_one("batch"),
        sentence="this is one sequence: each sequence of the batch has a cache of its own",
    ),
    Mistake(
        name="one token for all",
        kinds=("cache",),
        bits=2,
        change=_one("tokens"),
        sentence="this is the cache of one token; the question asks for all of them",
    ),
    Mistake(
        name="window ignored",
        kinds=("cache",),
        bits=2,
        change=_all_tokens,
        sentence="layers with a window keep its {window} tokens only, not the whole context",
    ),
    Mistake(
        name="windows everywhere",
        kinds=("cache",),
        bits=3,
        change=_windows_everywhere,
        sentence="all layers keep only {window} tokens here; some layers of {model} see everything",
    ),
    Mistake(
        name="latent vectors expanded",
        kinds=("cache",),
        bits=1.5,
        change=_expanded_latents,
        sentence="keys and values of all heads are cached here; latent attention caches one short "
        "vector, from which they are computed again",
        made_in="hf-mem (25 times too large)",
    ),
    Mistake(
        name="rotary key forgotten",
        kinds=("cache",),
        bits=3,
        change=_no_rotary_key,
        sentence="the rotary part of the key is missing: it is cached next to the latent vector",
    ),
    Mistake(
        name="multiply-add as one",
        kinds=("flops",),
        bits=1.5,
        change=_scaled(Fraction(1, 2)),
        sentence="a multiplication and an addition are counted as one; they are two FLOPs",
    ),
    Mistake(
        name="training for inference",
        kinds=("flops",),
        bits=2,
        change=_scaled(Fraction(3)),
        sentence="this is a training step, 6 FLOPs for each weight; a forward pass has 2",
    ),
    Mistake(
        name="embedding multiplied",
        kinds=("flops",),
        bits=2,
        change=_looked_up,
        sentence="the embedding is looked up, not multiplied: it has no FLOPs",
    ),
    Mistake(
        name="head not computed",
        kinds=("flops",),
        bits=2.5,
        change=_no_head,
        sentence="the head is missing: it multiplies, also where it is tied",
    ),
    Mistake(
        name="all experts computed",
        kinds=("flops",),
        bits=1.5,
        change=_all_experts_computed,
        sentence="all {E} experts compute here; a token passes through {k}",
    ),
    Mistake(
        name="bytes for parameters",
        is_convention=True,
        kinds=("weights", "difference"),
        bits=3,
        change=_scaled(Fraction(2)),
        sentence="this is twice as much: the bytes in 16 bits, not the parameters",
    ),
    Mistake(
        name="sign reversed",
        kinds=("difference",),
        bits=1,
        change=_scaled(Fraction(-1)),
        sentence="the size is right, the sign is not: the question asks for new minus old",
    ),
    Mistake(
        name="a thousand times too much",
        is_convention=True,
        kinds=_NUMBERS,
        bits=4,
        change=_scaled(Fraction(1000)),
        sentence="this is a thousand times too much: thousands, not millions (or M for B)",
        made_in="“Count the parameters in LLaMA v1” (8.19M for 8,192)",
    ),
    Mistake(
        name="a thousand times too little",
        is_convention=True,
        kinds=_NUMBERS,
        bits=4,
        change=_scaled(Fraction(1, 1000)),
        sentence="this is a thousand times too little: check K, M and B",
    ),
    Mistake(
        name="M as 1,048,576",
        is_convention=True,
        kinds=("weights", "difference", "flops"),
        bits=5,
        change=_scaled(Fraction(10**6, 2**20)),
        sentence="the digits are those of 1,048,576s: parameters are counted in 1,000,000s",
    ),
    Mistake(
        name="G as 1,073,741,824",
        is_convention=True,
        kinds=("weights", "difference", "flops"),
        bits=5,
        change=_scaled(Fraction(10**9, 2**30)),
        sentence="the digits are those of 2³⁰: a billion is 10⁹",
    ),
)
