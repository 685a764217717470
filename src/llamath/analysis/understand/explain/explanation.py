"""Explanations of a parameter count: the models, and changes to them, that have exactly that count,
simplest first.

Simplicity is measured in bits: roughly the information needed to name the model, the changes, the
vocabulary size and the rank. There are about 2^c explanations of c bits, so an explanation is only
accepted if it is `MIN_BITS_SAVED` bits shorter than the number itself; otherwise random numbers
would be explained as well. Near misses are ranked the same way, with the bits of the residue added.

The confidence in an explanation is its share of the probability: 2^−bits, against all other
explanations and against an unknown cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import inf, log2
from typing import ClassVar, NamedTuple

from ....catalog import Preset, presets, read_preset
from ....core.parameter_count import count_parameters
from ....loading import Source, load_family
from ....model import FamilyModel
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Row, Table, Text
from ....utils.errors import Argument, Call, Name, safe
from ....utils.number_format import format_count, format_signed, short_count
from ....utils.record_type import Record
from ....utils.units import parse_quantity
from ...size.training.lora_adapters import module_names
from .explain_base import BaseModel
from .explain_search import all_hypotheses, hypotheses_for
from .hypotheses import Hypothesis, HypothesisSpace
from .known_numbers import KnownNumber, could_be_product, known_numbers
from .moves import PACKED_WORDS, PACKED_WORDS_8BIT, UNPACKED, Term, layer_symbols
from .priors import evidence_bits, excess_bits, vocab_prior
from .scale_layouts import SCALE_LAYOUTS
from .tensor_counts import MOST_TENSORS, known_tensor_counts


def explanation_terms(hypothesis: Hypothesis, known: Mapping[int, str]) -> Iterator[Term]:
    """Yield the model and then each change; the values sum to the number of the hypothesis."""
    base, V = hypothesis.base, hypothesis.base.vocabulary
    if not hypothesis.alone:
        yield Term(
            what=base.name, value=base.total, formula=count_parameters(base.tree).formula.symbols
        )
    if hypothesis.vocabulary is not None and not hypothesis.alone:
        yield _vocab_term(hypothesis, known)
    for move in hypothesis.shape.moves:
        symbols = (
            f" = {move.formula.partition('·')[0]}·({layer_symbols(base.kinds[0])})"
            if move.group == "depth" and len(base.kinds) == 1
            else ""
        )
        yield Term(what=move.what, value=move.value, formula=move.formula + symbols)
    if hypothesis.packing is not UNPACKED:
        yield _packing_term(hypothesis)
    for move in hypothesis.moves:
        yield Term(what=move.what, value=move.value, formula=move.formula)
    if hypothesis.adapters is not None:
        yield _adapter_term(hypothesis, hypothesis.vocabulary or V)
        if table_row := hypothesis.adapters.whole_row * (hypothesis.vocabulary or V):
            yield Term(
                what="embedding and head trained whole",
                value=table_row,
                formula=f"{hypothesis.vocabulary or V:,}·{hypothesis.adapters.whole_row:,}",
            )


def _vocab_term(hypothesis: Hypothesis, known: Mapping[int, str]) -> Term:
    base, V = hypothesis.base, hypothesis.base.vocabulary
    new = hypothesis.vocabulary or V
    why = prior.why if (prior := vocab_prior(new, V, known)) else ""
    if base.tied and 0 < new - V <= 16 and base.vocab_row == base.width:
        why += f", or a head of {new - V} class{'es' if new - V > 1 else ''}"
    what = f"vocabulary {V:,} → {new:,}" + (f" ({why})" if why else "")
    return Term(
        what=what,
        value=base.vocab_row * (new - V),
        formula=f"(V′ − V)·{base.vocab_row:,} = ({new:,} − {V:,})·{base.vocab_row:,}",
    )


def _packing_term(hypothesis: Hypothesis) -> Term:
    """The elements that packing removes, or that FP8 scales add."""
    packing, n = hypothesis.packing, hypothesis.packing.divisor
    saved = (
        HypothesisSpace(base=hypothesis.base, known_vocab_sizes={}, bits=64.0).saved(
            hypothesis.shape, packing
        )
        or 0
    )
    layout = SCALE_LAYOUTS.get(packing.scales)
    if layout is not None and n == 1:
        what, where = (
            (f"{layout.name} scales", packing.what)
            if packing.what
            else (f"FP8 scales of {layout.name}", "the linear layers")
        )
        what += f" of {packing.what}" if packing.what else ""
        return Term(what=what, value=-saved, formula=f"Σ over {where} of {layout.formula}")
    if layout is not None:
        name, _, groups = layout.name.partition(", ")
        stored = "two to a byte" if n == 2 else "eight to a 32-bit number"
        what = (
            f"{packing.what} packed by {name} (4-bit, "
            f"{stored}{f', in {groups}' if groups else ''}), with the scales"
        )
        formula = (
            f"−(1 − 1/{n})·{hypothesis.base.elements(*packing.kinds):,} + Σ ({layout.formula})"
        )
        return Term(what=what, value=-saved, formula=formula)
    what = f"{packing.what} packed ({PACKED_WORDS[n]}{PACKED_WORDS_8BIT[n]})"
    return Term(what=what, value=-saved, formula=f"−(1 − 1/{n})·{saved * n // (n - 1):,}")


def _adapter_term(hypothesis: Hypothesis, vocabulary: int) -> Term:
    adapters, r = hypothesis.adapters, hypothesis.rank
    assert adapters is not None
    value = r * (adapters.per_rank + adapters.per_rank_row * vocabulary) + adapters.fixed
    what, formula = _describe_adapters(hypothesis, vocabulary)
    resized = (
        f" with a vocabulary of {vocabulary:,}" if vocabulary != hypothesis.base.vocabulary else ""
    )
    alone = f"{hypothesis.base.name}{resized}, adapters alone: {what}"
    return Term(what=alone if hypothesis.alone else what, value=value, formula=formula)


def _describe_adapters(hypothesis: Hypothesis, vocabulary: int) -> tuple[str, str]:
    """Return the adapters in words, and their formula."""
    adapters, r, base = hypothesis.adapters, hypothesis.rank, hypothesis.base
    assert adapters is not None
    if adapters.kind == "prompt":
        return f"prompt tuning with {format_count(r, 'virtual token')}", f"n·d = {r}·{base.width:,}"
    if adapters.kind == "p-tuning":
        tokens = format_count(r, "virtual token")
        return f"p-tuning with {tokens} and an encoder of width {adapters.what}", (
            f"n·d + encoder = {r}·{base.width:,} + {adapters.fixed:,}"
        )
    if adapters.kind == "prefix":
        return f"prefix tuning with {format_count(r, 'virtual token')}", (
            f"n·2·L·width = {r}·{adapters.per_rank:,}"
        )
    if adapters.kind == "IA³":
        return f"IA³ on {adapters.what}", (
            "Σ over the layers of the outputs of k and v, and the inputs of down"
        )
    parts: dict[tuple[int, int], int] = {}
    for x in adapters.matrices:
        table = x.paths[0] in ("embed", "head")
        sides = (
            (x.in_features + x.out_features - base.vocabulary, vocabulary)
            if table
            else (x.in_features, x.out_features)
        )
        sides = (min(sides), max(sides))
        parts[sides] = parts.get(sides, 0) + x.copies * x.ranks
    sums = [f"{n:,}·({a:,} + {b:,})" for (a, b), n in parts.items()]
    sums += [f"{adapters.tower:,}"] if adapters.tower else []
    magnitudes = f" + Σ out = {adapters.fixed:,}" if adapters.fixed else ""
    what = f"{adapters.kind} of rank {r} on {adapters.what.partition(';')[0]}"
    return what, f"r·Σ(in + out) = {r}·({' + '.join(sums)}){magnitudes}"


MIN_BITS_SAVED = 6.0
"""An explanation must be this many bits shorter than the number."""
LISTED_BITS = 7.0
"""Candidates more than this many bits longer than the shortest are counted, not listed."""
_TRUNCATION_BITS = 1.5
"""The cost of a truncated instead of a rounded number, such as 405B for 405.85 billion."""
MAX_LISTED, MAX_NEAREST = 8, 3


_MORE_CHANGES_BITS = 2.0
"""The bits of each change after the second."""
_UNKNOWN_CAUSE_BITS = 5.0
"""An unknown cause is this many bits shorter than the information in the number."""
_LIKELIHOODS = {"very likely": 0.9, "likely": 0.6, "a guess": 0.0}
"""Words for a confidence, each with the least that it stands for."""


class Candidate(Record):
    """One explanation; its terms and the residue sum to the number."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *("exact", "residue", "confidence", "likelihood", "mistake", "summary", "terms"),
    )

    base: str
    also: tuple[str, ...]
    value: int
    residue: int
    terms: tuple[Term, ...]
    bits: float
    confidence: float | None = None  # a probability; None for near misses
    mistake: bool = False  # it is no count of a model, but what a common mistake gives

    @property
    def likelihood(self) -> str:
        """The confidence in words: "very likely", "likely" or "a guess"; empty for near misses."""
        if self.confidence is None:
            return ""
        return next(word for word, least in _LIKELIHOODS.items() if self.confidence >= least)

    @property
    def is_guess(self) -> bool:
        """Whether it gives the number and is less than likely."""
        return self.likelihood == "a guess"

    @property
    def exact(self) -> bool:
        """Return whether the terms sum to the number."""
        return self.residue == 0

    @property
    def summary(self) -> str:
        """The terms in a line."""
        return ", ".join(x.what for x in self.terms)


