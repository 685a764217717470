"""Kimi K3, which transformers has no class for: its passes compared with the equations of its report and the code of its release."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath.analysis.graph.flop_count import forward_flops
from llamath.analysis.graph.recorder import record_part
from llamath.core.expr import Expr
from llamath.families import kimi_k3
from llamath.torch import build
from support.written_models import names_of, same_weights, written

HEADS, SIZE, EPS = 3, 8, 1e-5
CONFIG: dict[str, Any] = {
    "model_type": "kimi_k3_text", "hidden_size": 20, "intermediate_size": 36, "num_hidden_layers": 7, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 50, "kv_lora_rank": 10, "q_lora_rank": 14, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4,
    "v_head_dim": 5, "mla_use_nope": True, "mla_use_output_gate": True, "attn_res_block_size": 3, "hidden_act": "situ",
    "activation_situ_beta": 0.5, "activation_situ_linear_beta": 2.0, "first_k_dense_replace": 1, "num_experts": 6,
    "num_experts_per_token": 2, "num_shared_experts": 2, "moe_intermediate_size": 9, "routed_expert_hidden_size": 12,
    "latent_moe_use_norm": True, "moe_router_activation_func": "sigmoid", "moe_renormalize": True, "routed_scaling_factor": 2.5,
    "max_position_embeddings": 64, "rms_norm_eps": EPS,
    "linear_attn_config": {
        "full_attn_layers": [4, 7], "kda_layers": [1, 2, 3, 5, 6], "gate_lower_bound": -5.0, "head_dim": SIZE, "num_heads": HEADS,
        "short_conv_kernel_size": 4, "use_full_rank_gate": True,
    },
}  # fmt: skip


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kimi_k3, "_PROVEN", (HEADS, SIZE))
    torch.manual_seed(0)
    found = build(llamath.load(CONFIG))
    for x in found.parameters():
        x.data.normal_(0, 0.25)
    return found.requires_grad_(False)


def rms(x: Tensor, norm: Any) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * norm.weight


def depth_attention(mixer: Any, values: list[Tensor]) -> Tensor:
    """Equation 9: the softmax of the scores of a learned query with each normalized value."""
    v = torch.stack(values, 2)  # (B, T, n, d)
    scores = F.linear(rms(v, mixer.norm), mixer.proj.weight).squeeze(-1).softmax(-1)
    return (scores.unsqueeze(-2) @ v).squeeze(-2)


def situ_mlp(mlp: Any, x: Tensor) -> Tensor:
    gate, up = F.linear(x, mlp.gate.weight), F.linear(x, mlp.up.weight)
    return F.linear(
        0.5 * torch.tanh(gate / 0.5) * torch.sigmoid(gate) * 2.0 * torch.tanh(up / 2.0),
        mlp.down.weight,
    )


def experts(moe: Any, x: Tensor) -> Tensor:
    scores = F.linear(x, moe.router.weight).sigmoid()
    chosen = (scores + moe.correction).topk(2).indices
    weights = scores.gather(-1, chosen)
    weights = 2.5 * weights / (weights.sum(-1, keepdim=True) + 1e-20)
    narrow = F.linear(x, moe.latent_down.weight)
    outputs = torch.stack([situ_mlp(expert, narrow) for expert in moe.experts], -2)  # (B, T, E, e)
    mixed = (
        outputs.gather(-2, chosen[..., None].expand(*chosen.shape, outputs.shape[-1]))
        * weights[..., None]
    ).sum(-2)
    return F.linear(rms(mixed, moe.latent_norm), moe.latent_up.weight) + situ_mlp(moe.shared, x)


def delta(attn: Any, x: Tensor) -> Tensor:
    """The delta rule with decays for each channel of a key, token by token."""

    def convolved(projection: Any, conv: Any) -> Tensor:
        y = F.linear(x, projection.weight).mT
        kernel = conv.weight.reshape(y.shape[1], 1, -1)
        y = F.conv1d(F.pad(y, (kernel.shape[-1] - 1, 0)), kernel, groups=y.shape[1]).mT
        return F.silu(y).unflatten(-1, (HEADS, SIZE))

    q, k, v = (
        convolved(getattr(attn, name), getattr(attn, f"{name}_conv"))
        for name in ("query", "key", "value")
    )
    q, k = (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6) for y in (q, k))
    forget = F.linear(F.linear(x, attn.forget_down.weight), attn.forget.weight) + attn.dt_bias
    g = -5.0 * torch.sigmoid(
        attn.a_log.flatten()[:HEADS].exp()[:, None] * forget.unflatten(-1, (HEADS, SIZE))
    )
    beta = F.linear(x, attn.beta.weight).sigmoid()
    state, outputs = torch.zeros(len(x), HEADS, SIZE, SIZE), []
    for t in range(x.shape[1]):
        state = state * g[:, t, :, :, None].exp()
        error = v[:, t] - (k[:, t, :, None] @ state).squeeze(-2)
        state = state + k[:, t, :, :, None] * (beta[:, t, :, None] * error)[:, :, None]
        outputs.append((q[:, t, :, None] @ state).squeeze(-2) * SIZE**-0.5)
    y = rms(torch.stack(outputs, 1), attn.norm) * F.linear(x, attn.gate.weight).sigmoid().unflatten(
        -1, (HEADS, SIZE)
    )
    return F.linear(y.flatten(-2), attn.out.weight)


def latent(attn: Any, x: Tensor) -> Tensor:
    q = F.linear(rms(F.linear(x, attn.q_down.weight), attn.q_norm), attn.q_up.weight).unflatten(
        -1, (2, 10)
    )
    kv, shared = F.linear(x, attn.kv_down.weight).split((10, 4), -1)
    kv = rms(kv, attn.kv_norm)
    k, v = (
        F.linear(kv, attn.k_up.weight).unflatten(-1, (2, 6)),
        F.linear(kv, attn.v_up.weight).unflatten(-1, (2, 5)),
    )
    k = torch.cat([k, shared[:, :, None].expand(-1, -1, 2, -1)], -1)
    y = (
        F.scaled_dot_product_attention(*(z.transpose(1, 2) for z in (q, k, v)), is_causal=True)
        .transpose(1, 2)
        .flatten(-2)
    )
    return F.linear(y * F.linear(x, attn.gate.weight).sigmoid(), attn.o.weight)


def reference(model: Any, ids: Tensor) -> Tensor:
    x: Tensor = model.embed.weight[ids]
    blocks: list[Tensor] = []
    total = x
    for i, layer in enumerate(model.layers):
        y = depth_attention(layer.attn_depth, [*blocks, total]) if blocks else total
        opens = i % 3 == 0
        if opens:
            blocks.append(total)
        y = (latent if i in (3, 6) else delta)(layer.attn, rms(y, layer.attn_norm))
        total = y if opens else total + y
        y = rms(depth_attention(layer.mlp_depth, [*blocks, total]), layer.mlp_norm)
        total = total + (experts(layer.mlp, y) if i else situ_mlp(layer.mlp, y))
    return F.linear(
        rms(depth_attention(model.collapse, [*blocks, total]), model.norm), model.head.weight
    )


@torch.no_grad()
def test_logits_equal_the_equations(model: Any) -> None:
    ids = torch.randint(50, (2, 17))
    torch.testing.assert_close(model(ids), reference(model, ids), atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_written_file_computes_the_same(model: Any) -> None:
    """Layers that differ in the number of streams alone are one class."""
    report = written(CONFIG)
    assert report.text.count("class DepthAttentionLayer") == 4
    ids = torch.randint(50, (2, 12))
    theirs = same_weights(names_of(report), model)
    torch.testing.assert_close(theirs(ids), model(ids), atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_logits_with_a_cache_equal_those_of_one_pass(model: Any) -> None:
    ids = torch.randint(50, (2, 12))
    cache = model.new_cache(12)
    cached = torch.cat(
        [model(ids[:, a:b], cache) for a, b in itertools.pairwise((0, 5, 7, 8, 9, 10, 11, 12))], 1
    )
    torch.testing.assert_close(cached, model(ids), atol=1e-3, rtol=1e-3)


def test_state_of_the_cache_follows_the_kinds_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kimi_k3, "_PROVEN", (HEADS, SIZE))
    model = llamath.load(CONFIG)
    near, far = (llamath.memory(model, context=n).kv_cache for n in (16, 32))
    assert far - near == 16 * 2 * (10 + 4) * 2  # latent vectors of two layers, in 16 bits


@torch.no_grad()
def test_flops_of_depth_attention_equal_torch(model: Any) -> None:
    mixer, x = model.layers[4].attn_depth, torch.randn(1, 6, 20)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        depth_attention(mixer, [x, x, x])
    graph, _ = record_part(mixer.spec, (Expr.const(1), Expr.const(6), Expr.const(60)))
    assert forward_flops(graph).total == counter.get_total_flops()
