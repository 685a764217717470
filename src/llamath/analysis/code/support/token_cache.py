"""The cache of written files."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Cache(dict[Any, Any]):
    """The state of each module after the tokens read so far."""

    length: int = 0
    chosen: Any = None
    prompt: int = 0

    def append(self, module: Any, *new: Tensor) -> tuple[Tensor, ...]:
        """Add the rows of new tokens to those of a module, and return all, (B, S, …) each."""
        if module in self:
            new = tuple(torch.cat(x, 1) for x in zip(self[module], new, strict=True))
        self[module] = new
        return new

    def rows(self, number: int) -> Any:
        """The rows of another module, by how many have cached before it."""
        return list(self.values())[number]