class RoundedNumber(NamedTuple):
    """A number of few digits, and the range that it can stand for: `low` ≤ n < `high`, truncated
    rather than rounded in the upper half.
    """

    text: str
    value: int
    low: int
    high: int

    def rounds(self, value: int) -> bool:
        """Return whether a value rounds (rather than truncates) to this number."""
        return self.low <= value < 2 * self.value - self.low


class Explanation(Report):
    """The explanations of a parameter count, the simplest first."""

    json_fields: ClassVar[tuple[str, ...]] = ("model", "number", "explained", "candidates")

    number: int
    name: str  # the rounded number as given; empty for an exact number
    bounds: tuple[int, int]  # the range that it stands for
    like: str
    models: int  # how many models were tried
    candidates: tuple[Candidate, ...]
    more: int = 0  # further explanations that are not listed

    @property
    def explained(self) -> bool:
        """Whether the first candidate is exact and at least likely, or a count rounds to the given
        one.
        """
        if self.name:
            low, high = self.bounds
            return any(low <= x.value < high for x in self.candidates)
        return any(x.exact and not x.is_guess for x in self.candidates[:1])

    @property
    def model(self) -> str | None:
        """The model of the first candidate."""
        return self.candidates[0].base if self.candidates else None

    @property
    def summary(self) -> str:
        """The number and its simplest explanation, or a near miss or a guess, which it calls so."""
        number = self.name or f"{self.number:,}"
        if not self.candidates:
            return f"{number}: no explanation"
        best = self.candidates[0]
        residue = "" if best.exact or self.name else f", {format_signed(best.residue)} left over"
        more = (
            f" and {format_count(len(self.candidates) - 1 + self.more, 'other')}"
            if len(self.candidates) > 1
            else ""
        )
        return f"{number}: {self._claim(best)}{best.summary}{residue}{more}"

    def _claim(self, best: Candidate) -> str:
        """Return what the first candidate is, before its summary."""
        if not (best.exact or self.explained):
            return "near miss: "
        is_plain = self.name or best.likelihood == "very likely"
        return "" if is_plain else f"{best.likelihood}: "

    @property
    def headline(self) -> str:
        """The number, and whether it is explained."""
        if self.name:
            low, high = self.bounds
            nearest = "; nearest" if self.candidates else ""
            verdict = "models of this size" if self.explained else f"no model of this size{nearest}"
            return f"{safe(self.name, 40)}, {low:,} to {high - 1:,}: {verdict}"
        if self.explained:
            best = self.candidates[0]
            kind = "no count of a model, but a common mistake: " if best.mistake else ""
            verdict = f"{kind}{best.likelihood}, {best.confidence:.0%}"
        else:
            verdict = self._not_explained()
        return f"{self.number:,} ({short_count(self.number)}): {verdict}"

    def _not_explained(self) -> str:
        """Return that there is no explanation, and what is listed instead."""
        guesses = [x for x in self.candidates if x.exact]
        if not guesses:
            return "no explanation" + ("; near misses" if self.candidates else "")
        near = "near misses and " if len(guesses) < len(self.candidates) else ""
        shares = [x.confidence or 0.0 for x in guesses]
        several = "ambiguous" if sum(shares) >= _LIKELIHOODS["likely"] else "no likely explanation"
        return f"{several}; {near}guesses, {max(shares):.0%} at best"

    @property
    def entries(self) -> Sequence[Candidate]:
        """The explanations, the simplest first."""
        return self.candidates

    def __bool__(self) -> bool:
        return self.explained

    def tables(self) -> Iterable[Part]:
        """The terms of each explanation; the formula of a whole model is that of the first one."""
        for i, x in enumerate(self.candidates, 1):
            names = ", ".join(safe(name, 60) for name in x.also[:_MAX_NAMES])
            more = f" and {len(x.also) - _MAX_NAMES} more" if len(x.also) > _MAX_NAMES else ""
            yield Table(
                title=f"{i}. {self._verdict(x)}",
                columns=_TERMS,
                rows=tuple(self._term_rows(x, i)),
                legend=f"also fits {names}{more}" if x.also else "",
            )
        where = f"from {safe(self.like, 60)}" if self.like else f"from {self.models} presets"
        if self.more:
            yield Text(f"{self.more} more, less likely; --all lists them", "dim", apart=True)
        tried = (
            "counting conventions, packed weights, and combinations of two"
            if self.name
            else "combinations of up to three changes. Those are listed that take at least "
            f"{MIN_BITS_SAVED:g} bits less than the number itself ({log2(self.number):.0f} bits), "
            f"within {LISTED_BITS:g} bits of the shortest; below {_LIKELIHOODS['likely']:.0%} they "
            "are guesses"
        )
        yield Text(f"tried {where}: {tried}", "dim", apart=not self.more)
        if not self.explained and not self.name:
            yield Text(self._hint, "dim")

    @property
    def _hint(self) -> str:
        """What to try where nothing explains the number."""
        if self.like:
            return (
                f"{Call('ls', Name('path'))} lists the tensors of a checkpoint, and "
                f"{Call('count', Name('path'))} counts them"
            )
        return (
            f"{Argument('like', Name('model'))} tries one model, with more changes, two mistakes "
            "together, and near misses"
        )

    def _verdict(self, x: Candidate) -> str:
        if self.name:
            low, high = self.bounds
            if low <= x.value < high:
                verb = "rounds" if x.value < 2 * self.number - low else "cut"
                return f"{verb} to {safe(self.name, 40)}"
            return f"near miss: off by {format_signed(x.value - self.number)}"
        if not x.exact:
            return f"near miss: {format_signed(x.residue)} unexplained"
        if x.is_guess:
            return f"a guess{': a mistake' if x.mistake else ''} that gives this number"
        return f"exactly, {'by a mistake, ' if x.mistake else ''}{x.likelihood}"

    def _term_rows(self, x: Candidate, place: int) -> Iterator[Row]:
        for j, y in enumerate(x.terms):
            value = y.value if j else Cell(y.value, "count")
            formula = Cell(y.formula, text=None if j or place == 1 else "")
            yield Row((value, y.what, formula))
        if len(x.terms) > 1 or not x.exact:
            total = x.value if self.name or not x.exact else self.number
            yield Row((Cell(total, "count"), "in all", ""), is_sum=True)


