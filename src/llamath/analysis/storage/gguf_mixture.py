"""`gguf_mixture`: the bytes of a model's weights in a GGUF file, where llama.cpp chooses a type
for each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.naming.scheme import Scheme, StoredTensor
from ...checkpoint.quantization.gguf_file_types import (
    ARCHS_70B,
    ARCHS_70B_WITH_GQA,
    FALCON_ARCHS,
    GGUFTensor,
    ModelTraits,
    assign_types,
)
from ...checkpoint.quantization.weight_format import WeightFormat
from ...core.blocks import Attention, Decoder
from ...core.expr import as_number
from ...core.latent_attention import LatentAttention
from ...core.mixers import GatedDeltaNet
from ...core.tree import Block, Folded, Stack, fold, fold_field
from ...utils.errors import LlamathError
from .listed_weights import mtp_weights
from .weight_bytes import MAX_LISTED_LAYERS, GGUFNaming, StoredWeight


class _TensorWeights(NamedTuple):
    """A GGUF tensor with the folded weights in it."""

    tensor: GGUFTensor
    leaves: tuple[Folded, ...]


def gguf_mixture(
    tree: Decoder, packer: WeightFormat, gguf: GGUFNaming, imatrix: bool
) -> Iterator[StoredWeight]:
    """Yield the weights with the types that llama.cpp chooses, with or without an importance
    matrix.
    """
    parts = gguf_tensors(tree, gguf)
    leaves = {x.tensor: x.leaves for x in parts}
    found: dict[tuple[str, int, str], list[tuple[int, Folded]]] = {}
    for tensor, dtype in assign_types(
        packer.gguf_file_type,
        (x.tensor for x in parts),
        gguf_traits(tree, gguf),
        imatrix,
        packer.is_pure,
    ):
        for leaf in leaves[tensor]:
            key = (leaf.pattern, id(leaf.weight), dtype)
            found.setdefault(key, []).append((tensor.layer, leaf))
    # as a number, how many layers have the block of a weight
    layers_of: dict[tuple[str, int], int] = {}
    for block, n in tree.layers.distinct():
        for y in {(_pattern_in_layers(y), id(y.weight)) for y in fold(block)}:
            layers_of[y] = layers_of.get(y, 0) + as_number(n)
    for key, each in found.items():
        leaf, layers = each[0][1], tuple(i for i, _ in each)
        all_layers = layers_of.get(key[:2])
        # with its letter, where every layer of the block has this type
        times = len(each) if all_layers is None or all_layers != len(each) else all_layers
        if all(x is leaf for _, x in each):
            copies, active = leaf.copies * times, leaf.active * times
        else:  # of blocks that differ otherwise
            copies, active = (
                as_number(sum(getattr(x, name) for _, x in each)) // len(each) * times
                for name in ("copies", "active")
            )
        # a bias may be a part of the tensor's only row
        *rows, row = map(as_number, leaf.weight.shape)
        stored = StoredWeight(
            leaf._replace(copies=copies, active=active),
            key[2],
            prod(rows) * DTYPES[key[2]].size(row),
        )
        yield stored if layers == (-1,) else stored._replace(layers=tuple(sorted(layers)))


def gguf_tensors(tree: Decoder, gguf: GGUFNaming) -> Sequence[_TensorWeights]:
    """Return the tensors in llama.cpp's order: those outside the layers, then layer by layer,
    each sorted by name; without weights those of layers for multi-token prediction.

    Trees never change, so each keeps its tensors for the types of all file types.
    """
    kept: dict[Any, tuple[Scheme, list[_TensorWeights]]]
    kept = vars(tree).setdefault("_gguf_tensors", {})
    key = (id(gguf.names), gguf.mtp_copies)  # of names that it keeps
    if key not in kept:
        kept[key] = gguf.names, _list_tensors(tree, gguf)
    return kept[key][1]


def _list_tensors(tree: Decoder, gguf: GGUFNaming) -> list[_TensorWeights]:
    names = gguf.names
    if tree.layers.n > MAX_LISTED_LAYERS:
        raise LlamathError(f"{int(tree.layers.n):,} layers are too many to choose a type for each")
    if (
        most := max(int(x.copies) for layer, _ in tree.layers.distinct() for x in fold(layer))
    ) > MAX_LISTED_LAYERS:
        raise LlamathError(f"{most:,} experts in a layer are too many to choose a type for each")
    outside: list[_TensorWeights] = []
    for name, child in tree.children:
        if not isinstance(child, Stack):
            folded = {x.pattern: x for x in fold_field(tree, name)}
            outside += [
                _TensorWeights(_gguf_tensor(x, -1), _leaves(x, folded))
                for x in names.tensors_of_field(tree, name)
            ]
    return [
        *sorted(outside, key=lambda x: x.tensor.name),
        *_layers(tree.layers, names),
        *_mtp_layers(tree, gguf),
    ]


def _mtp_layers(tree: Decoder, gguf: GGUFNaming) -> Iterator[_TensorWeights]:
    if tree.mtp is None or not gguf.names.names_mtp:
        return
    if (n := mtp_weights(tree)) > MAX_LISTED_LAYERS:
        raise LlamathError(f"{n:,} weights of MTP layers are too many to choose a type for each")
    for block, (i, tensors) in zip(tree.mtp, gguf.names.mtp_tensors_by_layer(tree), strict=True):
        copies = {f"layers.{{l}}.{x.pattern}" for x in fold(block) if x.weight.tied}
        for y in sorted(tensors, key=lambda y: y.name):
            if gguf.mtp_copies or y.parts[0].pattern not in copies:
                yield _TensorWeights(GGUFTensor(y.name, tuple(map(int, y.shape)), i), ())


def _layers(layers: Stack, names: Scheme) -> Iterator[_TensorWeights]:
    tensors_by_block: dict[int, list[tuple[StoredTensor, tuple[Folded, ...]]]] = {}
    for x, _ in layers.distinct():
        folded = {_pattern_in_layers(y): y for y in fold(x)}
        stored = sorted(names.tensors_of_block("layers", x), key=lambda y: y.name)
        tensors_by_block[id(x)] = [(y, _leaves(y, folded)) for y in stored]
    for i, x in enumerate(layers):
        for y, leaves in tensors_by_block[id(x)]:
            yield _TensorWeights(_gguf_tensor(y, i), leaves)


def _pattern_in_layers(x: Folded) -> str:
    return f"layers.{{l}}.{x.pattern.replace('{l}', '{e}')}"


def _leaves(x: StoredTensor, folded: dict[str, Folded]) -> tuple[Folded, ...]:
    """Return the weights of a tensor, each once."""
    patterns = dict.fromkeys(part.pattern for part in x.parts)
    return tuple(folded[pattern]._replace(pattern=pattern) for pattern in patterns)


def _gguf_tensor(x: StoredTensor, layer: int) -> GGUFTensor:
    return GGUFTensor(x.name.replace("{l}", str(layer)), tuple(map(int, x.shape)), layer)


def gguf_traits(tree: Decoder, gguf: GGUFNaming) -> ModelTraits:
    """Return the properties that llama.cpp's rules use, with the heads of the first attention
    layer. Layers for multi-token prediction count where the file has them.
    """
    arch = gguf.arch
    first = next((x for x in _mixers(tree.layers) if not isinstance(x, GatedDeltaNet)), None)
    layers, experts = int(tree.layers.n), max((x.num_experts for x in fold(tree)), default=0)
    heads_per_kv_head = 0
    if isinstance(first, Attention):
        heads_per_kv_head = int(first.heads) // int(first.kv_heads)
    elif isinstance(first, LatentAttention):
        heads_per_kv_head = int(first.heads)
    is_70b = layers == 80 and (
        arch in ARCHS_70B or (arch in ARCHS_70B_WITH_GQA and heads_per_kv_head > 1)
    )
    return ModelTraits(
        layers=layers + (int(tree.mtp.n) if tree.mtp and gguf.names.names_mtp else 0),
        heads_per_kv_head=heads_per_kv_head,
        experts=experts,
        is_falcon=arch in FALCON_ARCHS,
        is_70b=is_70b,
        qkv_as_v=any(
            isinstance(x, GatedDeltaNet)
            for x in _mixers(block for block, _ in tree.layers.distinct())
        ),
        expert_type=gguf.expert_type,
    )


def fused_qkv_difference(
    tree: Decoder, packer: WeightFormat, gguf: GGUFNaming, imatrix: bool
) -> int:
    """Return how many bytes more the weights have where matrices of q, k and v count as those of
    v.
    """
    traits, tensors = (
        gguf_traits(tree, gguf),
        [x.tensor for x in gguf_tensors(tree, gguf)],
    )
    if (
        traits.qkv_as_v
        or packer.is_pure
        or not any(x.name.endswith(".attn_qkv.weight") for x in tensors)
    ):
        return 0
    sizes = []
    for as_v in (True, False):
        types = assign_types(
            packer.gguf_file_type, tensors, traits._replace(qkv_as_v=as_v), imatrix
        )
        sizes.append(
            sum(prod(x.shape[:-1]) * DTYPES[dtype].size(x.shape[-1]) for x, dtype in types)
        )
    return sizes[0] - sizes[1]


def _mixers(layers: Iterable[Block]) -> Iterator[Block | None]:
    for layer in layers:
        yield getattr(layer, "attn", None)
