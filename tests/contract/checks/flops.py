"""FLOPs of a configuration against torch's FlopCounterMode on transformers' model: forward, backward, decode, and prompts in chunks.

Experts run as `batched_mm`, which computes only the chosen experts. The default `grouped_mm` is unknown to torch's counter, which then
counts no experts at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from llamath.analysis.graph.flop_count import forward_flops, train_flops
from llamath.analysis.graph.node import Node
from llamath.analysis.graph.operations.operation_list import OPERATIONS
from llamath.analysis.graph.recorder import Graph, record
from llamath.core.config import Config
from llamath.core.expr import product
from llamath.families.registry import find_family
from support.contract import Contract, check

B, T = 2, 9
NO_SDPA = frozenset(
    """bloom codegen deepseek_v4 falcon_mamba flint gemma2 gpt_neo gpt_neox_japanese gpt_oss gptj granite_swa granitemoe_swa
    hy_v4 mamba mamba2 mimo_v2_flash mpt openai-gpt vaultgemma xglm""".split()
)
"""Families that transformers runs only with eager attention, or that have no attention."""
UNCACHED = frozenset({"openai-gpt"})
"""Families whose classes have no cache, or keep states outside of it."""
RECURRENT = {
    "bailing_hybrid",
    "bamba",
    "falcon_h1",
    "falcon_mamba",
    "granitemoehybrid",
    "inkling_text",
    "jamba",
    "kimi_linear",
    "lfm2",
    "lfm2_moe",
    "lfm3",
    "mamba",
    "mamba2",
    "minimax",
    "nemotron_h",
    "olmo_hybrid",
    "qwen3_5_moe_text",
    "qwen3_5_text",
    "qwen3_next",
    "qwen4_exp_text",
    "zamba",
    "zamba2",
}
"""Families whose chunks transformers computes by algorithms of their own."""


def counted(work: Callable[[], Any]) -> tuple[int, Any]:
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


def every_expert(graph: Graph) -> int:
    """Llama 4 in transformers sends each token to all experts, and multiplies the outputs of those not chosen by 0."""
    experts = sum(int(moe.attributes["moe"].experts.n) * n for n, moe in nodes(graph, "dispatch"))
    chosen = sum(int(moe.attributes["moe"].top_k) * n for n, moe in nodes(graph, "dispatch"))
    return forward_flops(graph).of("experts") * (experts - chosen) // chosen


def conv_outputs(graph: Graph, more: Callable[[int], int]) -> int:
    """The FLOPs of a convolution that computes more outputs than it returns, by the size of its kernel."""
    weights = (
        (n, x.weights[0].shape)
        for n, x in nodes(graph, "causal_conv")
        if x.attributes["dilation"] == 1
    )
    return sum(
        2 * B * int(channels * kernel) * more(int(kernel)) * n for n, (channels, kernel) in weights
    )


def states(graph: Graph) -> int:
    return sum(
        flops_of(graph, op)
        for op in ("gated_delta_rule", "linear_attention", "selective_scan", "ssm_scan")
    )


def read_outs(graph: Graph) -> int:
    """The FLOPs of S c, which transformers computes as a product in scans of single tokens; only MiniMax's update of S is one, too."""
    return (flops_of(graph, "selective_scan") + flops_of(graph, "ssm_scan")) // 2 + flops_of(
        graph, "linear_attention"
    )