_MAX_NAMES = 6
"""Other models of the same shape are listed up to this number."""
_TERMS = (
    Column("", "signed", "parameters"),
    Column("", key="term", wrap=True),
    Column("formula", below=True),
)


def explain_number(
    number: int,
    bases: Sequence[BaseModel],
    models: int,
    known: Mapping[int, str],
    most: int = MAX_LISTED,
    small: Sequence[BaseModel] = (),
    tensors: Sequence[KnownNumber] = (),
) -> Explanation:
    """Explain an exact count.

    `models` is the number of models behind the bases, `known` maps vocabulary sizes to model names,
    `most` limits the list (0: all). `small` are models that are too small for the number, of which
    it may be a product of sizes. `tensors` are models with this number of tensors.
    """
    room = log2(max(number, 2)) - MIN_BITS_SAVED - excess_bits(number)
    spaces = [
        HypothesisSpace(base=x, known_vocab_sizes=known, bits=room - _model_bits(x, models))
        for x in bases
    ]
    hypotheses = [
        hypothesis._replace(bits=bits + room - space.bits)
        for space in spaces
        for hypothesis in hypotheses_for(space, number)
        if (bits := hypothesis.bits + _MORE_CHANGES_BITS * max(0, hypothesis.steps - 2))
        <= space.bits
    ]
    report = Explanation(
        number=number,
        name="",
        bounds=(number, number + 1),
        like=_named_model(bases),
        models=models,
        candidates=(),
    )
    is_simple = any(x.steps < 2 for x in hypotheses)
    every = known_numbers(number, (*bases, *small), models, pairs=not is_simple)
    others = [*(x for x in every if x.bits <= room), *tensors]
    wrong = {x.base.name for x in others if x.is_mistake}
    hypotheses = [x for x in hypotheses if x.steps != 1 or x.base.name not in wrong]
    if hypotheses or others:
        report = _list_simplest(report, _unique(hypotheses), known, most, others)
    if report.explained:
        return report
    shortest = report.candidates[0].bits if report.candidates else inf
    near = sorted(
        (
            (score, hypothesis)
            for x in spaces
            for score, hypothesis in _near_misses(x, number, room)
            if score < shortest and hypothesis.value != number
        ),
        key=lambda x: (x[0], x[1].value),
    )
    order = {id(hypothesis): i for i, (_, hypothesis) in enumerate(near)}
    closest = sorted(_unique(hypothesis for _, hypothesis in near), key=lambda x: order[id(x[0])])
    nearest = (
        _candidate(hypothesis, number, also, known) for hypothesis, also in closest[:MAX_NEAREST]
    )
    return report.replace(candidates=(*nearest, *report.candidates))


