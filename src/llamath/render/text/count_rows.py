"""Every tensor of a model on a line of its own: tabs between, CSV or Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...analysis.count.count_report import check_listable
from ...checkpoint.naming.scheme import Scheme
from ...model import Model
from ..csv_rows import format_table


def unfolded_rows(
    model: Model, scheme: Scheme | None, layer: int | None, form: str | None
) -> Iterator[str]:
    """Yield every tensor in tree order: name, shape, parameters; with a scheme, the tensors of
    such files.
    """
    check_listable(model.tree)
    rows = _stored(model, scheme, layer) if scheme else _leaves(model, layer)
    header = ("name", "shape", "parameters")
    if form:
        yield from format_table(header, rows, form)
    else:
        yield from (f"{name}\t{shape}\t{parameters}" for name, shape, parameters in rows)


def _leaves(model: Model, layer: int | None) -> Iterator[tuple[str, str, str]]:
    for leaf in model.weights:
        if layer is None or (leaf.indices and leaf.indices[0] == layer):
            yield leaf.path, _shape(leaf.shape), str(leaf.parameters)


def _stored(model: Model, scheme: Scheme, layer: int | None) -> Iterator[tuple[str, str, str]]:
    start = scheme.in_layer(scheme.prefix + scheme.layer, layer or 0)
    for x in scheme.tensors(model.stored_tree(scheme)):
        if layer is None or x.name.startswith(start):
            yield x.name, _shape(x.shape), str(sum(int(part.weight.parameters) for part in x.parts))


def _shape(shape: Iterable[int]) -> str:
    return "×".join(str(int(x)) for x in shape)
