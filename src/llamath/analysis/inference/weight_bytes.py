"""`weight_storage`: the bytes of a model's weights in a dtype or a quantization scheme, weight by weight.

A recipe chooses the format of each matrix by the name of its module. A format for all packs the matrices of the layers' linear layers;
embedding, head, norms, biases, routers and convolutions are not packed. A GGUF file type gives each tensor the type that llama.cpp chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
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
from ...checkpoint.quantization.matrix_formats import MatrixFormat
from ...checkpoint.quantization.recipes import CacheScales, Choice, Matrix, Recipe, module_names
from ...checkpoint.quantization.schemes import WeightFormat
from ...core.blocks import Attention, Decoder, Linear
from ...core.latent_attention import LatentAttention
from ...core.mixers import GatedDeltaNet
from ...core.tree import Block, Folded, Stack, fold, fold_blocks, fold_field
from ...utils.errors import LlamathError, safe
from ...utils.record_type import Record
from ..memory_line import MemoryLine

if TYPE_CHECKING:
    from ..verify.listing import Listing

_MAX_LAYERS = 100_000
"""The most layers, and experts of a layer, that get GGUF types one by one."""


class _StoredWeight(NamedTuple):
    """A folded weight with its codec and the bytes of one copy."""

    leaf: Folded
    codec: str
    bytes: int
    layers: Sequence[int] = ()  # the layers of the copies, if not all layers of their kind
    reason: str = ""  # why a recipe leaves it unquantized

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
        return sum(int(x.leaf.weight.parameters) * int(x.leaf.copies) for x in self.weights)

    @property
    def bits(self) -> float:
        """Bits per weight, on average."""
        return 8 * self.bytes / (self.elements or 1)

    @property
    def formulas(self) -> dict[str, str]:
        """The formula of the bytes of a matrix [out, in], by codec."""
        formulas = {x.choice.format.name: x.choice.format.formula for x in self.matrices if x.choice.format is not None}
        return formulas if self.packer.matrix is None else {self.packer.packing: self.packer.formula}

    def sums(self) -> list[_CodecTotal]:
        """Return the totals by codec, largest first."""
        totals: dict[str, _CodecTotal] = {}
        for x in self.weights:
            old, copies = totals.get(x.codec, _CodecTotal(x.codec, 0, 0, 0)), int(x.leaf.copies)
            size = int(x.leaf.weight.parameters) * copies
            totals[x.codec] = _CodecTotal(x.codec, old.tensors + copies, old.elements + size, old.bytes + x.total)
        return sorted(totals.values(), key=lambda x: -x.bytes)


class RecipeMatrix(NamedTuple):
    """The matrices with one stored name that a recipe stores in the same way, or leaves as they are."""

    name: str  # of the module, with `{l}` and `{e}`
    out: int
    into: int
    choice: Choice
    layers: Sequence[int]  # those of its copies; empty outside the layers
    copies: int

    @property
    def bytes(self) -> int:
        """The bytes of all copies that a recipe quantizes."""
        return self.choice.format.bytes(self.out, self.into) * self.copies if self.choice.format is not None else 0


def describe_recipe(storage: WeightStorage) -> list[str]:
    """Return notes on a recipe: its formats with their shares, and what it leaves unquantized and why; none without a recipe."""
    recipe = storage.packer.recipe
    if recipe is None:
        return []
    formats: dict[str, list[RecipeMatrix]] = {}
    kept: dict[str, dict[str, list[str]]] = {}
    for x in storage.matrices:
        if x.choice.format is not None:
            formats.setdefault(f"{x.choice.format.name} ({x.choice.format.title})", []).append(x)
            continue
        few = 0 < len(x.layers) <= _MAX_LISTED
        where = f"in layer{'s' if len(x.layers) > 1 else ''} {', '.join(map(str, x.layers))}: " if few else ""
        names = kept.setdefault(x.choice.reason, {}).setdefault(where, [])
        name = safe(x.name.rpartition("{l}.")[2].replace("experts.{e}.", "experts.*."), 80)
        names += [name] if name not in names else []
    quantized = "; ".join(f"{text}: {sum(x.copies for x in found):,} matrices" for text, found in formats.items())
    notes = [f"{recipe.method} recipe, {storage.bits:.3f} bits per weight; {quantized or 'no matrix is quantized'}"]
    if kept:
        parts = (f"{_listed(by_layers)} ({reason})" if reason else _listed(by_layers) for reason, by_layers in kept.items())
        notes.append(f"left in {storage.packer.unpacked_dtype}: {'; '.join(parts)}")
    if recipe.cache_scales is not None and not storage.num_cache_scales:
        notes.append("not counted: scales of the KV cache, whose names are not known for this family")
    if narrower := sum(_block_scales(x) for x in storage.matrices):
        notes.append(
            f"scales of blocks in F32, as transformers writes them; files that store them in BF16 have {2 * narrower:,} bytes less"
        )
    return [*notes, *recipe.notes]


def _block_scales(x: RecipeMatrix) -> int:
    """Return the number of scales of blocks in F32, which some files store in BF16."""
    parts = x.choice.format.tensors(x.out, x.into) if x.choice.format is not None else ()
    return x.copies * sum(prod(y.shape) for y in parts if y.suffix == ".weight_scale_inv" and y.dtype == "F32" and len(y.shape) == 2)


_MAX_LISTED = 4
"""The most layers, and sets of layers, that a note lists."""


def _listed(names_by_layers: Mapping[str, list[str]]) -> str:
    """Return the names of modules, those of few layers last."""
    sets = sorted(names_by_layers.items(), key=lambda item: bool(item[0]))
    texts = [where + ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") for where, names in sets]
    return ", ".join(texts[:_MAX_LISTED]) + (
        f" and others in {len(texts) - _MAX_LISTED} sets of layers" if len(texts) > _MAX_LISTED else ""
    )


class GGUFNaming(NamedTuple):
    """The tensor names and the architecture of a GGUF file, on which llama.cpp's choice of types depends."""

    names: Scheme
    arch: str


