"""`recipe_storage`: the bytes of a model's weights as a quantization recipe stores them, which
chooses a format for each matrix.

The choice may differ from layer to layer and from expert to expert.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.naming.scheme import Scheme
from ...checkpoint.quantization.matrix_formats import MatrixFormat
from ...checkpoint.quantization.recipes import CacheScales, Choice, Matrix, Recipe, module_names
from ...checkpoint.quantization.weight_format import WeightFormat
from ...core.blocks import Attention, Decoder
from ...core.expr import Expr, as_number, total
from ...core.tree import Block, Folded, FoldedBlock, Stack, fold, fold_blocks, fold_field
from ...utils.errors import Argument, LlamathError, UnknownQuantization, safe
from .weight_bytes import MAX_LISTED_LAYERS, StoredWeight, WeightStorage


class RecipeMatrix(NamedTuple):
    """Matrices with one stored name that a recipe stores alike, or leaves as they are."""

    name: str  # of the module, with `{l}` and `{e}`
    out: int
    into: int
    choice: Choice
    layers: Sequence[int]  # those of its copies; empty outside the layers
    copies: int

    @property
    def bytes(self) -> int:
        """The bytes of all copies that a recipe quantizes."""
        return (
            self.choice.format.bytes(as_number(self.out), as_number(self.into)) * self.copies
            if self.choice.format is not None
            else 0
        )


def describe_recipe(storage: WeightStorage) -> list[str]:
    """Return notes on a recipe: its formats with their shares, and what it leaves unquantized
    and why; none without a recipe.
    """
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
        where = (
            f"in layer{'s' if len(x.layers) > 1 else ''} {', '.join(map(str, x.layers))}: "
            if few
            else ""
        )
        names = kept.setdefault(x.choice.reason, {}).setdefault(where, [])
        name = safe(x.name.rpartition("{l}.")[2].replace("experts.{e}.", "experts.*."), 80)
        names += [name] if name not in names else []
    quantized = "; ".join(
        f"{text}: {sum(x.copies for x in found):,} matrices" for text, found in formats.items()
    )
    notes = [
        f"{recipe.method} recipe, {storage.bits:.3f} bits per weight; "
        f"{quantized or 'no matrix is quantized'}"
    ]
    if kept:
        parts = (
            f"{_listed(by_layers)} ({reason})" if reason else _listed(by_layers)
            for reason, by_layers in kept.items()
        )
        notes.append(f"left in {storage.packer.unpacked_dtype}: {'; '.join(parts)}")
    if recipe.cache_scales is not None and not storage.num_cache_scales:
        notes.append(
            "not counted: scales of the KV cache, whose names are not known for this family"
        )
    if narrower := sum(_block_scales(x) for x in storage.matrices):
        notes.append(
            "scales of blocks in F32, as transformers writes them; files that store them in "
            f"BF16 are {2 * narrower:,} bytes smaller"
        )
    return [*notes, *recipe.notes]


def _block_scales(x: RecipeMatrix) -> int:
    """Return the number of scales of blocks in F32, which some files store in BF16."""
    parts = x.choice.format.tensors(int(x.out), int(x.into)) if x.choice.format is not None else ()
    return x.copies * sum(
        prod(y.shape)
        for y in parts
        if y.suffix == ".weight_scale_inv" and y.dtype == "F32" and len(y.shape) == 2
    )


_MAX_LISTED = 4
"""The most layers, and sets of layers, that a note lists."""


def _listed(names_by_layers: Mapping[str, list[str]]) -> str:
    """Return the names of modules, those of few layers last."""
    sets = sorted(names_by_layers.items(), key=lambda item: bool(item[0]))
    texts = [
        where + ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        for where, names in sets
    ]
    return ", ".join(texts[:_MAX_LISTED]) + (
        f" and others in {len(texts) - _MAX_LISTED} sets of layers"
        if len(texts) > _MAX_LISTED
        else ""
    )


def recipe_storage(
    tree: Decoder, packer: WeightFormat, recipe: Recipe, names: Scheme | None
) -> WeightStorage:
    """Return the weights as a recipe stores them."""
    if names is None:
        raise LlamathError(
            f"the tensors of this family have no names, so the {recipe.method} "
            "recipe cannot be applied",
            hint=f"{Argument('dtype')} sets the format of the weights",
        )
    classes = matrix_classes(fold_blocks(tree))
    weights: list[StoredWeight] = []
    matrices: list[RecipeMatrix] = []
    for leaves, layers in _outside_layers(tree, recipe):
        chosen = [
            y
            for x in _recipe_matrices(leaves, names, classes)
            for y in _choose(x, recipe, layers, len(layers))
        ]
        weights += [y for x in chosen for y in x.weights(packer)]
        matrices += [y for x in chosen if (y := x.matrix) is not None]
    num_scales = scale_bytes = 0
    numbers = {id(x): as_number(n) for x, n in tree.layers.distinct()}
    for block, layers in _layers_by_block(tree.layers, recipe):
        if (
            recipe.cache_scales is not None
            and (found := cache_scale_modules(names, block, recipe.cache_scales)) is not None
        ):
            num_scales += (n := len(found[0]) * len(layers))
            scale_bytes += n * DTYPES[recipe.cache_scales.dtype].size(
                prod(recipe.cache_scales.lengths(found[1]))
            )
        leaves = [
            x._replace(pattern=f"layers.{{l}}.{x.pattern.replace('{l}', '{e}')}")
            for x in fold(block)
        ]
        first_experts = {path: stack.first for path, stack in _stacks_inside(block, "layers.{l}")}
        chosen = [
            y
            for x in _recipe_matrices(leaves, names, classes, first_experts)
            for y in _choose(x, recipe, layers, numbers[id(block)])
        ]
        weights += [y for x in chosen for y in x.weights(packer)]
        matrices += [y for x in chosen if (y := x.matrix) is not None]
    used = {x.choice.format.name for x in matrices if x.choice.format is not None}
    if recipe.table and not used.intersection(recipe.table):
        raise UnknownQuantization(
            "quantization_config: quantized_layers names no matrix of this model; it has names "
            f"such as {safe(recipe.patterns[-1], 80)}",
            hint=f"{Argument('dtype')} sets the format of the weights",
        )
    scales = {"cache_scale_bytes": scale_bytes, "num_cache_scales": num_scales}
    return WeightStorage(packer=packer, weights=tuple(weights), matrices=tuple(matrices), **scales)


def _outside_layers(tree: Decoder, recipe: Recipe) -> Iterator[tuple[list[Folded], Sequence[int]]]:
    """Yield the leaves outside the text model's layers, those in other stacks with their numbers
    in them; −1: in no stack.
    """
    for name, child in tree.children:
        if isinstance(child, Stack) and name != "layers":
            for block, numbers in _layers_by_block(child, recipe):
                yield (
                    [x._replace(pattern=f"{name}.{{l}}.{x.pattern}") for x in fold(block, 1)],
                    numbers,
                )
        elif not isinstance(child, Stack):
            yield [x for x in fold_field(tree, name) if "{l}" not in x.pattern], (-1,)
        for path, stack in _stacks_inside(child, name) if isinstance(child, Block) else ():
            for block, layers in _layers_by_block(stack, recipe):
                yield (
                    [x._replace(pattern=f"{path}.{{l}}.{x.pattern}") for x in fold(block, 1)],
                    layers,
                )


def _stacks_inside(block: Block, path: str) -> Iterator[tuple[str, Stack]]:
    """Yield the stacks in a block and in its parts, such as a tower's encoder, with their paths."""
    for field, child in block.children:
        if isinstance(child, Stack):
            yield f"{path}.{field}", child
        elif isinstance(child, Block):
            yield from _stacks_inside(child, f"{path}.{field}")


