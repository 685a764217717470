"""The tree, alive: torch modules whose parameters are the tree's own. The only room that imports torch."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's large tensors in huge pages, which are read a fifth faster
try:
    import torch
except ImportError:
    raise MissingExtra("torch", "run") from None

from .build import build, initialise
from .cache import Cache
from .fast import quicken
from .generate import Generation, Limits, Piece
from .layers import Decoder
from .llama import Completion, Llama
from .load import from_named, load
from .open import Opened, opened
from .room import afford, alone
from .sample import Sampling
from .talk import Talk

if TYPE_CHECKING:
    from .parallel import parallelize
    from .shard import shard

__all__ = [
    "Cache",
    "Completion",
    "Decoder",
    "Generation",
    "Limits",
    "Llama",
    "Opened",
    "Piece",
    "Sampling",
    "Talk",
    "afford",
    "alone",
    "build",
    "from_named",
    "initialise",
    "load",
    "opened",
    "parallelize",
    "quicken",
    "shard",
    "torch",
]
LATE = {"parallelize": "parallel", "shard": "shard"}
"""What takes a second to import, and few need."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"{__name__} has no {name}")
    return getattr(import_module(f".{LATE[name]}", __name__), name)