def weight_storage(
    tree: Decoder, packer: WeightFormat, gguf: GGUFNaming | None = None, imatrix: bool | None = None, names: Scheme | None = None
) -> WeightStorage:
    """Return every weight with its bytes.

    GGUF types need `gguf`, and `imatrix` selects an importance matrix (None: if needed); a recipe needs the `names` of tensors.
    """
    if packer.recipe is not None:
        return _recipe_storage(tree, packer, packer.recipe, names)
    if packer.gguf_file_type:
        if gguf is None:
            raise LlamathError("GGUF has no tensor names for this family, so the types that llama.cpp would choose are unknown")
        measured = packer.gguf_file_type in NEEDS_IMATRIX if imatrix is None else imatrix
        return WeightStorage(packer=packer, weights=tuple(_gguf_mix(tree, packer, gguf, measured)))
    packed = packed_patterns(tree, packer)
    stored = [_stored_weight(x, packer, x.pattern in packed) for x in fold(tree) if not x.weight.tied]
    return WeightStorage(packer=packer, weights=tuple(stored))


class StoredWeights(Record):
    """The weights of a checkpoint, by dtype; `notes` tell if files are missing or hold another model than the config describes."""

    lines: tuple[MemoryLine, ...]
    notes: tuple[str, ...] = ()


def stored_weights(listing: Listing, notes: Sequence[str] = ()) -> StoredWeights:
    """Return the weights of a checkpoint, by the dtypes that its headers declare."""
    dtypes = sorted(listing.weight_dtypes.items(), key=lambda item: -item[1].bytes)
    return StoredWeights(
        lines=tuple(
            MemoryLine(what=f"weights, {dtype}", bytes=x.bytes, formula=f"{x.tensors:,} tensors of {x.elements:,} elements in the headers")
            for dtype, x in dtypes
        ),
        notes=tuple(notes),
    )


def packed_patterns(tree: Decoder, packer: WeightFormat) -> frozenset[str]:
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


def _recipe_storage(tree: Decoder, packer: WeightFormat, recipe: Recipe, names: Scheme | None) -> WeightStorage:
    """Return the weights as a recipe stores them, which may differ from layer to layer and from expert to expert."""
    if names is None:
        raise LlamathError(f"the tensors of this family have no names, so the {recipe.method} recipe cannot be applied", hint="--dtype")
    classes = {f"{x.pattern}.weight": type(x.block) for x in fold_blocks(tree)}
    weights: list[_StoredWeight] = []
    matrices: list[RecipeMatrix] = []
    for name, child in tree.children:
        if not isinstance(child, Stack):
            chosen = [y for x in _recipe_matrices(fold_field(tree, name), names, classes) for y in _choose(x, recipe, (-1,))]
            weights += [y for x in chosen for y in x.weights(packer)]
            matrices += [y for x in chosen if (y := x.matrix) is not None]
    num_scales = scale_bytes = 0
    for block, layers in _layers_by_block(tree.layers, recipe):
        if recipe.cache_scales is not None and (found := cache_scale_modules(names, block, recipe.cache_scales)) is not None:
            num_scales += (n := len(found[0]) * len(layers))
            scale_bytes += n * DTYPES[recipe.cache_scales.dtype].size(prod(recipe.cache_scales.lengths(found[1])))
        leaves = [x._replace(pattern=f"layers.{{l}}.{x.pattern.replace('{l}', '{e}')}") for x in fold(block)]
        chosen = [y for x in _recipe_matrices(leaves, names, classes) for y in _choose(x, recipe, layers)]
        weights += [y for x in chosen for y in x.weights(packer)]
        matrices += [y for x in chosen if (y := x.matrix) is not None]
    scales = {"cache_scale_bytes": scale_bytes, "num_cache_scales": num_scales}
    return WeightStorage(packer=packer, weights=tuple(weights), matrices=tuple(matrices), **scales)


