"""Numbers that are no count of a model: one matrix, one layer, one group of it, and the totals that
common mistakes give. They are tried before combinations of changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2, prod
from typing import NamedTuple

from ....core.parameter_count import Section, WeightRow
from ...learn.account import Account
from ...learn.diagnosis import MISTAKES, make_mistakes, spoken_path, two_mistakes
from ...learn.exercise import Exercise
from ...learn.lesson import Asker
from ...learn.mistake import Mistake
from ...learn.study import Study
from .explain_base import BaseModel

_TABLE_BITS, _LAYERS_BITS, _GROUP_BITS = 2.5, 2.0, 3.0
_LAYER_BITS, _MATRIX_BITS, _GROUP_OF_LAYER_BITS = 3.5, 5.5, 6.0
"""Parts of a layer are products of round numbers, as adapters are: 41,943,040 is the attention of a
layer of Llama 3 8B and, more often asked about, LoRA of rank 16 on all of its linear layers.
"""
_MISTAKE_BITS, _PAIR_BITS = 1.0, 3.0
"""The bits of a mistake beyond its own, and of a second one."""
_NEAR, _FAR = (0.5, 2.0), (8.0, 100.0)
"""Of which totals a number can be a mistake, as a ratio: most change little, products of sizes
much.
"""
_CONTEXT = 2048
_MOST_KINDS = 3
"""Of a model with more kinds of layers (OpenELM: one for each), a number is that of some matrix by
chance.
"""


class KnownNumber(NamedTuple):
    """A number of a part of a model, or of a mistake about its total."""

    base: BaseModel
    also: tuple[str, ...]  # other models with the same number for the same reason
    what: str
    formula: str
    bits: float
    is_mistake: bool = False
    total: int = 0  # of the model, if it is a mistake that changes its count


def known_numbers(
    number: int, bases: Sequence[BaseModel], models: int, *, pairs: bool = False
) -> list[KnownNumber]:
    """Return the parts of models, and the mistakes about them, that have exactly this number; with
    `pairs`, two mistakes about a model that the user named, too.
    """
    found: dict[tuple[str, bool], list[tuple[BaseModel, str, str, float]]] = {}
    for base in bases:
        for what, formula, bits in _parts(base, number):
            found.setdefault((what.partition(":")[0], False), []).append(
                (base, what, formula, bits)
            )
        for what, key, formula, bits in _mistakes(base, number, pairs):
            found.setdefault((key, True), []).append((base, what, formula, bits))
    result = []
    for (_, is_mistake), matches in found.items():
        base, what, formula, bits = matches[0]
        names = [x for y, *_ in matches for x in (y.name, *y.aliases)]
        named = 0.0 if base.named else max(0.0, log2(models / len(names)))
        also = tuple(x for x in dict.fromkeys(names) if x != base.name)
        whole = base.total if is_mistake and not could_be_product(number, base.total) else 0
        result.append(KnownNumber(base, also, what, formula, bits + named, is_mistake, whole))
    return sorted(result, key=lambda x: x.bits)


def could_be_product(number: int, total: int) -> bool:
    """Whether a number could be the sizes of a model multiplied, a context among them."""
    return number % _CONTEXT == 0 and _FAR[0] * total <= number <= _FAR[1] * total


def _study(base: BaseModel) -> Study:
    kept: Study | None = base.memo.get("study")
    if kept is None:
        kept = base.memo["study"] = Study(name=base.name, tree=base.tree.text)
    return kept


def _exercise(base: BaseModel) -> Exercise:
    """Return the question for the total of a model, on which mistakes are made."""
    kept: Exercise | None = base.memo.get("total")
    if kept is None:
        study = _study(base)
        asker = Asker("total", study)
        kept = base.memo["total"] = asker.ask("total", "", study.weights(), hint="")
    return kept


class _Part(NamedTuple):
    """A part of a model: some weights of all layers, or of one layer or one expert."""

    what: str
    bits: float
    rows: Sequence[tuple[Section, WeightRow]]
    of: str = ""  # a layer, an expert; empty: the model
    alike: Sequence[str] = ()  # of one matrix: the paths of those that have its size

    @property
    def number(self) -> int:
        """The parameters of the part."""
        if self.of == "expert":
            return sum([int(row.weight.parameters) for _, row in self.rows])
        times = [1 if self.of else int(section.times) for section, _ in self.rows]
        return sum([n * row.parameters for n, (_, row) in zip(times, self.rows, strict=True)])

    def formula(self, study: Study) -> str:
        """Return the formula of its number."""
        rows = {id(row) for _, row in self.rows}
        account = study.weights(lambda _, row: id(row) in rows)
        left_out = {"expert": ("layers", "copies"), "layer": ("layers",)}.get(self.of, ())
        return account.each(lambda x: x.without(*left_out)).value.symbol


def _parts(base: BaseModel, number: int) -> Iterator[tuple[str, str, float]]:
    """Yield the parts of a model that have this number: words, formula and bits."""
    if number > base.total:
        return
    study = _study(base)
    kept: dict[int, list[_Part]] | None = base.memo.get("parts")
    if kept is None:
        kept = base.memo["parts"] = {}
        for part in _list_parts(study.sections):
            kept.setdefault(part.number, []).append(part)
    found: dict[str, tuple[str, _Part]] = {}
    for part in kept.get(number, ()):
        what = part.what
        if part.alike:
            out, *rest = part.rows[0][1].weight.shape
            names = _or(list(map(spoken_path, part.alike)))
            what += f" [{int(out):,}, {prod(map(int, rest)):,}]: {names}"
        found.setdefault(what.partition(":")[0], (what, part))
    for what, part in found.values():
        yield what, part.formula(study), part.bits


def _list_parts(sections: Sequence[Section]) -> Iterator[_Part]:
    rows = [(section, row) for section in sections for row in section.rows]
    tables = [x for x in rows if x[1].pattern in ("embed.weight", "head.weight")]
    if tables:
        yield _Part("the embedding", _TABLE_BITS, tables[:1])
    if len(tables) > 1 and not tables[1][1].weight.tied:
        yield _Part("embedding and head", _TABLE_BITS, tables)
    in_layers = [x for x in rows if x[0].name == "layers"]
    yield _Part("all layers", _LAYERS_BITS, in_layers)
    matrices = [x for x in in_layers if x[1].weight.role == "matmul"]
    yield _Part("the matrices of all layers", _GROUP_BITS, matrices)
    kinds = [x for x in sections if x.name == "layers"]
    if len(kinds) <= _MOST_KINDS:
        for section in kinds:
            yield from _layer_parts(section)


_NAMED_PARTS = {
    "q, k and v of a layer": ("attn.q.weight", "attn.k.weight", "attn.v.weight"),
    "k and v of a layer": ("attn.k.weight", "attn.v.weight"),
}


def _layer_parts(section: Section) -> Iterator[_Part]:
    rows = [(section, row) for row in section.rows]
    yield _Part("one layer", _LAYER_BITS, rows, "layer")
    matrices = [x for x in rows if x[1].weight.role == "matmul"]
    for what, paths in _NAMED_PARTS.items():
        yield from _group(what, [x for x in matrices if x[1].pattern in paths], len(paths))
    groups = {
        group: [x for x in matrices if x[1].group == group]
        for group in ("attention", "mlp", "experts")
    }
    yield from _group("the attention of a layer", groups["attention"])
    mlp = [x for x in groups["mlp"] if ".shared" not in x[1].pattern]
    yield from _group("the MLP of a layer", mlp)
    yield from _group("the experts of a layer", groups["experts"])
    yield from _group("one expert", groups["experts"], of="expert")
    by_size: dict[int, list[tuple[Section, WeightRow]]] = {}
    for x in matrices:
        if len(x[1].weight.shape) > 1:
            by_size.setdefault(int(x[1].weight.parameters), []).append(x)
    for same in by_size.values():
        alike = [row.pattern for _, row in same]
        yield _Part("one matrix", _MATRIX_BITS, same[:1], "expert", alike)


def _group(
    what: str, rows: Sequence[tuple[Section, WeightRow]], least: int = 2, of: str = "layer"
) -> Iterator[_Part]:
    if len(rows) >= least:
        yield _Part(what, _GROUP_OF_LAYER_BITS, rows, of)


def _or(names: Sequence[str]) -> str:
    unique = list(dict.fromkeys(names))
    return " or ".join((", ".join(unique[:-1]), unique[-1])) if len(unique) > 1 else unique[0]


def _mistakes(base: BaseModel, number: int, pairs: bool) -> Iterator[tuple[str, str, str, float]]:
    """Yield the mistakes about a total that give a number: words, what tells mistakes of other
    models apart, the formula of what they change, and bits.
    """
    ratio = number / (base.total or 1)
    is_far = could_be_product(number, base.total)
    if not is_far and not _NEAR[0] <= ratio <= _NEAR[1]:
        return
    exercise = _exercise(base)
    study, right = exercise.study, exercise.account
    alone = [(x, wrong) for x, wrong in _singles(base, is_far) if wrong.number == number]
    for x, wrong in alone:
        key = x.name if x.alone else f"{x.name} {base.name}"
        change = wrong.value if x.alone else wrong.value - right.value
        yield x.explain(study), key, change.symbol, x.bits + _MISTAKE_BITS
    if alone or not (pairs and base.named) or is_far:
        return
    singles = [*_singles(base, False), *_singles(base, True)]
    for (first, second), wrong in two_mistakes(exercise, singles):
        if wrong.number == number:
            words = f"{first.explain(study)}; and {second.explain(study)}"
            bits = first.bits + second.bits + _MISTAKE_BITS + _PAIR_BITS
            yield words, words, (wrong.value - right.value).symbol, bits


def _singles(base: BaseModel, alone: bool) -> Sequence[tuple[Mistake, Account]]:
    """Return the mistakes about a total that are no conventions, with their accounts: those that
    replace the whole number, or the others.
    """
    kept: Sequence[tuple[Mistake, Account]] | None = base.memo.get(("singles", alone))
    if kept is None:
        chosen = [x for x in MISTAKES if x.alone == alone and not x.is_convention]
        kept = base.memo["singles", alone] = make_mistakes(_exercise(base), chosen)
    return kept
