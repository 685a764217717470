"""`weight_names`: each weight's name and shape in HF, Meta and GGUF files, and the
transformation of its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....checkpoint.naming.scheme import Scheme, StoredTensor, UnnamedWeight
from ....core.blocks import Decoder
from ....core.expr import Expr
from ....core.tree import Block, sequence, walk
from ....model import FamilyModel, Model, TensorModel
from ....render.report import Report
from ....render.tables import Cell, Column, Part, Table, Text, heading
from ....utils.errors import UnknownQuantization
from ....utils.number_format import format_count
from ....utils.record_type import Record
from ...storage.choose_storage import model_format, weight_storage
from ...storage.listed_weights import check_listable
from ...storage.listing import Listing, list_tensors
from ...storage.listing_tables import tensor_table
from ...storage.quantized_tensors import manifest_of_tensors, packings_of_tensors, quantized_tensors
from ...storage.recipe_storage import describe_recipe

if TYPE_CHECKING:
    from fractions import Fraction

_LAYOUT_DESCRIPTIONS = {
    "flip": "transposed: stored [in, out]",
    "rotary": "rows of each head reordered from halves to neighboring pairs",
    "heads": "interleaved by key/value head",
    "rows": "interleaved row by row",
    "split": "the heads are an axis of their own",
    "shifted": "1 is added to each value",
    "each": "interleaved by query head",
    "quarters": "interleaved in four groups of heads: queries, values, keys",
    "unit": "an axis of length 1 after the first",
    "lead": "an axis of length 1 before the first",
    "flat": "one axis",
    "decay": "−exp of each value",
    "tiled": "value heads in the order of key heads",
}
"""The keywords of `Scheme.layouts`, explained."""

WHY_ROTARY = (
    "q and k are rotated by position, v is not: Meta's code and llama.cpp's llama rotate "
    "neighboring rows (2i, 2i+1) of a head, "
    "HF's code rotates row i with row i + h/2, so the rows of q and k are permuted and those of "
    "v are not"
)


class StoredName(Record):
    """A weight's name in one kind of file."""

    name: str
    shape: tuple[Expr, ...]
    transform: str  # empty: none


class WeightNames(Record):
    """A weight and its names, by naming scheme."""

    json_fields: ClassVar[tuple[str, ...]] = ("path=pattern", "shape", "dims", "layers", "names")

    pattern: str
    shape: tuple[Expr, ...]
    layers: int
    names: Mapping[str, StoredName]

    @property
    def dims(self) -> tuple[str, ...]:
        """The shape in letters."""
        return tuple(x.symbol for x in self.shape)


class _QuantizedRow(Record):
    """Tensors of a quantized checkpoint whose names form one pattern; sizes are those of all
    copies.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    copies: int
    bytes: int
    parameters: int
    codec: str  # empty if it is not packed
    role: str


class QuantizedNames(Record):
    """The tensors of a checkpoint in a quantization recipe or a weight format."""

    json_fields: ClassVar[tuple[str, ...]] = (
        "dtype",
        "bytes=listing.total.bytes",
        "bits_per_weight",
        "tensors",
        "notes",
    )

    dtype: str  # of the weights: the name of the recipe's formats
    listing: Listing
    notes: tuple[str, ...] = ()

    @property
    def bits_per_weight(self) -> Fraction:
        """Bits per weight over everything that is stored."""
        from fractions import Fraction

        return Fraction(8 * self.listing.total.bytes, self.listing.total.parameters or 1)

    @property
    def tensors(self) -> Iterable[_QuantizedRow]:
        """The tensors, folded."""
        for x in self.listing.folded:
            sizes = {
                "copies": x.copies,
                "bytes": x.bytes * x.copies,
                "parameters": x.parameters * x.copies,
            }
            yield _QuantizedRow(
                name=x.pattern, dtype=x.dtype, shape=x.shape, codec=x.kind, role=x.role, **sizes
            )


class NamesReport(Report):
    """The names of each weight in every kind of file; `{l}` and `{e}` stand for the numbers of
    layer and expert.
    """

    json_fields: ClassVar[tuple[str, ...]] = ("model=model.name", "weights", "quantized", "notes")

    model: Model
    weights: tuple[WeightNames, ...]
    quantized: QuantizedNames | None = None  # None: the weights have a plain dtype
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The number of distinct weights, and the format of a quantized checkpoint."""
        stored = f", stored as {self.quantized.dtype}" if self.quantized else ""
        return (
            f"{self.model.name}, {len(self.weights)} distinct weights with names in "
            f"{', '.join(self.schemes)} files{stored}"
        )

    @property
    def headline(self) -> str:
        """The model and the kinds of files."""
        model = self.model
        if isinstance(model, TensorModel):
            tensors = format_count(sum(x.layers for x in self.weights), "tensor")
            return f"{model.name}: the names of {tensors} in hf files, {model.claim}"
        return f"{model.name}: the names of each weight in {', '.join(self.schemes)} files"

    @property
    def schemes(self) -> tuple[str, ...]:
        """The kinds of files that have names for the weights."""
        return tuple(self.model.family.schemes) if isinstance(self.model, FamilyModel) else ("hf",)

    @property
    def entries(self) -> Sequence[WeightNames]:
        """The weights, equal ones of several layers together."""
        return self.weights

    def tables(self) -> Iterable[Part]:
        """A row for each weight with its names below it; and the tensors of a quantized
        checkpoint.
        """
        schemes = self.schemes
        columns = (
            Column("weight", key="weight"),
            Column("shape", "shape"),
            Column("", "text", "layers"),
            *(Column(x, below=True) for x in schemes),
        )
        rows = tuple(_name_cells(x, schemes) for x in self.weights)
        yield Table(columns=columns, rows=rows)
        transforms = (y.transform for x in self.weights for y in x.names.values())
        if any("neighboring" in x for x in transforms):
            yield Text(WHY_ROTARY, apart=True)
        if self.quantized is not None:
            yield from _quantized_parts(self.quantized)


