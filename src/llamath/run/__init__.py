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

from .build_module import build, initialize
from .chat_session import ChatSession
from .cpu.optimize_for_cpu import optimize_for_cpu
from .generate import GeneratedPiece, Generation, GenerationLimits
from .kv_cache import Cache
from .layers import Decoder
from .memory_budget import check_memory_for, limit_threads
from .sampling import Sampling
from .session import Completion, Llama
from .weights.load_weights import canonical_weights, load_weights
from .weights.open_model import LoadedModel, open_model

if TYPE_CHECKING:
    from .distributed.fsdp import apply_fsdp
    from .distributed.tensor_parallel import parallelize

__all__ = [
    "Cache",
    "ChatSession",
    "Completion",
    "Decoder",
    "GeneratedPiece",
    "Generation",
    "GenerationLimits",
    "Llama",
    "LoadedModel",
    "Sampling",
    "apply_fsdp",
    "build",
    "canonical_weights",
    "check_memory_for",
    "initialize",
    "limit_threads",
    "load_weights",
    "open_model",
    "optimize_for_cpu",
    "parallelize",
    "torch",
]
LATE = {"parallelize": "distributed.tensor_parallel", "apply_fsdp": "distributed.fsdp"}
"""What takes a second to import, and few need."""


def __getattr__(name: str) -> Any:
    if name not in LATE:
        raise AttributeError(f"{__name__} has no {name}")
    return getattr(import_module(f".{LATE[name]}", __name__), name)