def in_chunks(graph: Graph, config: dict[str, Any]) -> int:
    """The FLOPs of transformers' chunked algorithms, with padded chunks; torch does not count triangular solves."""
    result, chunk = flops_of(graph, "selective_scan") // 2, 64  # S c of each token
    for times, x in nodes(graph, "gated_delta_rule"):
        Hv, hv, hk, n = int(x.shape[2]), int(x.shape[3]), int(x.inputs[1].shape[-1]), -(-T // chunk)
        by_pair = (
            2 * hk + 4 * hv if len(x.inputs[3].shape) == 4 else 4 * hk + 2 * hv
        )  # Kimi's products of q and k are no matrix products
        result += times * B * Hv * n * (chunk * chunk * by_pair + 6 * chunk * hk * hv)
    for times, x in nodes(graph, "linear_attention"):
        H, h, C = int(x.shape[2]), int(x.shape[3]), config.get("block_size", 256)
        result += (
            times
            * B
            * H
            * sum(
                4 * n * n * h + 4 * n * h * h
                for n in (min(C, T - first) for first in range(0, T, C))
            )
        )
    for times, x in nodes(graph, "ssm_scan"):
        H, m, N, C = (
            int(x.shape[2]),
            int(x.shape[3]),
            int(x.inputs[1].shape[-1]),
            128 if config["model_type"] == "nemotron_h" else 256,
        )
        n = -(-T // C)
        result += (
            times
            * B
            * H
            * (n * (2 * C * C * N + 2 * C * C * m + 4 * C * m * N) + 2 * (n + 1) ** 2 * m * N)
        )
    return result


def sums_over_heads(graph: Graph) -> int:
    """The FLOPs of an indexer's sums over heads for windows of tokens, which transformers does not compute as products."""
    found = (
        (n, x)
        for n, x in nodes(graph, "select_keys")
        if int(x.attributes["ratio"]) > 1 and len(x.inputs) > 2
    )
    return sum(
        2 * n * int(product((*x.shape[:2], x.inputs[0].shape[2], x.inputs[1].shape[1])))
        for n, x in found
    )


def unseen_windows(graph: Graph) -> int:
    """The FLOPs of scores of windows after a query, which Qwen4-Exp's class leaves out, query by query."""
    rule = OPERATIONS["select_keys"].flops
    assert rule is not None
    return sum(
        n * int(rule(x, False) - rule(x, True))
        for n, x in nodes(graph, "select_keys")
        if len(x.inputs) == 2
    )


def without_gradient(graph: Graph) -> int:
    """The FLOPs of indexers, which transformers runs without gradients."""
    rules = ((region, x, x.op.flops) for region, x in graph.nodes() if x.without_gradient)
    return sum(
        int(region.times) * int(rule(x, False)) for region, x, rule in rules if rule is not None
    ) - sums_over_heads(graph)


def total_flops(graph: Graph, config: dict[str, Any]) -> int:
    """The FLOPs of a pass without recurrent states, as transformers computes it."""
    every = every_expert(graph) if config["model_type"] == "llama4_text" else 0
    return (
        int(forward_flops(graph, masked=False).total)
        - states(graph)
        - sums_over_heads(graph)
        - unseen_windows(graph)
        + every
    )


@contextmanager
def computed_as(case: Contract, attention: str) -> Iterator[Any]:
    """transformers' model with this attention, and with batches of the chosen experts."""
    theirs = case.pair.theirs
    before = theirs.config._attn_implementation
    theirs.set_attn_implementation(attention)
    theirs.set_experts_implementation("batched_mm")
    try:
        yield theirs
    finally:
        theirs.set_attn_implementation(before)
        theirs.set_experts_implementation("eager")
        theirs.zero_grad()


def ids() -> torch.Tensor:
    return torch.randint(0, 20, (B, T), generator=torch.Generator().manual_seed(0))


@check("text", computed=True, new=True)
def forward_and_backward_flops_equal_torch(case: Contract) -> None:
    graph, tokens = record(case.tree, batch=B, new_tokens=T), ids()
    padding = conv_outputs(graph, lambda kernel: kernel - 1)  # a convolution padded on both sides
    expected = total_flops(graph, case.config) + in_chunks(graph, case.config) + padding
    for attention in (
        "eager",
        *(["sdpa"] if case.is_new and case.model_type not in NO_SDPA else []),
    ):
        with computed_as(case, attention) as model:
            forward, out = counted(lambda model=model: model(tokens, use_cache=False).logits)  # type: ignore[misc]
            assert forward == expected, attention
            if not states(graph) and not padding and case.is_thorough:
                backward, _ = counted(lambda out=out: out.sum().backward())  # type: ignore[misc]
                assert backward == 2 * (forward - without_gradient(graph)), attention
                if case.model_type != "llama4_text":
                    assert forward + backward == train_flops(
                        graph, masked=False
                    ).model - sums_over_heads(graph), attention


@contextmanager
def without_gradients(model: torch.nn.Module) -> Iterator[None]:
    trained = [x for x in model.parameters() if x.requires_grad]
    model.requires_grad_(False)
    with torch.no_grad():
        yield
    for x in trained:
        x.requires_grad_(True)


def cached_pass(case: Contract, new_tokens: int) -> int:
    """The FLOPs of the last tokens in transformers, after the others."""
    tokens = ids()
    with (
        computed_as(case, "eager" if case.model_type in NO_SDPA else "sdpa") as model,
        without_gradients(model),
    ):
        name = "cache_params" if "mamba" in case.model_type else "past_key_values"
        cache = {name: model(tokens[:, :-new_tokens], use_cache=True)[name]}
        result, _ = counted(lambda: model(tokens[:, -new_tokens:], use_cache=True, **cache))
    return result


def as_cached(case: Contract) -> Any:
    """The tree as transformers caches it: GPT-Neo keeps every token, and masks those outside its windows."""
    return (
        find_family(case.model_type)(Config({**case.config, "window_size": T}))
        if case.model_type == "gpt_neo"
        else case.tree
    )


@check("text", computed=True)
def decode_and_chunk_flops_equal_torch(case: Contract) -> None:
    """With latent attention, transformers expands the cached latent vectors of all tokens again for each new token."""
    if not case.is_new or case.model_type in UNCACHED:
        return
    tree = as_cached(case)
    graph = record(tree, batch=B, new_tokens=1, past_tokens=T - 1)
    assert cached_pass(case, 1) == total_flops(graph, case.config) + read_outs(
        graph
    ) + conv_outputs(graph, lambda _: 1)
    if case.model_type not in RECURRENT:
        graph = record(tree, batch=B, new_tokens=4, past_tokens=T - 4)
        assert cached_pass(case, 4) == total_flops(graph, case.config)
