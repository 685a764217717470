"""The bytes of tensors alive at once: every storage that a torch operation creates, until it is freed."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts inside `with`; tensors that existed before are given, and do not count."""

    def __init__(self, before: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.now = self.most = 0
        self.sizes = dict.fromkeys((x.untyped_storage()._cdata for x in before), 0)

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = call(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if (
                isinstance(x, torch.Tensor)
                and (key := (storage := x.untyped_storage())._cdata) not in self.sizes
            ):
                self.sizes[key] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self._gone, key)
        self.most = max(self.most, self.now)
        return out

    def _gone(self, key: int) -> None:
        self.now -= self.sizes.pop(key, 0)
