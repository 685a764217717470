"""A model as terms: every weight of the folded table with its size as a polynomial of letters, and in how many layers it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...core.expr import Monomial, product
from ...core.parameter_count import Section, WeightRow

Polynomial = tuple[tuple[Monomial, int], ...]
Form = tuple[tuple[tuple[str, ...], int], ...]
EXPERT = {"experts": "Fe", "shared": "Fs"}
"""Where families that have no feed-forward besides write F, the letter that the others use."""


class WeightTerm(NamedTuple):
    """One weight, all its copies in a layer together; `layers` is None for what stands outside of them."""

    path: str
    size: Polynomial
    layers: int | None
    group: str
    role: str
    tied: bool

    @property
    def form(self) -> Form:
        """Its size in letters alone: what two models must share to differ in a number only."""
        return tuple(sorted((tuple(sorted(x for x, _ in monomial)), k) for monomial, k in self.size))

    @property
    def letters(self) -> dict[str, int]:
        """The letters in it, with their values."""
        return dict(atom for monomial, _ in self.size for atom in monomial)

    def at(self, values: Mapping[str, int], layers: int | None) -> int:
        """Its parameters with some letters and the number of layers changed."""
        whole = 0
        for monomial, k in self.size:
            for letter, own in monomial:
                k *= values.get(letter, own)
            whole += k
        return whole if layers is None else whole * layers

    @property
    def parameters(self) -> int:
        """Its parameters as it is."""
        return self.at({}, self.layers)


def weight_terms(sections: Iterable[Section]) -> list[WeightTerm]:
    """The terms of a counted model, those of one path and one form together."""
    made: dict[tuple[str, Form, tuple[tuple[str, int], ...]], WeightTerm] = {}
    for section in sections:
        layers = int(section.times) if section.indices or section.name == "layers" else None
        for row in section.rows:
            term = _term(row, layers)
            key = (term.path, term.form, tuple(term.letters.items()))
            if key in made and layers is not None:
                term = term._replace(layers=layers + (made[key].layers or 0))
            made[key] = term
    return list(made.values())


def _term(row: WeightRow, layers: int | None) -> WeightTerm:
    path = row.pattern if layers is None else f"layers.{{l}}.{row.pattern}"
    size = product((row.copies, row.weight.parameters)).terms
    wide = next((letter for part, letter in EXPERT.items() if part in path.split(".")), "F")
    renamed = tuple((tuple((wide if x == "F" else x, n) for x, n in monomial), k) for monomial, k in size.items())
    return WeightTerm(path, renamed, layers, row.group, row.weight.role, bool(row.weight.tied))


def unique_letters(found: Iterable[WeightTerm]) -> dict[str, int]:
    """The letters that have one value throughout a model."""
    seen: dict[str, set[int]] = {}
    for term in found:
        for letter, n in term.letters.items():
            seen.setdefault(letter, set()).add(n)
    return {letter: next(iter(ns)) for letter, ns in seen.items() if len(ns) == 1}
