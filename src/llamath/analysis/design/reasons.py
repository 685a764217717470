"""One short sentence for each habit of the series, saying how well a design matches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp

from .design_ranking import RankedDesign
from .habits import Choice, Habits, divides
from .series import Member

_AS_EXPECTED = 0.03
"""Ratios within this relative difference count as expected."""


def list_reasons(one: RankedDesign, known: Habits, members: Sequence[Member]) -> tuple[str, ...]:
    """List how a design compares with the habits of its series."""
    return tuple(_reasons(one, known, members))


def _reasons(one: RankedDesign, known: Habits, members: Sequence[Member]) -> Iterator[str]:
    x = one.outer
    if twin := next((m for m in members if _same(one, m)), None):
        yield f"same dimensions as {twin.model.name}"
    yield _ratio("width/layers", x.d / one.layers, exp(known.aspect.value), 0)
    yield _ratio("ffn/width", one.ffn / x.d, exp(known.ffn.value), 2)
    if not known.square:
        yield _ratio("heads/width", x.H * x.h / x.d, exp(known.heads.value), 2)
    yield f"heads of {x.h}" + _usual(x.h, known.head_dims, {m.head_dim: m.model.name for m in members})
    if known.has_kv_heads and known.multi_head:
        yield "as many KV heads as heads" if x.K == x.H else f"{x.K} KV heads: the series has as many as heads"
    elif known.has_kv_heads:
        names = {m.kv_heads: m.model.name for m in members}
        yield f"{x.K} KV head{'s' * (x.K > 1)}" + _usual(x.K, known.kv_heads, names)
    yield f"width {factor_out_twos(x.d)}"
    yield f"ffn {factor_out_twos(one.ffn)}"
    if known.multiples_of_8 and not divides(8, x.d, x.H, one.ffn):
        yield "not all multiples of 8, unlike the series"
    if known.even and one.layers % 2:
        yield "an odd number of layers, unlike the series"


def _same(one: RankedDesign, member: Member) -> bool:
    v, x = member.letters, one.outer
    sizes = (v["L"], v["d"], v["H"], member.kv_heads, member.head_dim)
    return sizes == (one.layers, x.d, x.H, x.K, x.h) and one.ffn in (v.get("F"), v.get("Fe"))


def _ratio(what: str, found: float, expected: float, digits: int) -> str:
    off = found / expected - 1
    if abs(off) < _AS_EXPECTED:
        return f"{what} {found:.{digits}f} as expected"
    return f"{what} {found:.{digits}f}, {abs(off):.0%} {'above' if off > 0 else 'below'} {expected:.{digits}f}"


def _usual(n: int, among: Choice, names: Mapping[int, str]) -> str:
    if n in among.usual:
        return " as usual"
    return f" as in {names[n]}" if n in names else ", unlike the series"


def factor_out_twos(n: int) -> str:
    """Write a number as an odd factor times a power of two, such as 13·2¹²."""
    twos = (n & -n).bit_length() - 1
    odd = n >> twos
    if not twos:
        return str(n)
    raised = "2" + ("" if twos == 1 else str(twos).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")))
    return raised if odd == 1 else f"{odd}·{raised}"
