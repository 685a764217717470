"""The terms of an explanation: what each move is called, what it weighs, and by which formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...core.parameter_count import count_parameters
from .hypotheses import Space, Way
from .moves import GROUPS, PLAIN, SCALES, WIDER, WORDS, Term, layer_symbols
from .priors import rows


def terms(way: Way, known: Mapping[int, str]) -> Iterator[Term]:
    """The model, then what was done to it; together they come to the way's number."""
    base, V = way.base, way.base.vocabulary
    if not way.alone:
        yield Term(what=base.name, value=base.total, formula=count_parameters(base.tree).formula.symbols)
    if way.vocabulary is not None and not way.alone:
        yield _resized(way, known)
    for move in way.shape.moves:
        symbols = (
            f" = {move.formula.partition('·')[0]}·({layer_symbols(base.kinds[0])})"
            if move.group == "depth" and len(base.kinds) == 1
            else ""
        )
        yield Term(what=move.what, value=move.value, formula=move.formula + symbols)
    if way.packing is not PLAIN:
        yield packed(way)
    for move in way.moves:
        yield Term(what=move.what, value=move.value, formula=move.formula)
    if way.adapters is not None:
        yield _adapted(way, way.vocabulary or V)
        if whole := way.adapters.whole_row * (way.vocabulary or V):
            yield Term(what="embedding and head trained whole", value=whole, formula=f"{way.vocabulary or V:,}·{way.adapters.whole_row:,}")


def _resized(way: Way, known: Mapping[int, str]) -> Term:
    base, V = way.base, way.base.vocabulary
    new = way.vocabulary or V
    why = likely.why if (likely := rows(new, V, known)) else ""
    what = f"vocabulary {V:,} → {new:,}" + (f" ({why})" if why else "")
    return Term(what=what, value=base.row * (new - V), formula=f"(V′ − V)·{base.row:,} = ({new:,} − {V:,})·{base.row:,}")


def packed(way: Way) -> Term:
    """What storage takes off, or FP8's scales add."""
    packing, n = way.packing, way.packing.divisor
    saved = Space(base=way.base, known={}, bits=64.0).saved(way.shape, packing) or 0
    if packing.scales in SCALES:
        return Term(what=f"FP8 scales of {packing.scales}", value=-saved, formula=f"Σ over the linear layers of {SCALES[packing.scales]}")
    if packing.scales:
        what = f"{packing.what} packed by {packing.scales} (4-bit, eight to a 32-bit number, in groups of 128)"
        formula = f"−(1 − 1/8)·{way.base.sort(*packing.sorts):,} + Σ ({GROUPS[packing.scales]})"
        return Term(what=what, value=-saved, formula=formula)
    what = f"{packing.what} packed ({WORDS[n]}{WIDER[n]})"
    return Term(what=what, value=-saved, formula=f"−(1 − 1/{n})·{saved * n // (n - 1):,}")


def _adapted(way: Way, vocabulary: int) -> Term:
    chosen, r = way.adapters, way.rank
    assert chosen is not None
    parts: dict[tuple[int, int], int] = {}
    for x in chosen.matrices:
        table = x.paths[0] in ("embed", "head")
        sides = (x.into + x.out - way.base.vocabulary, vocabulary) if table else (x.into, x.out)
        sides = (min(sides), max(sides))
        parts[sides] = parts.get(sides, 0) + x.copies
    sums = " + ".join(f"{n:,}·({a:,} + {b:,})" for (a, b), n in parts.items())
    what = f"LoRA of rank {r} on {chosen.what.partition(';')[0]}"
    value = r * (chosen.per_rank + chosen.per_rank_row * vocabulary)
    resized = f" with a vocabulary of {vocabulary:,}" if vocabulary != way.base.vocabulary else ""
    alone = f"{way.base.name}{resized}, adapters alone: {what}"
    return Term(what=alone if way.alone else what, value=value, formula=f"r·Σ(in + out) = {r}·({sums})")