def cache_scale_modules(names: Scheme, layer: Block, scales: CacheScales) -> tuple[tuple[str, str], int] | None:
    """Return the names of the scales of keys and values, with `{l}`, and the number of KV heads; None if they are not known."""
    attn = getattr(layer, "attn", None)
    if not isinstance(attn, Attention) or attn.k is None or attn.v is None:
        return None
    try:
        k, v = (names.stored_name(f"layers.{{l}}.attn.{x}.weight").removesuffix(".weight") for x in "kv")
    except LlamathError:
        return None
    if k == v:
        return None
    if not scales.in_projections:
        k, v = (x.rpartition(".")[0] for x in (k, v))
    return (f"{k}.k_scale", f"{v}.v_scale"), int(attn.kv_heads)


class _RecipeTensor(NamedTuple):
    """The leaves of one stored tensor, concatenated, in a block; `kind` is empty if it is no matrix."""

    name: str
    leaves: tuple[Folded, ...]
    kind: str
    in_gate_class: bool = False


def unpacked_dtype(pattern: str, packer: WeightFormat) -> str:
    """Return the dtype of a weight that a recipe does not pack: a router's correction is in F32, as DeepSeek-V3's files have it."""
    return "F32" if packer.recipe is not None and pattern.endswith(".correction") else packer.unpacked_dtype


