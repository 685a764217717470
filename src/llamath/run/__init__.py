"""The tree, alive: torch modules whose parameters are the tree's own. The only room that imports torch."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..core.errors import MissingExtra

os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch's large tensors in huge pages, which are read a fifth faster
try:
    import torch
except ImportError:
    raise MissingExtra("torch", "run") from None

from .build_module import build, initialise
from .chat_session import Talk
from .cpu.optimize_for_cpu import quicken
from .generate import Generation, Limits, Piece
from .kv_cache import Cache
from .layers import Decoder
from .memory_budget import afford, alone
from .sampling import Sampling
from .session import Completion, Llama
from .weights.load_weights import from_named, load
from .weights.open_model import Opened, opened

if TYPE_CHECKING:
    from .distributed.fsdp import shard
    from .distributed.tensor_parallel import parallelize

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
LATE = {"parallelize": "distributed.tensor_parallel", "shard": "distributed.fsdp"}
"""What takes a second to import, and few need."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"{__name__} has no {name}")
    return getattr(import_module(f".{LATE[name]}", __name__), name)
