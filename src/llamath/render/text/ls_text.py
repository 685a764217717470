"""`llamath ls` on a terminal: the folded rows, or the tree of names with subtotals, then what they add up to.

Names and metadata are strangers' text: every one is escaped before it is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analysis.verify.listing import Listing, TensorRow
from ...core.errors import safe
from ..table import align, bold, dim, terminal_width, wrap
from .ls_tree import format_shape, tree_lines

FILES, ENDS, SHARED, KEYS = 12, 3, 6, 60
"""So many files, shared storages and metadata keys are shown one by one; of more files, the first and the last of them."""


def ls_text(name: str, found: Listing, unfold: bool, tree: bool) -> Iterator[str]:
    """The whole answer, line by line."""
    files = found.files
    where = f"{len(files):,} file{'s' * (len(files) != 1)}"
    yield bold(f"{safe(name)}: {found.manifest.format}, {where}, {found.total.tensors:,} tensors")
    yield ""
    rows = list(found.unfolded()) if unfold else found.rows
    yield from tree_lines(rows) if tree else table_lines(rows)
    yield ""
    yield from _summary(found)
    for heading, lines in (("by dtype", dtype_lines(found)), ("by codec", codec_lines(found)), ("by file", _files(found, unfold))):
        if lines:
            yield from ("", heading, *(f"  {line}" for line in lines))
    if found.shared:
        yield from ("", "shared storage", *(line for x in _shared(found) for line in wrap(x, width=terminal_width() - 2)))
    if found.metadata:
        yield from ("", "metadata", *_metadata(found))
    if found.notes:
        yield from ("", *(line for x in found.notes for line in wrap(f"note: {safe(x, 400)}", indent="")))


def size(n: int) -> str:
    """Bytes, exactly and in both units."""
    return f"{n:,} bytes" + (f" ({n / 1e9:,.2f} GB, {n / 2**30:,.2f} GiB)" if n >= 10**7 else "")


def table_lines(rows: Sequence[TensorRow]) -> Iterator[str]:
    """Names, dtypes, shapes and copies, and what of parameters and bytes the terminal has room for; long names stand on their own."""
    coded, tied = any(x.kind for x in rows), any(x.tied for x in rows)
    cells = [("tensor", "dtype", *(["codec"] * coded), "shape", "parameters", "bytes")]
    for x in rows:
        code = (x.kind if x.role == "values" else x.role,) if coded else ()
        shape = format_shape(x.shape) + (f" × {x.copies:,}" if x.copies > 1 else "") + (" tied" if x.tied and tied else "")
        cells.append((safe(x.pattern), x.dtype, *code, shape, f"{x.parameters * x.copies:,}", f"{x.bytes * x.copies:,}"))
    lines = _fitted(cells)
    yield dim(lines[0])
    yield from lines[1:]


def _fitted(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """The cells as lines that fit, with as many of the last two columns as they leave room for."""
    width = terminal_width()
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for drop, gap in ((0, 2), (1, 2), (2, 2), (2, 1)):
        keep = len(widths) - drop
        if sum(widths[:keep]) + gap * (keep - 1) <= width:
            return align([row[:keep] for row in cells], right=(len(widths) - 2, len(widths) - 1), gap=gap)
    room = max(width - sum(widths[1:-2]) - (len(widths) - 3), 24)
    lines = []
    for name, *rest in (row[:-2] for row in cells):
        if len(name) > room:
            lines.append(name)
        tail = " ".join(cell.ljust(widths[i + 1]) for i, cell in enumerate(rest))
        lines.append(f"{'' if len(name) > room else name:{room}} {tail}".rstrip())
    return lines


def _summary(found: Listing) -> Iterator[str]:
    total = found.total
    rows = [("parameters", f"{total.parameters:,}{'' if found.known else ' at the least'}")]
    if found.codecs and total.elements != total.parameters:
        stored = total.elements - found.companions
        beside = f", and {found.companions:,} of scales and the like" if found.companions else ""
        rows.append(("stored", f"{stored:,} numbers{beside}"))
    elif total.elements != total.parameters:
        rows.append(("stored", f"{total.elements:,} numbers, those that tensors share once for each"))
    rows.append(("size", size(total.bytes)))
    if found.known and total.parameters:
        rows.append(("bits", f"{_bits(total.bytes, total.parameters)} per weight"))
    yield from align(rows)


def _bits(size: int, parameters: int) -> str:
    return f"{8 * size / parameters:.4f}".rstrip("0").rstrip(".") if parameters else ""


def dtype_lines(found: Listing) -> list[str]:
    """Each dtype's tensors, numbers and bytes."""
    rows = [(name, f"{x.tensors:,}", f"{x.elements:,}", f"{x.parameters:,}", f"{x.bytes:,}") for name, x in found.dtypes.items()]
    return align([("", "tensors", "elements", "parameters", "bytes"), *rows], right=(1, 2, 3, 4))


def codec_lines(found: Listing) -> list[str]:
    """The same of each way of packing, with bits per weight."""
    open_ = {x.kind for x in found.rows if not x.known}
    rows = [
        (name, f"{x.tensors:,}", f"{x.parameters:,}", f"{x.bytes:,}", "?" if name in open_ else _bits(x.bytes, x.parameters))
        for name, x in found.codecs.items()
    ]
    return align([("", "tensors", "parameters", "bytes", "bits per weight"), *rows], right=(1, 2, 3, 4)) if rows else []


def _files(found: Listing, every: bool) -> list[str]:
    if len(found.files) < 2:
        return []
    rows = [(safe(basename(x.name), 60), f"{x.tensors:,}", f"{x.bytes:,}", f"{x.header:,}") for x in found.files]
    lines = align([("", "tensors", "bytes", "header"), *rows], right=(1, 2, 3))
    if every or len(rows) <= FILES:
        return lines
    left = len(rows) - 2 * ENDS
    return [*lines[: ENDS + 1], f"… {left:,} more (--unfold shows them all)", *lines[-ENDS:]]


def basename(path: str) -> str:
    """The last part of a path or an address."""
    return path.rpartition("/")[2] or path


def _shared(found: Listing) -> Iterator[str]:
    for x in found.shared[:SHARED]:
        names = ", ".join(safe(name, 80) for name in x.names[:4]) + (f" and {len(x.names) - 4:,} more" if len(x.names) > 4 else "")
        yield f"{names}: {'tied, the same' if x.same else 'views of'} {x.bytes:,} bytes"
    if len(found.shared) > SHARED:
        yield f"and {len(found.shared) - SHARED:,} more"


def _metadata(found: Listing) -> Iterator[str]:
    keys = list(found.metadata)
    width = min(max(len(safe(key, 60)) for key in keys[:KEYS]), 40)
    for key in keys[:KEYS]:
        label = safe(key, 60)
        room = max(terminal_width() - 4 - max(width, len(label)), 20)
        text = safe(found.metadata[key], 200)
        yield f"  {label:{width}}  {text if len(text) <= room else text[: room - 1] + '…'}".rstrip()
    if len(keys) > KEYS:
        yield f"  and {len(keys) - KEYS:,} more"
