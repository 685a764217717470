"""`Watch`: while a module runs, the shapes of what its parts read and give, and of what is made inside them.

Hooks tell of modules; queries, scores and shares are no module's output and are caught where attention is worked out, which is done here
in plain products for once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from ..attention import Attention, LatentAttention, ScoreParams, attend, attention_probs
from ..forward_context import Mask, MaskBlock
from ..kv_cache import Cache, KVCache, RecurrentState
from ..layers import Decoder
from ..moe import MoE

Shape = tuple[int, ...]
MATMULS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)
MAX_REAL_SCORES = 1 << 25
"""Scores of more numbers than this are worked out on the meta device, beside the fused kernel."""


class RecordingKVCache(KVCache):
    """A memory that tells what it is given and what it gives."""

    def __init__(self, room: int, told: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], None]) -> None:
        super().__init__(room)
        self._told = told

    def update(self, new: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        """Remember, and tell."""
        held = super().update(new, past)
        self._told(new, held)
        return held


class ShapeRecorder(TorchFunctionMode):
    """Shapes by place: `layers.0.attn.q>` is what that module gives, `>…` what it reads, `layers.0.attn:scores` what is made inside."""

    def __init__(self, module: Decoder, layers: Iterable[int]) -> None:
        super().__init__()
        self.shapes: dict[str, Shape] = {}
        self._module, self._layers = module, set(layers)
        self._inside: list[tuple[str, nn.Module]] = []
        self._handles: list[RemovableHandle] = []

    def new_cache(self, room: int) -> Cache:
        """A cache whose memories are watched."""
        made = self._module.new_cache(room)
        for i, memory in enumerate(made.layers):
            if isinstance(memory, KVCache):
                made.layers[i] = RecordingKVCache(memory.capacity, self._remembering(i))
        return made

    def record_states(self, cache: Cache) -> None:
        """Note the states that are carried on."""
        for i, memory in enumerate(cache.layers):
            if isinstance(memory, RecurrentState) and memory.recurrent_state is not None:
                self._note(f"layers.{i}.attn:state", memory.recurrent_state)

    def __enter__(self) -> ShapeRecorder:
        self.shapes = {}
        for name, part in self._module.named_modules():
            if not name.startswith("layers.") or self._watched(name):
                self._handles += [
                    part.register_forward_pre_hook(self._reading(name)),
                    part.register_forward_hook(self._giving(name)),
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
            self._made(func, args, out)
        return out

    def _watched(self, name: str) -> bool:
        return int(name.split(".")[1]) in self._layers if name != "layers" else False

    def _note(self, place: str, x: Tensor | Shape) -> None:
        self.shapes[place] = tuple(x) if isinstance(x, tuple) else tuple(x.shape)

    def _reading(self, name: str) -> Callable[..., None]:
        place = f">{_expert(name)}"

        def hook(part: nn.Module, given: tuple[Any, ...]) -> None:
            if isinstance(part, (Attention, LatentAttention, MoE)):
                self._inside.append((name, part))
            if given and isinstance(given[0], Tensor):
                self._note(place, self._rows(place, given[0]))

        return hook

    def _giving(self, name: str) -> Callable[..., None]:
        place = f"{_expert(name)}>"

        def hook(_part: nn.Module, _given: object, out: Tensor) -> None:
            if self._inside and self._inside[-1][0] == name:
                self._inside.pop()
            self._note(place, self._rows(place, out))

        return hook

    def _rows(self, place: str, x: Tensor) -> Shape:
        """Its shape; of what experts read and give, all rows of all experts together."""
        if "{e}" not in place:
            return tuple(x.shape)
        before = self.shapes.get(place, (0,))[0]
        return before + x.shape[:-1].numel(), x.shape[-1]

    def _remembering(self, i: int) -> Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], None]:
        part, path = self._module.layers[i].attn, f"layers.{i}.attn"

        def told(new: tuple[Tensor, ...], held: tuple[Tensor, ...]) -> None:
            if isinstance(part, LatentAttention):
                self._note(f"{path}:key", new[0][..., part.spec.kv_lora_rank :].transpose(1, 2))
                self._note(f"{path}:kept", held[0].squeeze(1))
            else:
                self._note(f"{path}:k", new[0].transpose(1, 2))

        return told

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, scores: ScoreParams) -> Tensor:
        """What attention gives, its shares made before it; of very long prompts the shares' shape alone."""
        name, part = self._inside[-1]
        if q.shape[:-1].numel() * k.shape[-2] > MAX_REAL_SCORES:
            shares, y = attention_probs(q.to("meta"), k.to("meta"), MaskBlock(), scores._replace(sinks=None)), attend(q, k, v, mask, scores)
        else:
            shares = attention_probs(q, k, mask.full_block, scores)
            y = (shares.to(v.dtype).unflatten(1, (k.shape[1], -1)) @ v[:, :, None]).flatten(1, 2)
        if isinstance(part, LatentAttention):
            self._note(f"{name}:place", q[..., q.shape[-1] - part.spec.rope_dim :].transpose(1, 2))
        for place, x in zip(("q", "keys", "values"), (q, k, v), strict=True):
            self._note(f"{name}:{place}", x.transpose(1, 2))
        for place, x in (("scores", shares), ("shares", shares), ("mixed", y)):
            self._note(f"{name}:{place}", x)
        return y

    def _made(self, func: Any, args: Sequence[Any], out: Any) -> None:
        """What is made inside a mixer or a router without a module of its own."""
        name, part = self._inside[-1]
        if isinstance(part, MoE):
            if func in (torch.Tensor.topk, torch.cat):
                self._note(f"{name}:chosen", out.indices if func is torch.Tensor.topk else out)
        elif func in MATMULS and isinstance(part, LatentAttention):
            self._note(f"{name}:{'unpacked' if f'{name}:mixed' in self.shapes else 'absorbed'}", out)
        elif func is torch.Tensor.flatten and args[1:] == (2,):
            self._note(f"{name}:joined", out)


def _expert(name: str) -> str:
    return re.sub(r"\.experts\.\d+(?=\.|$)", ".experts.{e}", name)
