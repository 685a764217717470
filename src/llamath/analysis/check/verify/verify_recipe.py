"""`recipe_findings`: compare what a checkpoint stores packed with what its quantization recipe
declares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ....checkpoint.formats.dtypes import PLAIN_FLOATS
from ....checkpoint.open import packings_of
from ....checkpoint.quantization.weight_format import declared_weight_format
from ....utils.errors import LlamathError, UnknownQuantization, safe
from ....utils.number_format import format_count
from ...storage.choose_storage import weight_storage
from .verify_tensors import Finding, summarize_names

if TYPE_CHECKING:
    from ....checkpoint.formats.manifest import Manifest
    from ....checkpoint.open import OpenedCheckpoint
    from ....checkpoint.quantization.recipes import Choice
    from ....model import FamilyModel

_EXPERT_NUMBER = re.compile(r"\.experts\.\d+\.")


def recipe_findings(model: FamilyModel, checkpoint: OpenedCheckpoint) -> Iterator[Finding]:
    """Yield the findings about matrices that are packed against the recipe, or not packed though
    it says so, and about missing scales.
    """
    manifest = checkpoint.manifest
    if manifest.format == "gguf":
        return
    yield from _missing_scales(manifest, checkpoint)
    kinds = {
        x.weight: x.kind
        for x in packings_of(manifest, checkpoint.packing_config).values()
        if x.role == "values"
    }
    try:
        packer = declared_weight_format(model.config.data)
        if packer.recipe is None:
            yield from _undeclared(kinds)
            return
        choices = _choices(model)
    except UnknownQuantization as error:
        yield Finding(
            code="recipe", severity="info", message=f"the recipe cannot be checked: {error}"
        )
        return
    except LlamathError:
        return
    packed = kinds.keys()
    dtypes = dict(zip(manifest.columns.name, manifest.columns.dtype, strict=True))
    plain, excluded = [], []
    for name in (
        *packed,
        *(x for x, dtype in dtypes.items() if dtype in PLAIN_FLOATS and x not in packed),
    ):
        choice = choices.get(_EXPERT_NUMBER.sub(".experts.{e}.", name.removesuffix(".weight")))
        if choice is None:
            continue
        if choice.format is None and name in packed:
            excluded.append((name, choice.reason))
        elif choice.format is not None and name not in packed:
            plain.append(name)
    recipe = f"the {packer.recipe.method} recipe"
    if plain and not packed:
        is_seen = packer.recipe.is_seen
        yield Finding(
            code="recipe_unused",
            severity="info" if is_seen else "warning",
            message=f"no tensor is quantized, though the config has {recipe}",
            hint=""
            if is_seen
            else "loaders expect packed tensors: remove the section on "
            "quantization from the config of plain weights",
        )
        return
    if plain and not packer.recipe.is_seen:
        message = (
            f"{_matrices(plain)} not quantized, though {recipe} says so: {summarize_names(plain)}"
        )
        hint = "loaders expect packed tensors there: list these modules as exceptions in the recipe"
        yield Finding(
            code="recipe_plain",
            severity="warning",
            message=message,
            hint=hint,
            tensors=tuple(plain),
        )
    if excluded:
        names = [name for name, _ in excluded]
        message = (
            f"{_matrices(names)} quantized, though {recipe} leaves them out "
            f"({safe(excluded[0][1], 60)}): {summarize_names(names)}"
        )
        hint = "loaders expect plain tensors there: remove these modules from its exceptions"
        yield Finding(
            code="recipe_excluded",
            severity="warning",
            message=message,
            hint=hint,
            tensors=tuple(names),
        )


def _undeclared(kinds: Mapping[str, str]) -> Iterator[Finding]:
    """Yield a finding about packed weights of a config without a recipe."""
    if kinds:
        packed, names = ", ".join(sorted(set(kinds.values()))), list(kinds)
        message = (
            f"{_matrices(names)} quantized ({packed}), though the config declares no "
            f"quantization: {summarize_names(names)}"
        )
        hint = (
            "loaders need the section on quantization: take the config.json that belongs to "
            "these files"
        )
        yield Finding(
            code="recipe_missing",
            severity="warning",
            message=message,
            hint=hint,
            tensors=tuple(names),
        )


def _matrices(names: Sequence[str]) -> str:
    return f"{format_count(len(names), 'matrix', 'matrices')} {'is' if len(names) == 1 else 'are'}"


def _choices(model: FamilyModel) -> dict[str, Choice]:
    """Return the choice of the recipe by module name, with `{e}` for experts; where experts of a
    layer differ, none.
    """
    names = model.scheme("hf")
    storage = weight_storage(model.tree, declared_weight_format(model.config.data), names=names)
    choices: dict[str, Choice] = {}
    mixed: set[str] = set()
    for x in storage.matrices:
        for layer in x.layers or (-1,):
            name = names.in_layer(x.name, layer)
            mixed |= {name} if name in choices else set()
            choices[name] = x.choice
    return {name: choice for name, choice in choices.items() if name not in mixed}


def _missing_scales(manifest: Manifest, checkpoint: OpenedCheckpoint) -> Iterator[Finding]:
    """Yield a finding for companions of packed weights that a few weights lack, and most of
    their kind have.
    """
    packings = packings_of(manifest, checkpoint.packing_config)
    values = {x.weight: x.kind for x in packings.values() if x.role == "values"}
    found: dict[str, set[str]] = {}
    for name, x in packings.items():
        if (
            x.role in ("scale", "zero")
            and x.weight in values
            and not name.endswith(("k_scale", "v_scale"))
        ):
            stem = x.weight.removesuffix("weight")
            suffix = (
                name.removeprefix(x.weight)
                if name.startswith(x.weight)
                else name.removeprefix(stem)
            )
            found.setdefault(f"{values[x.weight]} {suffix}", set()).add(x.weight)
    by_kind: dict[str, list[str]] = {}
    for weight, kind in values.items():
        by_kind.setdefault(kind, []).append(weight)
    for key, weights in found.items():
        kind, _, suffix = key.partition(" ")
        lacking = [x for x in by_kind[kind] if x not in weights]
        if lacking and 10 * len(lacking) <= len(by_kind[kind]):
            message = (
                f"{format_count(len(lacking), 'weight')} stored as {kind} without "
                f"{suffix.lstrip('._')}, which all others have: "
            )
            yield Finding(
                code="missing_scale",
                severity="warning",
                message=message + summarize_names(lacking),
                hint="they cannot be unpacked as the others are",
                tensors=tuple(lacking),
            )