def cache_scale_modules(
    names: Scheme, layer: Block, scales: CacheScales
) -> tuple[tuple[str, str], int] | None:
    """Return the names of the scales of keys and values, with `{l}`, and the number of KV heads;
    None if they are not known.
    """
    attn = getattr(layer, "attn", None)
    if not isinstance(attn, Attention) or attn.k is None or attn.v is None:
        return None
    try:
        k, v = (
            names.stored_name(f"layers.{{l}}.attn.{x}.weight").removesuffix(".weight") for x in "kv"
        )
    except LlamathError:
        return None
    if k == v:
        return None
    if not scales.in_projections:
        k, v = (x.rpartition(".")[0] for x in (k, v))
    return (f"{k}.k_scale", f"{v}.v_scale"), int(attn.kv_heads)


class _RecipeTensor(NamedTuple):
    """The leaves of a stored tensor in a block, in order; `kind` is empty if it is no matrix."""

    name: str
    leaves: tuple[Folded, ...]
    kind: str
    in_gate_class: bool = False
    is_excepted: bool = False
    first_layer: int = 0  # its number in names
    first_expert: int = 0


class MatrixClasses(NamedTuple):
    """The classes of the blocks that own the weights of a tree, by pattern, and the weights that
    their classes except from quantization.
    """

    owners: Mapping[str, type[Block]]
    excepted: frozenset[str]

    def kind(self, x: Folded) -> str:
        """Return the kind of a matrix as recipes tell them apart; empty for any other weight."""
        if len(x.weight.shape) != 2 or x.weight.role not in ("matmul", "lookup"):
            return ""
        if x.weight.role == "lookup":
            return "embedding"
        if (owner := self.owners.get(x.pattern)) is None or not owner.is_linear_layer:
            return "other"
        if x.group == "router":
            return "router"
        if x.num_experts:
            return "expert"
        if x.pattern == "layers.{l}.join.weight":
            # of a layer for multi-token prediction: published files have it unquantized
            return "other"
        return "head" if x.pattern in ("head.weight", "layers.{l}.head.weight") else "linear"


