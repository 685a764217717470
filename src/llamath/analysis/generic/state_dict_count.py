"""`StateDictCount`: the parameters of a model without a family, tensor by tensor, and whose
count it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ...core.expr import Expr
from ...generic.generic_model import GenericModel
from ...render.tables import Column, Part, Table, Text
from ...utils.errors import LlamathError
from ...utils.number_format import format_count, short_count
from ..count.count_report import (
    MAX_LISTED_WEIGHTS,
    SCHEMES,
    CountReport,
    StoredNamesReport,
    StoredTensor,
)
from ..count.count_tables import GROUPS
from ..inference.inference_memory import WeightsReport
from ..inference.weight_bytes import stored_weights
from ..verify.listing import Listing, list_tensors
from ..verify.listing_tables import dtype_table, tensor_table
from ..verify.weight_names import NamesReport, StoredName, WeightNames


class StateDictCount(CountReport):
    """The parameters of a state dict; what needs a family is null in its JSON."""

    model: GenericModel

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=unknown",
            "counted_by=model.claim",
            "source=model.source",
            "part=model.part_name",
            "parameters",
            "groups",
        ),
        *(
            "formula=unknown",
            "formula_numbers=unknown",
            "letters=unknown",
            "bytes=listing.total.bytes",
            "dtypes=listing.dtypes",
            "notes=model.notes",
        ),
    )

    @property
    def unknown(self) -> None:
        """Facts that need a family."""
        return None

    @cached_property
    def listing(self) -> Listing:
        """The parameters by folded name, dtype and shape."""
        return list_tensors(self.model.manifest, packings={})

    def to_json(self, *, weights: bool = True) -> dict[str, Any]:
        if weights and len(self.model.tensors) > MAX_LISTED_WEIGHTS:
            raise LlamathError(
                f"{len(self.model.tensors):,} tensors are too many to list (at "
                f"most {MAX_LISTED_WEIGHTS:,})"
            )
        document = super(CountReport, self).to_json()
        notes = document.pop("notes")
        return document | {"weights": self._entries() if weights else [], "notes": notes}

    @property
    def headline(self) -> str:
        """The total, and whose count it is."""
        total = f"{format_count(self.total, 'parameter')} ({short_count(self.total)})"
        return f"{self.model.name}: {total}, {self.model.claim}"

    @property
    def setting(self) -> str:
        """The tensors, and what is known of them."""
        total = self.listing.total
        passes = (
            "no formula and no forward pass"
            if self.model.kind is None
            else "no formula; flops, memory and trace compute it"
        )
        return (
            f"from {self.model.source}: {format_count(total.tensors, 'tensor')}, "
            f"{total.bytes:,} bytes; names and shapes, {passes}"
        )

    @property
    def stated_notes(self) -> tuple[str, ...]:
        """What is not counted, and the notes on the model."""
        extras = (
            f"not counted: {name}, {format_count(n, 'element')}"
            for name, n in self.parameters.extras.items()
        )
        return (*extras, *self.model.notes)

    def tables(self, *, unfold: bool = False) -> Iterable[Part]:
        """The tensors, and the sums by module and dtype."""
        listing = self.listing
        yield tensor_table(listing.unfolded() if unfold else listing.folded)
        groups = self.groups.items()
        rows = tuple((name, n, self.model.count.share(n)) for name, n in groups)
        yield Table(columns=(Column("by module", key="module"), *GROUPS[1:]), rows=rows)
        yield dtype_table(listing.dtypes)
        if (twice := self.parameters.tied_counted_twice) != self.total:
            yield Text(f"tied tensors counted twice  {twice:,}", apart=True)

    def _entries(self) -> list[Mapping[str, Any]]:
        return [
            {
                "path": x.name,
                "shape": list(x.shape),
                "dims": None,
                "parameters": 0 if x.tied else prod(x.shape),
                "role": None,
                "group": None,
                "tied": x.tied or None,
                "names": {scheme: x.name if scheme == "hf" else None for scheme in SCHEMES},
                "dtype": x.dtype,
            }
            for x in self.model.tensors
            if not x.is_buffer
        ]

    @property
    def summary(self) -> str:
        """The total in one line, and whose count it is."""
        return (
            f"{self.model.name}, {self.total:,} parameters ({short_count(self.total)}), "
            f"{self.model.claim}"
        )


def weights_memory(model: GenericModel, dtype: str = "") -> WeightsReport:
    """Return the bytes of the weights, in the dtypes that they have or in one plain dtype; the
    rest of the memory needs a family.
    """
    tensors = tuple(x for x in model.tensors if not x.tied)
    if dtype:
        from ...checkpoint.quantization.schemes import parse_weight_format

        packer = parse_weight_format(dtype)
        if packer.is_packed or packer.gguf_file_type:
            raise LlamathError(
                f"{packer.name} packs some matrices, and which ones only a family tells: the "
                f"model is counted {model.claim}",
                hint="a plain dtype: bf16, fp16, fp32",
            )
        tensors = tuple(x._replace(dtype=packer.unpacked_dtype) for x in tensors)
    lines = stored_weights(list_tensors(model.replace(tensors=tensors).manifest, packings={})).lines
    lines = tuple(x.replace(note=x.note.removesuffix(" in the headers")) for x in lines)
    return WeightsReport(
        name=model.name,
        lines=lines,
        reason="without a family, weights alone are sized",
        claim=model.claim,
    )


def state_dict_names(model: GenericModel) -> NamesReport:
    """Return the names of the weights, those that differ in numbers only together; a model
    without a family has HF names only.
    """
    listing = list_tensors(model.manifest, packings={})
    weights = tuple(
        WeightNames(
            pattern=x.pattern,
            shape=shape,
            layers=x.copies,
            names={"hf": StoredName(name=x.pattern, shape=shape, transform="")},
        )
        for x in listing.folded
        if not x.tied
        for shape in [tuple(map(Expr.const, x.shape))]
    )
    return NamesReport(model=model, weights=weights, notes=model.notes)


def stored_state_dict(model: GenericModel) -> StoredNamesReport:
    """List the tensors of a state dict, buffers included; tied copies are left out."""
    tensors = (
        StoredTensor(
            name=x.name,
            shape=x.shape,
            dtype=x.dtype,
            parameters=0 if x.is_buffer else prod(x.shape),
        )
        for x in model.tensors
        if not x.tied
    )
    return StoredNamesReport(model=model, scheme="hf", tensors=tuple(tensors))
