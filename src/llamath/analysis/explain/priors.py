"""How plausible a size of vocabulary, a rank or a set of targets is, in bits: what it takes to say which one is meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ELSEWHERE = {
    2_256: "torchtitan's test tokenizer",
    49_953: "Chinese LLaMA",
    49_954: "Chinese Alpaca",
    50_304: "GPT-2 padded to 128, as nanoGPT does",
    55_296: "Chinese LLaMA 2",
    151_665: "Qwen2.5's tokenizer, unpadded",
}
"""Vocabularies of no preset that people count models with."""
MOST_ROWS = 2**19
RANKS = {8: 1.5, 16: 1.5, 32: 2.5, 64: 2.5, 4: 3, 128: 3, 256: 3.5, 2: 4, 1: 4, 512: 4.5, 1024: 5.5}
"""Ranks that people use, with the bits that each costs."""
MOST_RANK = 2048


class Plausible(NamedTuple):
    """How many bits a value takes, and why so few."""

    bits: float
    why: str = ""


def rows(value: int, own: int, known: Mapping[int, str]) -> Plausible | None:
    """A vocabulary of `value` rows where the model has `own`; None if nobody has so many, or it is no change."""
    if not 0 < value <= MOST_ROWS or value == own:
        return None
    if 0 < value - own <= 16:
        return Plausible(4, f"{value - own} token{'s' if value > own + 1 else ''} added")
    for multiple in (8, 16, 32, 64, 128, 256, 512, 1024):
        if value == -(-own // multiple) * multiple:
            return Plausible(5, f"padded to a multiple of {multiple}")
    if value in ELSEWHERE:
        return Plausible(5, ELSEWHERE[value])
    if value in known:
        return Plausible(6, f"as {known[value]} has")
    if value & (value - 1) == 0 and value >= 256:
        return Plausible(6, "a power of two")
    if own < value <= own + 1024:
        return Plausible(10, f"{value - own:,} tokens added")
    for multiple, bits in ((1000, 9), (1024, 9), (256, 12), (64, 14), (8, 17)):
        if value % multiple == 0:
            return Plausible(bits, f"a multiple of {multiple:,}")
    return Plausible(20)


def rank(value: int) -> Plausible | None:
    """The rank of an adapter; None if nobody trains it."""
    if not 0 < value <= MOST_RANK:
        return None
    return Plausible(RANKS.get(value, 13 if value > 256 else 7 if value % 8 == 0 else 10))
