"""`read_stored_weights`: the bytes of a checkpoint's weights, with notes on how its files differ
from the config.
"""

from __future__ import annotations

from collections.abc import Callable

from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.gguf_metadata.gguf_to_config import is_auxiliary_tensor
from ...checkpoint.open import names_checkpoint, open_checkpoint
from ...model import FamilyModel, Model
from ...utils.errors import Argument, FormatError, RemoteError
from ..storage.listed_weights import check_listable
from ..storage.listing import Listing, list_tensors
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
    if part is not None and isinstance(model, FamilyModel):
        left_out = _outside_of(model, part, opened.manifest)
        tensors = [x for x in opened.manifest.tensors if not left_out(x.name)]
        listing = list_tensors(opened.manifest.replace(tensors=tensors))
    return stored_weights(listing, notes)


def _outside_of(model: FamilyModel, part: str, manifest: Manifest) -> Callable[[str], bool]:
    """Return whether the tensor of a name is in a tower, or of the part `main` in a layer for
    multi-token prediction.
    """
    layers = int(model.tree.layers.n)
    if manifest.format == "gguf":  # towers are in a file of their own
        return lambda name: part == "main" and is_auxiliary_tensor(name, layers)
    check_listable(model.tree)
    names, text, others = set(manifest.columns.name), model.text.tree, set[str]()
    for scheme in (model.family.hf, *model.family.hf_forms):
        if text is not model.tree:
            inside = {x.name for x in scheme.tensors(text)}
            others |= {x.name for x in scheme.tensors(model.tree)} - inside
        if part == "main":
            others |= {x.name for y in scheme.stored_mtp_layers(text, names) for x in y}
    modules = {x.removesuffix(".weight") for x in others}  # of packed tensors
    return lambda name: name in others or name.rpartition(".")[0] in modules


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
