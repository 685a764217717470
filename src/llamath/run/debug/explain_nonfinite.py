"""Where numbers stop being numbers: which weight, or else which layer, a NaN or an infinity comes from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.errors import LlamathError
from ..layers import Decoder
from ..module import local_tensors
from .nan_check import HINT, describe_nonfinite, has_nonfinite


@torch.inference_mode()
def explain_nonfinite(module: Decoder, text: Sequence[int]) -> LlamathError:
    """The error for logits that are no numbers, after the first place at which they are not."""
    said = f"the model's logits after {len(text):,} tokens are NaN or infinite"
    if flawed := module.first_from_any_rank(
        next((f"{path} {describe_nonfinite(x)}" for path, x in local_tensors(module) if has_nonfinite(x)), "")
    ):
        return LlamathError(f"{said}: the weight {flawed}", hint=HINT)
    broken = module.first_from_any_rank(
        _first_nonfinite_module(module, torch.tensor([list(text)], device=next(module.parameters()).device))
    )
    small = next(module.parameters()).dtype == torch.float16
    hint = "float16 ends at 65,504: --dtype bfloat16 or float32" if small else "--dtype float32 may help"
    return LlamathError(f"{said}, though every weight is a number: the first to be not is what {broken} gives", hint=hint)


def _first_nonfinite_module(module: Decoder, ids: Tensor) -> str:
    """The first part whose output is not all numbers."""
    found: list[str] = []

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def look(_part: torch.nn.Module, _given: object, x: object) -> None:
            if not found and isinstance(x, Tensor) and not bool(torch.isfinite(x).all()):
                found.append(name)

        return module.get_submodule(name).register_forward_hook(look)

    handles = [watch(name) for name, part in module.named_modules() if name and not list(part.children())]
    try:
        module(ids)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the head"
