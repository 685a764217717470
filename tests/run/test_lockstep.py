"""The recorded graph and the torch machine execute the same operations: for every family, with the same shapes and the same views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from llamath import run
from llamath.analysis.graph.recorder import Graph, Node, record
from llamath.analysis.graph.rules import RULES
from llamath.analysis.graph.walkthrough import reads_on
from llamath.core.expr import total
from llamath.run.debug.operation_log import LoggedOperation, OperationLog
from llamath.run.kv_cache import Cache
from support.reference_data import tiny_configs, unproven_configs

BATCH, PROMPT, CHUNK, CAPACITY = 2, 7, 5, 16
RECURRENCES = frozenset(("gated_delta_rule", "linear_attention", "selective_scan", "ssm_scan"))
COPIED = frozenset(("merge_heads",))
"""Views of the graph that torch copies where attention or a recurrence returned its heads transposed."""


def execute(module: run.Decoder, cache: Cache, tokens: int) -> Sequence[LoggedOperation]:
    """Run one pass and return its operations."""
    ids = torch.arange(BATCH * tokens).reshape(BATCH, tokens) % 7
    cache.reserve(tokens, None)
    machine = OperationLog(ids, cache)
    module.compute(machine, ids)
    cache.length += tokens
    return machine.log


def nodes_in_order(graph: Graph) -> Iterator[Node]:
    """Yield the nodes of every layer in execution order."""
    regions = {id(x.block): x for x in graph.layers}
    for node in graph.regions[0].nodes:
        if node.op == "layers":
            for block in graph.tree.layers:
                yield from regions[id(block)].nodes
        yield node


def check(graph: Graph, log: Sequence[LoggedOperation], past: int, tokens: int, cached: bool = True) -> None:
    """Compare a graph with executed operations; without a cache, keys and values are passed on as they are."""
    nodes = list(nodes_in_order(graph))
    assert [x.op for x in nodes] == [x.op for x in log]
    for node, executed in zip(nodes, log, strict=True):
        shape = tuple(int(x.at(B=BATCH, T=tokens, P=past)) for x in node.shape)
        assert executed.shape == shape and executed.width == node.width, node
        if node.op not in COPIED and (cached or node.op != "update_cache"):
            assert executed.is_view == node.is_view, node


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", tiny_configs(computed=True) + unproven_configs(computed=True))
def test_graph_and_torch_run_in_lockstep(config: dict[str, Any], dtype: torch.dtype) -> None:
    tree = llamath.load(config).tree
    module = run.initialize(run.build(tree, dtype), std=0.1)
    cached = reads_on(tree)
    cache = module.new_cache(CAPACITY if cached else 0)
    with torch.inference_mode():
        for past, tokens in ((0, PROMPT), (PROMPT, CHUNK), (PROMPT + CHUNK, 1)) if cached else ((0, PROMPT),):
            graph = record(tree, new_tokens=9, past_tokens=4, decode=tokens == 1, activation_bytes=dtype.itemsize)
            check(graph, execute(module, cache, tokens), past, tokens, cached)


@pytest.mark.parametrize("config", tiny_configs(computed=True) + unproven_configs(computed=True))
def test_flops_of_every_pass_equal_torch(config: dict[str, Any]) -> None:
    """But for recurrences, whose chunks have other products (test_operations.py)."""
    tree = llamath.load(config).tree
    if any(node.op in RECURRENCES for _, node in record(tree).nodes()):
        return
    module = run.initialize(run.build(tree), std=0.1)
    cache = module.new_cache(CAPACITY if reads_on(tree) else 0)
    with torch.inference_mode():
        for past, tokens in ((0, PROMPT), (PROMPT, CHUNK), (PROMPT + CHUNK, 1)) if reads_on(tree) else ((0, PROMPT),):
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                module(torch.arange(BATCH * tokens).reshape(BATCH, tokens) % 7, cache)
            graph = record(tree, decode=tokens == 1)
            flops = total(region.times * rule(x, False) for region, x in graph.nodes() if (rule := RULES[x.op].flops))
            expected = flops.at(B=BATCH, T=tokens, P=past)
            if config.get("zero_expert_num"):  # experts without weights compute nothing
                assert 0 < counter.get_total_flops() <= expected
            else:
                assert counter.get_total_flops() == expected
