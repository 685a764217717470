"""The tower and the projector of DeepSeek-V4.1 compared with the equations of its published code, on images of any shape."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import llamath
from llamath.core.multimodal import Multimodal
from llamath.run.kv_cache import Cache
from llamath.run.module import Module, TensorOptions
from llamath.run.torch_machine import TorchMachine

HEADS, SIZE, PATCH, WIDTH = 2, 8, 2, 20
CONFIG: dict[str, Any] = {
    "model_type": "deepseek_v41",
    "text_config": {
        "model_type": "deepseek_v41_text", "vocab_size": 50, "hidden_size": WIDTH, "moe_intermediate_size": 12, "num_hidden_layers": 1,
        "num_attention_heads": 2, "head_dim": 8, "qk_rope_head_dim": 4, "q_lora_rank": 10, "o_lora_rank": 6, "o_groups": 2,
        "n_routed_experts": 4, "num_experts_per_tok": 2, "compress_ratios": [0], "candidate_source_layer_id": -1,
        "num_nextn_predict_layers": 0,
    },
    "vision_config": {
        "model_type": "deepseek_v41_vision", "num_hidden_layers": 2, "hidden_size": HEADS * SIZE, "num_attention_heads": HEADS,
        "intermediate_size": 12, "patch_size": PATCH, "rope_theta": 100.0, "downsample_ratio": 3,
    },
}  # fmt: skip


def rms(x: Tensor, norm: Any) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * norm.weight


def linear(module: Any, x: Tensor) -> Tensor:
    return F.linear(x, module.weight.flatten(1), module.bias)


def rotate(x: Tensor, rows: int, columns: int) -> Tensor:
    """Both halves of a head are the parts of its pairs, of which the first turn with the row, the others with the column."""
    rates = 100.0 ** -(torch.arange(0, SIZE // 2, 2) / (SIZE // 2))
    row, column = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
    angles = torch.cat([row[:, None] * rates, column[:, None] * rates], -1)[:, None]
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def tower(module: Any, patches: Tensor, rows: int, columns: int) -> Tensor:
    x = linear(module.patches, patches)
    for layer in module.layers:
        y = rms(x, layer.attn_norm)
        q, k, v = (linear(projection, y).unflatten(-1, (HEADS, SIZE)) for projection in (layer.attn.q, layer.attn.k, layer.attn.v))
        scores = torch.einsum("thd,shd->hts", rotate(q, rows, columns), rotate(k, rows, columns)) / SIZE**0.5
        x = x + linear(layer.attn.o, torch.einsum("hts,shd->thd", scores.softmax(-1), v).flatten(1))
        y = rms(x, layer.mlp_norm)
        x = x + linear(layer.mlp.down, F.silu(linear(layer.mlp.gate, y)) * linear(layer.mlp.up, y))
    return rms(x, module.norm_after)


def framed(module: Any, x: Tensor, rows: int, columns: int) -> Tensor:
    """Squares of 3 × 3 patches, padded with zeros, in rows that end with a token, between two others."""
    grid = F.pad(x.T.unflatten(1, (rows, columns)), (0, -columns % 3, 0, -rows % 3))
    squares = F.unfold(grid[None], 3, stride=3)[0].T
    y = linear(module.linear_2, F.gelu(linear(module.linear_1, squares))).unflatten(0, (-(-rows // 3), -1))
    ended = torch.cat([y, module.row_end.expand(len(y), 1, -1)], 1).flatten(0, 1)
    return torch.cat([module.begin[None], ended, module.end[None]])


@torch.no_grad()
@pytest.mark.parametrize(("rows", "columns"), [(4, 7), (6, 3), (1, 5)])
def test_features_equal_the_equations(rows: int, columns: int) -> None:
    torch.manual_seed(0)
    tree = llamath.load(CONFIG).tree
    assert isinstance(tree, Multimodal)
    parts = [Module(x, TensorOptions(torch.float32, torch.device("cpu"))) for x in (tree.vision, tree.projector) if x is not None]
    for x in (y for part in parts for y in part.parameters()):
        x.normal_(0, 0.3)
    pixels = torch.randn(1, rows * columns, 3 * PATCH**2)
    m = TorchMachine(torch.zeros(1, rows * columns, dtype=torch.long), Cache([], 0))
    m.patch_grid = (rows, columns)
    features = parts[0](m, pixels)
    torch.testing.assert_close(features[0], tower(parts[0], pixels[0], rows, columns), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(parts[1](m, features)[0], framed(parts[1], features[0], rows, columns), atol=1e-4, rtol=1e-4)
