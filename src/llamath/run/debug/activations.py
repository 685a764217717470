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
from ..memory_budget import word
from ..weights.open_model import Opened
from .nan_check import HINT, flaws

JOINTS = ("o", "out", "down")
"""Modules that read what was worked out without a module: what they read is kept as well."""
COLUMNS = 16
"""So many columns of q and k are kept, to see whether their rows are in another order."""


class Heard(NamedTuple):
    """What a model made of some tokens, and what it takes to say why."""

    side: ComparedCheckpoint
    tree: Decoder
    scheme: Scheme
    logits: Tensor  # (T, V)
    outputs: dict[str, Tensor]  # of every module, by its path, in the order in which they came
    inputs: dict[str, Tensor]  # of those at joints
    rows: dict[str, Tensor]  # some columns of each layer's q and k


@torch.inference_mode()
def listen(found: Opened, name: str, ids: Sequence[int]) -> Heard:
    """Let a model read these tokens, and note what every part of it says."""
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}

    def watch(path: str) -> torch.utils.hooks.RemovableHandle:
        joint = path.rpartition(".")[2] in JOINTS

        def look(_part: nn.Module, given: tuple[Tensor, ...], x: object) -> None:
            if isinstance(x, Tensor) and path not in outputs:
                outputs[path] = x.to("cpu", copy=True)
                inputs.update({path: given[0].to("cpu", copy=True)} if joint else {})

        return found.module.get_submodule(path).register_forward_hook(look)

    looked = flaws(found.module)
    handles = [watch(path) for path, _ in found.module.named_modules() if path]
    try:
        logits = found.module(torch.tensor([list(ids)], device=found.place.device))[0].float().cpu()
    finally:
        for handle in handles:
            handle.remove()
    finite = bool(torch.isfinite(logits).all())
    cause = "" if finite and looked.sound and all(bool(torch.isfinite(x).all()) for x in outputs.values()) else found.flaw()
    if cause or not finite:
        cause = cause or f"its logits are NaN or infinite, and no weight is: {word(found.place.dtype)} is too small a type"
        raise LlamathError(f"{safe(name)}: {cause}", hint=HINT)
    kept = {f"layers.{i}.attn.{x}.weight" for i in range(len(found.model.tree.layers)) for x in "qk"}
    rows = {path: x[:, :COLUMNS].float().cpu().clone() for path, x in found.module.state_dict().items() if path in kept}
    return Heard(_side(found, name), found.model.tree, found.scheme, logits, outputs, inputs, rows)


def _side(found: Opened, name: str) -> ComparedCheckpoint:
    return ComparedCheckpoint(
        name=name,
        model=found.model.name,
        family=found.model.family.name,
        parameters=found.model.parameters.total,
        format=found.manifest.format,
        names=found.scheme.name,
        dtype=found.own,
        notes=found.notes,
    )
