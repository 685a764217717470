"""The counts of a tree as expressions of the numbers that it was built of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...analysis.graph.recorder import record
from ...analysis.size.memory.cache_bytes import cache_specs, sum_cache_specs
from ...core.blocks import Decoder
from ...core.expr import Expr, product, total
from ...core.parameter_count import Section
from ...core.tree import Block, Stack, fold
from ...utils.errors import LlamathError
from ...utils.record_type import Record

TOKENS = "T"
"""The variable of the form of a cache."""
_SOME_TOKENS = 8192


class CountForms(Record):
    """The counts of a model as expressions."""

    total: Expr
    active: Expr
    bars: tuple[tuple[bool, Expr, Mapping[str, Expr]], ...]
    """Of each part of the model whether it is layers, their number, and the groups of one."""
    cache: Expr | None = None
    """Bytes of the KV cache of one sequence of T tokens, in 16 bits; None where nothing tells."""

    def to_json(self) -> dict[str, object]:
        """Return the forms, for programs: the total is the sum of the bars."""
        return {
            "active": {"form": self.active.to_expression_json()},
            "bars": [
                {
                    "isLayers": is_layers,
                    "times": {"form": times.to_expression_json()},
                    "groups": _groups(groups),
                }
                for is_layers, times, groups in self.bars
            ],
        }

    def cache_json(self) -> dict[str, object]:
        """Return the form of the KV cache."""
        return {"form": None if self.cache is None else self.cache.to_expression_json()}

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


def cache_form(tree: Decoder) -> Expr | None:
    """Return the bytes of the KV cache of one sequence as a form of T tokens."""
    try:
        specs = cache_specs(record(tree))
    except LlamathError:
        return None
    tokens = Expr.variable(TOKENS, _SOME_TOKENS)
    return Expr.const(sum_cache_specs(specs, tokens, 1, "bf16").bytes)


def caches_as(tree: Decoder, form: Expr, values: Mapping[str, int]) -> bool:
    """Whether a model caches what a form says, of few and of many tokens."""
    specs = cache_specs(record(tree))
    return all(
        form.evaluate(**values, **{TOKENS: n}) == sum_cache_specs(specs, n, 1, "bf16").bytes
        for n in (_SOME_TOKENS // 16, 16 * _SOME_TOKENS)
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
