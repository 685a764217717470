"""`header_count`: how many parameters a checkpoint has by its headers alone, for models that no family here knows.

Every tensor counts as the numbers it stands for: packed values as what is in them, scales as none, numbers that tensors share once. What
can be told from a name alone to be no weight is left out; a head that a file stores a second time, or padding, cannot be told.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from ...checkpoint.formats.manifest import Manifest
from ...core.errors import safe
from ...core.record_type import Record
from ..verify.listing import Listing, TensorRow, list_tensors

ROTARY_TABLES = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight", "rotary_emb.inv_freq")
"""Tensors of these names, in whatever layer, hold rotary factors, which are computed and not learned."""
CAVEAT = "counted from the header: a head stored beside the embedding that it equals, padding and buffers count as they are stored"


class HeaderCount(Record):
    """What `llamath count` knows of a checkpoint without a family."""

    name: str
    source: str
    listing: Listing
    reason: str = ""  # why there is no family

    @cached_property
    def rows(self) -> tuple[TensorRow, ...]:
        """The folded rows of what is counted; a row of factors is not."""
        return tuple(x for x in self.listing.rows if not is_rotary_table(x))

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(x.parameters * x.copies for x in self.rows)

    @property
    def stored(self) -> int:
        """All numbers as the headers count them."""
        return self.listing.total.elements

    @property
    def notes(self) -> tuple[str, ...]:
        """Why it is counted so, and what that leaves open."""
        return tuple(x for x in (self.reason, CAVEAT, *_left_out(self.listing), *self.listing.notes) if x)


def count_header(path: str, reason: str = "") -> HeaderCount:
    """Count a checkpoint from its headers, without a family; `reason` says why there is none."""
    from ...checkpoint.open import open_checkpoint

    opened = open_checkpoint(path)
    notes = f"{opened.commit_note}. {reason}" if opened.commit_note else reason
    name = safe(os.path.basename(os.path.abspath(path)) if os.path.lexists(path) else path)
    return count_from_header(name, safe(path), opened.manifest, opened.packing_config, notes)


def count_from_header(
    name: str, source: str, manifest: Manifest, quantization: Mapping[str, Any] | None = None, reason: str = ""
) -> HeaderCount:
    """Count the parameters in a checkpoint's headers."""
    return HeaderCount(name=name, source=source, listing=list_tensors(manifest, quantization), reason=reason)


def is_rotary_table(row: TensorRow) -> bool:
    """Whether these tensors are known to be no weights."""
    return row.pattern.endswith(ROTARY_TABLES)


def _left_out(found: Listing) -> Iterator[str]:
    if left := [x for x in found.rows if is_rotary_table(x)]:
        yield f"rotary factors, not counted: {sum(x.elements * x.copies for x in left):,} numbers ({left[0].pattern}, …)"