def explain_name(
    name: RoundedNumber, bases: Sequence[BaseModel], models: int, most: int = MAX_LISTED
) -> Explanation:
    """Explain a rounded number: the counts that round or truncate to it, simplest first, or else
    the nearest ones.
    """
    hypotheses: list[Hypothesis] = []
    near: list[Hypothesis] = []
    for base in bases:
        for hypothesis in all_hypotheses(
            HypothesisSpace(base=base, known_vocab_sizes={}, bits=12.0 if base.named else 6.0), 2
        ):
            if not hypothesis.shape.moves and _needs_every_move(hypothesis, name):
                bits = (
                    hypothesis.bits
                    + _model_bits(base, models)
                    + _TRUNCATION_BITS * (not name.rounds(hypothesis.value))
                )
                (hypotheses if name.low <= hypothesis.value < name.high else near).append(
                    hypothesis._replace(bits=bits)
                )
    report = Explanation(
        number=name.value,
        name=name.text,
        bounds=(name.low, name.high),
        like=_named_model(bases),
        models=models,
        candidates=(),
    )
    if hypotheses:
        return _list_simplest(report, _unique(hypotheses), {}, most)
    near = [
        x
        for x in near
        if x.steps < 2
        and all(abs(y.value) > name.high - name.low for y in x.moves)
        and 20 * abs(x.value - name.value) < name.value
    ]
    closest = sorted(_unique(near), key=lambda x: (abs(x[0].value - name.value), x[0].bits))
    return report.replace(
        candidates=tuple(
            _candidate(hypothesis, name.value, also, {})
            for hypothesis, also in closest[:MAX_NEAREST]
        )
    )