def _name_cells(x: WeightNames, schemes: Sequence[str]) -> tuple[Any, ...]:
    layers = Cell(x.layers, text=f"× {x.layers} layers" if "{l}" in x.pattern else "")
    return x.pattern, x.shape, layers, *(_stored_cell(x, y) for y in schemes)


def _stored_cell(x: WeightNames, scheme: str) -> Cell:
    """Return a name, with its shape if that is another, and how the values are rearranged."""
    if (stored := x.names.get(scheme)) is None:
        return Cell(None)
    shape = "" if stored.shape == x.shape else f"  {'×'.join(str(int(n)) for n in stored.shape)}"
    transform = f"; {stored.transform}" if stored.transform else ""
    return Cell(stored.name, text=f"{scheme:5} {stored.name}{shape}{transform}")


def _quantized_parts(stored: QuantizedNames) -> Iterator[Part]:
    """Yield the tensors of a quantized checkpoint as a table, and the notes on its recipe."""
    total = stored.listing.total
    tensors = format_count(total.tensors, "tensor")
    bits = float(stored.bits_per_weight)
    yield heading(
        f"stored as {stored.dtype}: {tensors}, {total.bytes:,} bytes, {bits:.4f} bits per weight"
    )
    yield tensor_table(stored.listing.folded)
    for x in stored.notes:
        yield Text(f"note: {x}")


def weight_names(model: FamilyModel, dtype: str = "") -> NamesReport:
    """Return the names of each weight of a model, equal layers together, and the tensors of a
    quantized checkpoint.

    `dtype` is the format of its weights; empty: the one that the config declares.
    """
    weights = _weight_names(model.tree, tuple(model.family.schemes.values()))
    try:
        return NamesReport(model=model, weights=weights, quantized=_quantized_names(model, dtype))
    except UnknownQuantization as error:
        return NamesReport(
            model=model,
            weights=weights,
            notes=(f"the tensors of the quantized checkpoint are not known: {error}",),
        )


def _quantized_names(model: FamilyModel, dtype: str) -> QuantizedNames | None:
    """Return the tensors in a format; None if it is plain."""
    packer = model_format(model, dtype)
    if not packer.is_packed and not packer.gguf_file_type:
        return None
    tensors = list(quantized_tensors(model, packer))
    listing = list_tensors(
        manifest_of_tensors(tensors, bool(packer.gguf_file_type)),
        packings=packings_of_tensors(tensors),
    )
    notes = (
        describe_recipe(weight_storage(model.tree, packer, names=model.scheme("hf")))
        if packer.recipe is not None
        else []
    )
    return QuantizedNames(dtype=packer.name, listing=listing, notes=tuple(notes))


def _weight_names(tree: Decoder, schemes: Sequence[Scheme]) -> tuple[WeightNames, ...]:
    """Return every distinct weight of the tree, in tree order; the layers of one kind together."""
    stack = tree.layers
    sample = tree.replace(layers=sequence(x for x, _ in stack.distinct()))
    check_listable(sample)
    times = [int(n) for _, n in stack.distinct()]
    names_by_scheme = {scheme.name: dict(_stored(sample, scheme)) for scheme in schemes}
    weights: dict[tuple[str, tuple[Expr, ...]], WeightNames] = {}
    for leaf in walk(sample):
        if leaf.weight.tied:
            continue
        layer = leaf.indices[0] if leaf.pattern.startswith("layers.") else -1
        count = times[layer] if layer >= 0 else 1
        if (previous := weights.get(key := (leaf.pattern, leaf.shape))) is not None:
            weights[key] = (
                previous
                if leaf.indices[1:] != (0,) and leaf.indices[1:]
                else previous.replace(layers=previous.layers + count)
            )
            continue
        named = {
            name: x
            for name, table in names_by_scheme.items()
            if (x := table.get((leaf.pattern, layer))) is not None
        }
        weights[key] = WeightNames(
            pattern=leaf.pattern, shape=leaf.shape, layers=count, names=named
        )
    return tuple(weights.values())


def _stored(sample: Block, scheme: Scheme) -> Iterator[tuple[tuple[str, int], StoredName]]:
    """Yield (pattern, layer) and the stored name, for one layer of each kind."""
    try:
        for stored in scheme.tensors(sample):
            layer, name = scheme.split_layer(stored.name)
            for part in stored.parts:
                yield (
                    (part.pattern, layer),
                    StoredName(
                        name=_with_expert_letter(name, part.indices),
                        shape=stored.shape,
                        transform=_describe_transform(stored),
                    ),
                )
    except UnnamedWeight:
        return


def _with_expert_letter(name: str, at: tuple[int, ...]) -> str:
    """Return a name with `{e}` for the number of its expert."""
    return name.replace(f".{at[-1]}.", ".{e}.", 1) if at and ".{e}." not in name else name


def _describe_transform(stored: StoredTensor) -> str:
    """Return the transformation of the weight in the file, as text."""
    parts = []
    patterns = list(dict.fromkeys(part.pattern for part in stored.parts))
    if len(patterns) > 1:
        parts.append(
            "joined: "
            f"{' + '.join(x.removeprefix('layers.{l}.').removesuffix('.weight') for x in patterns)}"
        )
    parts += [_LAYOUT_DESCRIPTIONS[word] for word in stored.layout.split()]
    if len({part.indices for part in stored.parts}) > 1:
        parts.append(f"all {len({part.indices for part in stored.parts})} experts stacked")
    return ", ".join(parts)
