"""The memory that torch keeps for the backward pass: every storage that autograd saves, counted once, without parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def count_saved_bytes(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> int:
    """The bytes that autograd saves in a forward pass."""
    own = {x.untyped_storage().data_ptr() for x in (*model.parameters(), *model.buffers())}
    results: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in own:
            alive.append(x)  # keeps its address from being reused
            results[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss()
    return sum(results.values())


def causal_lm(config: dict[str, Any], attention: str, dtype: torch.dtype) -> torch.nn.Module:
    """Return the transformers model of a configuration, with random weights."""
    import transformers

    torch.manual_seed(0)
    hf_config = transformers.AutoConfig.for_model(**config, use_cache=False)
    return transformers.AutoModelForCausalLM.from_config(
        hf_config, attn_implementation=attention, dtype=dtype
    ).train()


def count_step_bytes(model: torch.nn.Module, batch: int, tokens: int, vocab: int) -> int:
    """The bytes saved by one forward pass with a loss."""
    ids = torch.randint(0, vocab, (batch, tokens))
    return count_saved_bytes(model, lambda: model(input_ids=ids, labels=ids).loss)
