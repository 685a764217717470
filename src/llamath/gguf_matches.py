"""Whether a GGUF file holds the model that its metadata stand for: what was taken from a header must be borne out by the tensors."""

from __future__ import annotations

from math import prod

from .checkpoint.formats.manifest import Manifest
from .checkpoint.gguf_metadata import COUNT_HINT, is_auxiliary_tensor
from .core.errors import UnknownModel, safe
from .model import Model


def check_gguf_matches_metadata(model: Model, manifest: Manifest) -> Model:
    """The model, if the file has its tensors; with a note if it has as many parameters in other tensors; else a refusal."""
    promised = {x.name: tuple(map(int, x.shape)) for x in model.scheme("gguf").tensors(model.tree)}
    layers = int(model.tree.layers.n)
    held = {x.name: x.shape for x in manifest.tensors if x.name in promised or not is_auxiliary_tensor(x.name, layers)}
    other = [name for name in (promised | held) if promised.get(name) != held.get(name)]
    if not other:
        return model
    total, found = model.parameters.total, sum(map(prod, held.values()))
    first = f"{safe(other[0])} is {_shape(held.get(other[0]))}, and should be {_shape(promised.get(other[0]))}"
    if found == total:
        note = f"{len(other):,} tensors are not as llama.cpp writes them now, with as many parameters in all: {first}"
        return model.replace(notes=(*model.notes, note))
    family = f"{model.source}: its metadata stand for {total:,} parameters of the {model.family.name} family"
    raise not_a_model(f"{family}, its tensors hold {found:,}: {first}")


def not_a_model(reason: str) -> UnknownModel:
    """A header that makes no model."""
    return UnknownModel(reason, hint=f"{COUNT_HINT}; llamath verify says what differs")


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))
