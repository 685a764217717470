"""Each operation's FLOPs and cache: compared with torch's counter, with masks that are written out, and with caches of other engines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.graph.operations.pair_counts import (
    pairs_in_blocks,
    pairs_in_window,
    windows_seen,
)
from llamath.analysis.graph.recorder import Graph, record
from llamath.analysis.size.memory.cache_bytes import cache_specs
from llamath.core.attention_facts import AttentionWindow
from llamath.core.expr import Expr
from support.reference_data import tiny_configs


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, 60),
    st.integers(1, 60),
    st.one_of(st.none(), st.integers(1, 70)),
    st.one_of(st.none(), st.integers(1, 70)),
    st.booleans(),
)
@pytest.mark.slow
def test_attended_pairs_match_the_mask(
    past: int, new: int, window: int | None, chunk: int | None, causal: bool
) -> None:
    if window is not None or not causal:
        chunk = None
    if not causal:
        past = 0

    def sees(query: int, key: int) -> bool:
        if chunk is not None:
            return key <= query and key // chunk == query // chunk
        near = window is None or abs(query - key) < window
        return near and (key <= query or not causal)

    expected = sum(
        sees(query, key) for query in range(past, past + new) for key in range(past + new)
    )
    pairs = pairs_in_window(
        AttentionWindow(size=window, chunk=chunk, causal=causal),
        Expr.variable("T", 1),
        Expr.variable("P", 0),
    )
    assert pairs.at(T=new, P=past) == expected


@given(n=st.integers(0, 60), size=st.integers(1, 7), kept=st.integers(1, 5))
@pytest.mark.slow
def test_pairs_in_selected_blocks_match_a_count(n: int, size: int, kept: int) -> None:
    expected = sum(min(query // size, kept - 1) * size + query % size + 1 for query in range(n))
    assert pairs_in_blocks((size, kept), Expr.variable("T", 1)).at(T=n) == expected


@given(
    n=st.integers(1, 200),
    past=st.integers(0, 200),
    ratio=st.integers(2, 9),
    most=st.none() | st.integers(1, 20),
)
@pytest.mark.slow
def test_windows_of_tokens_match_a_count(n: int, past: int, ratio: int, most: int | None) -> None:
    seen = [(query + 1) // ratio for query in range(past, past + n)]
    expected = sum(x if most is None else min(x, most) for x in seen)
    new, before = Expr.variable("T", 7), Expr.variable("P", 3)
    assert windows_seen(ratio, new, before, most).at(T=n, P=past) == expected
    one = windows_seen(ratio, Expr.const(1), before, most).at(P=past)
    assert one == (seen[0] if most is None else min(seen[0], most))


@pytest.mark.slow
def test_matmul_flops_equal_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    graph = record(
        llamath.load(next(x for x in tiny_configs() if x.id == "deepseek_v3-plain").values[0]).tree,
        batch=2,
        new_tokens=5,
    )
    checked = set()
    for _, node in graph.nodes():
        if node.op.name == "linear":
            x, weight = (
                torch.zeros(*map(int, shape))
                for shape in (node.inputs[0].shape, node.weights[0].shape)
            )
            with FlopCounterMode(display=False) as counter:
                torch.nn.functional.linear(x, weight)
        elif node.op.name == "attention":
            q, k, v = (torch.zeros(*map(int, x.shape)).transpose(1, 2) for x in node.inputs)
            with FlopCounterMode(display=False) as counter:
                (q @ k.mT).softmax(-1) @ v
        else:
            continue
        checked.add(node.op.name)
        assert node.op.flops(node, False) == counter.get_total_flops()  # type: ignore[misc]
    assert checked == {"linear", "attention"}


@pytest.mark.parametrize("slug", ["qwen3-next-80b-a3b", "nemotron-3-nano-30b", "lfm2-1.2b"])
def test_tensor_parallelism_divides_recurrent_states(slug: str) -> None:
    """As vLLM does: MambaStateShapeCalculator in vllm/model_executor/layers/mamba/mamba_utils.py."""
    graph = record(llamath.load(slug).tree)
    for one, two in zip(cache_specs(graph), cache_specs(graph, tp=2), strict=True):
        assert int(one.state or 0) == 2 * int(two.state or 0) and int(
            one.conv_state or 0
        ) == 2 * int(two.conv_state or 0)


def test_more_ranks_than_heads_keep_copies() -> None:
    (whole,), (rank,) = (cache_specs(record(llamath.load("llama-3-8b").tree), tp) for tp in (1, 32))
    assert [8 * int(x) for x in rank.rows] == [int(x) for x in whole.rows]
    (latent,), (rank,) = (
        cache_specs(record(llamath.load("deepseek-v3").tree), tp) for tp in (1, 32)
    )
    assert latent == rank


def test_layers_that_share_keys_and_values_cache_none() -> None:
    (config,) = (
        x.values[0]
        for x in tiny_configs()
        if x.id == "gemma4-per-layer inputs, borrowed keys, wide"
    )
    tree = llamath.load(config).tree
    assert sum(int(x.layers) for x in cache_specs(record(tree))) < tree.layers.n


def test_recording_again_gives_the_same_graph() -> None:
    def facts(graph: Graph) -> list[tuple[str, str, str]]:
        return [(x.op.name, x.path, " ".join(n.symbol for n in x.shape)) for _, x in graph.nodes()]

    tree = llamath.load("qwen3-next-80b-a3b").tree
    assert facts(record(tree)) == facts(record(tree))
