"""The parameter count of a model: by group and by weight, with its formula, and the several totals
in use.

Exact integers throughout; a tied matrix counts once. `total` is every weight the architecture owns,
stored buffers included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..utils.number_marks import Ranges
from ..utils.record_type import Record
from .expr import Expr, as_number, product, total
from .multimodal import parts_of
from .tree import TOWER_GROUPS, Block, Folded, Stack, Weight, fold, fold_field, runs_again

if TYPE_CHECKING:
    from fractions import Fraction

_GROUP_ORDER = (
    "embedding",
    "attention",
    "mlp",
    "experts",
    "router",
    "norm",
    "head",
    "vision",
    "audio",
    "projector",
)
"""Groups in display order; `--json` always has embedding, attention, mlp, norm and head."""


class WeightRow(Record):
    """One row of the folded table: a weight and its number of copies in its section."""

    pattern: str  # the path inside the section
    weight: Weight
    group: str
    copies: int

    @property
    def parameters(self) -> int:
        """The parameters of all copies."""
        return as_number(self.weight.parameters) * as_number(self.copies)


class Section(Record):
    """A section of the table: a part outside the layers, or one kind of layer with its layer
    numbers.
    """

    name: str  # the field of the decoder
    times: int = 1
    indices: tuple[tuple[int, int, int], ...] = ()  # (first, last, step) of the layers of this kind
    rows: tuple[WeightRow, ...]

    @property
    def each(self) -> int:
        """The parameters of one copy of the section."""
        return sum(row.parameters for row in self.rows)

    @property
    def formula(self) -> Expr:
        """The parameters of one copy as an expression."""
        return total(product((row.copies, row.weight.parameters)) for row in self.rows)


class Formula(Record):
    """The closed formula of the total, in letters and in numbers."""

    symbols: str
    numbers: str
    letters: Mapping[str, int]
    value: int


class Parameters(Record):
    """The totals that are called a parameter count, each exact."""

    total: int
    active: int  # parameters that one token uses; of a multimodal model, one token of text
    tied_counted_twice: int  # `sum(numel)` over a state dict that contains the tied head too
    without_embeddings: int  # without token and position tables
    without_head: int  # total of the headless class
    blocks: int  # without embeddings and head: layers and norms
    per_layer: int | None  # None if layers differ
    # part of the total that the reference implementation stores as buffers and does not count
    buffers: int = 0
    extras: Mapping[str, int] = {}  # parameters stored with the model but excluded from the total
    # of a multimodal model: text, vision, audio; together they are the total
    parts: Mapping[str, int] = {}
    # as publishers count active parameters: without token and position tables, and without the
    # head, too
    active_without_embeddings: int
    active_blocks: int

    @property
    def has_sparse_layers(self) -> bool:
        """Whether one token of text uses fewer parameters than the text model has."""
        return self.active != self.parts.get("text", self.total)


class TensorParameters(Record):
    """The totals that tensors tell without a family; in its JSON, the others are null."""

    total: int
    tied_counted_twice: int
    buffers: int = 0
    extras: Mapping[str, int] = {}

    def to_json(self) -> dict[str, Any]:
        return dict.fromkeys(Parameters.fields) | super().to_json()


class Count(Record):
    """Everything `llamath count` shows."""

    parameters: Parameters
    groups: Mapping[str, int]
    sections: tuple[Section, ...]
    formula: Formula

    def share(self, parameters: int) -> Fraction:
        """Return the share of the total."""
        from fractions import Fraction

        return Fraction(parameters, self.parameters.total or 1)


def count_parameters(tree: Block) -> Count:
    """Count a model; the cost does not depend on the number of layers."""
    folded = fold(tree)
    groups = dict.fromkeys(("embedding", "attention", "mlp", "norm", "head"), 0)
    for x in folded:
        groups[x.group] = groups.get(x.group, 0) + as_number(x.weight.parameters) * as_number(
            x.copies
        )
    groups = {
        name: groups[name]
        for name in (*_GROUP_ORDER, *sorted(groups.keys() - set(_GROUP_ORDER)))
        if name in groups
    }
    sections = tuple(sections_of(tree))
    return Count(
        parameters=_parameters(tree, folded, groups, sections),
        groups=groups,
        sections=sections,
        formula=formula_of(sections),
    )


def _parameters(
    tree: Block, folded: Sequence[Folded], groups: Mapping[str, int], sections: tuple[Section, ...]
) -> Parameters:
    everything = sum(groups.values())
    layers = [x for x in sections if x.name == "layers"]
    parts = {name: num_parameters(x) for name, x in parts_of(tree).items()}
    active: dict[str, int] = {}
    for x in folded:
        if len(parts) < 2 or x.group not in TOWER_GROUPS:
            size = as_number(x.weight.active_parameters) * as_number(x.active)
            active[x.group] = active.get(x.group, 0) + size
    used, tables = sum(active.values()), active.get("embedding", 0)
    return Parameters(
        total=everything,
        active=used,
        active_without_embeddings=used - tables,
        active_blocks=used - tables - active.get("head", 0),
        tied_counted_twice=sum(
            as_number(row.weight.size) * as_number(row.copies) * as_number(x.times)
            for x in sections
            for row in x.rows
        ),
        without_embeddings=everything - groups["embedding"],
        without_head=everything - groups["head"],
        blocks=everything - groups["embedding"] - groups["head"],
        per_layer=layers[0].each if len(layers) == 1 else None,
        buffers=sum(
            as_number(x.weight.parameters) * as_number(x.copies) for x in folded if x.weight.buffer
        ),
        extras={
            name: num_parameters(getattr(tree, name))
            for name in sorted(tree.excluded)
            if getattr(tree, name) is not None
        },
        parts=parts if len(parts) > 1 else {},
    )


def num_parameters(part: Block | Stack) -> int:
    """Return the number of parameters of a part of the tree."""
    if isinstance(part, Stack):
        return sum(num_parameters(x) * as_number(n) for x, n in part.distinct())
    return sum(as_number(x.weight.parameters) * as_number(x.copies) for x in fold(part))


def sections_of(tree: Block) -> list[Section]:
    """Return the sections of the table: one for each field outside of stacks, and for each kind
    of block in a stack.
    """
    sections: list[Section] = []
    for name, child in tree.children:
        if isinstance(child, Stack):
            sections += _kinds(name, child)
        else:
            sections.append(Section(name=name, rows=_rows(fold_field(tree, name))))
    return sections


def _kinds(name: str, stack: Stack) -> list[Section]:
    """One section per kind of layer; layers with the same weights are one kind, and those that run
    again none.
    """
    kinds: dict[tuple[object, ...], tuple[Block, list[int], int]] = {}
    forms: dict[int, tuple[object, ...]] = {}  # of weights
    for x, n in stack.distinct():
        if runs_again(x):
            continue
        for y in fold(x, 1):
            if id(w := y.weight) not in forms:
                forms[id(w)] = tuple([d.symbol for d in w.shape]), w.shape, w.tied
        key = tuple([(y.pattern, forms[id(y.weight)], y.copies) for y in fold(x, 1)])
        first, ids, times = kinds.get(key, (x, [], 0))
        kinds[key] = (first, [*ids, id(x)], times + n if times else n)
    if len(kinds) == 1:
        ((first, _, times),) = kinds.values()
        own, rows = (times if times != stack.n else stack.n), _rows(fold(first, 1))
        return [Section(name=name, times=own, rows=rows, indices=((0, as_number(own) - 1, 1),))]
    return [
        Section(
            name=name,
            times=times,
            rows=_rows(fold(first, 1)),
            indices=layer_ranges(stack, set(ids)),
        )
        for first, ids, times in kinds.values()
    ]


def _rows(leaves: Iterable[Folded]) -> tuple[WeightRow, ...]:
    return tuple(
        [
            WeightRow(pattern=x.pattern, weight=x.weight, group=x.group, copies=x.copies)
            for x in leaves
        ]
    )


def layer_ranges(
    stack: Stack, ids: set[int], most: int = 100_000
) -> tuple[tuple[int, int, int], ...]:
    """Return the layer numbers of these objects, as (first, last, step)."""
    if int(stack.n) > most:
        return ()
    kinds = stack.distinct()
    if int(stack.n) and len(ids) >= len(kinds) and ids >= {id(x) for x, _ in kinds}:
        return ((0, as_number(stack.n) - 1, 1),)
    if (order := stack.arrangement) is not None:
        parts = ("".join("01"[id(x) in ids] for x in blocks) for blocks in order)
        return Ranges(spans_of(id(x) in ids for x in stack), "|".join(parts), as_number(stack.n))
    return spans_of(id(x) in ids for x in stack)


def spans_of(are_in: Iterable[bool]) -> tuple[tuple[int, int, int], ...]:
    """Return the numbers of the items that are in, as (first, last, step)."""
    spans: list[tuple[int, int, int]] = []
    for i in (i for i, is_in in enumerate(are_in) if is_in):
        if spans and (spans[-1][0] == spans[-1][1] or i - spans[-1][1] == spans[-1][2]):
            spans[-1] = (spans[-1][0], i, i - spans[-1][1])
        else:
            spans.append((i, i, 1))
    return tuple(spans)


def formula_of(sections: Iterable[Section]) -> Formula:
    """Return the parameters of sections as a closed formula."""
    letters: dict[str, int] = {}
    value, terms = 0, _terms(sections)
    for times, inner in terms:
        letters |= inner.atoms | times.atoms
        value += as_number(times) * as_number(inner)
    return Formula(
        symbols=_written_sum(terms, _symbol, _symbol_of_times),
        numbers=_written_sum(terms, lambda x: x.numbers, str),
        letters=letters,
        value=value,
    )


def formula_symbols(sections: Iterable[Section]) -> str:
    """Return the parameters of sections as a closed formula in letters."""
    return _written_sum(_terms(sections), _symbol, _symbol_of_times)


_Terms = list[tuple[Expr, Expr]]


def _terms(sections: Iterable[Section]) -> _Terms:
    """Return how often there is each section with parameters, and its parameters."""
    return [(Expr.const(x.times), inner) for x in sections if (inner := x.formula)]


def _written_sum(
    terms: _Terms, write: Callable[[Expr], str], write_times: Callable[[Expr], str]
) -> str:
    parts = []
    for times, inner in terms:
        text = write(inner)
        if times != 1 or times.atoms:
            text = f"({text})" if len(inner.terms) > 1 else text
            text = f"{write_times(times)}·{text}"
        parts.append(text)
    return " + ".join(parts) or "0"


def _symbol(x: Expr) -> str:
    return x.symbol


def _symbol_of_times(x: Expr) -> str:
    return f"({x.symbol})" if len(x.terms) > 1 else x.symbol