def _needs_every_move(hypothesis: Hypothesis, name: RoundedNumber) -> bool:
    """Return whether every move is needed to reach the rounded number: without norms, most
    models still round to the same one.
    """
    saved = (_packing_term(hypothesis).value,) if hypothesis.packing is not UNPACKED else ()
    return not any(
        name.low <= hypothesis.value - x < name.high
        for x in (*saved, *(move.value for move in hypothesis.moves))
    )


def _named_model(bases: Sequence[BaseModel]) -> str:
    return next((x.name for x in bases if x.named), "")


def _model_bits(base: BaseModel, models: int) -> float:
    """The bits that name one of the models; models of the same shape share theirs."""
    return 0.0 if base.named else log2(models / (1 + len(base.aliases)))


def _list_simplest(
    report: Explanation,
    hypotheses: list[tuple[Hypothesis, tuple[str, ...]]],
    known: Mapping[int, str],
    most: int,
    others: Sequence[KnownNumber] = (),
) -> Explanation:
    """List the simplest candidates, parts and mistakes among them, and count the others. A part of
    a model does not hide the likeliest adapters: both are numbers that people meet.
    """
    every = sorted(
        (
            *((x.bits, 0, i) for i, x in enumerate(others)),
            *((x.bits, 1, i) for i, (x, _) in enumerate(hypotheses)),
        )
    )
    listed = [x for x in every if x[0] <= every[0][0] + LISTED_BITS][:most] if most else every
    adapted = [x for x in every if x[1] and hypotheses[x[2]][0].alone]
    if adapted and not any(x[1] for x in listed):
        listed = [*listed[: MAX_LISTED - 1], adapted[0]]
    weight = sum(2**-bits for bits, _, _ in every)
    weight += 0.0 if report.name else 2 ** (_UNKNOWN_CAUSE_BITS - evidence_bits(report.number))
    candidates = []
    for bits, is_hypothesis, i in listed:
        if is_hypothesis:
            hypothesis, also = hypotheses[i]
            candidate = _candidate(hypothesis, report.number, also, known)
        else:
            candidate = _known_candidate(others[i], report.number)
        candidates.append(candidate.replace(confidence=round(2**-bits / weight, 3)))
    return report.replace(candidates=tuple(candidates), more=len(every) - len(listed))


