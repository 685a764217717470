"""The terms of an explanation: what each move is called, its value and its formula."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...checkpoint.quantization.schemes import SCALE_LAYOUTS
from ...core.parameter_count import count_parameters
from .hypotheses import Hypothesis, HypothesisSpace
from .moves import PACKED_WORDS, PACKED_WORDS_8BIT, UNPACKED, Term, layer_symbols
from .priors import vocab_prior


def explanation_terms(way: Hypothesis, known: Mapping[int, str]) -> Iterator[Term]:
    """Yield the model and then each change; the values sum to the number of the hypothesis."""
    base, V = way.base, way.base.vocabulary
    if not way.alone:
        yield Term(what=base.name, value=base.total, formula=count_parameters(base.tree).formula.symbols)
    if way.vocabulary is not None and not way.alone:
        yield _vocab_term(way, known)
    for move in way.shape.moves:
        symbols = (
            f" = {move.formula.partition('·')[0]}·({layer_symbols(base.kinds[0])})"
            if move.group == "depth" and len(base.kinds) == 1
            else ""
        )
        yield Term(what=move.what, value=move.value, formula=move.formula + symbols)
    if way.packing is not UNPACKED:
        yield packing_term(way)
    for move in way.moves:
        yield Term(what=move.what, value=move.value, formula=move.formula)
    if way.adapters is not None:
        yield _adapter_term(way, way.vocabulary or V)
        if whole := way.adapters.whole_row * (way.vocabulary or V):
            yield Term(what="embedding and head trained whole", value=whole, formula=f"{way.vocabulary or V:,}·{way.adapters.whole_row:,}")


def _vocab_term(way: Hypothesis, known: Mapping[int, str]) -> Term:
    base, V = way.base, way.base.vocabulary
    new = way.vocabulary or V
    why = likely.why if (likely := vocab_prior(new, V, known)) else ""
    what = f"vocabulary {V:,} → {new:,}" + (f" ({why})" if why else "")
    return Term(what=what, value=base.vocab_row * (new - V), formula=f"(V′ − V)·{base.vocab_row:,} = ({new:,} − {V:,})·{base.vocab_row:,}")


def packing_term(way: Hypothesis) -> Term:
    """The elements that packing removes, or that FP8 scales add."""
    packing, n = way.packing, way.packing.divisor
    saved = HypothesisSpace(base=way.base, known_vocab_sizes={}, bits=64.0).saved(way.shape, packing) or 0
    layout = SCALE_LAYOUTS.get(packing.scales)
    if layout is not None and n == 1:
        return Term(what=f"FP8 scales of {layout.name}", value=-saved, formula=f"Σ over the linear layers of {layout.formula}")
    if layout is not None:
        what = f"{packing.what} packed by {layout.name} (4-bit, eight to a 32-bit number, in groups of 128)"
        formula = f"−(1 − 1/8)·{way.base.elements(*packing.kinds):,} + Σ ({layout.formula})"
        return Term(what=what, value=-saved, formula=formula)
    what = f"{packing.what} packed ({PACKED_WORDS[n]}{PACKED_WORDS_8BIT[n]})"
    return Term(what=what, value=-saved, formula=f"−(1 − 1/{n})·{saved * n // (n - 1):,}")


def _adapter_term(way: Hypothesis, vocabulary: int) -> Term:
    chosen, r = way.adapters, way.rank
    assert chosen is not None
    parts: dict[tuple[int, int], int] = {}
    for x in chosen.matrices:
        table = x.paths[0] in ("embed", "head")
        sides = (x.in_features + x.out_features - way.base.vocabulary, vocabulary) if table else (x.in_features, x.out_features)
        sides = (min(sides), max(sides))
        parts[sides] = parts.get(sides, 0) + x.copies
    sums = " + ".join(f"{n:,}·({a:,} + {b:,})" for (a, b), n in parts.items())
    what = f"LoRA of rank {r} on {chosen.what.partition(';')[0]}"
    value = r * (chosen.per_rank + chosen.per_rank_row * vocabulary)
    resized = f" with a vocabulary of {vocabulary:,}" if vocabulary != way.base.vocabulary else ""
    alone = f"{way.base.name}{resized}, adapters alone: {what}"
    return Term(what=alone if way.alone else what, value=value, formula=f"r·Σ(in + out) = {r}·({sums})")
