"""`diff_models`: the difference of two models; if one has no family, by the names and shapes of
their tensors.
"""

from __future__ import annotations

from math import prod

from ....checkpoint.naming.training_names import fold_numbers
from ....generic.module_tree import StateTensor
from ....model import FamilyModel, Model, TensorModel
from ...storage.listed_weights import check_listable
from .model_diff import DiffReport, Totals, Unchanged, WeightEntry, align_weights, diff

_NOTE = (
    "compared by the names and shapes in files: without a family on both sides there are no "
    "causes, and config keys are not compared"
)


def diff_models(a: Model, b: Model) -> DiffReport:
    """Compare two models."""
    if isinstance(a, FamilyModel) and isinstance(b, FamilyModel):
        return diff(a, b)
    return _diff_state_dicts(a, b)


def _diff_state_dicts(a: Model, b: Model) -> DiffReport:
    """Compare two models by their HF tensors; `#` stands for the numbers of layers and experts."""
    ours, theirs = _entries(a), _entries(b)
    pairs = list(align_weights(ours, theirs))
    changed = tuple(x for x in pairs if x.a is None or x.b is None or x.a.sizes != x.b.sizes)
    differing = {x.path for x in changed}
    totals = a.parameters.total, b.parameters.total
    return DiffReport(
        a=a.replace(notes=(*a.notes, _NOTE)),
        b=b,
        total=Totals(*totals, totals[1] - totals[0]),
        causes=(),
        weights=changed,
        same=Unchanged(
            weights=tuple(dict.fromkeys(x.path for x in pairs if x.path not in differing)),
            parameters=sum(x.a.parameters for x in pairs if x.a and x.b and x.a.sizes == x.b.sizes),
            config=(),
        ),
        config=(),
    )


def _entries(model: Model) -> dict[str, list[tuple[str, WeightEntry]]]:
    """Return the weights by name, those that differ in numbers only together."""
    found: dict[tuple[str, tuple[int, ...], bool], int] = {}
    for x in _tensors(model):
        key = (fold_numbers(x.name), x.shape, bool(x.tied))
        found[key] = found.get(key, 0) + 1
    entries: dict[str, list[tuple[str, WeightEntry]]] = {}
    for (name, shape, tied), copies in found.items():
        parameters = 0 if tied else copies * prod(shape)
        entry = WeightEntry(
            shape=shape,
            dims=tuple(map(str, shape)),
            copies=copies,
            parameters=parameters,
            tied=tied,
        )
        entries.setdefault(name, []).append(("", entry))
    return entries


def _tensors(model: Model) -> list[StateTensor]:
    if isinstance(model, TensorModel):
        return [x for x in model.tensors if not x.is_buffer]
    check_listable(model.tree)
    return [
        StateTensor(x.name, "", tuple(map(int, x.shape)))
        for x in model.scheme("hf").tensors(model.tree)
    ]
