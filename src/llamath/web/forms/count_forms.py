"""The counts of a tree as expressions of the numbers that it was built of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...core.expr import Expr, product, total
from ...core.parameter_count import Section
from ...core.tree import Block, Stack, fold
from ...utils.record_type import Record


class CountForms(Record):
    """The counts of a model as expressions."""

    total: Expr
    active: Expr
    bars: tuple[tuple[bool, Expr, Mapping[str, Expr]], ...]
    """Of each part of the model whether it is layers, their number, and the groups of one."""

    def to_json(self) -> dict[str, object]:
        """Return the forms, for programs: the total is the sum of the bars, and without a form of
        its own all of it is active.
        """
        is_dense = not Expr.const(self.active - self.total).terms
        return {
            "active": {"form": None if is_dense else self.active.to_expression_json()},
            "bars": [
                {
                    "isLayers": is_layers,
                    "times": {"form": times.to_expression_json()},
                    "groups": _groups(groups),
                }
                for is_layers, times, groups in self.bars
            ],
        }

    @property
    def structure(self) -> str:
        """A text that is equal for forms with equal counts in equal parts."""
        return json.dumps(_ordered(self.to_json()))

    def count(self, values: Mapping[str, int]) -> tuple[int, int]:
        """Return the total and the active parameters."""
        return self.total.evaluate(**values), self.active.evaluate(**values)


def _groups(forms: Mapping[str, Expr]) -> list[dict[str, object]]:
    return [{"name": name, "form": form.to_expression_json()} for name, form in forms.items()]


def _ordered(x: object) -> object:
    if isinstance(x, dict):
        return {key: _ordered(y) for key, y in x.items()}
    if not isinstance(x, list):
        return x
    parts = [_ordered(y) for y in x]
    if parts and parts[0] in ("+", "*", "min", "max"):
        return [parts[0], *sorted(parts[1:], key=json.dumps)]
    return parts


def count_forms(tree: Block, sections: Sequence[Section]) -> CountForms:
    """Return the counts of a tree with these sections."""
    bars: list[tuple[bool, Expr, Mapping[str, Expr]]] = []
    forms = [x.formula for x in sections]
    for section, form in zip(sections, forms, strict=True):
        each: dict[str, list[int]] = {}
        for row in section.rows:
            parameters = product((row.copies, row.weight.parameters))
            each.setdefault(row.group, []).append(parameters)
        if form.terms:
            bars.append(
                (
                    bool(section.indices),
                    Expr.const(section.times),
                    {name: total(x) for name, x in each.items()},
                )
            )
    parts = tuple((Expr.const(x.times), y) for x, y in zip(sections, forms, strict=True) if y.terms)
    return CountForms(
        total=total(map(product, parts)),
        active=_active(tree, sections),
        bars=tuple(bars),
    )


def _active(tree: Block, sections: Sequence[Section]) -> Expr:
    """Return the active parameters as an expression."""
    stacks = (x for _, x in tree.children if isinstance(x, Stack))
    leaves = [y for stack in stacks for x, _ in stack.distinct() for y in fold(x)]
    # only of experts: a weight that all tokens use may occur a different number of times in
    # different layers (adapters of Zamba2)
    chosen = (x for x in leaves if Expr.const(x.active).symbol != Expr.const(x.copies).symbol)
    active_copies = {(x.pattern.replace("{l}", "{e}"), id(x.weight)): x.active for x in chosen}
    return total(
        product(
            (
                x.times,
                active_copies.get((row.pattern, id(row.weight)), row.copies),
                row.weight.active_parameters,
            )
        )
        for x in sections
        for row in x.rows
    )


def count_exactly(tree: Block) -> tuple[int, int]:
    """Return the total and the active parameters of a tree."""
    everything = active = 0
    for x in fold(tree):
        everything += int(x.weight.parameters) * int(x.copies)
        active += int(x.weight.active_parameters) * int(x.active)
    return everything, active
