"""`TensorCountReport`: the parameters of a model without a family, tensor by tensor, and whose
count it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from ....checkpoint.formats.dtypes import DTYPES
from ....checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ....core.expr import Expr
from ....core.parameter_count import TensorParameters
from ....model import TensorModel
from ....render.report import Report
from ....render.tables import Column, Part, Table, Text
from ....utils.errors import LlamathError, safe
from ....utils.number_format import format_count, short_count
from ...size.memory.inference_memory import WeightsReport
from ...storage.listed_weights import MAX_LISTED_WEIGHTS
from ...storage.listing import Listing, list_tensors
from ...storage.listing_tables import dtype_table, tensor_table
from ...storage.weight_bytes import stored_weights
from .count_report import SCHEMES, StoredNamesReport, StoredTensor
from .count_tables import GROUPS
from .weight_names import NamesReport, StoredName, WeightNames


class TensorCountReport(Report):
    """The parameters of a model without a family; what needs one is null in its JSON."""

    model: TensorModel

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "family=unknown",
            "counted_by=model.claim",
            "source=model.source",
            "part",
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

    part: ClassVar[str] = ""  # it has no parts

    @property
    def unknown(self) -> None:
        """Facts that need a family."""
        return None

    @property
    def parameters(self) -> TensorParameters:
        """The totals that are known without a family, each exact."""
        return self.model.parameters

    @property
    def total(self) -> int:
        """The number of parameters, a tied matrix counted once."""
        return self.parameters.total

    @property
    def groups(self) -> Mapping[str, int]:
        """Parameters by module."""
        return self.model.groups

    @cached_property
    def listing(self) -> Listing:
        """The parameters by folded name, dtype and shape."""
        return list_tensors(_manifest(self.model), packings={})

    def to_json(self, *, weights: bool = True) -> dict[str, Any]:
        if weights and len(self.model.tensors) > MAX_LISTED_WEIGHTS:
            raise LlamathError(
                f"{len(self.model.tensors):,} tensors are too many to list (at "
                f"most {MAX_LISTED_WEIGHTS:,})"
            )
        document = super().to_json()
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
            if self.model.passes is None
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
        rows = tuple((name, n, Fraction(n, self.total or 1)) for name, n in groups)
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


def count_tensors(model: TensorModel, part: str | None = None) -> TensorCountReport:
    """Count a model without a family, which has no parts."""
    if part is not None:
        raise LlamathError(
            f"the {safe(part, 40)} part needs a family: {model.name} is counted {model.claim}",
            hint="count sums by module",
        )
    return TensorCountReport(model=model)


def _manifest(model: TensorModel) -> Manifest:
    """Return the tensors as one file of torch has them, in which those of equal values share their
    bytes; without buffers.
    """
    starts: dict[str, int] = {}
    tensors, at = [], 0
    for x in model.tensors:
        if x.is_buffer:
            continue
        size = x.packed_bytes or DTYPES[x.dtype].size(prod(x.shape))
        start = starts.get(x.tied, at)
        starts[x.name] = start
        tensors.append(
            Tensor(x.name, x.dtype, x.shape, 0, start, start + size, storage=x.tied or x.name)
        )
        at = max(at, start + size)
    files = (CheckpointFile(model.name, at),)
    return Manifest(format="torch", files=files, tensors=tuple(tensors))


def weights_memory(model: TensorModel, dtype: str = "") -> WeightsReport:
    """Return the bytes of the weights, in the dtypes that they have or in one plain dtype; the
    rest of the memory needs a family.
    """
    tensors = tuple(x for x in model.tensors if not x.tied)
    if dtype:
        from ....checkpoint.quantization.format_names import parse_weight_format

        packer = parse_weight_format(dtype)
        if packer.is_packed or packer.gguf_file_type:
            raise LlamathError(
                f"{packer.name} packs some matrices, and which ones only a family tells: the "
                f"model is counted {model.claim}",
                hint="a plain dtype: bf16, fp16, fp32",
            )
        tensors = tuple(x._replace(dtype=packer.unpacked_dtype, packed_bytes=0) for x in tensors)
    lines = stored_weights(
        list_tensors(_manifest(model.replace(tensors=tensors)), packings={})
    ).lines
    lines = tuple(x.replace(note=x.note.removesuffix(" in the headers")) for x in lines)
    return WeightsReport(
        name=model.name,
        lines=lines,
        reason="without a family, weights alone are sized",
        claim=model.claim,
    )


def state_dict_names(model: TensorModel) -> NamesReport:
    """Return the names of the weights, those that differ in numbers only together; a model
    without a family has HF names only.
    """
    listing = list_tensors(_manifest(model), packings={})
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


def stored_state_dict(model: TensorModel) -> StoredNamesReport:
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
