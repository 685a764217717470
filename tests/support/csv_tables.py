"""Tables that commands print as CSV, without the comments that say what they are of."""

from __future__ import annotations

import csv


def csv_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the first table by the names of its columns."""
    lines = text.splitlines()
    assert lines[0].startswith("# ") and lines[1].startswith("# ") and not lines[2], (
        "a table says what it is of"
    )
    rest = [x for x in lines[3:] if not x.startswith("# ")]
    return list(csv.DictReader(rest[: [*rest, ""].index("")]))
