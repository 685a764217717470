"""`NonFiniteCheck`: finds weights that are NaN or infinite when a pass first reads them.

A matrix product passes a NaN on; a fused attention kernel, a clamp, or the choice of experts may
not. So a layer's weights are summed just before its first pass, an expert's before the first token
routed to it: once, at memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from ...utils.errors import LlamathError
from ..module import Decoder, Module, local_tensors

HINT = "the file is damaged, or was written in a dtype of too small a range"


def has_nonfinite(x: Tensor) -> bool:
    """Whether x contains NaN or infinity. The sum tells, unless it overflows: then every value
    is checked.
    """
    return not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all())


def describe_nonfinite(x: Tensor) -> str:
    """Describe the values that are not finite."""
    what = "NaN" if bool(torch.isnan(x).any()) else "infinite"
    return f"is {what} in {int((~torch.isfinite(x)).sum()):,} of its {x.numel():,} values"


class _NonFiniteCheck:
    """Sums of the weights that were read and not yet checked. Ranks that share a model check all
    weights at once, experts too.
    """

    def __init__(self, module: Decoder) -> None:
        self._module = ref(module)  # the registry below must not keep a model alive
        self._sums: list[tuple[str, Tensor, Tensor]] = []
        self._summed: set[tuple[int, int]] = set()
        for name, child in module.named_children():
            children = (
                [(f"{name}.{i}", x) for i, x in enumerate(child)]
                if isinstance(child, nn.ModuleList)
                else [(name, child)]
            )
            for path, part in children:
                self._watch(
                    path, part, dict(_expert_modules(path, part)) if module.mesh is None else {}
                )

    def _watch(self, path: str, module: nn.Module, experts: dict[str, nn.Module]) -> None:
        """Sum a module's weights when it first runs, and those of its experts when they first
        run.
        """
        for name, expert in experts.items():
            self._watch(name, expert, {})
        inside = tuple(f"{name}." for name in experts)

        def sum_weights(module: nn.Module, _inputs: object) -> None:
            handle.remove()
            for name, x in local_tensors(module):
                full = f"{path}.{name}"
                key = x.data_ptr(), x.numel()
                if not x.is_meta and key not in self._summed and not full.startswith(inside):
                    self._summed.add(key)
                    self._sums.append((full, x.detach(), x.detach().sum()))

        handle = module.register_forward_pre_hook(sum_weights)

    @property
    def is_clean(self) -> bool:
        """Whether all sums are finite; a sum that overflows its dtype is not."""
        return not self._sums or bool(
            torch.isfinite(torch.stack([x.float() for *_, x in self._sums])).all()
        )

    def raise_if_bad(self) -> None:
        """Raise an error that names the first weight that is not finite, of those read since the
        last call.
        """
        if not self._sums:
            return
        problem = ""
        if not self.is_clean:
            problem = next(
                (
                    f"the weight {path} {describe_nonfinite(x)}"
                    for path, x, _ in self._sums
                    if has_nonfinite(x)
                ),
                "",
            )
        self._sums = []
        module = self._module()
        if module is not None and (problem := module.first_from_any_rank(problem)):
            raise LlamathError(problem, hint=HINT)


_CHECKS: WeakKeyDictionary[Decoder, _NonFiniteCheck] = WeakKeyDictionary()


def nonfinite_check(module: Decoder) -> _NonFiniteCheck:
    """Return the check of a module; weights that it has summed are not summed again."""
    if module not in _CHECKS:
        _CHECKS[module] = _NonFiniteCheck(module)
    return _CHECKS[module]


def forget_check(module: Module) -> None:
    """Discard the check of a module whose weights were replaced."""
    if isinstance(module, Decoder):
        _CHECKS.pop(module, None)


def _expert_modules(path: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the experts, which run only for the tokens routed to them."""
    for name, child in module.named_modules():
        for field in child.spec.expert_parallel if isinstance(child, Module) else ():
            experts = child.get_submodule(field)
            yield from (
                (".".join(x for x in (path, name, field, e) if x), expert)
                for e, expert in experts.named_children()
            )


@torch.inference_mode()
def explain_nonfinite(module: Decoder, ids: Sequence[int]) -> LlamathError:
    """Return the error for logits that are not finite: it names the first weight, or else the
    first module, that is not.
    """
    problem = f"the model's logits after {len(ids):,} tokens are NaN or infinite"
    weight = next(
        (
            f"{path} {describe_nonfinite(x)}"
            for path, x in local_tensors(module)
            if has_nonfinite(x)
        ),
        "",
    )
    if weight := module.first_from_any_rank(weight):
        return LlamathError(f"{problem}: the weight {weight}", hint=HINT)
    first = next(module.parameters())
    source = module.first_from_any_rank(
        _first_nonfinite_module(module, torch.tensor([list(ids)], device=first.device))
    )
    hint = (
        "float16 ends at 65,504: compute in bfloat16 or float32"
        if first.dtype == torch.float16
        else "the dtype float32 may help"
    )
    return LlamathError(
        f"{problem}, though every weight is finite: the first output that is not "
        f"is that of {source}",
        hint=hint,
    )


def _first_nonfinite_module(module: Decoder, ids: Tensor) -> str:
    """Return the path of the first leaf module whose output is not finite."""
    results: list[str] = []

    def watch(name: str) -> torch.utils.hooks.RemovableHandle:
        def check(_module: nn.Module, _inputs: object, x: object) -> None:
            if not results and isinstance(x, Tensor) and not bool(torch.isfinite(x).all()):
                results.append(name)

        return module.get_submodule(name).register_forward_hook(check)

    handles = [
        watch(name) for name, child in module.named_modules() if name and not list(child.children())
    ]
    try:
        module(ids)
    finally:
        for handle in handles:
            handle.remove()
    return results[0] if results else "the head"
