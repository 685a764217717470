"""`stored`: the bytes that a model's weights take under a dtype or a scheme of quantisation, weight by weight.

A packed scheme packs the matrices of the layers' linear maps; embedding, head, norms, biases, routers and convolutions stay as they are.
A GGUF file type gives every tensor its type as llama.cpp does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.naming.scheme import Scheme, StoredTensor
from ...checkpoint.quantization.gguf_file_types import (
    ARCHS_70B,
    ARCHS_70B_WITH_GQA,
    FALCON_ARCHS,
    NEEDS_IMATRIX,
    GGUFTensor,
    ModelTraits,
    assign_types,
)
from ...checkpoint.quantization.schemes import WeightFormat
from ...core.blocks import Attention, Decoder, LatentAttention, Linear
from ...core.errors import FormatError, LlamathError
from ...core.mixers import GatedDeltaNet
from ...core.record_type import Record
from ...core.tree import Block, Folded, Stack, fold, fold_blocks, fold_field
from ..memory_line import MemoryLine

if TYPE_CHECKING:
    from ..verify.listing import Listing

MAX_LAYERS = 100_000
"""So many layers get a type each; more are no model."""


class StoredWeight(NamedTuple):
    """A folded weight with what it is kept as, and the bytes of one copy."""

    leaf: Folded
    codec: str
    bytes: int
    layers: tuple[int, ...] = ()  # those that they are in, where that is not every layer of their kind

    @property
    def total(self) -> int:
        """All copies together."""
        return self.bytes * int(self.leaf.copies)


class CodecTotal(NamedTuple):
    """All weights that are kept in one way."""

    codec: str
    tensors: int
    elements: int
    bytes: int


class WeightStorage(Record):
    """The weights under one dtype or scheme."""

    packer: WeightFormat
    weights: tuple[StoredWeight, ...]

    @property
    def bytes(self) -> int:
        """All of them; a tied matrix once."""
        return sum(x.total for x in self.weights)

    @property
    def elements(self) -> int:
        """The numbers that the bytes stand for."""
        return sum(int(x.leaf.weight.parameters) * int(x.leaf.copies) for x in self.weights)

    @property
    def bits(self) -> float:
        """Bits per weight, all taken together."""
        return 8 * self.bytes / (self.elements or 1)

    def sums(self) -> list[CodecTotal]:
        """The same by codec, largest first."""
        found: dict[str, CodecTotal] = {}
        for x in self.weights:
            old, copies = found.get(x.codec, CodecTotal(x.codec, 0, 0, 0)), int(x.leaf.copies)
            size = int(x.leaf.weight.parameters) * copies
            found[x.codec] = CodecTotal(x.codec, old.tensors + copies, old.elements + size, old.bytes + x.total)
        return sorted(found.values(), key=lambda x: -x.bytes)


class GGUFNaming(NamedTuple):
    """What decides the types of a GGUF file besides the tree: its names, and llama.cpp's word for the architecture."""

    names: Scheme
    arch: str


def weight_storage(tree: Decoder, packer: WeightFormat, gguf: GGUFNaming | None = None, imatrix: bool | None = None) -> WeightStorage:
    """Every weight with its bytes; GGUF's file types need `gguf`, and `imatrix` says that one is used (None: where it must be)."""
    if packer.gguf_file_type:
        if gguf is None:
            raise LlamathError("GGUF has no names for this family, so nothing says which types llama.cpp would choose")
        measured = packer.gguf_file_type in NEEDS_IMATRIX if imatrix is None else imatrix
        return WeightStorage(packer=packer, weights=tuple(_mixed(tree, packer, gguf, measured)))
    packed = _packed(tree, packer)
    kept = [_kept(x, packer, x.pattern in packed) for x in fold(tree) if not x.weight.tied]
    return WeightStorage(packer=packer, weights=tuple(kept))


class StoredWeights(Record):
    """The weights of a checkpoint, by dtype; `notes` tell if some of its files are missing."""

    lines: tuple[MemoryLine, ...]
    notes: tuple[str, ...] = ()


def stored_weights(found: Listing, notes: Sequence[str] = ()) -> StoredWeights:
    """Return the weights of a checkpoint, by the dtypes that its headers declare."""
    dtypes = sorted(found.dtypes.items(), key=lambda item: -item[1].bytes)
    return StoredWeights(
        lines=tuple(
            MemoryLine(what=f"weights, {dtype}", bytes=x.bytes, formula=f"{x.tensors:,} tensors of {x.elements:,} elements in the headers")
            for dtype, x in dtypes
        ),
        notes=tuple(notes),
    )


def read_stored_weights(path: str) -> StoredWeights | None:
    """Return the weights of the checkpoint at a path or address; None if there is no checkpoint."""
    from ...checkpoint.open import names_checkpoint, open_checkpoint
    from ..verify.listing import list_tensors

    if not names_checkpoint(path):
        return None
    try:
        opened = open_checkpoint(path)
    except FormatError as error:
        if error.code == "no_checkpoint":
            return None
        raise
    note = opened.missing_shards_note
    return stored_weights(list_tensors(opened.manifest), (note,) if note else ())


