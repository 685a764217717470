"""A model as terms: each weight of the folded table with its size as a polynomial of the
dimensions' letters, and its number of layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ....core.expr import Letter, Monomial, product
from ....core.parameter_count import Section, WeightRow

Polynomial = tuple[tuple[Monomial, int], ...]
Form = tuple[tuple[tuple[str, ...], int], ...]
_EXPERT_LETTERS = {"experts": "Fe", "shared": "Fs"}
"""The letter of an expert's width in families that have dense MLPs too; families without them
write F."""


class WeightTerm(NamedTuple):
    """One weight with all its copies in a layer; `layers` is None for weights outside the
    layers.
    """

    path: str
    size: Polynomial
    layers: int | None
    group: str
    role: str
    tied: bool

    @property
    def form(self) -> Form:
        """The size in letters alone: two weights of one form differ only in numbers."""
        return tuple(
            sorted((tuple(sorted(x.symbol for x in monomial)), k) for monomial, k in self.size)
        )

    @property
    def letters(self) -> dict[str, int]:
        """The letters of the size with their values."""
        return {atom.symbol: atom.value for monomial, _ in self.size for atom in monomial}

    def at(self, values: Mapping[str, int], layers: int | None) -> int:
        """Return the parameters with some letters and the number of layers changed."""
        total = 0
        for monomial, coefficient in self.size:
            for atom in monomial:
                coefficient *= values.get(atom.symbol, atom.value)
            total += coefficient
        return total if layers is None else total * layers

    @property
    def parameters(self) -> int:
        """The parameters of all layers."""
        return self.at({}, self.layers)


def weight_terms(sections: Iterable[Section]) -> list[WeightTerm]:
    """Return the terms of a counted model, those of one path and one form together."""
    terms: dict[tuple[str, Form, tuple[tuple[str, int], ...]], WeightTerm] = {}
    for section in sections:
        layers = int(section.times) if section.indices or section.name == "layers" else None
        for row in section.rows:
            term = _term(row, layers)
            key = (term.path, term.form, tuple(term.letters.items()))
            if key in terms and layers is not None:
                term = term._replace(layers=layers + (terms[key].layers or 0))
            terms[key] = term
    return list(terms.values())


def _term(row: WeightRow, layers: int | None) -> WeightTerm:
    path = row.pattern if layers is None else f"layers.{{l}}.{row.pattern}"
    size = product((row.copies, row.weight.parameters)).terms
    wide = next(
        (letter for part, letter in _EXPERT_LETTERS.items() if part in path.split(".")), "F"
    )
    renamed = tuple(
        (tuple(Letter(wide if x.symbol == "F" else x.symbol, x.value) for x in monomial), k)
        for monomial, k in size.items()
    )
    return WeightTerm(path, renamed, layers, row.group, row.weight.role, bool(row.weight.tied))


def unique_letters(terms: Iterable[WeightTerm]) -> dict[str, int]:
    """Return the letters that have one value throughout a model."""
    values: dict[str, set[int]] = {}
    for term in terms:
        for letter, n in term.letters.items():
            values.setdefault(letter, set()).add(n)
    return {letter: next(iter(numbers)) for letter, numbers in values.items() if len(numbers) == 1}