class _ChosenTensor(NamedTuple):
    """A tensor in the layers, and for the number of experts, for which a recipe makes the same choice."""

    tensor: _RecipeTensor
    choice: Choice
    layers: Sequence[int]
    experts: int  # 1 outside of experts

    @property
    def shape(self) -> tuple[int, int]:
        """The outputs of all leaves, and the inputs."""
        return sum(int(x.weight.shape[0]) for x in self.tensor.leaves), int(self.tensor.leaves[0].weight.shape[1])

    @property
    def copies(self) -> int:
        """The number of tensors."""
        return len(self.layers) * self.experts

    @property
    def matrix(self) -> RecipeMatrix | None:
        """The matrix, if it is one."""
        layers = () if self.layers == (-1,) else self.layers
        return RecipeMatrix(self.tensor.name, *self.shape, self.choice, layers, self.copies) if self.tensor.kind else None

    def weights(self, packer: WeightFormat) -> Iterator[_StoredWeight]:
        """Yield the leaves with their bytes; what the leaves of a tensor share counts for the first."""
        leaves, to = self.tensor.leaves, self.choice.format
        layers = () if self.layers == (-1,) else self.layers
        if to is None:
            for x in leaves:
                dtype = unpacked_dtype(x.pattern, packer)
                yield _StoredWeight(self._copied(x), dtype, DTYPES[dtype].size(int(x.weight.size)), layers, self.choice.reason)
            return
        out, into = self.shape
        rest = to.bytes(out, into)
        for x in reversed(leaves[1:]):
            size = to.bytes(out, into) * int(x.weight.shape[0]) // out
            rest -= size
            yield _StoredWeight(self._copied(x), to.name, size, layers)
        yield _StoredWeight(self._copied(leaves[0]), to.name, rest, layers)

    def _copied(self, x: Folded) -> Folded:
        return x._replace(copies=self.copies, active=len(self.layers) * (x.active * self.experts // (x.copies or 1)))


def _recipe_matrices(leaves: Iterable[Folded], names: Scheme, classes: Mapping[str, type[Block]]) -> Iterator[_RecipeTensor]:
    """Group leaves by the tensors that they are stored in."""
    groups: dict[str, list[Folded]] = {}
    for x in leaves:
        if not x.weight.tied:
            groups.setdefault(names.stored_name(x.pattern), []).append(x)
    in_gate_class = any(x.pattern.endswith(IN_GATE_CLASS) for parts in groups.values() for x in parts)
    for name, parts in groups.items():
        kind = matrix_kind(parts[0], classes)
        yield _RecipeTensor(name.removesuffix(".weight"), tuple(parts), kind, in_gate_class and kind == "router")


def matrix_kind(x: Folded, classes: Mapping[str, type[Block]]) -> str:
    """Return the kind of a matrix as recipes tell them apart; empty for any other weight."""
    if len(x.weight.shape) != 2 or x.weight.role not in ("matmul", "lookup"):
        return ""
    if x.weight.role == "lookup":
        return "embedding"
    if classes.get(x.pattern) is not Linear:
        return "other"
    if x.group == "router":
        return "router"
    if x.num_experts:
        return "expert"
    if x.pattern == "layers.{l}.join.weight":
        return "other"  # of a layer for multi-token prediction: published files have it unquantized
    return "head" if x.pattern in ("head.weight", "layers.{l}.head.weight") else "linear"


_MAX_MATCHES = 20_000_000
"""The most products of layers, experts that a recipe names, and patterns."""

IN_GATE_CLASS = (".correction", ".attn.kv_down.weight")
"""Weights of layers whose router is a class of its own in the original code, as in DeepSeek's, and not a linear layer."""


def _choose(x: _RecipeTensor, recipe: Recipe, layers: Sequence[int]) -> Iterator[_ChosenTensor]:
    """Yield a tensor once for each choice that a recipe makes for its copies."""
    first = x.leaves[0]
    experts = first.num_experts or 1
    if not x.kind:
        yield _ChosenTensor(x, Choice(None), layers, int(first.copies))
        return
    chosen: dict[tuple[MatrixFormat | None, str, int], list[int]] = {}
    for layer in layers if recipe.patterns else layers[:1]:
        for choice, n in _expert_choices(x, recipe, layer, experts):
            to = choice.format
            if to is not None and to.divides > 1 and int(first.weight.shape[1]) % to.divides:
                choice = Choice(None, f"its inputs are no multiple of {to.divides}")
            chosen.setdefault((choice.format, choice.reason, n), []).append(layer)
    for (to, reason, n), found in chosen.items():
        yield _ChosenTensor(x, Choice(to, reason), tuple(found) if recipe.patterns else layers, n)


def _expert_choices(x: _RecipeTensor, recipe: Recipe, layer: int, experts: int) -> list[tuple[Choice, int]]:
    """Return the choices for the experts of a layer, each with its number of experts."""
    name = x.name.replace("{l}", str(layer))
    if "{e}" not in name or not recipe.names_experts:
        names = tuple(y.replace("{e}", "0") for y in module_names(name))
        return [(recipe.choose(Matrix(names, x.kind, x.in_gate_class)), experts)]
    counts: dict[Choice, int] = {}
    names = module_names(name)
    for e in range(experts):
        choice = recipe.choose(Matrix(tuple(y.replace("{e}", str(e)) for y in names), x.kind, x.in_gate_class))
        counts[choice] = counts.get(choice, 0) + 1
    return list(counts.items())


def check_matches(layers: Stack, recipe: Recipe) -> None:
    """Raise if there are too many modules to match with the patterns of a recipe."""
    most = max((x.num_experts for block, _ in layers.distinct() for x in fold(block)), default=1) if recipe.names_experts else 1
    if recipe.patterns and int(layers.n) * max(most, 1) * max(recipe.num_searched, 1) > _MAX_MATCHES:
        experts = f" of {most:,} experts" if most > 1 else ""
        raise LlamathError(
            f"{int(layers.n):,} layers{experts} are too many to match with the {recipe.num_searched:,} patterns of the recipe",
            hint="--dtype sets the format of the weights",
        )


def _layers_by_block(layers: Stack, recipe: Recipe) -> Iterator[tuple[Block, Sequence[int]]]:
    """Yield each distinct layer with the indices of its copies."""
    check_matches(layers, recipe)
    if layers.n > _MAX_LAYERS:
        yield from ((block, range(int(n))) for block, n in layers.distinct())
        return
    by_block: dict[int, list[int]] = {}
    for i, x in enumerate(layers):
        by_block.setdefault(id(x), []).append(i)
    for block, _ in layers.distinct():
        yield block, tuple(by_block[id(block)])


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
    if tree.layers.n > _MAX_LAYERS:
        raise LlamathError(f"{int(tree.layers.n):,} layers are too many to choose a type for each")
    if (most := max(int(x.copies) for layer, _ in tree.layers.distinct() for x in fold(layer))) > _MAX_LAYERS:
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
