"""`quantized_tensors`: the names, dtypes and shapes of the tensors that a checkpoint has in a
weight format or a recipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ...checkpoint.naming.scheme import Scheme, StoredTensor
from ...checkpoint.quantization.gguf_file_types import NEEDS_IMATRIX, assign_types
from ...checkpoint.quantization.packed_tensors import Packing
from ...checkpoint.quantization.recipes import Choice, Matrix, module_names
from ...core.multimodal import CountedBlock
from ...core.tree import Block, Folded, Stack, fold, fold_blocks, fold_field
from .choose_storage import gguf_naming, packed_patterns
from .gguf_mixture import gguf_tensors, gguf_traits
from .listed_weights import check_listable, mtp_weights
from .recipe_storage import (
    IN_GATE_CLASS,
    cache_scale_modules,
    check_matches,
    matrix_classes,
    unpacked_dtype,
)

if TYPE_CHECKING:
    from ...checkpoint.quantization.matrix_formats import MatrixFormat, StoredMatrixTensor
    from ...checkpoint.quantization.weight_format import WeightFormat
    from ...model import FamilyModel

_EXPERT = re.compile(r"\.experts\.\d+\.")


class QuantizedTensor(NamedTuple):
    """A tensor of a checkpoint, and why it is stored so."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    module: str = ""  # of the matrix that it is stored for
    format: str = ""  # of that matrix; empty if it is not packed
    reason: str = ""  # why a recipe leaves it unquantized
    role: str = ""  # of a packed matrix's tensor: values, scale, zero, index or meta
    parameters: int = 0  # that its values stand for; none for scales

    @property
    def bytes(self) -> int:
        """The bytes of the tensor."""
        return DTYPES[self.dtype].size(prod(self.shape))


def quantized_tensors(model: FamilyModel, packer: WeightFormat) -> Iterator[QuantizedTensor]:
    """Yield the tensors of a checkpoint in tree order; those of a GGUF file have the types that
    llama.cpp chooses.
    """
    check_listable(model.tree)
    if packer.gguf_file_type:
        yield from _gguf_tensors(model, packer)
        return
    scheme, tree = model.scheme("hf"), model.tree
    if packer.recipe is not None:
        check_matches(tree.layers, packer.recipe)
    choose = _Chooser(model, packer)
    stack = "" if packer.recipe is None else packer.recipe.expert_stack
    for field, child in tree.children:
        if not isinstance(child, Stack):
            found = choose.matrices(scheme.tensors_of_field(tree, field), fold_field(tree, field))
            yield from choose.all(found, 0)
            continue
        inside = {
            id(x): choose.matrices(scheme.tensors_of_block(field, x), _folded_layer(x, field))
            for x, _ in child.distinct()
        }
        for i, x in enumerate(child):
            tensors = choose.all(inside[id(x)], i)
            yield from _with_stacks(tensors, stack) if stack else tensors
            yield from choose.cache_scales(scheme, x, i)


def manifest_of_tensors(quantized: Iterable[QuantizedTensor], is_gguf: bool = False) -> Manifest:
    """Return the header of a checkpoint with these tensors, as one file without its JSON."""
    tensors, at = [], 0
    for x in quantized:
        tensors.append(Tensor(x.name, x.dtype, x.shape, 0, at, at + x.bytes))
        at += x.bytes
    kind, name = ("gguf", "model.gguf") if is_gguf else ("safetensors", "model.safetensors")
    return Manifest(format=kind, files=(CheckpointFile(name, at),), tensors=tuple(tensors))


def mtp_quantized_tensors(
    model: FamilyModel, packer: WeightFormat, with_copies: bool = True
) -> Iterator[QuantizedTensor]:
    """Yield the tensors of the layers for multi-token prediction, which the other numbers do not
    include.

    With `with_copies`, they contain the copies of the embedding and the head that some files have.
    """
    tree = model.tree
    with_copies = with_copies and model.repeats_embedding_in_mtp
    if packer.gguf_file_type:
        yield from _gguf_tensors(model, packer, mtp=True, with_copies=with_copies)
        return
    if tree.mtp is None:
        return
    choose = _Chooser(model, packer)
    for block, (i, tensors) in zip(
        tree.mtp, model.scheme("hf").mtp_tensors_by_layer(tree), strict=True
    ):
        folded = _folded_layer(block)
        copies = {x.pattern for x in folded if x.weight.tied}
        own = (x for x in tensors if with_copies or x.parts[0].pattern not in copies)
        yield from choose.all(choose.matrices(own, folded), i)


_MAX_MTP_TENSORS = 100_000
"""Layers for multi-token prediction with more weights are not sized one by one."""


