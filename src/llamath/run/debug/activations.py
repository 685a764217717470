"""`listen`: what every part of a model says of some tokens, kept to be compared with another's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...analysis.verify.logits_agreement import ComparedCheckpoint
from ...checkpoint.naming.scheme import Scheme
from ...core.blocks import Decoder
from ...core.errors import LlamathError, safe
from ..memory_budget import dtype_name
from ..weights.open_model import LoadedModel
from .nan_check import HINT, nonfinite_check

INPUT_RECORDED = ("o", "out", "down")
"""Modules that read what was worked out without a module: what they read is kept as well."""
QK_COLUMNS = 16
"""So many columns of q and k are kept, to see whether their rows are in another order."""


class Activations(NamedTuple):
    """What a model made of some tokens, and what it takes to say why."""

    side: ComparedCheckpoint
    tree: Decoder
    scheme: Scheme
    logits: Tensor  # (T, V)
    outputs: dict[str, Tensor]  # of every module, by its path, in the order in which they came
    inputs: dict[str, Tensor]  # of those at joints
    rows: dict[str, Tensor]  # some columns of each layer's q and k


@torch.inference_mode()
def capture_activations(found: LoadedModel, name: str, ids: Sequence[int]) -> Activations:
    """Let a model read these tokens, and note what every part of it says."""
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}

    def watch(path: str) -> torch.utils.hooks.RemovableHandle:
        joint = path.rpartition(".")[2] in INPUT_RECORDED

        def look(_part: nn.Module, given: tuple[Tensor, ...], x: object) -> None:
            if isinstance(x, Tensor) and path not in outputs:
                outputs[path] = x.to("cpu", copy=True)
                inputs.update({path: given[0].to("cpu", copy=True)} if joint else {})

        return found.module.get_submodule(path).register_forward_hook(look)

    looked = nonfinite_check(found.module)
    handles = [watch(path) for path, _ in found.module.named_modules() if path]
    try:
        logits = found.module(torch.tensor([list(ids)], device=found.options.device))[0].float().cpu()
    finally:
        for handle in handles:
            handle.remove()
    finite = bool(torch.isfinite(logits).all())
    cause = (
        ""
        if finite and looked.is_clean and all(bool(torch.isfinite(x).all()) for x in outputs.values())
        else found.first_nonfinite_weight()
    )
    if cause or not finite:
        cause = cause or f"its logits are NaN or infinite, and no weight is: {dtype_name(found.options.dtype)} is too small a type"
        raise LlamathError(f"{safe(name)}: {cause}", hint=HINT)
    kept = {f"layers.{i}.attn.{x}.weight" for i in range(len(found.model.tree.layers)) for x in "qk"}
    rows = {path: x[:, :QK_COLUMNS].float().cpu().clone() for path, x in found.module.state_dict().items() if path in kept}
    return Activations(_side(found, name), found.model.tree, found.scheme, logits, outputs, inputs, rows)


def _side(found: LoadedModel, name: str) -> ComparedCheckpoint:
    return ComparedCheckpoint(
        name=name,
        model=found.model.name,
        family=found.model.family.name,
        parameters=found.model.parameters.total,
        format=found.manifest.format,
        names=found.scheme.name,
        dtype=found.stored_dtype,
        notes=found.notes,
    )
