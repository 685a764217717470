"""`capture_activations`: the outputs of every module for some tokens, kept for a comparison with
another model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ...analysis.check.verify.logits_agreement import ComparedCheckpoint
from ...checkpoint.naming.scheme import Scheme
from ...core.blocks import Decoder
from ...utils.errors import LlamathError, safe
from ..memory_budget import dtype_name
from ..weights.open_model import LoadedModel
from .nan_check import HINT, nonfinite_check

_INPUT_RECORDED = ("o", "out", "down")
"""Modules whose input is kept too, because it is computed outside any module."""
_QK_COLUMNS = 16
"""Columns of q and k kept, to detect permuted rows."""


class Activations(NamedTuple):
    """The activations of a model for some tokens, and what explains a difference in them."""

    side: ComparedCheckpoint
    tree: Decoder
    scheme: Scheme
    logits: Tensor  # (T, V)
    outputs: dict[str, Tensor]  # of every module by path, in the order of execution
    inputs: dict[str, Tensor]  # of the modules in INPUT_RECORDED
    qk_columns: dict[str, Tensor]  # the first columns of each layer's q and k weights


@torch.inference_mode()
def capture_activations(loaded: LoadedModel, name: str, ids: Sequence[int]) -> Activations:
    """Run a model on these tokens and keep the output of every module."""
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}

    def watch(path: str) -> torch.utils.hooks.RemovableHandle:
        record_input = path.rpartition(".")[2] in _INPUT_RECORDED

        def record(_module: nn.Module, args: tuple[object, Tensor], out: object) -> None:
            if isinstance(out, Tensor) and path not in outputs:
                outputs[path] = out.to("cpu", copy=True)
                inputs.update({path: args[1].to("cpu", copy=True)} if record_input else {})

        return loaded.module.get_submodule(path).register_forward_hook(record)

    check = nonfinite_check(loaded.module)
    handles = [watch(path) for path, _ in loaded.module.named_modules() if path]
    try:
        logits = (
            loaded.module(torch.tensor([list(ids)], device=loaded.options.device))[0].float().cpu()
        )
    finally:
        for handle in handles:
            handle.remove()
    finite = bool(torch.isfinite(logits).all())
    clean = (
        finite and check.is_clean and all(bool(torch.isfinite(x).all()) for x in outputs.values())
    )
    problem = "" if clean else loaded.first_nonfinite_weight()
    if problem or not finite:
        dtype = dtype_name(loaded.options.dtype)
        problem = problem or (
            "its logits are NaN or infinite, though every weight is finite: "
            f"the range of {dtype} is too small"
        )
        raise LlamathError(f"{safe(name)}: {problem}", hint=HINT)
    kept = {
        f"layers.{i}.attn.{x}.weight" for i in range(len(loaded.model.tree.layers)) for x in "qk"
    }
    columns = {
        path: x[:, :_QK_COLUMNS].float().cpu().clone()
        for path, x in loaded.module.state_dict().items()
        if path in kept
    }
    return Activations(
        _side(loaded, name), loaded.model.tree, loaded.scheme, logits, outputs, inputs, columns
    )


def _side(loaded: LoadedModel, name: str) -> ComparedCheckpoint:
    return ComparedCheckpoint(
        name=name,
        model=loaded.model.name,
        family=loaded.model.family.name,
        parameters=loaded.model.parameters.total,
        format=loaded.manifest.format,
        names=loaded.scheme.name,
        dtype=loaded.stored_dtype,
        notes=loaded.notes,
    )