def mtp_bytes(model: FamilyModel, packer: WeightFormat, with_copies: bool = True) -> int | None:
    """Return the bytes of the layers for multi-token prediction, as `mtp_quantized_tensors`;
    None if they have too many weights.
    """
    tree = model.tree
    if tree.mtp is None or mtp_weights(tree) > _MAX_MTP_TENSORS:
        return None
    kinds = tree.mtp.distinct()
    experts = {x.num_experts for layer, _ in kinds for x in fold(layer) if x.num_experts}
    if len(kinds) == len(experts) == 1 and not (
        packer.gguf_file_type or (packer.recipe is not None and packer.recipe.names_experts)
    ):
        ((layer, n),) = kinds
        alike = model.replace(tree=tree.replace(mtp=Stack(((_with_one_expert(layer),), n))))
        return sum(
            x.bytes * (min(experts) if ".experts." in x.name else 1)
            for x in mtp_quantized_tensors(alike, packer, with_copies)
        )
    return sum(x.bytes for x in mtp_quantized_tensors(model, packer, with_copies))


def _with_one_expert(block: Block) -> Block:
    """Return a block with one of each of its experts, which are stored alike."""
    changes: dict[str, Block | Stack] = {}
    for name, child in block.children:
        if isinstance(child, Block):
            changes[name] = _with_one_expert(child)
        elif isinstance(child, Stack) and name in block.expert_parallel:
            changes[name] = Stack(((child[0],), 1))
    return (
        block.replace(parts={**block.parts, **changes})
        if isinstance(block, CountedBlock)
        else block.replace(**changes)
    )


def packings_of_tensors(tensors: Iterable[QuantizedTensor]) -> dict[str, Packing]:
    """Return the role of each packed tensor, by name."""
    return {
        x.name: Packing(
            x.format, f"{x.module}.weight", x.role, None, x.parameters if x.role == "values" else 0
        )
        for x in tensors
        if x.format
    }


_ROLES = (
    ("zero|biases", "zero"),
    ("g_idx", "index"),
    ("scale|absmax|SCB|quant_map|\\.s$", "scale"),
)


def _role(suffix: str) -> str:
    """Return the role of a tensor that is stored beside a matrix's values."""
    return next((role for pattern, role in _ROLES if re.search(pattern, suffix)), "meta")


def _folded_layer(block: Block, stack: str = "layers") -> list[Folded]:
    return [
        x._replace(pattern=f"{stack}.{{l}}.{x.pattern.replace('{l}', '{e}')}") for x in fold(block)
    ]


class _FileTensor(NamedTuple):
    """A tensor of a file in 16 bits, for which a quantized checkpoint has others; of all layers of
    one kind.
    """

    name: str  # with `{l}` in a layer
    shape: tuple[int, ...]
    dtype: str  # if it is not packed
    parameters: int
    kind: str  # of matrix
    pattern: str
    in_gate_class: bool
    is_excepted: bool
    experts: tuple[int, ...]  # how many are stacked: one number, or none
    sides: tuple[int, int] | None  # outputs and inputs of a matrix


class _Chooser:
    """The choice of a weight format for each stored tensor."""

    def __init__(self, model: FamilyModel, packer: WeightFormat) -> None:
        self._packer, self._names = packer, model.scheme("hf")
        mtp = (
            ()
            if model.tree.mtp is None
            else (y for layer, _ in model.tree.mtp.distinct() for y in fold_blocks(layer))
        )
        inside = (
            x._replace(pattern=f"layers.{{l}}.{x.pattern.replace('{l}', '{e}')}") for x in mtp
        )
        self._classes = matrix_classes((*fold_blocks(model.tree), *inside))
        self._packed = packed_patterns(model.tree, packer)
        self._sizes: dict[
            tuple[int, tuple[int, int]], tuple[MatrixFormat, tuple[StoredMatrixTensor, ...]]
        ] = {}

    def matrices(
        self, tensors: Iterable[StoredTensor], folded: Iterable[Folded]
    ) -> list[_FileTensor]:
        """Return what all layers of one kind have in common, or a field."""
        leaves = {x.pattern: x for x in folded}
        in_gate_class = any(x.endswith(IN_GATE_CLASS) for x in leaves)
        found = []
        for x in tensors:
            first = leaves[x.parts[0].pattern]
            kind = self._classes.kind(first)
            experts = len({part.indices for part in x.parts})
            found.append(
                _FileTensor(
                    name=x.name,
                    shape=tuple(map(int, x.shape)),
                    dtype=unpacked_dtype(first, self._packer),
                    parameters=sum(int(part.weight.parameters) for part in x.parts),
                    kind=kind,
                    pattern=first.pattern,
                    in_gate_class=in_gate_class and kind == "router",
                    is_excepted=first.pattern in self._classes.excepted,
                    experts=(experts,) if x.parts[0].indices and experts > 1 else (),
                    sides=_sides(x),
                )
            )
        return found

    def all(self, tensors: Iterable[_FileTensor], layer: int) -> Iterator[QuantizedTensor]:
        """Yield what is stored for the tensors of a field or a layer."""
        for x in tensors:
            stem, ending = _split_weight(x.name)
            module = self._names.in_layer(stem, layer)
            choice = self._choose(x, module)
            if choice.format is None:
                name = f"{module}{ending}"
                yield QuantizedTensor(
                    name, x.dtype, x.shape, module, "", choice.reason, "", x.parameters
                )
            else:
                yield from self._stored(x, module, choice.format, is_stack=not ending)

    def _choose(self, x: _FileTensor, module: str) -> Choice:
        recipe = self._packer.recipe
        if recipe is None:
            return Choice(self._packer.matrix if x.pattern in self._packed else None)
        if not x.kind:
            return Choice(None)
        matrix = Matrix(module_names(module), x.kind, x.in_gate_class, x.is_excepted)
        choice = recipe.choose(matrix)
        assert x.sides is not None
        if choice.format is not None and x.sides[1] % choice.format.divides:
            return Choice(None, f"its inputs are no multiple of {choice.format.divides}")
        return choice

    def _stored(
        self, x: _FileTensor, module: str, stored_as: MatrixFormat, *, is_stack: bool
    ) -> Iterator[QuantizedTensor]:
        assert x.sides is not None
        key = id(stored_as), x.sides
        if key not in self._sizes:  # with the format, whose id is its own while it is kept
            self._sizes[key] = stored_as, stored_as.tensors(*x.sides)
        for i, y in enumerate(self._sizes[key][1]):
            yield QuantizedTensor(
                _name_in_stack(module, y.suffix) if is_stack else f"{module}{y.suffix}",
                y.dtype,
                (*x.experts, *y.shape),
                module,
                stored_as.name,
                "",
                _role(y.suffix) if i else "values",
                0 if i else x.parameters,
            )

    def cache_scales(self, scheme: Scheme, layer: Block, number: int) -> Iterator[QuantizedTensor]:
        """Yield the scales of a layer's KV cache, if the recipe has them."""
        recipe = self._packer.recipe
        scales = None if recipe is None else recipe.cache_scales
        if scales is None or (found := cache_scale_modules(scheme, layer, scales)) is None:
            return
        names, heads = found
        for name in names:
            yield QuantizedTensor(
                self._names.in_layer(name, number),
                scales.dtype,
                scales.lengths(heads),
                format="cache",
                role="scale",
            )


