"""`CountReport`: the parameters of a model, weight by weight, and the names of its tensors in
files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from ....checkpoint.naming.scheme import Scheme, UnnamedWeight
from ....core.expr import Expr
from ....core.parameter_count import Formula, Parameters, Section
from ....core.tree import LOOPED, Leaf, fill_pattern
from ....model import DescribedModel, Model
from ....render.report import Report
from ....render.tables import Column, Part, Table
from ....utils.number_format import format_count, short_count
from ....utils.record_type import Record
from ...storage.listed_weights import check_listable
from .count_tables import count_tables

SCHEMES = ("hf", "meta", "gguf")


class CountReport(Report):
    """The parameters of a model: the totals, the groups, the folded table and the formula."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "model=model.name",
        "family=model.family.name",
        "source=model.source",
        "part=model.part_name",
        "parameters",
        "groups",
        "formula=formula.symbols",
        "formula_numbers=formula.numbers",
        "letters=formula.letters",
        "notes=model.notes",
    )

    model: DescribedModel

    @property
    def parameters(self) -> Parameters:
        """Every total that is called a parameter count, each exact."""
        return self.model.parameters

    @property
    def total(self) -> int:
        """The number of parameters, a tied matrix counted once."""
        return self.parameters.total

    @property
    def groups(self) -> Mapping[str, int]:
        """Parameters by group: embedding, attention, mlp, experts, router, norm, head."""
        return self.model.count.groups

    @property
    def sections(self) -> tuple[Section, ...]:
        """The folded table: weights outside the layers, and one section for each kind of layer."""
        return self.model.count.sections

    @property
    def formula(self) -> Formula:
        """The closed formula of the total."""
        return self.model.count.formula

    def to_json(self, *, weights: bool = True) -> dict[str, Any]:
        """Return the object of `llamath count --json`; without `weights`, the list of weights is
        empty.
        """
        if weights:
            check_listable(self.model.tree)
        document = super().to_json()
        notes = document.pop("notes")
        return document | {
            "weights": list(_weight_entries(self.model)) if weights else [],
            "notes": notes,
        }

    @property
    def summary(self) -> str:
        """The total in one line."""
        p = self.parameters
        text = f", text model {short_count(p.parts['text'])}" if p.parts else ""
        active = f", {short_count(p.active)} active" if p.has_sparse_layers else ""
        return f"{self.model.name}, {p.total:,} parameters ({short_count(p.total)}{text}{active})"

    @property
    def headline(self) -> str:
        """The total."""
        p = self.parameters
        text = f", text model {p.parts['text']:,}" if p.parts else ""
        total = format_count(p.total, "parameter")
        return f"{self.model.name}: {total} ({short_count(p.total)}){text}"

    @property
    def setting(self) -> str:
        """The family and the source."""
        return f"{self.model.family.name} family, from {self.model.source}"

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """The notes on the model."""
        return self.model.notes

    def tables(self, *, unfold: bool = False, whole_formula: bool = False) -> Iterable[Part]:
        """The weights, equal layers together; the groups, the totals and the formula of each
        group, or with `whole_formula` that of the total. With `unfold`, each weight in tree order,
        and nothing else.
        """
        if not unfold:
            return count_tables(self.model, whole_formula=whole_formula)
        check_listable(self.model.tree)
        rows = ((x.path, x.shape, x.parameters) for x in self.model.weights)
        return [Table(columns=_LEAVES, rows=tuple(rows))]


_LEAVES = (
    Column("weight", key="name"),
    Column("shape", "shape"),
    Column("parameters", "count"),
)


class StoredTensor(Record):
    """A tensor as files of one format have it."""

    name: str
    shape: tuple[Expr | int, ...]
    dtype: str = ""  # of a quantized checkpoint; else empty
    parameters: int = 0  # that its values stand for
    # of a layer for multi-token prediction, which the model's totals do not include
    mtp: bool = False


class StoredNamesReport(Report):
    """The tensors of a model's files in one format, by name; the result of `llamath.names` with
    a scheme.
    """

    json_fields: ClassVar[tuple[str, ...]] = ("model=model.name", "scheme", "tensors", "notes")

    model: Model
    scheme: str
    tensors: tuple[StoredTensor, ...]
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The number of tensors."""
        mtp = sum(x.mtp for x in self.tensors)
        text = f", {mtp:,} of them for multi-token prediction" if mtp else ""
        return f"{self.model.name}, {len(self.tensors):,} tensors with {self.scheme} names{text}"

    @property
    def entries(self) -> Sequence[StoredTensor]:
        """The tensors."""
        return self.tensors

    def tables(self) -> Iterable[Part]:
        """The tensors."""
        rows = tuple((x.name, x.shape, x.parameters, x.dtype) for x in self.tensors)
        yield Table(columns=_TENSORS, rows=rows)


_TENSORS = (
    Column("tensor", key="name"),
    Column("shape", "shape"),
    Column("parameters", "count"),
    Column("dtype"),
)


def weight_entry(model: DescribedModel, leaf: Leaf) -> dict[str, Any]:
    """Return one weight's entry in the JSON of a count; its path is the pattern."""
    weight = leaf.weight
    schemes = {name: model.family.schemes.get(name) for name in SCHEMES}
    return {
        "path": leaf.pattern,
        "shape": list(map(int, weight.shape)),
        "dims": [x.symbol for x in weight.shape],
        "parameters": leaf.parameters,
        "role": weight.role,
        "group": leaf.group,
        "tied": weight.tied or None,
        "names": {
            name: None if LOOPED in weight.tied else _stored_name(scheme, leaf.pattern)
            for name, scheme in schemes.items()
        },
    }


def _weight_entries(model: DescribedModel) -> Iterator[dict[str, Any]]:
    """Every weight's entry; a pattern's entry is made once and filled with the indices of each
    layer and expert.
    """
    entries: dict[tuple[str, int], dict[str, Any]] = {}
    schemes = model.family.schemes
    for leaf in model.weights:
        if (entry := entries.get(key := (leaf.pattern, id(leaf.weight)))) is None:
            entry = entries[key] = weight_entry(model, leaf)
        indices = leaf.indices
        if indices:
            names = {
                key: name and schemes[key].fill(name, leaf) for key, name in entry["names"].items()
            }
            path, tied = fill_pattern(leaf.pattern, indices), leaf.tied_path or None
            entry = {**entry, "path": path, "tied": tied, "names": names}
        yield entry


def _stored_name(scheme: Scheme | None, pattern: str) -> str | None:
    try:
        return scheme.stored_name(pattern) if scheme else None
    except UnnamedWeight:
        return None
