"""The tower of Kimi K3, which transformers has no class for, compared with its equations, written with torch."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath.analysis.graph.image_pass import Images, image_pass
from llamath.core.multimodal import ModelPart
from llamath.torch import canonical_weights, load_weights
from llamath.torch.kv_cache import Cache
from llamath.torch.module import Module, TensorOptions
from llamath.torch.torch_machine import TorchMachine

D, INNER, HEADS, MLP, LAYERS, PLACES, TEXT = 24, 48, 3, 40, 2, 6, 20
CONFIG: dict[str, Any] = {
    "model_type": "kimi_k3",
    "text_config": {
        "model_type": "kimi_linear", "hidden_size": TEXT, "intermediate_size": 36, "num_hidden_layers": 4, "num_attention_heads": 2,
        "num_key_value_heads": 2, "vocab_size": 90, "kv_lora_rank": 8, "q_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
        "v_head_dim": 8, "mla_use_nope": True, "mla_use_output_gate": True, "attn_res_block_size": 2, "hidden_act": "situ",
        "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0, "first_k_dense_replace": 1, "num_experts": 4,
        "num_experts_per_token": 2, "num_shared_experts": 1, "moe_intermediate_size": 12, "routed_expert_hidden_size": 10,
        "latent_moe_use_norm": True, "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "rms_norm_eps": 1e-05,
        "linear_attn_config": {
            "full_attn_layers": [4], "kda_layers": [1, 2, 3], "gate_lower_bound": -5.0, "head_dim": 128, "num_heads": 96,
            "short_conv_kernel_size": 4, "use_full_rank_gate": True,
        },
    },
    "vision_config": {
        "norm_type": "rmsnorm", "merge_kernel_size": [2, 2], "patch_size": 14, "init_pos_emb_height": PLACES, "init_pos_emb_width": PLACES,
        "qkv_hidden_size": INNER, "vt_hidden_size": D, "vt_intermediate_size": MLP, "vt_num_attention_heads": HEADS,
        "vt_num_hidden_layers": LAYERS,
    },
}  # fmt: skip
MOST_TOKENS = ((1861, 7041), 16_817)
"""Width and height of the image with most tokens, and their number, in vLLM's plugin for Ascend."""


def rotated(x: Tensor, rows: int, columns: int) -> Tensor:
    """Pairs of neighboring channels of x `(heads, patches, h)` as complex numbers, turned by the column and the row of a patch by turns."""
    h = x.shape[-1]
    frequencies = 1e4 ** -(torch.arange(0, h, 4) / h)
    row, column = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
    angles = torch.stack([column[:, None] * frequencies, row[:, None] * frequencies], -1).flatten(
        -2
    )
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(
        torch.ones_like(angles), angles
    )
    return torch.view_as_real(turned).flatten(-2)


def features(w: dict[str, Tensor], pixels: Tensor, rows: int, columns: int) -> Tensor:
    """The projected features of one image, whose patches are `(patches, 3, 14, 14)`."""
    x = F.conv2d(pixels, w["vision_tower.patch_embed.proj.weight"], stride=14).flatten(1)
    places = w["vision_tower.patch_embed.pos_emb.weight"].permute(2, 0, 1)[None]
    x = x + F.interpolate(places, size=(rows, columns), mode="bilinear")[0].flatten(1).mT
    for i in range(LAYERS):
        block = f"vision_tower.encoder.blocks.{i}."
        y = F.rms_norm(x, (D,), w[f"{block}norm0.weight"])
        q, k, v = (
            F.linear(y, w[f"{block}wqkv.weight"]).unflatten(-1, (3, HEADS, -1)).permute(1, 2, 0, 3)
        )
        y = F.scaled_dot_product_attention(
            rotated(q, rows, columns)[None], rotated(k, rows, columns)[None], v[None]
        )
        x = x + F.linear(y[0].transpose(0, 1).flatten(1), w[f"{block}wo.weight"])
        y = F.linear(F.rms_norm(x, (D,), w[f"{block}norm1.weight"]), w[f"{block}mlp.fc0.weight"])
        x = x + F.linear(F.gelu(y, approximate="tanh"), w[f"{block}mlp.fc1.weight"])
    x = F.rms_norm(x, (D,), w["vision_tower.encoder.final_layernorm.weight"])
    x = x.reshape(rows // 2, 2, columns // 2, 2, D).transpose(1, 2).reshape(-1, 4 * D)
    x = F.linear(
        F.gelu(F.linear(x, w["mm_projector.proj.0.weight"])), w["mm_projector.proj.2.weight"]
    )
    return F.rms_norm(x, (TEXT,), w["mm_projector.post_norm.weight"], 1e-5)


@torch.no_grad()
@pytest.mark.parametrize(
    ("width", "height", "grid"), [(50, 100, (8, 4)), (84, 84, (6, 6)), (200, 13, (2, 16))]
)
def test_features_and_flops_equal_the_equations(
    width: int, height: int, grid: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    model = llamath.load(CONFIG)
    assert model.tree.is_multimodal and not any("ignored" in x for x in model.notes)
    part = ModelPart(vision=model.tree.vision, projector=model.tree.projector)
    stored = {
        x.name: torch.randn(*map(int, x.shape)) * 0.2 for x in model.family.hf.tensors(model.tree)
    }
    module = Module(part, TensorOptions(torch.float32, torch.device("cpu")))
    load_weights(module, canonical_weights(part, model.family.hf, stored))
    pixels = torch.randn(prod(grid), 3, 14, 14)
    machine = TorchMachine(torch.zeros(1, len(pixels), dtype=torch.long), Cache([], 0))
    machine.patch_grid = grid
    ours = module(machine, pixels.flatten(1)[None])[0]
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        expected = features(stored, pixels, *grid)
    torch.testing.assert_close(ours, expected, atol=2e-5, rtol=1e-4)
    images = image_pass(model.tree, Images(count=1, width=width, height=height))
    assert images.grid == (1, *grid) and images.tokens == len(expected)
    assert images.flops.total == counter.get_total_flops()


def test_largest_image_has_as_many_tokens_as_published() -> None:
    (width, height), tokens = MOST_TOKENS
    tree = llamath.load("kimi-k3").tree
    assert image_pass(tree, Images(count=1, width=width, height=height)).tokens == tokens
    assert image_pass(tree, Images(count=1, width=224, height=224)).tokens == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mm_projector_type": "patchmerger"}, "mm_projector_type should be patchmergerv2"),
        (
            {"pos_emb_interpolation_mode": "bicubic"},
            "pos_emb_interpolation_mode should be bilinear",
        ),
        ({"init_pos_emb_width": 5}, "is 5, unlike the height 6"),
        ({"vt_num_attention_heads": 7}, "is 7, which does not divide the width 48"),
    ],
)
def test_other_towers_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(llamath.ConfigError, match=message):
        llamath.load({**CONFIG, "vision_config": {**CONFIG["vision_config"], **changes}})
