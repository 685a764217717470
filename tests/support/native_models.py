"""`native_model`: the weights of a torch module on the native engine."""

from __future__ import annotations

from typing import Any

import torch

import llamath
from llamath.native.engine import NativeModel, NativeSession, Row
from llamath.native.library import BF16, F16, F32
from llamath.native.weights import Stored
from llamath.torch import Decoder, build, initialize
from llamath.torch.module import local_tensors

_TYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}
_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


def native_model(module: Decoder, threads: int = 1, **options: Any) -> NativeModel:
    """Return a native model that reads a module's parameters."""
    stored = {}
    for path, x in local_tensors(module):
        x = x.detach().contiguous()
        cols = x.shape[-1] if x.dim() else 1
        stored[path] = Stored(
            x.data_ptr(), _TYPES[x.dtype], x.numel() // max(1, cols), cols, x.nbytes, x
        )
    dtype = _NAMES[next(module.parameters()).dtype]
    return NativeModel(module.spec, stored, options.pop("dtype", dtype), threads=threads, **options)


def native_logits(model: NativeModel, ids: list[int], chunk: int | None = None) -> torch.Tensor:
    """Return the logits after every token, `(T, V)`."""
    size = len(ids) if chunk is None else chunk
    session = NativeSession(model, 1, size)
    session.reserve(len(ids), 0)
    parts = []
    for first in range(0, len(ids), size):
        count = session.run([Row(0, ids[first : first + size], first)], all_logits=True)
        parts += [session.logits(i) for i in range(count)]
    return torch.tensor(parts)


def random_module(config: dict[str, Any], dtype: torch.dtype = torch.float32) -> Decoder:
    """A module with random weights, norms and biases too."""
    model = llamath.load(dict(config))
    module = initialize(build(model.text.tree), 0, 0.3)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for x in module.parameters():
            if x.dim() < 2:
                x.add_(torch.randn(x.shape, generator=generator) * 0.1)
    return module.to(dtype)


def random_ids(vocab: int, count: int = 11) -> list[int]:
    """Token ids, the same each time."""
    ids: list[int] = torch.randint(
        0, vocab, (count,), generator=torch.Generator().manual_seed(0)
    ).tolist()
    return ids
