"""`weight_storage`: the bytes of a model's weights in a dtype or a quantization scheme, weight by weight.

A packed scheme packs the matrices of the layers' linear layers; embedding, head, norms, biases, routers and convolutions are not packed.
A GGUF file type gives each tensor the type that llama.cpp chooses.
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
    from ...model import Model
    from ..verify.listing import Listing

MAX_LAYERS = 100_000
"""The most layers, and experts of a layer, that get GGUF types one by one."""


class _StoredWeight(NamedTuple):
    """A folded weight with its codec and the bytes of one copy."""

    leaf: Folded
    codec: str
    bytes: int
    layers: tuple[int, ...] = ()  # the layers of the copies, if not all layers of their kind

    @property
    def total(self) -> int:
        """The bytes of all copies."""
        return self.bytes * int(self.leaf.copies)


class _CodecTotal(NamedTuple):
    """All weights with one codec."""

    codec: str
    tensors: int
    elements: int
    bytes: int


class WeightStorage(Record):
    """The weights in one dtype or scheme."""

    packer: WeightFormat
    weights: tuple[_StoredWeight, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all weights, a tied matrix once."""
        return sum(x.total for x in self.weights)

    @property
    def elements(self) -> int:
        """The elements of all weights."""
        return sum(int(x.leaf.weight.parameters) * int(x.leaf.copies) for x in self.weights)

    @property
    def bits(self) -> float:
        """Bits per weight, on average."""
        return 8 * self.bytes / (self.elements or 1)

    def sums(self) -> list[_CodecTotal]:
        """Return the totals by codec, largest first."""
        totals: dict[str, _CodecTotal] = {}
        for x in self.weights:
            old, copies = totals.get(x.codec, _CodecTotal(x.codec, 0, 0, 0)), int(x.leaf.copies)
            size = int(x.leaf.weight.parameters) * copies
            totals[x.codec] = _CodecTotal(x.codec, old.tensors + copies, old.elements + size, old.bytes + x.total)
        return sorted(totals.values(), key=lambda x: -x.bytes)


class GGUFNaming(NamedTuple):
    """The tensor names and the architecture of a GGUF file, on which llama.cpp's choice of types depends."""

    names: Scheme
    arch: str


def weight_storage(tree: Decoder, packer: WeightFormat, gguf: GGUFNaming | None = None, imatrix: bool | None = None) -> WeightStorage:
    """Return every weight with its bytes; GGUF types need `gguf`, and `imatrix` selects an importance matrix (None: if needed)."""
    if packer.gguf_file_type:
        if gguf is None:
            raise LlamathError("GGUF has no tensor names for this family, so the types that llama.cpp would choose are unknown")
        measured = packer.gguf_file_type in NEEDS_IMATRIX if imatrix is None else imatrix
        return WeightStorage(packer=packer, weights=tuple(_gguf_mix(tree, packer, gguf, measured)))
    packed = _packed_patterns(tree, packer)
    stored = [_stored_weight(x, packer, x.pattern in packed) for x in fold(tree) if not x.weight.tied]
    return WeightStorage(packer=packer, weights=tuple(stored))


class StoredWeights(Record):
    """The weights of a checkpoint, by dtype; `notes` tell if files are missing or hold another model than the config describes."""

    lines: tuple[MemoryLine, ...]
    notes: tuple[str, ...] = ()


def stored_weights(listing: Listing, notes: Sequence[str] = ()) -> StoredWeights:
    """Return the weights of a checkpoint, by the dtypes that its headers declare."""
    dtypes = sorted(listing.dtypes.items(), key=lambda item: -item[1].bytes)
    return StoredWeights(
        lines=tuple(
            MemoryLine(what=f"weights, {dtype}", bytes=x.bytes, formula=f"{x.tensors:,} tensors of {x.elements:,} elements in the headers")
            for dtype, x in dtypes
        ),
        notes=tuple(notes),
    )


def read_stored_weights(model: Model) -> StoredWeights | None:
    """Return the weights of the checkpoint that a model was loaded from; None if there is only a config."""
    from ...checkpoint.open import names_checkpoint, open_checkpoint
    from ..verify.listing import list_tensors

    if not names_checkpoint(model.location):
        return None
    try:
        opened = open_checkpoint(model.location)
    except FormatError as error:
        if error.code == "no_checkpoint":
            return None
        raise
    listing = list_tensors(opened.manifest)
    note = opened.missing_shards_note or _other_size_note(model, listing)
    return stored_weights(listing, (note,) if note else ())


def _other_size_note(model: Model, listing: Listing) -> str:
    """Return a note if the files hold clearly fewer or more parameters than the config describes, or an empty string.

    Files may have somewhat more: a tied head, layers for multi-token prediction, and all parts of a multimodal model.
    """
    stored, described = listing.total.parameters, model.parameters.total
    if not listing.known or (described * 99 <= stored * 100 and (model.wrapper or stored <= 2 * described)):
        return ""
    return (
        f"the files hold {stored:,} parameters, the config describes {described:,}: the weights are those of the files, "
        "KV cache and activations those of the config"
    )


