"""`count_header`: the parameters of a checkpoint by its headers alone, for models of unsupported
families.

Every tensor counts as the values it represents: packed tensors as the values in them, scales as
none, shared values once. Tensors whose names mark them as buffers are left out; a second copy of a
tied head, and padding, cannot be recognized.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

from ....checkpoint.formats.manifest import Manifest
from ....core.parameter_count import Parameters
from ....render.report import Report
from ....render.tables import Part
from ....utils.errors import safe
from ....utils.number_format import format_count, short_count
from ...storage.listed_weights import MAX_LISTED_WEIGHTS
from ...storage.listing import Listing, TensorRow, list_tensors
from ...storage.listing_tables import STATE, codec_table, dtype_table, tensor_table
from .count_report import SCHEMES

_ROTARY_TABLES = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "rotary_emb.inv_freq",
)
"""Name endings of tensors with rotary factors, which are computed and not learned."""
CAVEAT = (
    "counted from the header: a tied head that is stored separately, padding and buffers "
    "are counted as stored"
)
_FORMAT_NAMES = {"safetensors": "hf", "gguf": "gguf"}
"""The naming scheme of a format's files."""


class HeaderCount(Report):
    """The parameters of a checkpoint, counted without a family; values that need a family are
    null in its JSON.
    """

    name: str
    source: str
    listing: Listing
    reason: str = ""  # why there is no family, or why it does not matter
    has_family: bool = False  # True: the config next to the file describes another model

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=name",
            "part=unknown",
            "family=unknown",
            "source",
            "parameters",
            "groups",
            "formula=unknown",
            "weights",
            "notes",
            "stored",
        ),
        "dtypes=listing.dtypes",
    )

    @property
    def setting(self) -> str:
        """The header that was counted."""
        tensors = format_count(self.listing.total.tensors, "tensor")
        return (
            f"{'' if self.has_family else 'no family, '}from the header of {self.source}: "
            f"{self.listing.manifest.format}, {tensors}"
        )

    def tables(self, *, unfold: bool = False) -> Iterable[Part]:
        """The tensors, and the totals by dtype and codec."""
        counted = (x for x in self.listing.unfolded() if not is_rotary_table(x))
        yield tensor_table(counted if unfold else self.folded)
        yield dtype_table(self.listing.dtypes)
        if self.listing.codecs:
            yield codec_table(self.listing)

    @cached_property
    def folded(self) -> tuple[TensorRow, ...]:
        """The folded rows that are counted."""
        return tuple(x for x in self.listing.folded if x.role != STATE and not is_rotary_table(x))

    @property
    def total(self) -> int:
        """All parameters."""
        return sum(x.parameters * x.copies for x in self.folded)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The total, and null for all other counts."""
        return dict.fromkeys(Parameters.fields) | {"total": self.total, "extras": {}}

    @property
    def groups(self) -> Mapping[str, int]:
        """Empty: only a family knows the groups of its weights."""
        return {}

    @property
    def unknown(self) -> None:
        """Counts that need a known family."""
        return None

    @property
    def stored(self) -> Mapping[str, int]:
        """The stored elements and their bytes."""
        total, state = self.listing.total, self.listing.training_state
        return {"elements": total.elements - state.elements, "bytes": total.bytes - state.bytes}

    @property
    def weights(self) -> list[dict[str, Any]] | None:
        """Every weight once, with its name in the file and its shape once unpacked; None if
        there are too many to list.
        """
        return list(self._weights()) if self.listing.total.tensors <= MAX_LISTED_WEIGHTS else None

    def _weights(self) -> Iterator[dict[str, Any]]:
        scheme = _FORMAT_NAMES.get(self.listing.manifest.format, "")
        for row, x in zip(self.listing.unfolded(), self.listing.manifest.tensors, strict=True):
            if is_rotary_table(row) or row.role not in ("", "values"):
                continue
            packing = self.listing.packings.get(x.name)
            yield {
                "path": x.name,
                "shape": list(packing.shape if packing and packing.shape else x.shape),
                "dims": None,
                "parameters": row.parameters,
                "role": None,
                "group": None,
                "tied": row.tied or None,
                "names": {name: x.name if name == scheme else None for name in SCHEMES},
            }

    @property
    def notes(self) -> tuple[str, ...]:
        """The reason for the missing family, and the limits of the count."""
        notes = (
            self.reason,
            CAVEAT,
            *_rotary_table_note(self.listing),
            *_training_state_note(self.listing),
            *self.listing.notes,
        )
        return tuple(x for x in notes if x)

    @property
    def summary(self) -> str:
        """The total in one line."""
        at_least = "" if self.listing.known else "at least "
        return (
            f"{self.name}: {at_least}{format_count(self.total, 'parameter')} "
            f"({short_count(self.total)})"
        )


def count_header(path: str, reason: str = "") -> HeaderCount:
    """Count a checkpoint from its headers, without a family; `reason` says why it has none."""
    from ....checkpoint.adapters import adapter_note
    from ....checkpoint.folders.open_any import open_any

    opened, kind_notes = open_any(path)
    reason = "; ".join(kind_notes) or adapter_note(opened) or reason
    notes = f"{opened.commit_note}. {reason}" if opened.commit_note else reason
    name = safe(os.path.basename(os.path.abspath(path)) if os.path.lexists(path) else path)
    return count_from_header(name, safe(path), opened.manifest, opened.packing_config, notes)


def count_from_header(
    name: str,
    source: str,
    manifest: Manifest,
    quantization: Mapping[str, Any] | None = None,
    reason: str = "",
) -> HeaderCount:
    """Count the parameters in a checkpoint's headers."""
    return HeaderCount(
        name=name, source=source, listing=list_tensors(manifest, quantization), reason=reason
    )


def is_rotary_table(row: TensorRow) -> bool:
    """Return whether these tensors hold rotary factors."""
    return row.pattern.endswith(_ROTARY_TABLES)


def _training_state_note(listing: Listing) -> Iterator[str]:
    state = listing.training_state
    if state.tensors:
        sizes = (
            f"{format_count(state.tensors, 'tensor')} with "
            f"{format_count(state.elements, 'element')}, {state.bytes:,} bytes"
        )
        yield f"state of the optimizer or the training run, not counted: {sizes}"


def _rotary_table_note(listing: Listing) -> Iterator[str]:
    if tables := [x for x in listing.folded if is_rotary_table(x)]:
        yield (
            "rotary factors, not counted: "
            f"{format_count(sum(x.elements * x.copies for x in tables), 'element')} "
            f"({tables[0].pattern}, …)"
        )
