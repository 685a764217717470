"""`folder_kind`: recognize folders that are no single model's checkpoint by their entries: FSDP,
DeepSpeed and diffusers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ...utils.errors import Call, FormatError, Name, safe

METADATA_FILE, DISTRIBUTED_SUFFIX = ".metadata", ".distcp"
LATEST, OPTIMIZER_STATES = (
    "latest",
    re.compile(r"(?:bf16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt", re.ASCII),
)
MODEL_INDEX = "model_index.json"
_WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
ADAPTER_CONFIG = "adapter_config.json"
_WORDS = {
    "adapter": (
        "an adapter, which changes weights of another model",
        "give its base model; {verify} checks that the adapter fits it",
    ),
    "fsdp": (
        "a distributed checkpoint (FSDP, torch.distributed.checkpoint), whose files hold parts "
        "of tensors",
        "{ls} and {verify} read it; `python -m "
        "torch.distributed.checkpoint.format_utils dcp_to_torch` joins it",
    ),
    "deepspeed": (
        "a DeepSpeed checkpoint, whose files hold parts of tensors",
        "{ls} and {verify} read it; DeepSpeed's zero_to_fp32.py joins it",
    ),
    "diffusers": (
        "a diffusers pipeline of several models",
        "{ls} and {verify} read all of it; name the folder of one part",
    ),
}
"""Kind of folder → its contents in words, and the hint of the error, with calls."""
OTHER_KINDS = tuple(_WORDS)
"""Kinds of folders that are no checkpoint of one model, which are codes of errors, too."""


def folder_kind(entries: Sequence[str]) -> str:
    """Return fsdp, deepspeed or diffusers, or an empty string for the folder of one model."""
    if MODEL_INDEX in entries:
        return "diffusers"
    if any(x in entries for x in _WEIGHTS):
        return ""  # transformers' trainer puts global_step folders next to the model
    if METADATA_FILE in entries or any(x.endswith(DISTRIBUTED_SUFFIX) for x in entries):
        return "fsdp"
    if any(map(OPTIMIZER_STATES.fullmatch, entries)) or (
        LATEST in entries and any(x.startswith("global_step") for x in entries)
    ):
        return "deepspeed"
    return ""


def kind_error(folder: str, entries: Sequence[str] | None = None) -> FormatError | None:
    """Return the error for a command that needs the checkpoint of one model; None for other
    folders, and for what is no local folder.
    """
    if entries is None:
        entries = os.listdir(folder) if os.path.isdir(folder) else ()
    if not (kind := "adapter" if ADAPTER_CONFIG in entries else folder_kind(entries)):
        return None
    what, hint = _WORDS[kind]
    path = folder or Name("path")
    return FormatError(
        kind,
        f"{safe(folder) or 'this folder'}: expected the checkpoint of one model, found {what}",
        hint=hint.format(ls=Call("ls", path), verify=Call("verify", path)),
    )