def _known_candidate(x: KnownNumber, number: int) -> Candidate:
    name = x.base.name
    terms: tuple[Term, ...] = (Term(what=f"{name}, {x.what}", value=number, formula=x.formula),)
    if x.total:
        formula = count_parameters(x.base.tree).formula.symbols
        terms = (
            Term(what=name, value=x.total, formula=formula),
            Term(what=x.what, value=number - x.total, formula=x.formula),
        )
    return Candidate(
        base=x.base.name,
        also=x.also,
        value=number,
        residue=0,
        terms=terms,
        bits=x.bits,
        mistake=x.is_mistake,
    )


def _near_misses(
    space: HypothesisSpace, number: int, room: float
) -> Iterator[tuple[float, Hypothesis]]:
    """Yield simple counts near the number, with the bits of the residue; for a model that the
    user named, within 5%.
    """
    naming = room - space.bits
    for hypothesis in all_hypotheses(space, 1):
        score = hypothesis.bits + naming + 1 + log2(abs(number - hypothesis.value) or 1)
        if score <= room or (space.base.named and 20 * abs(number - hypothesis.value) < number):
            yield score, hypothesis._replace(bits=hypothesis.bits + naming)


def _unique(hypotheses: Iterable[Hypothesis]) -> list[tuple[Hypothesis, tuple[str, ...]]]:
    """Return each explanation once, simplest first, with the names of the other models that it
    applies to.
    """
    best: dict[tuple[object, ...], tuple[Hypothesis, dict[str, None]]] = {}
    weights: dict[tuple[object, ...], float] = {}
    for hypothesis in sorted(hypotheses, key=lambda x: (x.bits, x.steps)):
        key = _key(hypothesis)
        first, names = best.setdefault(key, (hypothesis, {}))
        if hypothesis.alone:  # adapters that are as large on several models
            weights[key] = weights.get(key, 0.0) + 2**-hypothesis.bits
        if hypothesis.alone or hypothesis.bits <= first.bits:
            names |= dict.fromkeys((hypothesis.base.name, *hypothesis.base.aliases))
    unique = [
        (
            hypothesis._replace(bits=-log2(weights[key])) if key in weights else hypothesis,
            tuple(x for x in names if x != hypothesis.base.name),
        )
        for key, (hypothesis, names) in best.items()
    ]
    return sorted(unique, key=lambda x: (x[0].bits, x[0].steps))