def matrix_classes(blocks: Iterable[FoldedBlock]) -> MatrixClasses:
    """Return the classes that own the weights of these blocks."""
    blocks = tuple(blocks)
    excepted = frozenset(
        f"{x.pattern}.{name}.weight" for x in blocks for name in x.block.unquantized
    )
    return MatrixClasses({f"{x.pattern}.weight": type(x.block) for x in blocks}, excepted)


def unpacked_dtype(x: Folded, packer: WeightFormat) -> str:
    """Return the dtype of a weight that a recipe does not pack: a router's correction is in F32,
    as DeepSeek-V3's files have it.
    """
    own = "F32" if x.pattern.endswith(".correction") else x.weight.dtype
    return own if own and packer.recipe is not None else packer.unpacked_dtype


class _ChosenTensor(NamedTuple):
    """A tensor in the layers, of one or more experts, for which a recipe makes one choice."""

    tensor: _RecipeTensor
    choice: Choice
    layers: Sequence[int]
    times: int  # their number
    experts: int  # 1 outside of experts

    @property
    def shape(self) -> tuple[int, int]:
        """The outputs of all leaves, and the inputs."""
        return sum(int(x.weight.shape[0]) for x in self.tensor.leaves), int(
            self.tensor.leaves[0].weight.shape[1]
        )

    @property
    def copies(self) -> int:
        """The number of tensors."""
        return self.times * self.experts

    @property
    def matrix(self) -> RecipeMatrix | None:
        """The matrix, if it is one."""
        if not self.tensor.kind:
            return None
        layers, leaves = () if self.layers == (-1,) else self.layers, self.tensor.leaves
        out, into = total(x.weight.shape[0] for x in leaves), Expr.const(leaves[0].weight.shape[1])
        return RecipeMatrix(self.tensor.name, out, into, self.choice, layers, self.copies)

    def weights(self, packer: WeightFormat) -> Iterator[StoredWeight]:
        """Yield the leaves with their bytes; what they share counts for the first."""
        leaves, to = self.tensor.leaves, self.choice.format
        layers = () if self.layers == (-1,) else self.layers
        if to is None:
            dtype = unpacked_dtype(leaves[0], packer)
            for x in leaves:
                yield StoredWeight(
                    self._copied(x),
                    dtype,
                    DTYPES[dtype].size(as_number(x.weight.size)),
                    layers,
                    self.choice.reason,
                )
            return
        out, into = self.shape
        rest = to.bytes(out, into)
        for x in reversed(leaves[1:]):
            size = to.bytes(out, into) * as_number(x.weight.shape[0]) // out
            rest -= size
            yield StoredWeight(self._copied(x), to.name, size, layers)
        yield StoredWeight(self._copied(leaves[0]), to.name, rest, layers)

    def _copied(self, x: Folded) -> Folded:
        return x._replace(
            copies=self.copies,
            active=self.times * (x.active * self.experts // (x.copies or 1)),
        )


def _recipe_matrices(
    leaves: Iterable[Folded],
    names: Scheme,
    classes: MatrixClasses,
    first_experts: Mapping[str, int] | None = None,
) -> Iterator[_RecipeTensor]:
    """Group leaves by the tensors that they are stored in."""
    groups: dict[tuple[str, str, int], list[Folded]] = {}
    # of weights with one pattern, as the shards of a table whose last one is shorter
    kinds: dict[str, int] = {}
    for x in leaves:
        if not x.weight.tied:
            kinds[x.pattern] = number = kinds.get(x.pattern, -1) + 1
            name = names.stored_name(x.pattern)
            # one stack may go on with the numbers of another
            experts = x.pattern.partition(".{e}")[0] if "{e}" in name else ""
            groups.setdefault((name, experts, number), []).append(x)
    in_gate_class = any(
        x.pattern.endswith(IN_GATE_CLASS) for parts in groups.values() for x in parts
    )
    for (name, experts, _), parts in groups.items():
        kind, is_excepted = classes.kind(parts[0]), parts[0].pattern in classes.excepted
        yield _RecipeTensor(
            name.removesuffix(".weight"),
            tuple(parts),
            kind,
            in_gate_class and kind == "router",
            is_excepted,
            names.first_layer,
            (first_experts or {}).get(experts, 0),
        )


IN_GATE_CLASS = (".correction", ".attn.kv_down.weight")
"""Weights of layers whose router is a class of its own in the original code, as in DeepSeek's,
and not a linear layer."""


def _choose(
    x: _RecipeTensor, recipe: Recipe, layers: Sequence[int], times: int
) -> Iterator[_ChosenTensor]:
    """Yield a tensor once for each choice that a recipe makes for its copies, in so many layers."""
    first = x.leaves[0]
    # or the number of other blocks, as of adapters or of layers of a tower
    experts = as_number(first.copies)
    if not x.kind:
        yield _ChosenTensor(x, Choice(None), layers, times, experts)
        return
    chosen: dict[tuple[MatrixFormat | None, str, int], list[int]] = {}
    for layer in layers if recipe.patterns else layers[:1]:
        for choice, n in _expert_choices(x, recipe, layer, experts):
            to = choice.format
            if to is not None and to.divides > 1 and int(first.weight.shape[1]) % to.divides:
                choice = Choice(None, f"its inputs are no multiple of {to.divides}")
            chosen.setdefault((choice.format, choice.reason, n), []).append(layer)
    for (to, reason, n), found in chosen.items():
        of, number = (
            (layers, times)
            if not recipe.patterns or len(found) == len(layers)
            else (tuple(found), len(found))
        )
        yield _ChosenTensor(x, Choice(to, reason), of, number, n)


def _expert_choices(
    x: _RecipeTensor, recipe: Recipe, layer: int, experts: int
) -> list[tuple[Choice, int]]:
    """Return the choices for the experts of a layer, each with its number of experts."""
    name = x.name.replace("{l}", str(layer + x.first_layer))
    if "{e}" not in name or not recipe.names_experts:
        names = tuple(y.replace("{e}", "0") for y in module_names(name))
        return [(recipe.choose(Matrix(names, x.kind, x.in_gate_class, x.is_excepted)), experts)]
    counts: dict[Choice, int] = {}
    names = module_names(name)
    for e in range(x.first_expert, x.first_expert + experts):
        choice = recipe.choose(
            Matrix(tuple(y.replace("{e}", str(e)) for y in names), x.kind, x.in_gate_class)
        )
        counts[choice] = counts.get(choice, 0) + 1
    return list(counts.items())


def check_matches(layers: Stack, recipe: Recipe) -> None:
    """Raise if there are too many modules whose names are matched with the patterns of a recipe,
    each for itself.
    """
    most = (
        max((x.num_experts for block, _ in layers.distinct() for x in fold(block)), default=1)
        if recipe.names_experts
        else 1
    )
    if recipe.patterns and int(layers.n) * max(most, 1) > MAX_LISTED_LAYERS:
        experts = f" of {most:,} experts" if most > 1 else ""
        raise LlamathError(
            f"{int(layers.n):,} layers{experts} are too many to match with the "
            f"{len(recipe.patterns):,} patterns of the recipe",
            hint=f"{Argument('dtype')} sets the format of the weights",
        )


def _layers_by_block(layers: Stack, recipe: Recipe) -> Iterator[tuple[Block, Sequence[int]]]:
    """Yield each distinct layer with the indices of its copies."""
    check_matches(layers, recipe)
    if layers.n > MAX_LISTED_LAYERS:
        yield from ((block, range(int(n))) for block, n in layers.distinct())
        return
    by_block: dict[int, list[int]] = {}
    for i, x in enumerate(layers):
        by_block.setdefault(id(x), []).append(i)
    for block, _ in layers.distinct():
        yield block, tuple(by_block[id(block)])
