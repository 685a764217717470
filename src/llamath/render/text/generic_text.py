"""The count of a model without a family on a terminal: whose count it is, the tensors, their
bytes, and the modules.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.generic.state_dict_count import StateDictCount
from ...utils.errors import safe
from ...utils.number_format import format_count, format_percent, short_count
from ..table import align, bold, dim, note_lines, wrap
from .checkpoints.ls_text import dtype_lines, table_lines


def generic_count_text(report: StateDictCount, unfold: bool = False) -> Iterator[str]:
    """Yield the total and whose it is, the folded tensors, and the sums by module and dtype."""
    model, listing = report.model, report.listing
    total = f"{format_count(report.total, 'parameter')} ({short_count(report.total)})"
    yield from map(bold, wrap(f"{safe(model.name)}: {total}, {model.claim}", ""))
    tensors = f"{format_count(listing.total.tensors, 'tensor')}, {listing.total.bytes:,} bytes"
    passes = (
        "no formula and no forward pass"
        if model.kind is None
        else ("no formula; flops, memory and trace compute it")
    )
    yield from map(dim, wrap(f"from {model.source}: {tensors}; names and shapes, {passes}", ""))
    yield ""
    yield from table_lines(list(listing.unfolded()) if unfold else listing.rows)
    rows = [
        (safe(name), f"{n:,}", format_percent(model.count.share(n)))
        for name, n in report.groups.items()
    ]
    yield from ("", "by module", *(f"  {line}" for line in align(rows, right=(1, 2))))
    yield from ("", "by dtype", *(f"  {line}" for line in dtype_lines(listing)))
    if report.parameters.tied_counted_twice != report.total:
        yield from ("", f"tied tensors counted twice  {report.parameters.tied_counted_twice:,}")
    notes = [
        f"not counted: {name}, {format_count(n, 'element')}"
        for name, n in report.parameters.extras.items()
    ]
    if lines := [*notes, *model.notes]:
        yield from ("", *note_lines([safe(x, 600) for x in lines]))
