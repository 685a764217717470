"""FLOPs compared with torch's FlopCounterMode on transformers' models: exact for forward, backward and decode, with known differences.

Experts run as `batched_mm`, which computes only the chosen experts. The default `grouped_mm` is unknown to torch's counter, which then
counts no experts at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import llamath
from llamath.analysis.graph.flop_count import forward_flops, train_flops
from llamath.analysis.graph.node import Node
from llamath.analysis.graph.operations.operation_list import OPERATIONS
from llamath.analysis.graph.recorder import Graph, record
from llamath.core.blocks import Decoder
from llamath.core.config import Config
from llamath.core.latent_attention import LatentAttention
from llamath.families.registry import find_family
from support.reference_data import tiny_configs

pytestmark = pytest.mark.transformers

B, T = 2, 9


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Use one thread: these models are too small for more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tree_of(config: dict[str, Any]) -> Decoder:
    return find_family(config["model_type"])(Config(config))


def built(config: dict[str, Any], attention: str, experts: str = "batched_mm") -> Any:
    import torch
    import transformers

    torch.manual_seed(0)
    hf_config = transformers.AutoConfig.for_model(**config)
    return transformers.AutoModelForCausalLM.from_config(
        hf_config, attn_implementation=attention, experts_implementation=experts
    )


def ids() -> Any:
    import torch

    return torch.randint(0, 20, (B, T))


def counted(work: Callable[[], Any]) -> tuple[int, Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        out = work()
    return counter.get_total_flops(), out


def nodes(graph: Graph, name: str) -> Iterator[tuple[int, Node]]:
    """Every node of an operation, with its number of layers."""
    return ((int(region.times), x) for region, x in graph.nodes() if x.op.name == name)


def flops_of(graph: Graph, op: str) -> int:
    rule = OPERATIONS[op].flops
    assert rule is not None
    return sum(n * int(rule(x, False)) for n, x in nodes(graph, op))


def states(graph: Graph) -> int:
    return sum(
        flops_of(graph, op)
        for op in (
            "gated_delta_rule",
            "linear_attention",
            "selective_scan",
            "ssm_scan",
        )
    )


@pytest.mark.parametrize(("new_tokens", "past_tokens"), [(100, 1000), (512, 32256)])
def test_chunk_flops_of_a_deepseek_v3_layer_equal_torch(new_tokens: int, past_tokens: int) -> None:
    import torch

    left_out = ("quantization_config", "auto_map")
    config = {
        key: x for key, x in llamath.load("deepseek-v3").config.data.items() if key not in left_out
    }
    config |= {"num_hidden_layers": 1, "first_k_dense_replace": 1}
    with torch.device("meta"), torch.no_grad():
        model = built(config, "sdpa").eval()
        cache = model(torch.zeros(1, past_tokens, dtype=torch.long), use_cache=True).past_key_values
        result, _ = counted(
            lambda: model(
                torch.zeros(1, new_tokens, dtype=torch.long), past_key_values=cache, use_cache=True
            )
        )
    graph = record(tree_of(config), new_tokens=new_tokens, past_tokens=past_tokens)
    assert result == forward_flops(graph, masked=False).total


@pytest.mark.parametrize(
    "config", [x for x in tiny_configs() if x.values[0]["model_type"] == "mixtral"]
)
def test_torch_does_not_count_grouped_experts(config: dict[str, Any]) -> None:
    flops, tokens = (
        forward_flops(record(tree_of(config), batch=B, new_tokens=T), masked=False),
        ids(),
    )
    grouped, _ = counted(lambda: built(config, "eager", "grouped_mm")(tokens, use_cache=False))
    assert flops.total - grouped == flops.of("experts")


def test_frozen_embeddings_save_first_layer_input_gradients() -> None:
    (config,) = [x.values[0] for x in tiny_configs() if x.id == "llama-plain"]
    tree, model = tree_of(config), built(config, "eager")
    model.get_input_embeddings().requires_grad_(False)
    model.model.layers[0].input_layernorm.requires_grad_(False)
    forward, out = counted(lambda: model(ids(), use_cache=False).logits)
    backward, _ = counted(lambda: out.sum().backward())
    first = tree.layers[0].attn  # type: ignore[attr-defined]
    assert 2 * forward - backward == sum(
        2 * B * T * int(getattr(first, x).weight.size) for x in "qkv"
    )


@pytest.mark.parametrize(
    "config",
    [x for x in tiny_configs() if x.id in ("llama-plain", "deepseek_v3-plain", "gpt2-plain")],
)
def test_fused_attention_recomputes_scores_in_backward(config: dict[str, Any]) -> None:
    """torch's formula for the backward pass of fused attention, from the shapes of q, k and v."""
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    tree = tree_of(config)
    attention = tree.layers[0].attn  # type: ignore[attr-defined]
    latent = isinstance(attention, LatentAttention)
    H, key = (
        int(attention.heads),
        int(attention.nope_dim + attention.rope_dim if latent else attention.head_dim),
    )
    value = int(attention.v_dim) if latent else key
    shapes = [(B, H, T, key), (B, H, T, key), (B, H, T, value)]
    graph, layers = record(tree, batch=B, new_tokens=T), int(tree.layers.n)
    mixing = forward_flops(graph, masked=False).mixing_total
    assert layers * sdpa_flop_count(*shapes) == mixing
    fused = train_flops(graph, masked=False, flash=True)
    backward = layers * sdpa_backward_flop_count((B, H, T, value), *shapes)
    assert backward == 2 * mixing + fused.rescored


