"""Run models: PyTorch modules built from a model's tree, generation and chat. The only package
that imports torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..utils.errors import MissingExtra

# transparent huge pages for large tensors, which are read a fifth faster
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
try:
    import torch
except ImportError:
    raise MissingExtra("torch", "torch") from None

from ..generation.generation import GeneratedPiece, GenerationLimits
from ..generation.sampling_parameters import Sampling
from .kv_cache import Cache
from .memory_budget import check_memory_for, limit_threads
from .module import Decoder, build, initialize
from .torch_generation import Generation
from .torch_session import ChatSession, Completion, Llama
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
    "parallelize",
    "torch",
]
_LAZY = {"parallelize": "distributed.tensor_parallel", "apply_fsdp": "distributed.fsdp"}
"""Names whose import takes a second, and that few programs need."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"{__name__} has no {name}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
