"""`weight_storage`: the bytes of a model's weights in a dtype or a quantization scheme, weight by
weight.

A recipe chooses the format of each matrix by the name of its module. A format for all packs the
matrices of the layers' linear layers; embedding, head, norms, biases, routers and convolutions are
not packed. A GGUF file type gives each tensor the type that llama.cpp chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checkpoint.formats.dtypes import DTYPES
from ...checkpoint.naming.scheme import Scheme
from ...checkpoint.quantization.weight_format import (
    PLAIN_FORMATS,
    WeightFormat,
    declared_weight_format,
)
from ...core.blocks import Decoder, Linear
from ...core.expr import as_number
from ...core.tree import TOWER_GROUPS, Folded, fold, fold_blocks
from ...loading import load_family
from ...model import FamilyModel
from ...utils.errors import LlamathError, UnknownQuantization
from ...utils.number_marks import is_marking
from .weight_bytes import GGUFNaming, StoredWeight, WeightStorage


def find_format(name: str) -> WeightFormat:
    """Return the format of weights with a name; the table of schemes is imported only for a name
    that is no plain dtype.
    """
    if name in PLAIN_FORMATS:
        return PLAIN_FORMATS[name]
    from ...checkpoint.quantization.format_names import parse_weight_format

    return parse_weight_format(name)


def model_format(model: FamilyModel, name: str = "") -> WeightFormat:
    """Return the format of a model's weights with a name, by default the one that its config
    declares; the name of that one stands for it, to the last scale.
    """
    try:
        own = model.weight_format
    except UnknownQuantization:
        if not name:
            raise
        return find_format(name)
    if name in ("", own.name):
        return own
    published = published_recipe(model, name)
    if published is None:
        return find_format(name)
    config = {"torch_dtype": own.unpacked_dtype, **published}
    return declared_weight_format(config).replace(name=name)


def published_recipe(model: FamilyModel, dtype: str) -> Mapping[str, Any] | None:
    """Return what the publisher of a preset, whose keys are not changed, quantized to a dtype:
    the id, the source, and the recipe; None if none is known.
    """
    preset = model.preset
    if preset is None or dtype not in preset.quantized:
        return None
    return preset.quantized[dtype] if is_unchanged(model) else None


def released_format(model: FamilyModel) -> WeightFormat | None:
    """Return the format that a model's config declares; None for an unknown quantization."""
    try:
        return model.weight_format
    except UnknownQuantization:
        return None


def released_float(model: FamilyModel) -> str:
    """Return the plain dtype that a model's config declares; empty if it is quantized."""
    own = released_format(model)
    return "" if own is None or own.is_packed else own.name


def is_unchanged(model: FamilyModel) -> bool:
    """Return whether a model has the keys of its preset, those of the text model in a section or
    beside the others.
    """
    published = {} if model.preset is None else model.preset.config
    if model.outer is None:
        sections = (x for x in published.values() if isinstance(x, Mapping))
        if model.config.data in (published, *sections):
            return True
        # the text of a multimodal preset has keys of its wrapper, too
        return bool(model.wrapper) and load_family(published).text.config.data == model.config.data
    whole = dict(model.outer.data)
    if whole == published:
        return True
    whole.update(whole.pop("text_config", {}))
    return all(
        key in whole and whole[key] == value
        for key, value in published.items()
        if key != "model_type"
    )


def gguf_naming(model: FamilyModel) -> GGUFNaming | None:
    """Return what the types in a model's GGUF files depend on; None if it has no GGUF names."""
    names = model.family.gguf
    if names is None:
        return None
    released = released_expert_type(model.config.data)
    return GGUFNaming(names, model.family.gguf_arch, released, model.repeats_embedding_in_mtp)


def released_expert_type(config: Mapping[str, Any]) -> str:
    """Return the block type of GGUF files in which a model's experts were released. llama.cpp's
    converter copies such blocks, and its quantizer does not quantize blocks again.
    """
    try:
        recipe = declared_weight_format(config).recipe
    except LlamathError:  # an unknown recipe
        return ""
    return "MXFP4" if recipe is not None and recipe.method == "mxfp4" else ""