def test_recurrent_mixer_flops_equal_their_products() -> None:
    """The recurrences of the delta rule and of Mamba-2 with each product as one matrix operation, counted by torch."""
    import torch

    for config in (
        x.values[0] for x in tiny_configs() if x.id in ("qwen3_next-plain", "nemotron_h-plain")
    ):
        graph, found = record(tree_of(config)), 0
        for times, x in nodes(graph, "gated_delta_rule"):
            Hv, hv, hk = int(x.shape[2]), int(x.shape[3]), int(x.inputs[1].shape[-1])
            S, k, q, v = (
                torch.zeros(Hv, *shape) for shape in ((hk, hv), (hk, 1), (hk, 1), (hv, 1))
            )
            found += (
                times * counted(lambda S=S, k=k, q=q, v=v: (S.mT @ k, S + k @ v.mT, S.mT @ q))[0]
            )  # type: ignore[misc]
        for times, x in nodes(graph, "ssm_scan"):
            H, m, N = int(x.shape[2]), int(x.shape[3]), int(x.inputs[1].shape[-1])
            S, b, c, u = (torch.zeros(H, *shape) for shape in ((m, N), (1, N), (N, 1), (m, 1)))
            found += times * counted(lambda S=S, b=b, c=c, u=u: (S + u @ b, S @ c))[0]  # type: ignore[misc]
        assert found == states(graph) > 0


def test_absorbed_latent_attention_flops_equal_their_products() -> None:
    """DeepSeek-V2's absorption: each head projects the query into the latent space, and the sum of latent vectors out of it."""
    import torch

    (config,) = [x.values[0] for x in tiny_configs() if x.id == "deepseek_v3-plain"]
    tree = tree_of(config)
    a = tree.layers[0].attn  # type: ignore[attr-defined]
    H, n, p, v, r = (int(x) for x in (a.heads, a.nope_dim, a.rope_dim, a.v_dim, a.kv_lora_rank))
    graph = record(tree, past_tokens=T - 1, decode=True)

    def attend() -> None:
        query, k_up, v_up = torch.zeros(H, 1, n), torch.zeros(H, n, r), torch.zeros(H, v, r)
        latent, turned, key = torch.zeros(T, r), torch.zeros(H, 1, p), torch.zeros(T, p)
        scores = query @ k_up @ latent.mT + turned @ key.mT
        _ = (scores @ latent) @ v_up.mT

    result, _ = counted(attend)
    assert result * int(tree.layers.n) == flops_of(graph, "attention") + flops_of(
        graph, "per_head_linear"
    )
