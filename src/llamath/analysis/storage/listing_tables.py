"""The tables of a listing: the tensors, folded, one by one or as a tree of names with subtotals;
the totals by dtype, codec and file; and the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...render.tables import Cell, Column, Part, Row, Table, Text
from ...utils.errors import safe
from ...utils.number_format import format_count, format_list

if TYPE_CHECKING:
    from .listing import Listing, TensorRow, TensorTotals

STATE = "state"
"""The role of tensors that are state of an optimizer or a training run."""
_MAX_FILES = 12
"""Files shown one by one."""
_MAX_SHARED, _MAX_KEYS = 6, 60
"""Shared storages and metadata keys shown one by one."""
_MAX_DEPTH = 48
"""The depth of the tree; the rest of a longer name is one part."""
_TENSORS = (
    Column("tensor", key="name"),
    Column("dtype"),
    Column("codec", key=""),
    Column("shape"),
    Column("copies", shown=False),
    Column("elements", shown=False),
    Column("bytes", shown=False),
    Column("parameters", "count", drop=2),
    Column("bytes", "count", drop=1),
    Column("codec", shown=False),
    Column("role", shown=False),
)
_FILE = (Column("file", shown=False), Column("offset", shown=False))
_TREE = (
    Column("", key="name"),
    Column("parameters", "count"),
    Column("bytes", "count", drop=1),
)
_SUMS = (
    Column("tensors", "count"),
    Column("elements", "count", drop=1),
    Column("parameters", "count"),
    Column("bytes", "count"),
)
_CODECS = (
    Column("", key="codec"),
    Column("tensors", "count", drop=1),
    Column("parameters", "count"),
    Column("bytes", "count"),
    Column("bits per weight", "right"),
)
_FILES = (
    Column("", key="file"),
    Column("tensors", "count", drop=2),
    Column("bytes", "count"),
    Column("header", "count", drop=1),
)
_VALUES = (Column("", key="of"), Column("", key="value", wrap=True))


def listing_tables(listing: Listing, *, unfold: bool = False, tree: bool = False) -> Iterator[Part]:
    """Yield the tensors, the totals, and the metadata."""
    if tree:
        yield _tree_table(list(listing.unfolded()) if unfold else listing.folded)
    else:
        yield _unfolded_table(listing) if unfold else tensor_table(listing.folded)
    yield Table(columns=_VALUES, rows=tuple(_summary(listing)))
    yield dtype_table(listing.dtypes)
    if listing.codecs:
        yield codec_table(listing)
    if len(listing.files) > 1:
        yield Table(
            title="by file",
            columns=_FILES,
            rows=tuple((x.name, x.tensors, x.bytes, x.header) for x in listing.files),
            most=None if unfold else _MAX_FILES,
        )
    if listing.shared:
        yield Text("shared storage", "bold", apart=True)
        yield from (Text(x, indent="  ") for x in _shared(listing))
    if listing.metadata:
        yield Table(
            title="metadata",
            columns=_VALUES,
            rows=tuple((safe(x, 60), safe(y, 200)) for x, y in listing.metadata.items()),
            most=_MAX_KEYS,
        )


def tensor_table(rows: Iterable[TensorRow]) -> Table:
    """Return names, dtypes, shapes and copies, parameters and bytes."""
    return Table(columns=_TENSORS, rows=tuple(map(_tensor_cells, rows)))


def _unfolded_table(listing: Listing) -> Table:
    names = [x.name for x in listing.files]
    pairs = zip(listing.unfolded(), listing.manifest.tensors, strict=True)
    rows = tuple((*_tensor_cells(row), names[x.file], x.start) for row, x in pairs)
    return Table(columns=(*_TENSORS, *_FILE), rows=rows)


def _tensor_cells(x: TensorRow) -> tuple[Any, ...]:
    parameters, size = x.parameters * x.copies, x.bytes * x.copies
    shape = (
        format_shape(x.shape)
        + (f" × {x.copies:,}" if x.copies > 1 else "")
        + (" tied" if x.tied else "")
        + (" state" if x.role == STATE else "")
    )
    codec = (x.kind if x.role == "values" else x.role) if x.kind else ""
    return (
        *(x.pattern, x.dtype, codec, Cell("×".join(map(str, x.shape)), text=shape), x.copies),
        *(x.elements * x.copies, size, parameters, size, x.kind, x.role),
    )


def format_shape(shape: Sequence[int]) -> str:
    """Return a shape as text: `[4096, 128]`."""
    return f"[{', '.join(map(str, shape))}]"


def dtype_table(dtypes: Mapping[str, TensorTotals]) -> Table:
    """Return the tensors, elements, parameters and bytes of each dtype."""
    return Table(
        title="by dtype",
        columns=(Column("", key="dtype"), *_SUMS),
        rows=tuple((x, *_sums(y)) for x, y in dtypes.items()),
    )


def _sums(x: TensorTotals) -> tuple[int, ...]:
    return x.tensors, x.elements, x.parameters, x.bytes


def codec_table(listing: Listing) -> Table:
    """Return the tensors, parameters, bytes and bits per weight of each codec."""
    unknown = {x.kind for x in listing.folded if not x.known}
    rows = (
        (
            *(name, x.tensors, x.parameters, x.bytes),
            "?" if name in unknown else _bits(x.bytes, x.parameters),
        )
        for name, x in listing.codecs.items()
    )
    return Table(title="by codec", columns=_CODECS, rows=tuple(rows))


class _NameTree:
    """A node of the tree of names: the tensors whose names have the same prefix."""

    def __init__(self) -> None:
        self.children: dict[str, _NameTree] = {}
        self.rows: list[TensorRow] = []

    def lines(self, level: int) -> tuple[list[Row], int, int]:
        """Return the rows of everything below, and the sums of parameters and bytes."""
        lines, parameters, size = [], 0, 0
        for name, branch in self.children.items():
            label, child = safe(name, 60), branch
            while len(child.children) == 1 and not child.rows:
                ((part, child),) = child.children.items()
                label = f"{label}.{safe(part, 60)}"
            for x in child.rows:
                own = x.parameters * x.copies, x.bytes * x.copies
                tied = " tied" * x.tied
                text = f"{label}  {x.dtype} {format_shape(x.shape)}{tied}"
                lines.append(Row((text, *own), level))
                parameters, size = parameters + own[0], size + own[1]
            if child.children:
                below, inside, taken = child.lines(level + 1)
                lines += [Row((label, inside, taken), level, is_sum=True), *below]
                parameters, size = parameters + inside, size + taken
        return lines, parameters, size


def _tree_table(rows: Sequence[TensorRow]) -> Table:
    """Return the names as a tree with subtotals."""
    root = _NameTree()
    for x in rows:
        at = root
        for part in (
            x.parts
            if len(x.parts) <= _MAX_DEPTH
            else (*x.parts[: _MAX_DEPTH - 1], ".".join(x.parts[_MAX_DEPTH - 1 :]))
        ):
            at = at.children.setdefault(part, _NameTree())
        at.rows.append(x)
    lines, _, _ = root.lines(0)
    return Table(columns=_TREE, rows=tuple(lines))


def _summary(listing: Listing) -> Iterator[tuple[str, Cell]]:
    total, state = listing.total, listing.training_state
    elements = total.elements - state.elements
    parameters = f"{'' if listing.known else 'at least '}{total.parameters:,}"
    yield "parameters", Cell(total.parameters, text=parameters)
    if listing.codecs and elements != total.parameters:
        text = format_count(elements - listing.companions, "element")
        if listing.companions:
            text += f", and {listing.companions:,} of scales and the like"
        yield "stored", Cell(elements, text=text)
    elif elements != total.parameters:
        text = f"{format_count(elements, 'element')}, shared ones counted for each tensor"
        yield "stored", Cell(elements, text=text)
    size = total.bytes - state.bytes
    yield "size", Cell(size, text=_format_size(size))
    if state.tensors:
        sizes = (
            f"{format_count(state.tensors, 'tensor')}, "
            f"{format_count(state.elements, 'element')}, {_format_size(state.bytes)}"
        )
        text = f"{sizes}: optimizer and the like, not counted"
        yield "training state", Cell(state.bytes, text=text)
    if listing.known and total.parameters:
        yield (
            "bits",
            Cell(8 * size / total.parameters, text=f"{_bits(size, total.parameters)} per weight"),
        )


def _format_size(n: int) -> str:
    return f"{n:,} bytes" + (f" ({n / 1e9:,.2f} GB, {n / 2**30:,.2f} GiB)" if n >= 10**7 else "")


def _bits(size: int, parameters: int) -> str:
    return f"{8 * size / parameters:.4f}".rstrip("0").rstrip(".") if parameters else ""


def _shared(listing: Listing) -> Iterator[str]:
    for x in listing.shared[:_MAX_SHARED]:
        names = format_list((safe(name, 80) for name in x.names), 4)
        what = "tied, the same" if x.same else "views of"
        yield f"{names}: {what} {format_count(x.bytes, 'byte')}"
    if len(listing.shared) > _MAX_SHARED:
        yield f"and {len(listing.shared) - _MAX_SHARED:,} more"
