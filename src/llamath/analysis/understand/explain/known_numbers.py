"""Numbers that are no count of a model: one matrix, one layer, one group of it, and the totals that
common mistakes give. They are tried before combinations of changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2
from typing import NamedTuple

from ...learn.account import Account, Product
from ...learn.diagnosis import term_name, two_mistakes, wrong_accounts
from ...learn.exercise import Exercise
from ...learn.lesson import Asker
from ...learn.mistake import Mistake
from ...learn.study import Study, iter_kinds
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
        for what, formula, bits in _parts(base).get(number, ()):
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


def _exercise(base: BaseModel) -> Exercise:
    """Return the question for the total of a model, on which mistakes are made."""
    kept: Exercise | None = base.memo.get("total")
    if kept is None:
        study = Study(name=base.name, tree=base.tree.text)
        asker = Asker("total", study)
        kept = base.memo["total"] = asker.ask("total", "", study.weights(), hint="")
    return kept


def _parts(base: BaseModel) -> dict[int, list[tuple[str, str, float]]]:
    """Return what the numbers of the parts of a model are: number → words, formula, bits."""
    kept: dict[int, list[tuple[str, str, float]]] | None = base.memo.get("parts")
    if kept is None:
        kept = base.memo["parts"] = {}
        for what, account, bits in _list_parts(_exercise(base).study):
            same = kept.setdefault(int(account.number), [])
            key = what.partition(":")[0]
            if all(x.partition(":")[0] != key for x, _, _ in same):
                same.append((what, account.value.symbol, bits))
    return kept


def _list_parts(study: Study) -> Iterator[tuple[str, Account, float]]:
    whole = study.weights()
    tables = [x for x in whole.products if x.path in ("embed.weight", "head.weight")]
    if tables:
        yield "the embedding", Account(products=(tables[0],)), _TABLE_BITS
    if len(tables) > 1 and not tables[1].tied:
        yield "embedding and head", Account(products=tuple(tables)), _TABLE_BITS
    in_layers = study.weights(lambda section, _row: section.name == "layers")
    yield "all layers", in_layers, _LAYERS_BITS
    matrices = tuple(x for x in in_layers.products if x.role == "matmul")
    yield "the matrices of all layers", Account(products=matrices), _GROUP_BITS
    kinds = list(iter_kinds(study))
    if len(kinds) <= _MOST_KINDS:
        for section in kinds:
            yield from _layer_parts(study.layer_weights(section=section))


def _layer_parts(layer: Account) -> Iterator[tuple[str, Account, float]]:
    yield "one layer", layer, _LAYER_BITS
    matrices = [x for x in layer.products if x.role == "matmul"]
    groups = {
        "q, k and v of a layer": ("attn.q.weight", "attn.k.weight", "attn.v.weight"),
        "k and v of a layer": ("attn.k.weight", "attn.v.weight"),
    }
    for what, paths in groups.items():
        yield from _group(what, [x for x in matrices if x.path in paths], len(paths))
    attention = [x for x in matrices if x.group == "attention"]
    yield from _group("the attention of a layer", attention, 2)
    mlp = [x for x in matrices if x.group == "mlp" and ".shared" not in x.path]
    yield from _group("the MLP of a layer", mlp, 2)
    experts = [x for x in matrices if x.group == "experts"]
    yield from _group("the experts of a layer", experts, 2)
    yield from _group("one expert", [_one(x) for x in experts], 2)
    by_size: dict[int, list[Product]] = {}
    for x in map(_one, matrices):
        if x.factor("in") is not None:
            by_size.setdefault(x.number, []).append(x)
    for same in by_size.values():
        out, into = same[0].factor("out"), same[0].factor("in")
        assert out is not None and into is not None
        names = _or([term_name(x) for x in same])
        size = f"[{int(out):,}, {int(into):,}]"
        yield f"one matrix {size}: {names}", Account(products=(same[0],)), _MATRIX_BITS


def _one(x: Product) -> Product:
    """Return a weight of one expert."""
    return x._replace(factors=tuple(y for y in x.factors if y[0] != "copies"))


def _group(
    what: str, products: Sequence[Product], least: int
) -> Iterator[tuple[str, Account, float]]:
    if len(products) >= least:
        yield what, Account(products=tuple(products)), _GROUP_OF_LAYER_BITS


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
    if base.memo.get("singles") is None:
        base.memo["singles"] = [
            (x, wrong) for x, wrong in wrong_accounts(exercise) if not x.is_convention
        ]
    singles: list[tuple[Mistake, Account]] = base.memo["singles"]
    alone = [(x, wrong) for x, wrong in singles if x.alone == is_far and wrong.number == number]
    for x, wrong in alone:
        key = x.name if x.alone else f"{x.name} {base.name}"
        change = wrong.value if x.alone else wrong.value - right.value
        yield x.explain(study), key, change.symbol, x.bits + _MISTAKE_BITS
    if alone or not (pairs and base.named) or is_far:
        return
    for (first, second), wrong in two_mistakes(exercise, singles):
        if wrong.number == number:
            words = f"{first.explain(study)}; and {second.explain(study)}"
            bits = first.bits + second.bits + _MISTAKE_BITS + _PAIR_BITS
            yield words, words, (wrong.value - right.value).symbol, bits
