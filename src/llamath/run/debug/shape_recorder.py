"""`ShapeRecorder`: the shapes of the inputs, outputs and intermediate tensors of a running module.

Hooks record modules. Queries, scores and attention weights are no module's output: while recording, attention is computed with plain matrix
products, where these are intercepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from ...core.blocks import Attention, LatentAttention, MoE
from ..attention import ScoreParams, attend, attention_probs
from ..forward_context import Mask, MaskBlock
from ..kv_cache import Cache, KVCache, RecurrentState
from ..module import Decoder, Module

Shape = tuple[int, ...]
_MATMULS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
_MAX_REAL_SCORES = 1 << 25
"""Larger attention scores are computed on the meta device only, next to the fused kernel."""


class _RecordingKVCache(KVCache):
    """A KV cache that reports the tensors it stores and returns."""

    def __init__(self, capacity: int, on_update: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], None]) -> None:
        super().__init__(capacity)
        self._on_update = on_update

    def update(self, new: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        """Store and report."""
        visible = super().update(new, past)
        self._on_update(new, visible)
        return visible


class ShapeRecorder(TorchFunctionMode):
    """Shapes by hook point: `layers.0.attn.q>` is a module's output, `>…` its input, `layers.0.attn:scores` an intermediate tensor."""

    def __init__(self, module: Decoder, layers: Iterable[int]) -> None:
        super().__init__()
        self.shapes: dict[str, Shape] = {}
        self._module, self._layers = module, set(layers)
        self._inside: list[tuple[str, Module]] = []
        self._handles: list[RemovableHandle] = []

    def new_cache(self, capacity: int) -> Cache:
        """Return an empty cache that reports its updates."""
        cache = self._module.new_cache(capacity)
        for i, layer in enumerate(cache.layers):
            if isinstance(layer, KVCache):
                cache.layers[i] = _RecordingKVCache(layer.capacity, self._record_update(i))
        return cache

    def record_states(self, cache: Cache) -> None:
        """Record the recurrent states."""
        for i, layer in enumerate(cache.layers):
            if isinstance(layer, RecurrentState) and layer.recurrent_state is not None:
                self._record(f"layers.{i}.attn:state", layer.recurrent_state)

    def __enter__(self) -> ShapeRecorder:
        self.shapes = {}
        for name, child in self._module.named_modules():
            if not name.startswith("layers.") or self._is_recorded(name):
                self._handles += [
                    child.register_forward_pre_hook(self._input_hook(name)),
                    child.register_forward_hook(self._output_hook(name)),
                ]
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for handle in self._handles:
            handle.remove()
        self._handles, self._inside = [], []

    def __torch_function__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        if func is attend and self._inside:
            return self._attend(*args)
        out = func(*args, **(kwargs or {}))
        if self._inside:
            self._record_intermediate(func, args, out)
        return out

    def _is_recorded(self, name: str) -> bool:
        return int(name.split(".")[1]) in self._layers if name != "layers" else False

    def _record(self, point: str, x: Tensor | Shape) -> None:
        self.shapes[point] = tuple(x) if isinstance(x, tuple) else tuple(x.shape)

    def _input_hook(self, name: str) -> Callable[..., None]:
        point = f">{_expert_pattern(name)}"

        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            if isinstance(module, Module) and isinstance(module.spec, (Attention, LatentAttention, MoE)):
                self._inside.append((name, module))
            if tensors := [x for x in args if isinstance(x, Tensor)]:
                self._record(point, self._shape(point, tensors[0]))

        return hook

    def _output_hook(self, name: str) -> Callable[..., None]:
        point = f"{_expert_pattern(name)}>"

        def hook(_module: nn.Module, _args: object, out: Tensor) -> None:
            if self._inside and self._inside[-1][0] == name:
                self._inside.pop()
            self._record(point, self._shape(point, out))

        return hook

    def _shape(self, point: str, x: Tensor) -> Shape:
        """The shape of a tensor; for experts, that of the rows of all experts together."""
        if "{e}" not in point:
            return tuple(x.shape)
        before = self.shapes.get(point, (0,))[0]
        return before + x.shape[:-1].numel(), x.shape[-1]

    def _record_update(self, i: int) -> Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], None]:
        mixer, path = self._module.layers[i].attn, f"layers.{i}.attn"

        def on_update(new: tuple[Tensor, ...], visible: tuple[Tensor, ...]) -> None:
            if isinstance(mixer.spec, LatentAttention):
                self._record(f"{path}:key", new[0][..., mixer.spec.kv_lora_rank :].transpose(1, 2))
                self._record(f"{path}:kept", visible[0].squeeze(1))
            else:
                self._record(f"{path}:k", new[0].transpose(1, 2))

        return on_update

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, params: ScoreParams) -> Tensor:
        """Compute attention with its weights as a tensor; for very long prompts only the weights' shape is computed."""
        name, module = self._inside[-1]
        if q.shape[:-1].numel() * k.shape[-2] > _MAX_REAL_SCORES:
            probs = attention_probs(q.to("meta"), k.to("meta"), MaskBlock(), params._replace(sinks=None))
            y = attend(q, k, v, mask, params)
        else:
            probs = attention_probs(q, k, mask.full_block, params)
            y = (probs.to(v.dtype).unflatten(1, (k.shape[1], -1)) @ v[:, :, None]).flatten(1, 2)
        if isinstance(module.spec, LatentAttention):
            self._record(f"{name}:place", q[..., q.shape[-1] - module.spec.rope_dim :].transpose(1, 2))
        for point, x in zip(("q", "keys", "values"), (q, k, v), strict=True):
            self._record(f"{name}:{point}", x.transpose(1, 2))
        for point, x in (("scores", probs), ("shares", probs), ("mixed", y)):
            self._record(f"{name}:{point}", x)
        return y

    def _record_intermediate(self, func: Any, args: Sequence[Any], out: Any) -> None:
        """Record a tensor that a mixer or router computes outside its submodules."""
        name, module = self._inside[-1]
        if isinstance(module.spec, MoE):
            if func in (torch.Tensor.topk, torch.cat):
                self._record(f"{name}:chosen", out.indices if func is torch.Tensor.topk else out)
        elif func in _MATMULS and isinstance(module.spec, LatentAttention):
            self._record(f"{name}:{'unpacked' if f'{name}:mixed' in self.shapes else 'absorbed'}", out)
        elif func is torch.Tensor.flatten and args[1:] == (-2,):
            self._record(f"{name}:joined", out)


def _expert_pattern(name: str) -> str:
    return re.sub(r"\.experts\.\d+(?=\.|$)", ".experts.{e}", name)
