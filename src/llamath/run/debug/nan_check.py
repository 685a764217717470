"""`Flaws`: weights that are NaN or infinite, found when a pass first reads them, so that none is swallowed on its way to the logits.

A matrix product hands a NaN on; a fused kernel of attention, a clamp, or the choice of experts may not. So a layer's numbers are summed
just before its first pass, an expert's before the first token that is sent to it: at the speed of memory, once.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ref

import torch
from torch import Tensor, nn

from ...core.errors import LlamathError
from ..layers import Decoder
from ..module import Module, local_tensors

HINT = "the file is damaged, or was written in too small a type"


def has_nonfinite(x: Tensor) -> bool:
    """Whether a number in x is NaN or infinite. A sum says so if one is; one that is too large for its type is looked into."""
    return not bool(torch.isfinite(x.sum())) and not bool(torch.isfinite(x).all())


def describe_nonfinite(x: Tensor) -> str:
    """What is wrong with numbers, in words."""
    what = "NaN" if bool(torch.isnan(x).any()) else "infinite"
    return f"is {what} in {int((~torch.isfinite(x)).sum()):,} of its {x.numel():,} numbers"


def nonfinite_check(module: Decoder) -> NonFiniteCheck:
    """Those of a module: what has been looked at is not looked at again."""
    if module.nonfinite_check is None:
        module.nonfinite_check = NonFiniteCheck(module)
    found: NonFiniteCheck = module.nonfinite_check
    return found


class NonFiniteCheck:
    """Sums of what has been read and not yet judged. Processes that share a model look at all that they hold at once, experts included."""

    def __init__(self, module: Decoder) -> None:
        self._module = ref(module)  # nothing here keeps a model alive
        self._sums: list[tuple[str, Tensor, Tensor]] = []
        self._seen: set[tuple[int, int]] = set()
        for name, part in module.named_children():
            parts = [(f"{name}.{i}", x) for i, x in enumerate(part)] if isinstance(part, nn.ModuleList) else [(name, part)]
            for path, one in parts:
                self._watch(path, one, dict(_expert_modules(path, one)) if module.mesh is None else {})

    def _watch(self, path: str, part: nn.Module, later: dict[str, nn.Module]) -> None:
        """Look at a part when it is first run, and at those inside it that not every token meets when they are."""
        for name, one in later.items():
            self._watch(name, one, {})
        inside = tuple(f"{name}." for name in later)

        def look(part: nn.Module, _given: object) -> None:
            handle.remove()
            for name, x in local_tensors(part):
                full = f"{path}.{name}"
                at = x.data_ptr(), x.numel()
                if not x.is_meta and at not in self._seen and not full.startswith(inside):
                    self._seen.add(at)
                    self._sums.append((full, x.detach(), x.detach().sum()))

        handle = part.register_forward_pre_hook(look)

    @property
    def is_clean(self) -> bool:
        """Whether the sums of what was read are numbers; one that is too large for its type is none either."""
        return not self._sums or bool(torch.isfinite(torch.stack([x.float() for *_, x in self._sums])).all())

    def raise_if_bad(self) -> None:
        """An error that names the first weight that is no number, of those that were read since this was last asked."""
        if not self._sums:
            return
        said = (
            ""
            if self.is_clean
            else next((f"the weight {path} {describe_nonfinite(x)}" for path, x, _ in self._sums if has_nonfinite(x)), "")
        )
        self._sums = []
        module = self._module()
        if module is not None and (said := module.first_from_any_rank(said)):
            raise LlamathError(said, hint=HINT)


def _expert_modules(path: str, part: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """What a part has that a token meets only if it is sent there."""
    for name, inner in part.named_modules():
        for field in inner.spec.expert_parallel if isinstance(inner, Module) else ():
            yield from ((".".join(x for x in (path, name, field, str(e)) if x), expert) for e, expert in enumerate(getattr(inner, field)))
