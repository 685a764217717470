"""The content of a checkpoint on a terminal, as a table or as a tree of names with subtotals, and
as CSV.

Names and metadata come from the file: all are escaped before they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ....analysis.verify.listing import STATE, Listing, TensorRow
from ....utils.errors import safe
from ....utils.number_format import format_count, format_list
from ...csv_rows import format_table
from ...table import align, bold, dim, fit_table, note_lines, terminal_width, wrap

_MAX_FILES, _END_FILES = 12, 3
"""Files shown one by one; of more files, the first and the last three."""
_MAX_SHARED, _MAX_KEYS = 6, 60
"""Shared storages and metadata keys shown one by one."""
_MAX_DEPTH = 48
"""The depth of the tree; the rest of a longer name is one part."""
_CSV_HEADER = (
    "name",
    "dtype",
    "shape",
    "copies",
    "elements",
    "bytes",
    "parameters",
    "codec",
    "role",
)
_MAX_NAME = 1 << 16
"""Characters of a name in CSV; no reader here accepts a longer one."""


def ls_text(name: str, listing: Listing, unfold: bool, tree: bool) -> Iterator[str]:
    """Yield the whole answer, line by line."""
    files, tensors = (
        format_count(len(listing.files), "file"),
        format_count(listing.total.tensors, "tensor"),
    )
    yield from map(bold, wrap(f"{safe(name)}: {listing.manifest.format}, {files}, {tensors}", ""))
    yield ""
    rows = list(listing.unfolded()) if unfold else listing.rows
    yield from _tree_lines(rows) if tree else table_lines(rows)
    yield ""
    yield from _summary(listing)
    for heading, lines in (
        ("by dtype", dtype_lines(listing)),
        ("by codec", codec_lines(listing)),
        ("by file", _files(listing, unfold)),
    ):
        if lines:
            yield from ("", heading, *(f"  {line}" for line in lines))
    if listing.shared:
        yield from ("", "shared storage", *(line for x in _shared(listing) for line in wrap(x)))
    if listing.metadata:
        yield from ("", "metadata", *_metadata(listing))
    if listing.notes:
        yield from ("", *note_lines([safe(x, 400) for x in listing.notes]))


def _format_size(n: int) -> str:
    return f"{n:,} bytes" + (f" ({n / 1e9:,.2f} GB, {n / 2**30:,.2f} GiB)" if n >= 10**7 else "")


def _format_shape(shape: Sequence[int]) -> str:
    """Return a shape as text: `[4096, 128]`."""
    return f"[{', '.join(map(str, shape))}]"


def table_lines(rows: Sequence[TensorRow]) -> Iterator[str]:
    """Yield names, dtypes, shapes and copies, and parameters and bytes if there is room; long
    names take a line of their own.
    """
    has_codecs = any(x.kind for x in rows)
    cells = [("tensor", "dtype", *(["codec"] * has_codecs), "shape", "parameters", "bytes")]
    for x in rows:
        codec = (x.kind if x.role == "values" else x.role,) if has_codecs else ()
        shape = (
            _format_shape(x.shape)
            + (f" × {x.copies:,}" if x.copies > 1 else "")
            + (" tied" if x.tied else "")
            + (" state" if x.role == STATE else "")
        )
        cells.append(
            (
                safe(x.pattern),
                x.dtype,
                *codec,
                shape,
                f"{x.parameters * x.copies:,}",
                f"{x.bytes * x.copies:,}",
            )
        )
    last = len(cells[0]) - 1
    header, *lines = fit_table(cells, right=(last - 1, last), drop=(last, last - 1))
    yield dim(header)
    yield from lines


class _NameTree:
    """A node of the tree of names: the tensors whose names have the same prefix."""

    def __init__(self) -> None:
        self.children: dict[str, _NameTree] = {}
        self.rows: list[TensorRow] = []

    def lines(self, indent: str) -> tuple[list[tuple[str, int, int]], int, int]:
        """Return (label, parameters, bytes) of everything below, and the sums of both."""
        lines, parameters, size = [], 0, 0
        for name, branch in self.children.items():
            label, child = safe(name, 60), branch
            while len(child.children) == 1 and not child.rows:
                ((part, child),) = child.children.items()
                label = f"{label}.{safe(part, 60)}"
            for x in child.rows:
                own = x.parameters * x.copies, x.bytes * x.copies
                lines.append(
                    (f"{indent}{label}  {x.dtype} {_format_shape(x.shape)}{' tied' * x.tied}", *own)
                )
                parameters, size = parameters + own[0], size + own[1]
            if child.children:
                below, inside, taken = child.lines(indent + "  ")
                lines += [(indent + label, inside, taken), *below]
                parameters, size = parameters + inside, size + taken
        return lines, parameters, size


def _tree_lines(rows: Sequence[TensorRow]) -> list[str]:
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
    lines, _, _ = root.lines("")
    cells = [("", "parameters", "bytes"), *((label, f"{a:,}", f"{b:,}") for label, a, b in lines)]
    return fit_table(cells, right=(1, 2), drop=(2,))


def _summary(listing: Listing) -> Iterator[str]:
    total, state = listing.total, listing.training_state
    elements = total.elements - state.elements
    rows = [("parameters", f"{'' if listing.known else 'at least '}{total.parameters:,}")]
    if listing.codecs and elements != total.parameters:
        companions = (
            f", and {listing.companions:,} of scales and the like" if listing.companions else ""
        )
        rows.append(
            ("stored", f"{format_count(elements - listing.companions, 'element')}{companions}")
        )
    elif elements != total.parameters:
        rows.append(
            ("stored", f"{format_count(elements, 'element')}, shared ones counted for each tensor")
        )
    rows.append(("size", _format_size(total.bytes - state.bytes)))
    if state.tensors:
        sizes = (
            f"{format_count(state.tensors, 'tensor')}, "
            f"{format_count(state.elements, 'element')}, {_format_size(state.bytes)}"
        )
        rows.append(("training state", f"{sizes}: optimizer and the like, not counted"))
    if listing.known and total.parameters:
        rows.append(("bits", f"{_bits(total.bytes - state.bytes, total.parameters)} per weight"))
    yield from align(rows)


def _bits(size: int, parameters: int) -> str:
    return f"{8 * size / parameters:.4f}".rstrip("0").rstrip(".") if parameters else ""


def dtype_lines(listing: Listing) -> list[str]:
    """Return the tensors, elements, parameters and bytes of each dtype."""
    rows = [
        (name, f"{x.tensors:,}", f"{x.elements:,}", f"{x.parameters:,}", f"{x.bytes:,}")
        for name, x in listing.dtypes.items()
    ]
    header = ("", "tensors", "elements", "parameters", "bytes")
    return fit_table([header, *rows], right=(1, 2, 3, 4), drop=(2,), width=terminal_width() - 2)


def codec_lines(listing: Listing) -> list[str]:
    """Return the tensors, parameters, bytes and bits per weight of each codec."""
    unknown = {x.kind for x in listing.rows if not x.known}
    rows = [
        (
            name,
            f"{x.tensors:,}",
            f"{x.parameters:,}",
            f"{x.bytes:,}",
            "?" if name in unknown else _bits(x.bytes, x.parameters),
        )
        for name, x in listing.codecs.items()
    ]
    header = ("", "tensors", "parameters", "bytes", "bits per weight")
    return (
        fit_table([header, *rows], right=(1, 2, 3, 4), drop=(1,), width=terminal_width() - 2)
        if rows
        else []
    )


def _files(listing: Listing, all_files: bool) -> list[str]:
    if len(listing.files) < 2:
        return []
    rows = [
        (safe(x.name, 60), f"{x.tensors:,}", f"{x.bytes:,}", f"{x.header:,}") for x in listing.files
    ]
    lines = fit_table(
        [("", "tensors", "bytes", "header"), *rows],
        right=(1, 2, 3),
        drop=(3, 1),
        width=terminal_width() - 2,
    )
    if all_files or len(rows) <= _MAX_FILES:
        return lines
    omitted = len(rows) - 2 * _END_FILES
    return [
        *lines[: _END_FILES + 1],
        f"… {omitted:,} more (--unfold shows all)",
        *lines[-_END_FILES:],
    ]


def _shared(listing: Listing) -> Iterator[str]:
    for x in listing.shared[:_MAX_SHARED]:
        names = format_list((safe(name, 80) for name in x.names), 4)
        yield (
            f"{names}: {'tied, the same' if x.same else 'views of'} {format_count(x.bytes, 'byte')}"
        )
    if len(listing.shared) > _MAX_SHARED:
        yield f"and {len(listing.shared) - _MAX_SHARED:,} more"


def _metadata(listing: Listing) -> Iterator[str]:
    keys = list(listing.metadata)
    width = min(max(len(safe(key, 60)) for key in keys[:_MAX_KEYS]), 40, terminal_width() // 2)
    for key in keys[:_MAX_KEYS]:
        label = safe(key, 60)
        room = max(terminal_width() - 4 - max(width, len(label)), 20)
        text = safe(listing.metadata[key], 200)
        yield f"  {label:{width}}  {text if len(text) <= room else text[: room - 1] + '…'}".rstrip()
    if len(keys) > _MAX_KEYS:
        yield f"  and {len(keys) - _MAX_KEYS:,} more"


def ls_rows(listing: Listing, unfold: bool, form: str) -> Iterator[str]:
    """Return a line of CSV or Markdown for each folded row, or for each tensor with its file and
    offset.
    """
    if not unfold:
        return format_table(_CSV_HEADER, map(_csv_cells, listing.rows), form)
    names = [_name(x.name) for x in listing.files]
    pairs = zip(listing.unfolded(), listing.manifest.tensors, strict=True)
    rows = ((*_csv_cells(row), names[x.file], str(x.start)) for row, x in pairs)
    return format_table((*_CSV_HEADER, "file", "offset"), rows, form)


def _csv_cells(x: TensorRow) -> tuple[str, ...]:
    counts = (x.copies, x.elements * x.copies, x.bytes * x.copies, x.parameters * x.copies)
    return _name(x.pattern), x.dtype, "×".join(map(str, x.shape)), *map(str, counts), x.kind, x.role


def _name(name: str) -> str:
    return safe(name, _MAX_NAME)
