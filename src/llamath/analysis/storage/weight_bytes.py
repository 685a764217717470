"""`WeightStorage`: the bytes of weights in a dtype or a quantization scheme, weight by weight;
and those of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.formats.manifest import Tensor
from ...checkpoint.naming.scheme import Scheme
from ...checkpoint.quantization.weight_format import WeightFormat
from ...core.expr import Expr, as_number, ceil_div, product, total
from ...core.tree import Folded
from ...utils.record_type import Record
from .memory_line import MemoryLine

if TYPE_CHECKING:
    from .listing import Listing
    from .recipe_storage import RecipeMatrix

MAX_LISTED_LAYERS = 100_000
"""The most layers, and experts of a layer, that get GGUF types one by one."""


class StoredWeight(NamedTuple):
    """A folded weight with its codec and the bytes of one copy."""

    leaf: Folded
    codec: str
    bytes: int
    layers: Sequence[int] = ()  # the layers of the copies, if not all layers of their kind
    reason: str = ""  # why a recipe leaves it unquantized

    @property
    def total(self) -> int:
        """The bytes of all copies."""
        return self.bytes * as_number(self.leaf.copies)

    @property
    def units(self) -> Expr:
        """The elements of all copies, or the blocks of a dtype that packs them in blocks."""
        block = DTYPES[self.codec].block
        if block == 1:
            return product((self.leaf.copies, self.leaf.weight.size))
        *rows, row = self.leaf.weight.shape
        return product((self.leaf.copies, *rows, ceil_div(row, block)))


class _CodecTotal(NamedTuple):
    """All weights with one codec."""

    codec: str
    tensors: int
    elements: int
    bytes: int


class WeightStorage(Record):
    """The weights in one dtype or scheme."""

    packer: WeightFormat
    weights: tuple[StoredWeight, ...]
    matrices: tuple[RecipeMatrix, ...] = ()  # those of a recipe
    cache_scale_bytes: int = 0  # scales of the KV cache that a recipe stores
    num_cache_scales: int = 0

    @property
    def bytes(self) -> int:
        """The bytes of all weights, a tied matrix once, and of the scales of the KV cache."""
        return sum(x.total for x in self.weights) + self.cache_scale_bytes

    @property
    def elements(self) -> int:
        """The elements of all weights."""
        return sum(
            as_number(x.leaf.weight.parameters) * as_number(x.leaf.copies) for x in self.weights
        )

    @property
    def bits(self) -> float:
        """Bits per weight, on average."""
        return 8 * self.bytes / (self.elements or 1)

    @cached_property
    def element_bytes(self) -> Mapping[str, Fraction]:
        """The bytes of one element of each weight, by pattern, scales included, on average over
        the layers.
        """
        return {x: Fraction(size, n or 1) for x, (size, n) in self.sizes_by_pattern.items()}

    @property
    def sizes_by_pattern(self) -> dict[str, tuple[int, int]]:
        """Pattern → (bytes, elements) of all copies of each weight."""
        sizes: dict[str, tuple[int, int]] = {}
        for x in self.weights:
            size, n = sizes.get(x.leaf.pattern, (0, 0))
            sizes[x.leaf.pattern] = (
                size + x.total,
                n + as_number(x.leaf.weight.size) * as_number(x.leaf.copies),
            )
        return sizes

    @property
    def formulas(self) -> dict[str, str]:
        """The formula of the bytes of a matrix [out, in], by codec."""
        formulas = {
            x.choice.format.name: x.choice.format.formula
            for x in self.matrices
            if x.choice.format is not None
        }
        return (
            formulas if self.packer.matrix is None else {self.packer.packing: self.packer.formula}
        )

    def sums(self) -> list[_CodecTotal]:
        """Return the totals by codec, largest first."""
        totals: dict[str, _CodecTotal] = {}
        for x in self.weights:
            old, copies = (
                totals.get(x.codec, _CodecTotal(x.codec, 0, 0, 0)),
                as_number(x.leaf.copies),
            )
            size = as_number(x.leaf.weight.parameters) * copies
            totals[x.codec] = _CodecTotal(
                x.codec, old.tensors + copies, old.elements + size, old.bytes + x.total
            )
        return sorted(totals.values(), key=lambda x: -x.bytes)

    def lines(self) -> Iterator[MemoryLine]:
        """Yield a line of a memory report for each codec, and one for the scales of the KV
        cache.
        """
        formats = {
            x.choice.format.name: x.choice.format
            for x in self.matrices
            if x.choice.format is not None
        }
        if self.packer.matrix is not None:
            formats = {self.packer.packing: self.packer.matrix}
        for x in self.sums():
            if x.codec in formats:
                stored, same = formats[x.codec], self._packed_matrices(x.codec)
                size = total(
                    product((copies, stored.expression(out, into))) for out, into, copies in same
                ).alias(f"Σ {stored.formula}")
                note = (
                    f"over {sum(as_number(copies) for *_, copies in same):,} matrices of "
                    f"{x.elements:,} weights"
                )
            else:
                dtype, units = (
                    DTYPES[x.codec],
                    total(y.units for y in self.weights if y.codec == x.codec),
                )
                size = product((units.written_as_number(), Expr.factor(dtype.bytes)))
                note = f"blocks of {dtype.block} weights" if dtype.block > 1 else ""
            yield MemoryLine(what=f"weights, {x.codec}", bytes=size, note=note)
        if n := self.num_cache_scales:
            yield MemoryLine(
                what="weights, cache scales",
                bytes=self.cache_scale_bytes,
                note=f"{n:,} tensors of the KV cache's scales",
            )

    def _packed_matrices(self, codec: str) -> list[tuple[int, int, int]]:
        """Return the outputs, the inputs and the copies of each matrix in one format."""
        if self.packer.matrix is None:
            return [
                (x.out, x.into, x.copies)
                for x in self.matrices
                if x.choice.format is not None and x.choice.format.name == codec
            ]
        return [
            (x.leaf.weight.shape[0], x.leaf.weight.shape[1], x.leaf.copies)
            for x in self.weights
            if x.codec == codec
        ]


class GGUFNaming(NamedTuple):
    """The tensor names, the architecture and the released experts of a model, on which the types
    in its GGUF files depend.
    """

    names: Scheme
    arch: str
    expert_type: str = ""  # of the experts in every file, as they were released in it
    mtp_copies: bool = True  # whether MTP layers repeat the embedding and the head


class StoredWeights(Record):
    """The weights of a checkpoint, by dtype; `notes` tell if files are missing or hold another
    model than the config describes.
    """

    lines: tuple[MemoryLine, ...]
    tensors: Sequence[Tensor] = ()  # if they are those of files
    not_loaded: tuple[MemoryLine, ...] = ()
    notes: tuple[str, ...] = ()


def stored_weights(listing: Listing, notes: Sequence[str] = ()) -> StoredWeights:
    """Return the weights of a checkpoint, by the dtypes that its headers declare."""
    dtypes = sorted(listing.weight_dtypes.items(), key=lambda item: -item[1].bytes)
    return StoredWeights(
        lines=tuple(
            MemoryLine(
                what=f"weights, {dtype}",
                bytes=x.bytes,
                note=f"{x.tensors:,} tensors of {x.elements:,} elements in the headers",
            )
            for dtype, x in dtypes
        ),
        notes=tuple(notes),
    )