def _packed(tree: Decoder, packer: WeightFormat) -> frozenset[str]:
    """The patterns of the weights that a scheme packs."""
    if packer.matrix_bytes is None:
        return frozenset()
    linear = {f"{x.pattern}.weight" for x in fold_blocks(tree) if isinstance(x.block, Linear)}
    inside = [x for x in fold(tree) if x.pattern.startswith("layers.") and x.pattern in linear and x.group != "router"]
    experts = {x.pattern for x in inside if x.num_experts}
    return frozenset(experts if packer.experts_only and experts else (x.pattern for x in inside if x.weight.shape[0] > 1))


def _kept(leaf: Folded, packer: WeightFormat, packed: bool) -> StoredWeight:
    if packed and packer.matrix_bytes is not None:
        out, into = leaf.weight.shape
        return StoredWeight(leaf, packer.packing, packer.matrix_bytes(int(out), int(into)))
    return StoredWeight(leaf, packer.unpacked_dtype, DTYPES[packer.unpacked_dtype].size(int(leaf.weight.size)))


class _Part(NamedTuple):
    """The folded weights of a stored tensor, with the layer that it is in."""

    tensor: GGUFTensor
    leaves: tuple[Folded, ...]


def _mixed(tree: Decoder, packer: WeightFormat, gguf: GGUFNaming, imatrix: bool) -> Iterator[StoredWeight]:
    parts = gguf_tensors(tree, gguf.names)
    leaves = {x.tensor: x.leaves for x in parts}
    merged: dict[tuple[str, int, str], StoredWeight] = {}
    layers: dict[tuple[str, int, str], list[int]] = {}
    for tensor, dtype in assign_types(
        packer.gguf_file_type, (x.tensor for x in parts), gguf_traits(tree, gguf.arch), imatrix, packer.is_pure
    ):
        for leaf in leaves[tensor]:
            size = int(leaf.weight.size) // tensor.shape[-1] * DTYPES[dtype].size(tensor.shape[-1])
            key = (leaf.pattern, id(leaf.weight), dtype)
            old = merged[key].leaf if key in merged else leaf._replace(copies=0, active=0)
            merged[key] = StoredWeight(leaf._replace(copies=old.copies + leaf.copies, active=old.active + leaf.active), dtype, size)
            layers.setdefault(key, []).append(tensor.layer)
    for key, x in merged.items():
        yield x if layers[key] == [-1] else x._replace(layers=tuple(sorted(layers[key])))


def gguf_tensors(tree: Decoder, names: Scheme) -> list[_Part]:
    """The tensors in the order in which llama.cpp meets them: those outside of the layers, then layer by layer, each by name."""
    if tree.layers.n > MAX_LAYERS:
        raise LlamathError(f"{int(tree.layers.n):,} layers are too many to give each a type")
    if (most := max(int(x.copies) for layer, _ in tree.layers.distinct() for x in fold(layer))) > MAX_LAYERS:
        raise LlamathError(f"{most:,} experts in a layer are too many to name each")
    outside: list[_Part] = []
    for name, child in tree.children:
        if not isinstance(child, Stack):
            folded = {x.pattern: x for x in fold_field(tree, name)}
            outside += [_part(x, folded, -1) for x in names.tensors_of_field(tree, name)]
    return [*sorted(outside, key=lambda x: x.tensor.name), *_layers(tree.layers, names)]


def _layers(layers: Stack, names: Scheme) -> Iterator[_Part]:
    made: dict[int, list[tuple[StoredTensor, dict[str, Folded]]]] = {}
    for x, _ in layers.distinct():
        folded = {f"layers.{{l}}.{y.pattern.replace('{l}', '{e}')}": y for y in fold(x)}
        made[id(x)] = [(y, folded) for y in sorted(names.tensors_of_block("layers", x), key=lambda y: y.name)]
    for i, x in enumerate(layers):
        yield from (_part(y, folded, i) for y, folded in made[id(x)])


def _part(x: StoredTensor, folded: dict[str, Folded], layer: int) -> _Part:
    patterns = dict.fromkeys(part.pattern for part in x.parts)
    leaves = tuple(folded[pattern]._replace(pattern=pattern) for pattern in patterns)
    return _Part(GGUFTensor(x.name.replace("{l}", str(layer)), tuple(map(int, x.shape)), layer), leaves)


def gguf_traits(tree: Decoder, arch: str) -> ModelTraits:
    """What llama.cpp's rules ask of a model; layers of Mamba or convolutions have no heads there, those of a delta net have the others'."""
    first = next((x for x in _mixers(tree.layers) if not isinstance(x, GatedDeltaNet)), None)
    layers, experts = int(tree.layers.n), max((x.num_experts for x in fold(tree)), default=0)
    shared = 0
    if isinstance(first, Attention):
        shared = int(first.heads) // int(first.kv_heads)
    elif isinstance(first, LatentAttention):
        shared = int(first.heads)
    seventy = layers == 80 and (arch in ARCHS_70B or (arch in ARCHS_70B_WITH_GQA and shared > 1))
    return ModelTraits(layers=layers, heads_per_kv_head=shared, experts=experts, is_falcon=arch in FALCON_ARCHS, is_70b=seventy)


def _mixers(layers: Iterable[Block]) -> Iterator[Block | None]:
    for layer in layers:
        yield getattr(layer, "attn", None)
