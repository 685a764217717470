"""A count from the header, on a terminal and for programs: the contract of `count --json`, with null for what only a family knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...analysis.count.count_report import MAX_LISTED_WEIGHTS
from ...analysis.count.header_count import HeaderCount, is_rotary_table
from ...core.errors import safe
from ...core.number_format import short_count
from ...core.parameter_count import Parameters
from ..table import bold, dim, wrap
from .ls_text import codec_lines, dtype_lines, table_lines


def header_text(found: HeaderCount, unfold: bool = False) -> Iterator[str]:
    """One screen: the total, the folded tensors, dtypes and codecs."""
    listing, total = found.listing, found.total
    least = "" if listing.known else "at the least "
    yield bold(f"{found.name}: {least}{total:,} parameters ({short_count(total)})")
    yield dim(f"no family, from the header of {found.source}: {listing.manifest.format}, {listing.total.tensors:,} tensors")
    yield ""
    yield from table_lines([x for x in listing.unfolded() if not is_rotary_table(x)] if unfold else found.rows)
    for heading, lines in (("by dtype", dtype_lines(listing)), ("by codec", codec_lines(listing))):
        if lines:
            yield from ("", heading, *(f"  {line}" for line in lines))
    yield ""
    for note in found.notes:
        yield from wrap(f"note: {safe(note, 600)}", indent="")


def header_json(found: HeaderCount) -> dict[str, Any]:
    """The same keys as with a family; `stored` and `dtypes` besides."""
    listing = found.listing
    parameters: dict[str, Any] = dict.fromkeys(Parameters.fields)
    return {
        "model": found.name,
        "family": None,
        "source": found.source,
        "parameters": parameters | {"total": found.total, "extras": {}},
        "groups": {},
        "formula": None,
        "weights": list(_weights(found)) if listing.total.tensors <= MAX_LISTED_WEIGHTS else None,
        "notes": list(found.notes),
        "stored": {"elements": found.stored, "bytes": listing.total.bytes},
        "dtypes": {name: x._asdict() for name, x in listing.dtypes.items()},
    }


def _weights(found: HeaderCount) -> Iterator[dict[str, Any]]:
    """Every stored weight once: its name in the file, and its shape once unpacked, where that is known."""
    listing = found.listing
    spelled = {"safetensors": "hf", "gguf": "gguf"}.get(listing.manifest.format, "")
    for row, x in zip(listing.unfolded(), listing.manifest.tensors, strict=True):
        if is_rotary_table(row) or row.role not in ("", "values"):
            continue
        code = listing.packings.get(x.name)
        yield {
            "path": x.name,
            "shape": list(code.shape if code and code.shape else x.shape),
            "dims": None,
            "parameters": row.parameters,
            "role": None,
            "group": None,
            "tied": row.tied or None,
            "names": {name: x.name if name == spelled else None for name in ("hf", "meta", "gguf")},
        }