def _sides(x: StoredTensor) -> tuple[int, int] | None:
    """Return the outputs and inputs of a matrix, or of one of the experts in a stack."""
    first = x.parts[0]
    if len(first.weight.shape) < 2:
        return None
    rows = (part.weight.shape[0] for part in x.parts if part.indices == first.indices)
    return sum(map(int, rows)), int(first.weight.shape[1])


def _split_weight(name: str) -> tuple[str, str]:
    """Return the name of a tensor's module, and `.weight` if the tensor is called so."""
    module = name.removesuffix(".weight")
    return module, name[len(module) :]


def _name_in_stack(name: str, suffix: str) -> str:
    """Return the name of a tensor that is stored for a stack of experts, which is no module:
    `experts.down_proj_scale`.
    """
    return (
        f"{name}{suffix.removeprefix('.weight')}"
        if suffix.startswith(".weight")
        else f"{name}{suffix.replace('.', '_')}"
    )


def _with_stacks(tensors: Iterable[QuantizedTensor], to: str) -> Iterator[QuantizedTensor]:
    """Yield the tensors of a layer, those of experts stacked along a new first axis under another
    name: `switch_mlp.up_proj.weight`.
    """
    stacks: dict[str, list[QuantizedTensor]] = {}
    for x in tensors:
        if _EXPERT.search(x.name):
            stacks.setdefault(_EXPERT.sub(to, x.name), []).append(x)
        else:
            yield x
    for name, parts in stacks.items():
        yield parts[0]._replace(
            name=name,
            shape=(len(parts), *parts[0].shape),
            module=_EXPERT.sub(to, parts[0].module),
            parameters=sum(x.parameters for x in parts),
        )


def _gguf_tensors(
    model: FamilyModel, packer: WeightFormat, *, mtp: bool = False, with_copies: bool = True
) -> Iterator[QuantizedTensor]:
    """Yield the tensors of the main model, or with `mtp` those of multi-token prediction."""
    model.scheme("gguf")  # raises the error of a family without GGUF names
    gguf = gguf_naming(model)
    assert gguf is not None
    gguf = gguf._replace(mtp_copies=gguf.mtp_copies and with_copies)
    tree = model.text.tree  # towers are in a file of their own
    parts = gguf_tensors(tree, gguf)
    parameters = {
        x.tensor: sum(int(leaf.weight.parameters) * int(leaf.copies) for leaf in x.leaves)
        for x in parts
    }
    measured = packer.gguf_file_type in NEEDS_IMATRIX
    for tensor, dtype in assign_types(
        packer.gguf_file_type,
        (x.tensor for x in parts),
        gguf_traits(tree, gguf),
        measured,
        packer.is_pure,
    ):
        if (tensor.layer >= tree.layers.n) != mtp:
            continue
        packed = dtype.lower() if DTYPES[dtype].block > 1 else ""
        yield QuantizedTensor(
            tensor.name,
            dtype,
            tensor.shape,
            tensor.name,
            packed,
            "",
            "values" if packed else "",
            prod(tensor.shape) if mtp else parameters[tensor],
        )
