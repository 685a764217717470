"""`read_stored_weights`: the bytes of a checkpoint's weights, with notes on how its files differ
from the config.
"""

from __future__ import annotations

from collections.abc import Callable

from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.gguf_metadata.loaded_tensors import is_auxiliary_tensor
from ...checkpoint.open import names_checkpoint, open_checkpoint
from ...model import FamilyModel, Model
from ...utils.errors import Argument, FormatError, RemoteError
from ..storage.listed_weights import check_listable
from ..storage.listing import Listing, list_tensors
from ..storage.memory_line import mtp_line
from ..storage.weight_bytes import StoredWeights, stored_weights
from .file_differences import file_differences


def read_stored_weights(model: Model, part: str | None = None) -> StoredWeights | None:
    """Return the weights of the checkpoint that a model was loaded from, or of its part `text` or
    `main`; None if there is only a config.
    """
    if not names_checkpoint(model.location):
        return None
    try:
        opened = open_checkpoint(model.location)
    except FormatError as error:
        if error.code == "no_checkpoint":
            return None
        raise
    except RemoteError as error:
        if error.code != "offline":
            raise
        raise RemoteError(
            error.code,
            str(error),
            hint=f"{error.hint}; with a dtype ({Argument('dtype', 'bf16')}) the config is enough",
        ) from None
    listing = list_tensors(opened.manifest)
    notes = file_differences(model, opened).notes
    if not opened.manifest.missing_files and (note := _other_size_note(model, listing)):
        notes = (*notes, note)
    if not isinstance(model, FamilyModel):
        return stored_weights(listing, notes)
    return loaded_weights(model, opened.manifest, listing, part).replace(notes=tuple(notes))


def loaded_weights(
    model: FamilyModel, manifest: Manifest, listing: Listing, part: str | None = None
) -> StoredWeights:
    """Return the weights that inference loads from a checkpoint with this listing, and the size of
    the layers for multi-token prediction, which it does not load.
    """
    is_mtp, is_tower = _is_mtp(model, part, manifest), _is_tower(model, part)
    tensors = [x for x in manifest.tensors if not is_tower(x.name)]
    loaded = [x for x in tensors if not is_mtp(x.name)]
    if len(loaded) < len(manifest.tensors):
        listing = list_tensors(manifest.replace(tensors=loaded))
    weights = stored_weights(listing).replace(tensors=loaded)
    if part == "main" or len(loaded) == len(tensors):
        return weights
    mtp = list_tensors(manifest.replace(tensors=[x for x in tensors if is_mtp(x.name)]))
    size, layers = int(sum(x.bytes for x in stored_weights(mtp).lines)), model.text.tree.mtp
    is_gguf = manifest.format == "gguf"
    return weights.replace(not_loaded=(mtp_line(size, len(layers or ()), is_gguf=is_gguf),))


def _is_mtp(model: FamilyModel, part: str | None, manifest: Manifest) -> Callable[[str], bool]:
    """Return whether the tensor of a name is in a layer for multi-token prediction that no engine
    loads. llama.cpp loads those of architectures without names here: they are left out of the part
    `main` alone.
    """
    is_gguf, tree = manifest.format == "gguf", model.text.tree
    if is_gguf and part == "main":
        layers = int(tree.layers.n)
        return lambda name: is_auxiliary_tensor(name, layers)
    names, found = set(manifest.columns.name), set[str]()
    if tree.mtp is not None:
        check_listable(model.tree)
        schemes = [model.family.gguf] if is_gguf else [model.family.hf, *model.family.hf_forms]
        for scheme in (x for x in schemes if x is not None and x.names_mtp):
            found |= {x.name for y in scheme.stored_mtp_layers(tree, names) for x in y}
    return _is_among(found)


def _is_tower(model: FamilyModel, part: str | None) -> Callable[[str], bool]:
    """Return whether the tensor of a name is in a tower, which the part `text` does not have; GGUF
    files have towers in a file of their own.
    """
    text, towers = model.text.tree, set[str]()
    if part is not None and text is not model.tree:
        check_listable(model.tree)
        for scheme in (model.family.hf, *model.family.hf_forms):
            inside = {x.name for x in scheme.tensors(text)}
            towers |= {x.name for x in scheme.tensors(model.tree)} - inside
    return _is_among(towers)


def _is_among(names: set[str]) -> Callable[[str], bool]:
    """Return whether a tensor has one of these names, or is packed for one of them."""
    modules = {x.removesuffix(".weight") for x in names}
    return lambda name: name in names or name.rpartition(".")[0] in modules


def _other_size_note(model: Model, listing: Listing) -> str:
    """Return a note if the files hold clearly fewer or more parameters than the config describes,
    or an empty string.

    Files may have somewhat more: a tied head, layers for multi-token prediction, and all parts of a
    multimodal model.
    """
    stored, described = listing.total.parameters, model.parameters.total
    is_part = isinstance(model, FamilyModel) and bool(model.wrapper)
    if not listing.known or (
        described * 99 <= stored * 100 and (is_part or stored <= 2 * described)
    ):
        return ""
    return (
        f"the files hold {stored:,} parameters, the config describes {described:,}: the weights "
        "are those of the files, "
        "KV cache and activations those of the config"
    )