_MAX_KEPT = 64
"""The formats in which a tree keeps its weights."""


def weight_storage(
    tree: Decoder,
    packer: WeightFormat,
    gguf: GGUFNaming | None = None,
    imatrix: bool | None = None,
    names: Scheme | None = None,
) -> WeightStorage:
    """Return every weight with its bytes.

    GGUF types need `gguf`, and `imatrix` selects an importance matrix (None: if needed); a recipe
    needs the `names` of tensors. Trees never change, so each keeps what was found.
    """
    kept: dict[Any, tuple[Any, WeightStorage]] = vars(tree).setdefault("_storage", {})
    naming = None if gguf is None else (id(gguf.names), *gguf[1:])
    # of names that it keeps; where numbers are marked, bytes have their expressions
    key = (packer, naming, imatrix, id(names), is_marking())
    if key not in kept:
        if len(kept) == _MAX_KEPT:  # a word may name a format with groups of any size
            kept.clear()
        kept[key] = (gguf, names), _find_storage(tree, packer, gguf, imatrix, names)
    return kept[key][1]


def _find_storage(
    tree: Decoder,
    packer: WeightFormat,
    gguf: GGUFNaming | None,
    imatrix: bool | None,
    names: Scheme | None,
) -> WeightStorage:
    if packer.recipe is not None:
        from .recipe_storage import recipe_storage

        return recipe_storage(tree, packer, packer.recipe, names)
    if packer.gguf_file_type:
        if gguf is None:
            raise LlamathError(
                "no tensor names for this family in GGUF files are known here, so the types that "
                "llama.cpp would choose are unknown"
            )
        from ...checkpoint.quantization.gguf_file_types import NEEDS_IMATRIX
        from .gguf_mixture import gguf_mixture

        measured = packer.gguf_file_type in NEEDS_IMATRIX if imatrix is None else imatrix
        weights = list(gguf_mixture(tree.text, packer, gguf, measured))
        return WeightStorage(
            packer=packer,
            weights=(*weights, *(mmproj_weight(x) for x in fold(tree) if x.group in TOWER_GROUPS)),
        )
    packed = packed_patterns(tree, packer)
    stored = [
        _stored_weight(x, packer, x.pattern in packed) for x in fold(tree) if not x.weight.tied
    ]
    return WeightStorage(packer=packer, weights=tuple(stored))


def packed_patterns(tree: Decoder, packer: WeightFormat) -> frozenset[str]:
    """Return the patterns of the weights that a scheme packs."""
    if packer.matrix_bytes is None:
        return frozenset()
    linear = {f"{x.pattern}.weight" for x in fold_blocks(tree) if isinstance(x.block, Linear)}
    inside = [
        x
        for x in fold(tree)
        if x.pattern.startswith("layers.") and x.pattern in linear and x.group != "router"
    ]
    experts = {x.pattern for x in inside if x.num_experts}
    return frozenset(
        experts
        if packer.experts_only and experts
        else (x.pattern for x in inside if x.weight.shape[0] > 1)
    )


def mmproj_weight(leaf: Folded) -> StoredWeight:
    """Return a weight of a tower as llama.cpp's conversion writes it to a file of its own:
    matrices in F16, vectors in F32.
    """
    dtype = "F16" if len(leaf.weight.shape) > 1 else "F32"
    return StoredWeight(leaf, dtype, DTYPES[dtype].size(as_number(leaf.weight.size)))


def _stored_weight(leaf: Folded, packer: WeightFormat, packed: bool) -> StoredWeight:
    if packed and packer.matrix_bytes is not None:
        out, into = leaf.weight.shape
        return StoredWeight(
            leaf, packer.packing, packer.matrix_bytes(as_number(out), as_number(into))
        )
    return StoredWeight(
        leaf, packer.unpacked_dtype, DTYPES[packer.unpacked_dtype].size(as_number(leaf.weight.size))
    )
