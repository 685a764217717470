"""`TorchMachine`: the `Machine` that computes tensors, for one pass over the tokens of a batch.

Weights arrive as Parameters, blocks as the `Module`s that own them. Every operation works on shards
of weights, too (`parallelize`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf, isqrt, log
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.config import ACTIVATIONS
from ..core.positions import LogNScaling, Rope, SplitAxialRope, TemperatureTuning
from ..utils.errors import LlamathError
from .attention import ScoreParams, attend, attend_block
from .forward_context import DistanceBias, ForwardContext, MaskBlock
from .kv_cache import Cache, KVCache, RecurrentState, WindowCache
from .linear_recurrence import RecurrenceInputs, linear_recurrence, selective_scan
from .rope import RopeCosSin, apply_rope, cos_sin
from .selected_keys import (
    BlockNumbers,
    SelectedBlocks,
    SelectedKeys,
    Windows,
    compress_windows,
    mean_of_windows,
    select_blocks,
    select_keys,
)

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "tanh": torch.tanh,
}


class TorchMachine(ForwardContext):
    """One pass. It holds the positions, masks and rotary tables of its tokens, and writes to the
    cache.
    """

    def __init__(self, ids: Tensor, cache: Cache, last_only: bool = False) -> None:
        super().__init__(ids, cache)
        self.absorbs = self.new_length == 1
        self.ids = ids
        self.last_only = last_only
        # of the prompt, of a model with an encoder, in the first pass
        self.encoder_ids: Tensor | None = None
        self.dtype: torch.dtype | None = None  # of the model: that of the first embedding
        # the keys that later layers attend to as well, by layer
        self._selections: dict[int, Tensor] = {}
        # keys and values that later layers read, by layer
        self._shared_kv: dict[int, tuple[Tensor, ...]] = {}

    # Each token alone

    def token_positions(self) -> Tensor:
        return self.positions

    def lookup(self, ids: Tensor, weight: Tensor, offset: int = 0) -> Tensor:
        rows = F.embedding(ids + offset if offset else ids, local_tensor(weight))
        self.dtype = self.dtype or rows.dtype
        return rows

    def lookup_in_parts(self, ids: Tensor, tables: nn.ModuleList) -> Tensor:
        weights: list[Tensor] = [local_tensor(table.get_parameter("weight")) for table in tables]
        part, row = ids // len(weights[0]), ids % len(weights[0])
        y = weights[0].new_zeros(*ids.shape, weights[0].shape[1])
        for i in part.unique().tolist() if not ids.is_meta else ():
            y = y.masked_scatter((part == i)[..., None], F.embedding(row[part == i], weights[i]))
        return y

    def add_sinusoids(self, x: Tensor, offset: int, steps: int) -> Tensor:
        rates = torch.exp(torch.arange(x.shape[-1] // 2, device=x.device) * (-log(10000.0) / steps))
        angles = (self.positions + offset)[..., None] * rates
        return x + torch.cat((angles.sin(), angles.cos()), -1).to(x.dtype)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        weight = local_tensor(weight)
        if weight.dtype != x.dtype:
            weight = weight.to(x.dtype)
        if weight.dim() > 2:  # of a patch embedding
            weight = weight.flatten(1)
        return F.linear(x, weight, None if bias is None else local_tensor(bias).to(x.dtype))

    def per_head_linear(
        self, x: Tensor, weight: Tensor, size: int, transposed: bool = False
    ) -> Tensor:
        matrices = local_tensor(weight).unflatten(0, (-1, size))  # (H, size, r)
        return (x.transpose(1, 2) @ (matrices if transposed else matrices.mT)).transpose(1, 2)

    def rms_norm(
        self,
        x: Tensor,
        weight: Tensor | None,
        eps: float,
        offset: float = 0.0,
        grouped: bool = False,
    ) -> Tensor:
        if grouped:
            assert weight is not None
            wide, scale = (x.float(), offset + weight.float()) if offset else (x, weight)
            return (
                (F.rms_norm(wide.unflatten(-1, weight.shape), weight.shape[-1:], eps=eps) * scale)
                .flatten(-2)
                .to(x.dtype)
            )
        if weight is None or not offset:
            return F.rms_norm(x, x.shape[-1:], weight, eps)
        return F.rms_norm(x.float(), x.shape[-1:], offset + weight.float(), eps).to(x.dtype)

    def layer_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, offset: float = 0.0
    ) -> Tensor:
        if weight is not None and weight.dim() > 1:  # one row per head
            return F.layer_norm(x, x.shape[-1:], eps=eps) * (local_tensor(weight) + offset)
        if weight is not None and offset:
            weight = weight + offset
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)

    def norm_heads(self, norm: nn.Module, x: Tensor) -> Tensor:
        if not isinstance(norm, nn.ModuleList):
            return norm(self, x)
        return torch.stack(
            [own(self, head) for own, head in zip(norm, x.unbind(2), strict=True)], 2
        )

    def l2_norm(self, x: Tensor, eps: float) -> Tensor:
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)

    def act(self, x: Tensor, activation: str) -> Tensor:
        return _FUNCTIONS[ACTIVATIONS[activation].function](x)

    def gated(self, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        return _FUNCTIONS[ACTIVATIONS[activation].function](gate) * up

    def clamped_gated(self, gate: Tensor, up: Tensor, limit: float, alpha: float) -> Tensor:
        gate = gate.clamp(max=limit)
        return (up.clamp(-limit, limit) + 1) * gate * torch.sigmoid(alpha * gate)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def multiply(self, x: Tensor, y: Tensor) -> Tensor:
        return x * y

    def dot(self, x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sum(-1, keepdim=True)

    def signed_root(self, x: Tensor, least: float) -> Tensor:
        return x.abs().clamp(min=least).sqrt() * x.sign()

    def scale(self, x: Tensor, factor: float) -> Tensor:
        return x if factor == 1.0 else x * factor

    def scale_by_weight(self, x: Tensor, weight: Tensor) -> Tensor:
        weight = weight.to(x.dtype)
        return x * (weight[:, None] if weight.numel() > 1 and x.dim() == 4 else weight)

    def scale_by_position(
        self, x: Tensor, temperature: TemperatureTuning | LogNScaling | None
    ) -> Tensor:
        return x if temperature is None else x * self.temperature_scale(temperature).to(x.dtype)

    def softcap(self, x: Tensor, cap: float | None) -> Tensor:
        return x if cap is None else cap * torch.tanh(x / cap)

    def mix_streams(self, x: Tensor, weights: Tensor) -> Tensor:
        return weights @ x

    def sinkhorn(self, x: Tensor, iterations: int, eps: float) -> Tensor:
        y = x.softmax(-1) + eps
        y = y / (y.sum(-2, keepdim=True) + eps)
        for _ in range(iterations - 1):
            y = y / (y.sum(-1, keepdim=True) + eps)
            y = y / (y.sum(-2, keepdim=True) + eps)
        return y.mT

    def offset(self, x: Tensor, amount: float) -> Tensor:
        return x + amount

    def softmax(self, x: Tensor) -> Tensor:
        return x.softmax(-1)

    def normalize_sum(self, x: Tensor) -> Tensor:
        return x / x.sum(-1, keepdim=True)

    def clamp(self, x: Tensor, limit: float) -> Tensor:
        return x.clamp(-limit, limit)

    def softplus(
        self, x: Tensor, bias: Tensor, minimum: float = 0.0, maximum: float = inf
    ) -> Tensor:
        y = F.softplus(x.float() + bias.float())
        return y.clamp(minimum, maximum) if minimum > 0 or maximum < inf else y

    def decay(self, dt: Tensor, a_log: Tensor) -> Tensor:
        return -a_log.float().exp() * dt

    def bounded_decay(
        self, x: Tensor, a_log: Tensor, bias: Tensor, head_dim: int, bound: float
    ) -> Tensor:
        shifted = (x.float() + bias.float()).unflatten(-1, (-1, head_dim))
        return bound * torch.sigmoid(
            a_log.float().flatten()[: shifted.shape[-2]].exp()[:, None] * shifted
        )

    def to_float32(self, x: Tensor) -> Tensor:
        return x.float()

    def to_model_dtype(self, x: Tensor) -> Tensor:
        return x if self.dtype is None else x.to(self.dtype)

    def dropout(self, x: Tensor) -> Tensor:
        return x  # models of this family are trained and run without dropout

    # Shapes

    def split_heads(self, x: Tensor, head_dim: int) -> Tensor:
        return x.unflatten(-1, (-1, head_dim))

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.flatten(-2)

    def split(self, x: Tensor, *sizes: int) -> tuple[Tensor, ...]:
        return x.split(sizes, -1)

    def concat(self, *parts: Tensor) -> Tensor:
        shape = parts[0].shape[:-1]
        return torch.cat([x if x.shape[:-1] == shape else x.expand(*shape, -1) for x in parts], -1)

    def last_token(self, x: Tensor) -> Tensor:
        return x[:, -1:] if self.last_only else x

    # Images and sound

    def prepend(self, x: Tensor, *rows: Tensor) -> Tensor:
        learned = [row.reshape(1, -1, x.shape[-1]).expand(x.shape[0], -1, -1) for row in rows]
        return torch.cat([*(row.to(x.dtype) for row in learned), x], 1)

    def drop_tokens(self, x: Tensor, n: int) -> Tensor:
        return x[:, n:]

    def add_positions(self, x: Tensor, table: Tensor, method: str = "") -> Tensor:
        if method.startswith("axial"):
            table = table.transpose(0, 1) if method == "axial_last" else table
            rows, columns = self._grid_of(x.shape[1])
            return x + (table[1, :rows, None] + table[0, None, :columns]).flatten(0, 1)
        table = table.flatten(0, -2)
        if method:
            return x + _resized(table.float(), method, self._grid_of(x.shape[1])).to(x.dtype)
        if x.shape[1] != len(table):
            raise LlamathError(
                f"the tower has positions for {len(table):,} tokens, found {x.shape[1]:,}",
                hint="resize the images",
            )
        return x + table

    def _grid_of(self, tokens: int) -> tuple[int, int]:
        """Rows and columns of the patches of an image, a square if none are given."""
        return self.patch_grid or (isqrt(tokens),) * 2

    def merge_patches(
        self, x: Tensor, side: int, by_channel: bool = False, padded: bool = False
    ) -> Tensor:
        squares = self._squares(x, side, padded)  # (B, n, side · side, d)
        return (squares.mT if by_channel else squares).flatten(2)

    def pool_patches(self, x: Tensor, side: int) -> Tensor:
        return self._squares(x, side).mean(2)

    def _squares(self, x: Tensor, side: int, padded: bool = False) -> Tensor:
        """Group the patches of each side × side square: `(B, N, d)` → `(B, N / side², side²,
        d)`.
        """
        rows, columns = self._grid_of(x.shape[1])
        if padded:
            grid = F.pad(
                x.unflatten(1, (rows, columns)), (0, 0, 0, -columns % side, 0, -rows % side)
            )
        else:
            grid = x.unflatten(1, (rows, columns))[
                :, : rows // side * side, : columns // side * side
            ]
        return (
            grid.unflatten(2, (-1, side))
            .unflatten(1, (-1, side))
            .transpose(2, 3)
            .flatten(3, 4)
            .flatten(1, 2)
        )

    def standardize(self, x: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        return ((x.float() - bias.float()) * scale.float()).to(x.dtype)

    def clip(self, x: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return x.clamp(low.to(x.dtype), high.to(x.dtype))

    def encoder_attention(
        self, q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, window: int | None = None
    ) -> Tensor:
        mask = None
        if window is not None:
            rows, columns = self._grid_of(q.shape[1])
            row, column = (torch.arange(n, device=q.device) // window for n in (rows, columns))
            places = (row[:, None] * columns + column).flatten()
            mask = places[:, None] == places
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        return F.scaled_dot_product_attention(
            q, k, v, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        ).transpose(1, 2)

    def encoder_tokens(self) -> tuple[Tensor, Tensor] | None:
        if self.past_length:
            return None
        ids = self.encoder_ids
        if ids is None:
            raise LlamathError(
                "the encoder has nothing to read",
                hint="give the machine the ids of the prompt, `encoder_ids`",
            )
        return ids, torch.arange(ids.shape[1], device=ids.device)

    def keep_encoded(self, mixer: Any, *rows: Tensor) -> tuple[Tensor, ...]:
        self.cache.encoded[mixer.layer] = kept = tuple(x.view_as(x) for x in rows)
        return kept

    def read_encoded(self, mixer: Any) -> tuple[Tensor, ...]:
        return self.cache.encoded[mixer.layer]

    def layer_outputs(self, layers: nn.ModuleList, x: Tensor, numbers: Sequence[int]) -> Tensor:
        states = [x]
        for layer in layers:
            states.append(layer(self, states[-1]))
        return torch.cat([states[i] for i in numbers], -1)

    # Tokens meet

    def rope(self, x: Tensor, rope: Rope | None) -> Tensor:
        if isinstance(rope, SplitAxialRope):
            return torch.cat(
                [
                    apply_rope(part, y)
                    for part, y in zip(x.chunk(2, -1), self.split_rope(rope), strict=True)
                ],
                -1,
            )
        return apply_rope(x, self.rope_cos_sin(rope))

    def update_cache(self, mixer: Any, *rows: Tensor) -> tuple[Tensor, ...]:
        visible = self._kv_cache(mixer).update(
            tuple(x.transpose(1, 2) for x in rows), self.past_length
        )
        rows = tuple(x.transpose(1, 2) for x in visible)
        if mixer.shares_kv:  # others are freed after their layer
            self._shared_kv[mixer.cache_layer] = rows
        return rows

    def read_cache(self, mixer: Any) -> tuple[Tensor, ...]:
        return self._shared_kv[mixer.cache_layer]

    def _kv_cache(self, mixer: Any) -> KVCache:
        cache = self.cache.layers[mixer.cache_layer]
        assert isinstance(cache, KVCache)
        return cache

    def select_keys(self, indexer: Any, q: Tensor, k: Tensor, weights: Tensor | None) -> Tensor:
        if indexer.ratio > 1:
            return select_keys(
                q,
                k[:, :, 0],
                weights,
                partial(self._visible_windows, indexer.ratio, k.shape[1]),
                indexer.top_k,
            )
        mask = self.mask(indexer.pattern, self._kv_cache(indexer).capacity)
        selected = select_keys(q, k[:, :, 0], weights, mask.visible, indexer.top_k)
        if indexer.shares_selection:
            self._selections[indexer.layer] = selected
        return selected

    def select_blocks(self, indexer: Any, q: Tensor, k: Tensor) -> Tensor:
        mask = self.mask(indexer.pattern, self._kv_cache(indexer).capacity)
        own, count = self.positions // indexer.block_size, -(-k.shape[1] // indexer.block_size)
        numbers = BlockNumbers(
            self._key_blocks(indexer), own, count, indexer.top_blocks, indexer.local_blocks
        )
        return select_blocks(q, k[:, :, 0], mask, numbers)

    def add_open_window(self, indexer: Any, selected: Tensor) -> Tensor:
        own = torch.where(
            (self.positions + 1) % indexer.ratio == 0, -1, self.positions // indexer.ratio
        )
        windows = torch.cat((selected, own.expand(selected.shape[:2])[..., None]), -1)[:, :, None]
        if indexer.shares_selection:
            self._selections[indexer.layer] = windows
        return windows

    def _key_blocks(self, mixer: Any) -> Tensor:
        """The number of the block of each cached key, `(S,)` or `(B, S)`."""
        return (
            self.to_positions(self.cached_positions(self._kv_cache(mixer).capacity))
            // mixer.block_size
        )

    def _windows(self, ratio: int) -> Windows:
        # counts, not data
        padding = torch.zeros(1, dtype=torch.long) if self.padding is None else self.padding.cpu()
        before, after = (
            (n - padding).clamp(min=0) // ratio
            for n in (self.past_length, self.past_length + self.new_length)
        )
        return Windows(ratio, padding, before, after)

    def _visible_windows(self, ratio: int, count: int, queries: slice) -> Tensor:
        """Which windows these queries see: those that are complete, `(T, W)` or `(B, T, W)`."""
        return (
            torch.arange(count, device=self.device)
            < ((self.positions[..., queries] + 1) // ratio)[..., None]
        )

    def _window_cache(self, compressor: Any) -> WindowCache:
        cache = self.cache.layers[compressor.cache_layer]
        assert cache is None or isinstance(cache, WindowCache)
        return WindowCache(0) if cache is None else cache

    def compress(
        self, compressor: Any, kv: Tensor, gate: Tensor | None, bias: Tensor | None
    ) -> Tensor:
        kv, *gates = self._window_cache(compressor).add_tokens(
            (kv,) if gate is None else (kv, gate)
        )
        start, windows = (
            self.past_length + self.new_length - kv.shape[1],
            self._windows(compressor.ratio),
        )
        if not gates:
            return mean_of_windows(kv, windows, start)
        return compress_windows(
            kv,
            gates[0],
            None if bias is None else bias.to(kv.dtype),
            windows,
            start,
            compressor.overlap,
        )

    def rope_windows(self, compressor: Any, x: Tensor, rope: Rope | None) -> Tensor:
        if rope is None:
            return x
        first_tokens = self._windows(compressor.ratio).numbers.to(x.device) * compressor.ratio
        cos, sin = cos_sin(rope, first_tokens, self.past_length + self.new_length)
        return apply_rope(x, RopeCosSin(cos.unsqueeze(-2), sin.unsqueeze(-2), rope.interleaved))

    def update_windows(self, compressor: Any, x: Tensor) -> Tensor:
        windows = self._windows(compressor.ratio)
        return self._window_cache(compressor).add_windows(
            x, windows.first.expand(len(x)), int(windows.end.max())
        )

    def compressed_attention(
        self,
        mixer: Any,
        q: Tensor,
        k: Tensor,
        windows: Tensor,
        head_dim: int,
        sinks: Tensor | None = None,
        selected: Tensor | None = None,
    ) -> Tensor:
        params = ScoreParams(head_dim**-0.5, None, None if sinks is None else local_tensor(sinks))
        mask, keys = (
            self.mask(mixer.pattern, self._kv_cache(mixer).capacity),
            torch.cat((k, windows), 1).transpose(1, 2),
        )
        size = max(1, self.block_limits.max_scores // (q.shape[0] * q.shape[2] * keys.shape[2]))
        parts = []
        for first in range(0, q.shape[1], size):
            at = slice(first, min(first + size, q.shape[1]))
            far = self._visible_windows(mixer.ratio, windows.shape[1], at).expand(len(q), -1, -1)
            if selected is not None:
                far = far & torch.zeros_like(far).scatter(2, selected[:, at], True)
            near = mask.visible(at).expand(len(q), -1, -1)
            block = MaskBlock(mask=torch.cat((near, far), 2)[:, None])
            parts.append(attend_block(q[:, at].transpose(1, 2), keys, keys, block, params))
        return torch.cat(parts, 2).transpose(1, 2)

    def reuse_selection(self, mixer: Any) -> Tensor:
        return self._selections[mixer.selecting_layer]

    def attention(
        self,
        mixer: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        head_dim: int,
        sinks: Tensor | None = None,
        selected: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        transform = mixer.score_transform
        scale = head_dim**-0.5 if transform.scale is None else transform.scale
        params = ScoreParams(
            scale, transform.softcap, None if sinks is None else local_tensor(sinks)
        )
        mask = self.mask(mixer.pattern, self._kv_cache(mixer).capacity)
        if bias is not None:
            biased = DistanceBias(mask, bias.transpose(1, 2))
            return attend(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), biased, params
            ).transpose(1, 2)
        if selected is not None and selected.dim() == 4:
            count = -(-k.shape[1] // mixer.block_size)
            in_blocks = SelectedBlocks(mask, selected, self._key_blocks(mixer), count, q.shape[2])
            return attend(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), in_blocks, params
            ).transpose(1, 2)
        kept = (
            None
            if selected is None or selected.shape[2] == k.shape[1]
            else SelectedKeys(mask, selected, k.shape[1])
        )
        if kept is not None:
            k, v = kept.gather(k), kept.gather(v)
        return attend(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), kept or mask, params
        ).transpose(1, 2)

    def hash_ngrams(
        self, mixer: Any, multipliers: Tensor, sizes: Tensor, offsets: Tensor
    ) -> Tensor:
        state, most, end = self._state(mixer), mixer.ngram_size - 1, mixer.end_token
        ids = (
            self.ids
            if self.token_mask is None
            else torch.where(self.token_mask[..., 0], self.ids, end)
        )
        before = state.conv_states.get(id(mixer))
        history = torch.cat(
            (ids.new_full((len(ids), most), end) if before is None else before.to(ids.dtype), ids),
            1,
        )
        state.conv_states[id(mixer)] = history[:, ids.shape[1] :].int()
        mixed, within, rows = ids * multipliers[0], torch.ones_like(ids, dtype=torch.bool), []
        for n in range(1, most + 1):
            earlier, heads = (
                history[:, most - n : history.shape[1] - n],
                slice((n - 1) * mixer.heads_per_ngram, n * mixer.heads_per_ngram),
            )
            within = within & (earlier != end)
            mixed = mixed ^ (torch.where(within, earlier, end) * multipliers[n])
            rows.append(mixed[..., None] % sizes[heads] + offsets[heads])
        return torch.cat(rows, -1)

    def causal_conv(
        self, mixer: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int = 1
    ) -> Tensor:
        state, reach = self._state(mixer), (weight.shape[1] - 1) * dilation  # earlier positions
        x, weight = x if self.token_mask is None else x * self.token_mask, weight.to(x.dtype)
        earlier = state.conv_states.get(id(mixer))
        before = (
            x.new_zeros(x.shape[0], reach, x.shape[2])
            if earlier is None
            else earlier[:, earlier.shape[1] - reach :]
        )
        x, kept = torch.cat((before, x), 1), reach + 1 if dilation == 1 else reach
        state.conv_states[id(mixer)] = x[:, x.shape[1] - kept :].clone()
        return F.conv1d(x.mT, weight[:, None], bias, dilation=dilation, groups=x.shape[2]).mT

    def gated_delta_rule(
        self, mixer: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor
    ) -> Tensor:
        state = self._state(mixer)
        y, state.recurrent_state = linear_recurrence(
            RecurrenceInputs.from_heads(q, k, v, g, beta), state.recurrent_state
        )
        return y

    def linear_attention(self, mixer: Any, q: Tensor, k: Tensor, v: Tensor, layers: int) -> Tensor:
        state = self._state(mixer)
        v = v if self.token_mask is None else v * self.token_mask[..., None]
        factor = 1 - mixer.layer / (layers - 1 + 1e-5) + 1e-5
        slopes = torch.tensor(
            [2 ** (-8 * i / mixer.heads) * factor for i in range(1, mixer.heads + 1)],
            device=q.device,
        )
        inputs = RecurrenceInputs.from_heads(q, k, v, -slopes.expand(q.shape[:3]))
        y, state.recurrent_state = linear_recurrence(inputs, state.recurrent_state)
        return y

    def ssm_scan(
        self, mixer: Any, x: Tensor, b: Tensor, c: Tensor, dt: Tensor, a_log: Tensor
    ) -> Tensor:
        state = self._state(mixer)
        dt = dt if self.token_mask is None else dt * self.token_mask
        # stored as (m, n), as in transformers
        before = None if state.recurrent_state is None else state.recurrent_state.mT
        inputs = RecurrenceInputs.from_heads(c, b, x * dt[..., None], self.decay(dt, a_log))
        y, after = linear_recurrence(inputs, before)
        state.recurrent_state = after.mT
        return y

    def selective_scan(
        self, mixer: Any, x: Tensor, b: Tensor, c: Tensor, dt: Tensor, a_log: Tensor, skip: Tensor
    ) -> Tensor:
        state = self._state(mixer)
        dt = dt if self.token_mask is None else dt * self.token_mask
        inputs = (dt, dt * x, b.float(), c.float())
        y, state.recurrent_state = selective_scan(
            *inputs, -a_log.float().exp(), state.recurrent_state
        )
        return y + skip.float() * x

    def _state(self, mixer: Any) -> RecurrentState:
        """Return the state of a mixer; without a cache it starts anew, so that a checkpointed
        layer can be computed twice.
        """
        state = self.cache.layers[mixer.cache_layer]
        assert state is None or isinstance(state, RecurrentState)
        return RecurrentState() if state is None else state

    # One of many

    def route(self, logits: Tensor, correction: Tensor | None, moe: Any) -> tuple[Tensor, Tensor]:
        scores = _expert_scores(logits, moe.scoring)
        ranked = logits if moe.choice_by_logits else scores
        ranked = ranked if correction is None else ranked + correction
        if moe.expert_groups is not None:
            ranked = _mask_groups(ranked, *moe.expert_groups)
        chosen = ranked.topk(moe.top_k, -1).indices
        weights = scores.gather(-1, chosen)
        if moe.norm_topk_prob and moe.routing != "input":
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return chosen, weights * moe.routed_scaling_factor

    def route_by_token(self, logits: Tensor, table: Tensor, moe: Any) -> tuple[Tensor, Tensor]:
        chosen = table[self.ids].long().clamp(0, logits.shape[-1] - 1)
        weights = _expert_scores(logits, moe.scoring).gather(-1, chosen)
        return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20) * moe.routed_scaling_factor

    def scale_by_expert(self, weights: Tensor, chosen: Tensor, scale: Tensor) -> Tensor:
        return weights * scale[chosen]

    def experts(
        self, moe: Any, experts: nn.ModuleList, x: Tensor, chosen: Tensor, weights: Tensor
    ) -> Tensor:
        """Run each expert on its tokens and sum the outputs; weights apply to the experts'
        outputs, or inputs if `routing` is "input".
        """
        if x.is_meta:  # no values to route by: one expert gets the rows of all that a token has
            out = experts[0](self, x.flatten(0, -2).repeat(chosen.shape[-1], 1))
            return out.new_empty(*x.shape[:-1], out.shape[-1])
        tokens, chosen, weights = x.flatten(0, -2), chosen.flatten(0, -2), weights.flatten(0, -2)
        y: Tensor | None = None
        for e in chosen.unique().tolist():
            at, slot = torch.where(chosen == e)
            inputs, weight = tokens[at], weights[at, slot, None]
            expert = experts[e] if e < len(experts) else _identity
            scaled = moe.routing == "input"
            out = expert(self, (inputs * weight).to(x.dtype) if scaled else inputs)
            out = out if scaled else out * weight
            y = torch.zeros(len(tokens), out.shape[-1], device=x.device) if y is None else y
            y = y.index_add(0, at, out.float())
        assert y is not None
        return y.to(x.dtype).view(*x.shape[:-1], -1)

    def layers(self, layers: nn.ModuleList, x: Tensor, *extra: Tensor) -> Tensor:
        for i, layer in enumerate(layers):
            x = layer(self, x, *(e[:, :, i] if e.dim() == 4 else e for e in extra))
        return x


def _expert_scores(logits: Tensor, scoring: str) -> Tensor:
    """Return the scores of experts."""
    if scoring == "sqrtsoftplus":
        return F.softplus(logits).sqrt()
    return logits.sigmoid() if scoring == "sigmoid" else logits.softmax(-1)


def _mask_groups(scores: Tensor, groups: int, kept: int, best: int, other: float) -> Tensor:
    """Set the scores of all groups but the `kept` best to `other`; a group counts as much as its
    `best` highest scores.
    """
    grouped = scores.unflatten(-1, (groups, -1))
    top_groups = grouped.topk(best, -1).values.sum(-1).topk(kept, -1).indices
    kept_groups = torch.zeros(grouped.shape[:-1], dtype=torch.bool, device=scores.device).scatter(
        -1, top_groups, True
    )
    return grouped.masked_fill(~kept_groups[..., None], other).flatten(-2)


def _identity(m: TorchMachine, x: Tensor) -> Tensor:  # noqa: ARG001
    """Compute an expert without weights, which returns its input."""
    return x


def _resized(table: Tensor, method: str, size: tuple[int, int]) -> Tensor:
    """The rows of a square grid of patches, interpolated to the grid of the image, `(N, d)`."""
    square = table.unflatten(0, (isqrt(len(table)), -1)).permute(2, 0, 1)[None]
    if method == "transposed":
        size, method = (size[1], size[0]), "zeros"
    if method == "zeros":
        # centers of patches, from -1 to 1
        rows, columns = (torch.arange(1, 2 * n, 2, device=table.device) / n - 1 for n in size)
        centers = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1)[None]
        resized = F.grid_sample(square, centers, align_corners=False)
    elif method == "cropped":
        resized = F.interpolate(
            square, size=(max(size),) * 2, mode="bilinear", align_corners=False
        )[:, :, : size[0], : size[1]]
    elif method in ("antialias", "centers"):
        resized = F.interpolate(
            square, size=size, mode="bilinear", align_corners=False, antialias=method == "antialias"
        )
    else:
        resized = F.interpolate(square, size=size, mode=method, align_corners=method == "bilinear")
    return resized[0].flatten(1).mT


def local_tensor(x: Tensor) -> Tensor:
    """Return this rank's shard of a weight; the whole weight unless `parallelize` has sharded
    it.
    """
    return x if type(x) is nn.Parameter or not hasattr(x, "to_local") else x.to_local()