def _key(hypothesis: Hypothesis) -> tuple[object, ...]:
    """The identity of an explanation: the same moves to the same number, whichever of several
    equal models it starts from.
    """
    adapters = hypothesis.adapters
    targets = (adapters.kind, adapters.what, hypothesis.rank) if adapters else ()
    if hypothesis.alone:
        return targets, hypothesis.value, hypothesis.vocabulary
    moves = tuple(
        sorted(x.what for x in (*hypothesis.shape.moves, *hypothesis.moves) if x.tables < 0)
    )
    tables = next(
        (x.tables for x in hypothesis.moves if x.tables >= 0), 1 if hypothesis.base.tied else 2
    )
    vocabulary = hypothesis.vocabulary or hypothesis.base.vocabulary
    return (
        hypothesis.base.kinds_key,
        (tables, vocabulary) if tables else (),
        hypothesis.packing,
        moves,
        targets,
        hypothesis.value,
    )


def _candidate(
    hypothesis: Hypothesis, number: int, also: tuple[str, ...], known: Mapping[int, str]
) -> Candidate:
    terms = tuple(explanation_terms(hypothesis, known))
    value = sum(x.value for x in terms)
    return Candidate(
        base=hypothesis.base.name,
        also=also,
        value=value,
        residue=number - value,
        terms=terms,
        bits=hypothesis.bits,
    )


def explain_quantity(
    text: str, like: Source | None = None, everything: bool = False
) -> Explanation:
    """Explain a number, or a rounded one such as "405B", by one model or by the whole catalog.

    `everything` also lists much less likely explanations.
    """
    quantity = parse_quantity(text)
    unit = 1 if quantity.exact else 10 ** max(len(str(quantity.value)) - quantity.digits, 0)
    name = RoundedNumber(
        text.strip(), quantity.value, quantity.value - unit // 2, quantity.value + unit
    )
    catalog = sorted(presets(), key=lambda x: -len(x.ids) - len(x.aliases))
    most = 0 if everything else MAX_LISTED
    bases = (
        [_base(load_family(like)).replace(named=True)]
        if like is not None
        else merge_equal_bases(x for x in catalog if name.low < 4 * x.parameters)
    )
    if not quantity.exact:
        return explain_name(name, bases, len(catalog), most=most)
    small = (
        merge_equal_bases(x for x in catalog if could_be_product(quantity.value, x.parameters))
        if like is None
        else ()
    )
    return explain_number(
        quantity.value,
        bases,
        len(catalog),
        known_vocab_sizes(catalog),
        most=most,
        small=small,
        tensors=_tensor_counts(quantity.value, like, catalog),
    )


def _tensor_counts(
    number: int, like: Source | None, catalog: Sequence[Preset]
) -> Sequence[KnownNumber]:
    if number > MOST_TENSORS:
        return ()
    named = [(load_family(like), "")] if like is not None else []
    models = named or [(load_family(x), x.name) for x in catalog]
    every = ((model, _base(model, name)) for model, name in models)
    return known_tensor_counts(number, every, is_named=bool(named))


def merge_equal_bases(presets: Iterable[Preset]) -> list[BaseModel]:
    """Return the presets as bases, most widely known first; presets of the same shape share one
    base.
    """
    equal: dict[tuple[object, ...], list[Preset]] = {}
    for preset in presets:
        equal.setdefault(_shape_of(preset.slug), []).append(preset)
    return [_preset_base(x.slug, *(y.name for y in others)) for x, *others in equal.values()]


@cache
def _shape_of(slug: str) -> tuple[object, ...]:
    base = _preset_base(slug)
    return base.shape_key, base.vocabulary, base.tied


@cache
def _preset_base(slug: str, *aliases: str) -> BaseModel:
    """A base of the catalog, which keeps what searches found out about it."""
    preset = read_preset(slug)
    return _base(load_family(preset.config), preset.name).replace(aliases=aliases)


def known_vocab_sizes(catalog: list[Preset]) -> dict[int, str]:
    """Return the catalog's vocabulary sizes, each with the most widely known model that has it."""
    names: dict[int, str] = {}
    for preset in catalog:
        rows = preset.config.get("vocab_size")
        if isinstance(rows, int):
            names.setdefault(rows, preset.name)
    return names


def _base(model: FamilyModel, name: str = "") -> BaseModel:
    return BaseModel(
        name=name or model.name,
        tree=model.tree,
        scheme=model.family.hf,
        family=model.family.name,
        modules=module_names(model),
    )