def _packed_patterns(tree: Decoder, packer: WeightFormat) -> frozenset[str]:
    """Return the patterns of the weights that a scheme packs."""
    if packer.matrix_bytes is None:
        return frozenset()
    linear = {f"{x.pattern}.weight" for x in fold_blocks(tree) if isinstance(x.block, Linear)}
    inside = [x for x in fold(tree) if x.pattern.startswith("layers.") and x.pattern in linear and x.group != "router"]
    experts = {x.pattern for x in inside if x.num_experts}
    return frozenset(experts if packer.experts_only and experts else (x.pattern for x in inside if x.weight.shape[0] > 1))


def _stored_weight(leaf: Folded, packer: WeightFormat, packed: bool) -> _StoredWeight:
    if packed and packer.matrix_bytes is not None:
        out, into = leaf.weight.shape
        return _StoredWeight(leaf, packer.packing, packer.matrix_bytes(int(out), int(into)))
    return _StoredWeight(leaf, packer.unpacked_dtype, DTYPES[packer.unpacked_dtype].size(int(leaf.weight.size)))


class _TensorWeights(NamedTuple):
    """A GGUF tensor with the folded weights in it."""

    tensor: GGUFTensor
    leaves: tuple[Folded, ...]


def _gguf_mix(tree: Decoder, packer: WeightFormat, gguf: GGUFNaming, imatrix: bool) -> Iterator[_StoredWeight]:
    parts = gguf_tensors(tree, gguf.names)
    leaves = {x.tensor: x.leaves for x in parts}
    merged: dict[tuple[str, int, str], _StoredWeight] = {}
    layers: dict[tuple[str, int, str], list[int]] = {}
    for tensor, dtype in assign_types(
        packer.gguf_file_type, (x.tensor for x in parts), gguf_traits(tree, gguf.arch), imatrix, packer.is_pure
    ):
        for leaf in leaves[tensor]:
            size = int(leaf.weight.size) // tensor.shape[-1] * DTYPES[dtype].size(tensor.shape[-1])
            key = (leaf.pattern, id(leaf.weight), dtype)
            old = merged[key].leaf if key in merged else leaf._replace(copies=0, active=0)
            merged[key] = _StoredWeight(leaf._replace(copies=old.copies + leaf.copies, active=old.active + leaf.active), dtype, size)
            layers.setdefault(key, []).append(tensor.layer)
    for key, x in merged.items():
        yield x if layers[key] == [-1] else x._replace(layers=tuple(sorted(layers[key])))


def gguf_tensors(tree: Decoder, names: Scheme) -> list[_TensorWeights]:
    """Return the tensors in llama.cpp's order: those outside the layers, then layer by layer, each sorted by name."""
    if tree.layers.n > MAX_LAYERS:
        raise LlamathError(f"{int(tree.layers.n):,} layers are too many to choose a type for each")
    if (most := max(int(x.copies) for layer, _ in tree.layers.distinct() for x in fold(layer))) > MAX_LAYERS:
        raise LlamathError(f"{most:,} experts in a layer are too many to choose a type for each")
    outside: list[_TensorWeights] = []
    for name, child in tree.children:
        if not isinstance(child, Stack):
            folded = {x.pattern: x for x in fold_field(tree, name)}
            outside += [_tensor_weights(x, folded, -1) for x in names.tensors_of_field(tree, name)]
    return [*sorted(outside, key=lambda x: x.tensor.name), *_layers(tree.layers, names)]


def _layers(layers: Stack, names: Scheme) -> Iterator[_TensorWeights]:
    tensors_by_block: dict[int, list[tuple[StoredTensor, dict[str, Folded]]]] = {}
    for x, _ in layers.distinct():
        folded = {f"layers.{{l}}.{y.pattern.replace('{l}', '{e}')}": y for y in fold(x)}
        tensors_by_block[id(x)] = [(y, folded) for y in sorted(names.tensors_of_block("layers", x), key=lambda y: y.name)]
    for i, x in enumerate(layers):
        yield from (_tensor_weights(y, folded, i) for y, folded in tensors_by_block[id(x)])


def _tensor_weights(x: StoredTensor, folded: dict[str, Folded], layer: int) -> _TensorWeights:
    patterns = dict.fromkeys(part.pattern for part in x.parts)
    leaves = tuple(folded[pattern]._replace(pattern=pattern) for pattern in patterns)
    return _TensorWeights(GGUFTensor(x.name.replace("{l}", str(layer)), tuple(map(int, x.shape)), layer), leaves)


def gguf_traits(tree: Decoder, arch: str) -> ModelTraits:
    """Return the properties that llama.cpp's rules use, with the heads of the first attention layer."""
    first = next((x for x in _mixers(tree.layers) if not isinstance(x, GatedDeltaNet)), None)
    layers, experts = int(tree.layers.n), max((x.num_experts for x in fold(tree)), default=0)
    heads_per_kv_head = 0
    if isinstance(first, Attention):
        heads_per_kv_head = int(first.heads) // int(first.kv_heads)
    elif isinstance(first, LatentAttention):
        heads_per_kv_head = int(first.heads)
    is_70b = layers == 80 and (arch in ARCHS_70B or (arch in ARCHS_70B_WITH_GQA and heads_per_kv_head > 1))
    return ModelTraits(layers=layers, heads_per_kv_head=heads_per_kv_head, experts=experts, is_falcon=arch in FALCON_ARCHS, is_70b=is_70b)


def _mixers(layers: Iterable[Block]) -> Iterator[Block | None]:
    for layer in layers:
        yield getattr(layer, "attn", None)
