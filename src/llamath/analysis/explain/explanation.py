"""Explanations of a parameter count: the models, and changes to them, that have exactly that count, simplest first.

Simplicity is measured in bits: roughly the information needed to name the model, the changes, the vocabulary size and the rank. There are
about 2^c explanations of c bits, so an explanation is only accepted if it is `MIN_BITS_SAVED` bits shorter than the number itself;
otherwise random numbers would be explained as well. Near misses are ranked the same way, with the bits of the residue added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log2
from typing import ClassVar, NamedTuple

from ...catalog import Preset, presets
from ...checkpoint.quantization.schemes import SCALE_LAYOUTS
from ...core.number_format import format_count, format_signed
from ...core.parameter_count import count_parameters
from ...core.record_type import Record
from ...core.report import Report, html_table
from ...core.units import parse_quantity
from ...loading import Source, load
from ...model import Model
from .explain_base import BaseModel
from .explain_search import all_hypotheses, hypotheses_for
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


MIN_BITS_SAVED = 6.0
"""An explanation must be this many bits shorter than the number."""
LISTED_BITS = 7.0
"""Candidates more than this many bits longer than the shortest are counted, not listed."""
_TRUNCATION_BITS = 1.5
"""The cost of a truncated instead of a rounded number, such as 405B for 405.85 billion."""
MAX_LISTED, MAX_NEAREST = 8, 3


class Candidate(Record):
    """One explanation; its terms and the residue sum to the number."""

    json_fields: ClassVar[tuple[str, ...]] = ("exact", "residue", "summary", "terms")

    base: str
    also: tuple[str, ...]
    value: int
    residue: int
    terms: tuple[Term, ...]
    bits: float

    @property
    def exact(self) -> bool:
        """Whether the terms sum to the number."""
        return self.residue == 0

    @property
    def summary(self) -> str:
        """The terms in a line."""
        return ", ".join(x.what for x in self.terms)


class RoundedNumber(NamedTuple):
    """A number of few digits, and the range that it can stand for: `low` ≤ n < `high`, truncated rather than rounded in the upper half."""

    text: str
    value: int
    low: int
    high: int

    def rounds(self, value: int) -> bool:
        """Whether a value rounds (rather than truncates) to this number."""
        return self.low <= value < 2 * self.value - self.low


class Explanation(Report):
    """The explanations of a parameter count, the simplest first."""

    json_fields: ClassVar[tuple[str, ...]] = ("model", "number", "candidates")

    number: int
    name: str  # the rounded number as given; empty for an exact number
    bounds: tuple[int, int]  # the range that it stands for
    like: str
    models: int  # how many models were tried
    candidates: tuple[Candidate, ...]
    more: int = 0  # further explanations that are not listed

    @property
    def model(self) -> str | None:
        """The model of the simplest explanation."""
        return self.candidates[0].base if self.candidates else None

    @property
    def summary(self) -> str:
        """The number and its simplest explanation."""
        number = self.name or f"{self.number:,}"
        if not self.candidates:
            return f"{number}: no explanation"
        best = self.candidates[0]
        residue = "" if best.exact or self.name else f", {format_signed(best.residue)} left over"
        more = f" and {format_count(len(self.candidates) - 1 + self.more, 'other')}" if len(self.candidates) > 1 else ""
        return f"{number}: {best.summary}{residue}{more}"

    def html_tables(self) -> Iterable[str]:
        """The terms of each explanation."""
        for x in self.candidates:
            rows = [(y.what, y.value, y.formula) for y in x.terms]
            yield html_table(("term", "parameters", "formula"), [*rows, ("total", x.value, "")], bold_rows=(len(rows),))


def explain_number(number: int, bases: Sequence[BaseModel], models: int, known: Mapping[int, str], most: int = MAX_LISTED) -> Explanation:
    """Explain an exact count.

    `models` is the number of models behind the bases, `known` maps vocabulary sizes to model names, `most` limits the list (0: all).
    """
    room = log2(max(number, 2)) - MIN_BITS_SAVED
    spaces = [HypothesisSpace(base=x, known_vocab_sizes=known, bits=room - _model_bits(x, models)) for x in bases]
    found = [
        way._replace(bits=way.bits + room - space.bits)
        for space in spaces
        for way in hypotheses_for(space, number)
        if way.bits <= space.bits
    ]
    report = Explanation(number=number, name="", bounds=(number, number + 1), like=_named_model(bases), models=models, candidates=())
    if found:
        return _list_simplest(report, _unique(found), known, most)
    near = sorted(((score, way) for x in spaces for score, way in _near_misses(x, number, room)), key=lambda x: (x[0], x[1].value))
    order = {id(way): i for i, (_, way) in enumerate(near)}
    closest = sorted(_unique(way for _, way in near), key=lambda x: order[id(x[0])])
    return report.replace(candidates=tuple(_candidate(way, number, also, known) for way, also in closest[:MAX_NEAREST]))


def explain_name(name: RoundedNumber, bases: Sequence[BaseModel], models: int, most: int = MAX_LISTED) -> Explanation:
    """Explain a rounded number: the counts that round or truncate to it, simplest first, or else the nearest ones."""
    found: list[Hypothesis] = []
    near: list[Hypothesis] = []
    for base in bases:
        for way in all_hypotheses(HypothesisSpace(base=base, known_vocab_sizes={}, bits=12.0 if base.named else 6.0), 2):
            if not way.shape.moves and _needs_every_move(way, name):
                bits = way.bits + _model_bits(base, models) + _TRUNCATION_BITS * (not name.rounds(way.value))
                (found if name.low <= way.value < name.high else near).append(way._replace(bits=bits))
    report = Explanation(
        number=name.value, name=name.text, bounds=(name.low, name.high), like=_named_model(bases), models=models, candidates=()
    )
    if found:
        return _list_simplest(report, _unique(found), {}, most)
    near = [
        x
        for x in near
        if x.steps < 2 and all(abs(y.value) > name.high - name.low for y in x.moves) and 20 * abs(x.value - name.value) < name.value
    ]
    closest = sorted(_unique(near), key=lambda x: (abs(x[0].value - name.value), x[0].bits))
    return report.replace(candidates=tuple(_candidate(way, name.value, also, {}) for way, also in closest[:MAX_NEAREST]))


def _needs_every_move(way: Hypothesis, name: RoundedNumber) -> bool:
    """Whether every move is needed to reach the rounded number: without norms, most models still round to the same one."""
    saved = (packing_term(way).value,) if way.packing is not UNPACKED else ()
    return not any(name.low <= way.value - x < name.high for x in (*saved, *(move.value for move in way.moves)))


def _named_model(bases: Sequence[BaseModel]) -> str:
    return next((x.name for x in bases if x.named), "")


def _model_bits(base: BaseModel, models: int) -> float:
    """The bits that name one of the models."""
    return 0.0 if base.named else log2(models)


def _list_simplest(
    report: Explanation, found: list[tuple[Hypothesis, tuple[str, ...]]], known: Mapping[int, str], most: int
) -> Explanation:
    """List the simplest candidates and count the others."""
    kept = [x for x in found if x[0].bits <= found[0][0].bits + LISTED_BITS][:most] if most else found
    candidates = tuple(_candidate(way, report.number, also, known) for way, also in kept)
    return report.replace(candidates=candidates, more=len(found) - len(kept))


def _near_misses(space: HypothesisSpace, number: int, room: float) -> Iterator[tuple[float, Hypothesis]]:
    """Yield simple counts near the number, with the bits of the residue; for a model that the user named, within 5 %."""
    naming = room - space.bits
    for way in all_hypotheses(space, 1):
        score = way.bits + naming + 1 + log2(abs(number - way.value) or 1)
        if score <= room or (space.base.named and 20 * abs(number - way.value) < number):
            yield score, way._replace(bits=way.bits + naming)


def _unique(found: Iterable[Hypothesis]) -> list[tuple[Hypothesis, tuple[str, ...]]]:
    """Return each explanation once, simplest first, with the names of the other models that it applies to."""
    best: dict[tuple[object, ...], tuple[Hypothesis, dict[str, None]]] = {}
    for way in sorted(found, key=lambda x: (x.bits, x.steps)):
        first, names = best.setdefault(_key(way), (way, {}))
        names |= dict.fromkeys((way.base.name, *way.base.aliases) if way.bits <= first.bits else ())
    return [(way, tuple(x for x in names if x != way.base.name)) for way, names in best.values()]


def _key(way: Hypothesis) -> tuple[object, ...]:
    """The identity of an explanation: the same moves to the same number, whichever of several equal models it starts from."""
    targets = (way.adapters.what, way.rank) if way.adapters else ()
    if way.alone:
        return targets, way.value
    moves = tuple(sorted(x.what for x in (*way.shape.moves, *way.moves) if x.tables < 0))
    tables = next((x.tables for x in way.moves if x.tables >= 0), 1 if way.base.tied else 2)
    vocabulary = way.vocabulary or way.base.vocabulary
    return way.base.kinds_key, (tables, vocabulary) if tables else (), way.packing, moves, targets, way.value


def _candidate(way: Hypothesis, number: int, also: tuple[str, ...], known: Mapping[int, str]) -> Candidate:
    parts = tuple(explanation_terms(way, known))
    value = sum(x.value for x in parts)
    return Candidate(base=way.base.name, also=also, value=value, residue=number - value, terms=parts, bits=way.bits)


def explain_quantity(text: str, like: Source | None = None, everything: bool = False) -> Explanation:
    """Explain a number, or a rounded one such as "405B", by one model or by the whole catalog.

    `everything` also lists much less likely explanations.
    """
    quantity = parse_quantity(text)
    unit = 1 if quantity.exact else 10 ** max(len(str(quantity.value)) - quantity.digits, 0)
    name = RoundedNumber(text.strip(), quantity.value, quantity.value - unit // 2, quantity.value + unit)
    catalog = sorted(presets(), key=lambda x: -len(x.ids) - len(x.aliases))
    most = 0 if everything else MAX_LISTED
    bases = (
        [_base(load(like)).replace(named=True)]
        if like is not None
        else merge_equal_bases(x for x in catalog if name.low < 4 * x.parameters)
    )
    if not quantity.exact:
        return explain_name(name, bases, len(catalog), most=most)
    return explain_number(quantity.value, bases, len(catalog), known_vocab_sizes(catalog), most=most)


def merge_equal_bases(presets: Iterable[Preset]) -> list[BaseModel]:
    """Return the presets as bases, most widely known first; presets of the same shape share one base."""
    bases: dict[tuple[object, ...], BaseModel] = {}
    for preset in presets:
        base = _base(load(preset.config), preset.name)
        key = (base.shape_key, base.vocabulary, base.tied)
        bases[key] = bases[key].replace(aliases=(*bases[key].aliases, base.name)) if key in bases else base
    return list(bases.values())


def known_vocab_sizes(catalog: list[Preset]) -> dict[int, str]:
    """Return the catalog's vocabulary sizes, each with the most widely known model that has it."""
    names: dict[int, str] = {}
    for preset in catalog:
        rows = preset.config.get("vocab_size")
        if isinstance(rows, int):
            names.setdefault(rows, preset.name)
    return names


def _base(model: Model, name: str = "") -> BaseModel:
    return BaseModel(name=name or model.name, tree=model.tree, scheme=model.family.hf)
