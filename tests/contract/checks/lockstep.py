"""The recorded graph and the torch machine execute the same operations, with the same shapes, views and FLOPs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from llamath.analysis.graph.node import Node
from llamath.analysis.graph.operations.attention_operations import update_cache
from llamath.analysis.graph.operations.shape_operations import layers, merge_heads
from llamath.analysis.graph.recorder import Graph, record
from llamath.analysis.graph.walkthrough import reads_on
from llamath.core.expr import total
from llamath.torch import Decoder, build, initialize
from llamath.torch.debug.operation_log import LoggedOperation, OperationLog
from llamath.torch.kv_cache import Cache
from support.contract import Contract, check

BATCH, PROMPT, CHUNK, CAPACITY = 2, 7, 5, 16


def passes(cached: bool) -> tuple[tuple[int, int], ...]:
    """Return past and new tokens of the passes: a prompt, a chunk and one token."""
    return ((0, PROMPT), (PROMPT, CHUNK), (PROMPT + CHUNK, 1)) if cached else ((0, PROMPT),)


def execute(module: Decoder, cache: Cache, tokens: int) -> Sequence[LoggedOperation]:
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
        if node.op is layers:
            for block in graph.tree.layers:
                yield from regions[id(block)].nodes
        yield node


def compare(
    graph: Graph, log: Sequence[LoggedOperation], past: int, tokens: int, cached: bool
) -> None:
    """Compare a graph with executed operations; without a cache, keys and values are passed on as they are."""
    nodes = list(nodes_in_order(graph))
    assert [x.op for x in nodes] == [x.op for x in log]
    for node, executed in zip(nodes, log, strict=True):
        shape = tuple(int(x.at(B=BATCH, T=tokens, P=past)) for x in node.shape)
        assert executed.shape == shape and executed.width == node.width, node
        # torch copies heads that attention or a recurrence returned transposed
        if node.op is not merge_heads and (cached or node.op is not update_cache):
            assert executed.is_view == node.is_view, node


@check("text", "unproven", computed=True, new=True)
@torch.inference_mode()
def graph_and_torch_run_in_lockstep(case: Contract) -> None:
    cached = reads_on(case.tree)
    for dtype in (torch.bfloat16, *([torch.float32] if case.is_thorough else [])):
        module = (
            case.module if dtype == torch.float32 else initialize(build(case.tree, dtype), std=0.1)
        )
        cache = module.new_cache(CAPACITY if cached else 0)
        for past, tokens in passes(cached):
            graph = record(
                case.tree,
                new_tokens=9,
                past_tokens=4,
                decode=tokens == 1,
                activation_bytes=dtype.itemsize,
            )
            compare(graph, execute(module, cache, tokens), past, tokens, cached)


@check("text", "unproven", computed=True)
@torch.inference_mode()
def flops_of_every_pass_equal_torch(case: Contract) -> None:
    """But for recurrences, whose chunks have other products (tests/run/test_operations.py); in
    `flops`, torch counts later passes of the models that transformers has.
    """
    if not case.is_new or any(node.op.has_state for _, node in record(case.tree).nodes()):
        return
    cached = reads_on(case.tree)
    cache = case.module.new_cache(CAPACITY if cached else 0)
    for past, tokens in passes(cached and case.kind == "unproven"):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            case.module(torch.arange(BATCH * tokens).reshape(BATCH, tokens) % 7, cache)
        graph = record(case.tree, decode=tokens == 1)
        flops = total(
            region.times * rule(x, False) for region, x in graph.nodes() if (rule := x.op.flops)
        )
        expected, found = flops.at(B=BATCH, T=tokens, P=past), counter.get_total_flops()
        # experts without weights compute nothing
        assert 0 < found <= expected if case.config.get("zero_expert_num") else found == expected
